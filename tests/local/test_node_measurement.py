"""Nodes that are measured by a run of their own: three pods on this machine, which stand for three nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher import node_measurement
from launcher.backends.local.backend import LocalBackend
from launcher.cli import plain_table
from launcher.errors import BackendError
from launcher.validation import loader
from launcher.validation.loader import Loaded

CLUSTER = """\
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {name: demo}
spec:
  strategy: ParameterServer
  image: registry.example/team/train:1
  program: {script: ./train.py}
  modelDir: /model
  storage: {size: 10Gi}
  template: {tolerations: [{key: gpu, operator: Exists}]}
  worker:
    replicas: 2
    nodeSelector: {pool: training}
    affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}
  ps: {replicas: 1}
  evaluator: {}
"""


def loaded(directory: Path, *overrides: str) -> Loaded:
    (directory / "cluster.yaml").write_text(CLUSTER)
    (directory / "train.py").write_text("raise SystemExit('not run')\n")
    (one,) = loader.load(str(directory / "cluster.yaml"), overrides)
    return one


def test_each_node_is_measured_and_nothing_stays(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path / "runs")
    sentences: list[str] = []
    measured = node_measurement.measure(backend, loaded(tmp_path), "default", 3, sentences.append)
    assert [each.node for each in measured] == ["localhost"] * 3
    headings, *rows = node_measurement.rows(measured)
    assert headings == ["NODE", "GFLOP/s", "DISK WRITE", "DISK READ", "NETWORK", "LATENCY"]
    assert all(all(row[:4]) for row in rows)
    assert all(row[4:] == ["", ""] for row in rows)  # within a node
    assert len(list(plain_table.lines([headings, *rows]))) == 4
    assert "measures 3 nodes" in sentences[0]
    assert backend.names("default") == []


def test_its_pods_are_like_a_worker_and_each_has_a_node_of_its_own(tmp_path: Path) -> None:
    spec = node_measurement.measuring_run(loaded(tmp_path), 3).cluster.spec
    assert (spec.image, spec.model_dir, spec.storage) == ("registry.example/team/train:1", None, None)
    assert spec.ps is spec.evaluator is None
    assert spec.worker is not None
    assert (spec.worker.replicas, spec.worker.node_selector) == (3, {"pool": "training"})
    assert spec.template.tolerations[0]["key"] == "gpu"
    (apart,) = spec.worker.affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"


def test_a_bucket_is_measured_too(tmp_path: Path) -> None:
    overrides = (
        "spec.program={entrypoint: 'demo:Demo'}",
        "spec.modelDir=s3://team/model",
        "spec.storage={endpoint: http://minio:9000}",
    )
    spec = node_measurement.measuring_run(loaded(tmp_path, *overrides), 3).cluster.spec
    assert spec.model_dir == "s3://team/model"
    assert spec.storage is not None
    assert spec.storage.endpoint == "http://minio:9000"


def test_pods_that_measure_nothing_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_LAUNCHER_PYTHON", "/bin/false")
    backend = LocalBackend(tmp_path / "runs")
    with pytest.raises(BackendError, match="no node could be measured"):
        node_measurement.measure(backend, loaded(tmp_path), "default", 2, lambda _: None)
    assert backend.names("default") == []
