"""Pods measure their nodes before they train, and without a training."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kind.runs import Runs

CLUSTER = """\
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {name: measured}
spec:
  strategy: ParameterServer
  program: {script: ./train.py}
  template: {resources: {cpu: 100m, memory: 1Gi}}
  worker: {replicas: 2}
  ps: {replicas: 1}
  precheck: {exclude: true}
"""
SCRIPT = """\
import keras
import numpy as np

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((64, 4)), np.ones(64), batch_size=16, epochs=2)
"""


def test_each_task_measures_before_it_trains(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "train.py").write_text(SCRIPT)
    runs.submit(file=tmp_path / "cluster.yaml")
    output = runs.succeeds("measured")
    assert "precheck of 4 tasks: " in output
    assert "GFLOP/s; disk write " in output
    tasks = json.loads(runs.of("status", "-o", "json", run="measured").stdout)["status"]["tasks"]
    assert [0 < task["precheck"]["seconds"] <= 20 for task in tasks] == [True] * 4


def test_the_nodes_are_measured_without_a_training(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "train.py").write_text(SCRIPT)
    names = {node["metadata"]["name"] for node in runs.api.request("GET", "api/v1/nodes").body["items"]}
    done = runs.launcher("doctor", str(tmp_path / "cluster.yaml"), "--nodes", *runs.settings(claim=False))
    assert done.returncode == 0, done.stderr
    headings, *lines = done.stdout.splitlines()
    assert headings.split()[:2] == ["NODE", "GFLOP/s"]
    assert {line.split()[0] for line in lines[: lines.index("")]} <= names
    assert runs.left() == []
