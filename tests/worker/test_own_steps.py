"""Models of Keras 2 with steps of their own class: each strategy reports what one process does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.worker.cluster import PROGRAMS, ROOT
from tests.worker.conftest import MakeCluster
from worker.contract import Event

PARAMETERS = {"epochs": 2, "globalBatchSize": 8, "stepsPerEpoch": 5}
"""As in own_steps.py, all batches of the data. To import it here would import TensorFlow, too."""
OPTIONS: dict[str, dict[str, Any]] = {
    "Mirrored": {
        "strategy": "Mirrored",
        "replicas": {"chief": 1},
        "strategy_options": {"logicalCpus": 2},
    },
    "MultiWorkerMirrored": {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}},
    # One worker, whose updates come in the order of one process.
    "ParameterServer": {"strategy": "ParameterServer", "replicas": {"chief": 1, "worker": 1, "ps": 1}},
}


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, float]]:
    """What `Model.fit` in one process gives for the last epoch, by the programs' names."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_USE_LEGACY_KERAS": "1"}
    found = {}
    for name in ("Encoding", "Unequal", "Measuring"):
        command = [sys.executable, str(PROGRAMS / "own_steps.py"), name]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("strategy", OPTIONS)
@pytest.mark.parametrize(
    "name",
    ["Encoding", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("Unequal", "Measuring"))],
)
def test_as_one_process(
    make_cluster: MakeCluster, alone: dict[str, dict[str, float]], name: str, strategy: str
) -> None:
    options = {**OPTIONS[strategy], "entrypoint": f"own_steps:{name}"}
    tasks = list(make_cluster(**options, parameters=PARAMETERS).start_all().values())
    assert [task.ended() for task in tasks] == [0] * len(tasks)
    end = [record.fields for record in tasks[0].records(Event.PROGRESS) if record.fields["epoch_end"]][-1]
    trained = {key: value for key, value in end["metrics"].items() if not key.startswith("val_")}
    wanted = {key: value for key, value in alone[name].items() if not key.startswith("val_")}
    assert {"loss": end["loss"], **trained} == pytest.approx(wanted, rel=1e-4)
    scores = {key[4:]: value for key, value in alone[name].items() if key.startswith("val_")}
    assert tasks[0].records(Event.EVALUATION)[-1].fields["metrics"] == pytest.approx(scores, rel=1e-4)
    scored = make_cluster(**options, parameters=PARAMETERS, mode="Evaluate").start_all().values()
    assert [task.ended() for task in scored] == [0] * len(scored)
    (found,) = [record.fields for task in scored for record in task.records(Event.EVALUATION)]
    assert found["metrics"] == pytest.approx(scores, rel=1e-4)
