"""Packages that a program asks for, in runs on this machine: in the run's own environment, installed once."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.local.command_line import CommandLine
from tests.local.machine import linux_only
from tests.wheels import wheel
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event, Record

pytestmark = linux_only

PROGRAM = """
import spare  # no package of the launcher's own environment
import tensorflow as tf


class Program:
    def __init__(self, parameters):
        pass

    def model(self):
        model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def train_dataset(self, batch_size):
        labels = float(spare.VERSION) * tf.ones((8, 1))
        return tf.data.Dataset.from_tensor_slices((tf.ones((8, 1)), labels)).batch(batch_size)
"""


@pytest.fixture
def run(command: CommandLine, tmp_path: Path) -> Any:
    """Runs a program with packages, and returns the exit code, what was printed and the tasks' records."""
    wheel(tmp_path / "wheels", "spare", "2.0")
    (command.directory / "train.py").write_text(PROGRAM)
    document: dict[str, Any] = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "packed"},
        "spec": {
            "strategy": "MultiWorkerMirrored",
            "worker": {"replicas": 2},
            "program": {
                "source": "train.py",
                "entrypoint": "train:Program",
                "parameters": {"epochs": 1, "globalBatchSize": 4},
            },
            "template": {
                "env": [
                    {"name": "PIP_NO_INDEX", "value": "1"},
                    {"name": "PIP_FIND_LINKS", "value": str(tmp_path / "wheels")},
                ]
            },
        },
    }

    def go(*packages: str, verb: tuple[str, ...] = ("submit", "--backend", "local")) -> Any:
        document["spec"]["program"]["packages"] = list(packages)
        (command.directory / "cluster.yaml").write_text(json.dumps(document))
        return command(verb[0], "cluster.yaml", *verb[1:])

    return go


@pytest.mark.thorough
def test_they_are_installed_once_and_beside_this_environment(run: Any, command: CommandLine) -> None:
    ran = run("spare==2.0")
    assert ran.code == 0, ran.out + ran.err
    assert importlib.util.find_spec("spare") is None
    lines = command.good("logs", "packed", "--raw").splitlines()
    assert sum("Successfully installed spare-2.0" in line for line in lines) == 1
    records = [record for line in lines if (record := Record.parse(line)) is not None]
    activities = [record.fields["activity"] for record in records if record.event == Event.DOING]
    assert activities.count("installing 1 package") == 1
    assert "waiting for the packages, which another task installs" in activities


@pytest.mark.thorough
def test_what_cannot_be_installed_ends_the_run_at_once(run: Any, command: CommandLine) -> None:
    ran = run("numpy==1.1")
    assert ran.code != 0
    assert "the file asks for numpy==1.1; the image has numpy==" in ran.out
    records = [Record.parse(line) for line in command.good("logs", "packed", "--raw").splitlines()]
    failed = [record.fields for record in records if record is not None and record.event == Event.FAILED]
    assert {fields["exit_code"] for fields in failed} == {int(ExitCode.PROGRAM_ERROR)}
    assert len(failed) <= 2, "each of two tasks once"


@pytest.mark.thorough
def test_an_import_before_the_run_has_them_too(run: Any) -> None:
    ran = run("spare==2.0", verb=("validate", "--import"))
    assert ran.code == 0, ran.out + ran.err
