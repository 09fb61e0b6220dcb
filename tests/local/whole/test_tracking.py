"""Real runs of this machine in a real MLflow server, which `pip install mlflow` brings along.

Its command is on the PATH, or LAUNCHER_TEST_MLFLOW names it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.machine import eventually, linux_only
from tests.local.whole.test_demo import Demo
from tests.paths import ROOT
from worker.contract.records import Event

pytestmark = linux_only

FILE = """
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {{name: tracked}}
spec:
  strategy: MultiWorkerMirrored
  program: {program}
  modelDir: /model
  checkpoints: {{everySeconds: 1}}
  worker: {{replicas: 2}}
  evaluator: {{}}
  tracking: {{mlflow: {{uri: "http://127.0.0.1:{port}", experiment: planes}}}}
"""
TINY = (
    "{source: ./tiny.py, entrypoint: 'tiny:Tiny', "
    "parameters: {epochs: 1000, stepsPerEpoch: 20, globalBatchSize: 20, waitMilliseconds: 80}}"
)
SCRIPT = """
import os
import mlflow
import wandb
import numpy as np
import tensorflow as tf

with mlflow.start_run() as run, wandb.init(project="planes", dir=os.environ["WANDB_TEST"]) as other:
    mlflow.log_metric("own", 7.0)
    print("joined", run.info.run_id, other.id, other.disabled, flush=True)
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones([64, 2]), np.ones([64, 1]), batch_size=16, epochs=2, verbose=0)
"""


class Server:
    """MLflow's server on a port of its own; it is asked by its API."""

    def __init__(self, command: str, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._command, self._folder = command, folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        options += ["--backend-store-uri", f"sqlite:///{self._folder / 'mlflow.db'}"]
        with (self._folder / "server.log").open("w") as log:
            self._process = subprocess.Popen(
                [self._command, "server", *options],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        eventually(self.answers, "MLflow answers")

    def stop(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(30)

    def answers(self) -> bool:
        try:
            return self.runs() is not None
        except OSError:
            return False

    def ask(self, path: str, document: dict[str, Any] | None = None) -> Any:
        body = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/2.0/mlflow/{path}", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def runs(self) -> list[Any]:
        experiments = self.ask("experiments/search", {"max_results": 10})["experiments"]
        numbers = [each["experiment_id"] for each in experiments]
        return list(self.ask("runs/search", {"experiment_ids": numbers}).get("runs", []))

    def history(self, metric: str) -> list[tuple[int, float]]:
        """Returns step and value of the one run's metric, in the order in which they came."""
        for run in self.runs():
            query = urllib.parse.urlencode({"run_id": run["info"]["run_id"], "metric_key": metric})
            entries = self.ask(f"metrics/get-history?{query}").get("metrics", [])
            return [(each.get("step", 0), each["value"]) for each in entries]
        return []


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    command = os.environ.get("LAUNCHER_TEST_MLFLOW") or shutil.which("mlflow")
    if command is None:
        pytest.skip("no mlflow on the PATH, and LAUNCHER_TEST_MLFLOW names none")
    (tmp_path / "mlflow").mkdir()
    server = Server(command, tmp_path / "mlflow")
    yield server
    server.stop()


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    yield demo
    demo.launcher("delete", "tracked")
    assert demo.tasks() == []


def submit(demo: Demo, *options: str) -> None:
    done = demo.launcher("submit", "cluster.yaml", "--backend", "local", "--allow-network", *options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_server_that_comes_late_has_all_values_and_a_restart_goes_on_with_the_run(
    demo: Demo, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "cluster.yaml").write_text(FILE.format(program=TINY, port=server.port))
    shutil.copy(ROOT / "tests" / "worker" / "programs" / "tiny.py", tmp_path)
    submit(demo, "--detach")

    def epochs() -> list[int]:
        records = demo.records("worker", event=Event.PROGRESS, run="tracked")
        return [each.fields["epoch"] for each in records if each.fields["epoch_end"]]

    eventually(lambda: len(epochs()) >= 1, "it trains without the server")
    server.start()
    eventually(lambda: len(server.history("epoch_loss")) >= 3, "epochs are logged")
    eventually(lambda: len(server.history("evaluation_loss")) >= 1, "evaluations are logged")
    notices = demo.records("worker", event=Event.NOTICE, run="tracked")
    messages = [each.fields["message"] for each in notices if "MLflow" in each.fields["message"]]
    assert len(messages) == 1
    assert "Connection refused" in messages[0]
    assert "the training goes on" in messages[0]

    before = epochs()[-1]
    assert demo.launcher("kill", "tracked", "worker-0").returncode == 0
    eventually(lambda: server.history("epoch_loss")[-1][0] > before + 2, "the run goes on")
    for metric in ("loss", "epoch_loss", "epoch_mae", "evaluation_loss"):
        steps = [step for step, _ in server.history(metric)]
        assert steps == sorted(set(steps)), metric
    assert [step for step, _ in server.history("epoch_loss")][:3] == [1, 2, 3]
    (run,) = server.runs()
    assert (run["info"]["run_name"], run["info"]["status"]) == ("tracked", "RUNNING")
    parameters = {each["key"]: each["value"] for each in run["data"]["params"]}
    assert parameters["waitMilliseconds"] == "80"


@pytest.mark.thorough  # each task installs two packages
def test_a_scripts_own_calls_log_once(demo: Demo, server: Server, tmp_path: Path) -> None:
    server.start()
    program = "{script: ./train.py, source: ./train.py, keras: 2, packages: [mlflow-skinny, wandb]}"
    (tmp_path / "cluster.yaml").write_text(FILE.format(program=program, port=server.port))
    (tmp_path / "train.py").write_text(SCRIPT)
    kept = tmp_path / "wandb"
    kept.mkdir()
    env = [{"name": "WANDB_MODE", "value": "offline"}, {"name": "WANDB_TEST", "value": str(kept)}]
    submit(demo, "--set", f"spec.template={json.dumps({'env': env})}")
    (run,) = server.runs()
    assert run["info"]["status"] == "FINISHED"
    tags = {each["key"]: each["value"] for each in run["data"]["tags"]}
    assert tags["tf-launcher.model_directory"].endswith("/tracked-model")
    assert server.history("own") == [(0, 7.0)]
    assert [step for step, _ in server.history("epoch_loss")] == [1, 2]
    output = demo.launcher("logs", "tracked", "--role", "worker").stdout
    joined = f"joined {run['info']['run_id']} {tags['tf-launcher.run_id']} False"
    assert output.count("joined ") == 2
    assert output.count(joined) == 1
    assert len(list(kept.rglob("*.wandb"))) == 1
