"""A real Prometheus scrapes a real run of this machine, over the kill of a training process."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.local.machine import eventually, linux_only
from tests.local.whole.test_demo import Demo
from tests.paths import ROOT
from worker.contract.records import PARTS

pytestmark = linux_only

FILE = """
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {name: watched}
spec:
  strategy: MultiWorkerMirrored
  program:
    source: ./tiny.py
    entrypoint: tiny:Tiny
    parameters: {epochs: 1000, stepsPerEpoch: 20, globalBatchSize: 20, waitMilliseconds: 80}
  modelDir: /model
  checkpoints: {everySeconds: 1}
  worker: {replicas: 2}
  monitoring:
    port: 9100
    from: [{namespaceSelector: {}}]
"""
CONFIGURATION = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: tf-launcher
    file_sd_configs: [{{files: ["{targets}/*.json"], refresh_interval: 1s}}]
"""


class Prometheus:
    """A server, asked by its API."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(
            f"{self._url}/{path}?{urllib.parse.urlencode(query)}", timeout=20
        ) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> dict[str, float]:
        """Returns the values by task, and where there is a cause or part, by that."""
        values = {}
        for each in self.get("query", query=expression)["result"]:
            labels = each["metric"]
            key = labels.get("cause") or labels.get("part") or labels.get("task", "")
            values[key] = float(each["value"][1])
        return values

    def is_of_the_first(self, metric: str) -> bool:
        """Returns whether the first task has the metric, and no other."""
        return self.query(metric).keys() == {"watched-worker-0"}


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    yield demo
    demo.launcher("delete", "watched")
    assert demo.tasks() == []


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("no prometheus on the PATH (Debian has the package)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "prometheus.yml").write_text(
        CONFIGURATION.format(targets=tmp_path / "tf-launcher" / "targets")
    )
    arguments = [
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (tmp_path / "prometheus.log").open("w") as log:
        process = subprocess.Popen([binary, *arguments], stdout=log, stderr=log)
    try:
        eventually(lambda: answers(port), "Prometheus is ready")
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(20)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_prometheus_scrapes_a_run_and_a_kill_is_a_number(
    demo: Demo, prometheus: Prometheus, tmp_path: Path
) -> None:
    (tmp_path / "cluster.yaml").write_text(FILE)
    shutil.copy(ROOT / "tests" / "worker" / "programs" / "tiny.py", tmp_path)
    started = demo.launcher("submit", "cluster.yaml", "--backend", "local", "--detach")
    assert started.returncode == 0, started.stdout + started.stderr
    tasks = {"watched-worker-0", "watched-worker-1"}
    eventually(lambda: prometheus.query("tf_launcher_steps_total").keys() == tasks, "both tasks are scraped")

    def is_trained() -> bool:
        rates = prometheus.query("rate(tf_launcher_steps_total[5s])")
        return rates.keys() == tasks and min(rates.values()) > 1

    eventually(is_trained, "steps are counted")
    examples = prometheus.query("tf_launcher_examples_total / tf_launcher_steps_total")
    assert examples == dict.fromkeys(tasks, 10.0)  # each has half of a batch
    eventually(lambda: min(prometheus.query("tf_launcher_steps_total").values()) > 100, "many steps")
    parts = prometheus.query("sum by (part) (tf_launcher_step_seconds_total)")
    assert parts.keys() == set(PARTS)
    assert parts["input"] > 0.5  # of 100 batches that come after 80 ms each
    for name in (
        "loss",
        "metric",
        "epoch",
        "steps_per_second",
        "checkpoint_age_seconds",
        "checkpoint_write_seconds",
    ):
        eventually(partial(prometheus.is_of_the_first, f"tf_launcher_{name}"), name)
    assert prometheus.query("tf_launcher_workers") == dict.fromkeys(tasks, 2.0)
    assert min(prometheus.query("tf_launcher_memory_bytes").values()) > 50 << 20
    assert {each["health"] for each in prometheus.get("targets")["activeTargets"]} == {"up"}

    victim = max(demo.tasks("worker", 1))
    os.kill(victim, signal.SIGKILL)
    eventually(
        lambda: prometheus.query('tf_launcher_restarts_total{task="watched-worker-1"}').get("SIGKILL") == 1.0,
        "the kill",
    )
    lost = 'tf_launcher_restarts_total{task="watched-worker-0"}'
    eventually(lambda: prometheus.query(lost).get("lost task") == 1.0, "the other has lost it")
    eventually(is_trained, "they go on")
    _check_by_promtool(prometheus)

    named = re.search(r"^metrics: (\S+\.json) ", started.stdout + started.stderr, re.MULTILINE)
    assert named
    targets = Path(named[1].replace("~", str(Path.home())))
    assert len(json.loads(targets.read_text())[0]["targets"]) == 2
    demo.launcher("delete", "watched")
    assert not targets.exists()


def _check_by_promtool(prometheus: Prometheus) -> None:
    """Has Prometheus' own tool look for mistakes, where there is one."""
    promtool = shutil.which("promtool")
    if promtool is None:
        return
    url = prometheus.get("targets")["activeTargets"][0]["scrapeUrl"]
    with urllib.request.urlopen(url, timeout=20) as answer:
        text = answer.read()
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
