"""Models with steps of their own class, and others of which Keras says little: each strategy reports what one
process does.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from tests.worker.cluster import PROGRAMS
from tests.worker.conftest import MakeCluster
from tests.worker.forked_tasks import computed
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

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


QUICK = {("Parts", "tf_keras", "ParameterServer"), ("Extended", "keras", "Mirrored")}
BOTH = ("Parts", "Late", "Triplets", "Added", "Extended")


def _marks(case: tuple[str, str, str]) -> list[Any]:
    if case in QUICK:
        return []
    return [pytest.mark.thorough] if case[-1] == "Mirrored" else [pytest.mark.thorough, pytest.mark.nightly]


CASES = [
    pytest.param(*case, marks=_marks(case))
    for case in (
        (name, package, strategy)
        for name in ("Encoding", "Unequal", "Measuring", *BOTH)
        for package in (("tf_keras", "keras") if name in BOTH else ("tf_keras",))
        for strategy in OPTIONS
    )
    if case != ("Late", "keras", "Mirrored")  # where Keras 3 cannot make them, which is told
]


@functools.cache
def alone(name: str, package: str) -> dict[str, float]:
    """What `Model.fit` in one process gives for the last epoch."""
    metrics = computed(PROGRAMS / "own_steps.py", name, package)
    return {key: float(value) for key, value in metrics.items() if not _is_compiled_loss(name, package, key)}


def _is_compiled_loss(name: str, package: str, key: str) -> bool:
    """Returns whether Keras 2 reports under `key` the compiled loss, without what the model adds to it."""
    return (name, package) == ("Extended", "tf_keras") and key in ("loss", "val_loss")


@pytest.mark.by_day(runtime=("Triplets-keras-Mirrored",))
@pytest.mark.parametrize(("name", "package", "strategy"), CASES)
def test_as_one_process(make_cluster: MakeCluster, name: str, package: str, strategy: str) -> None:
    parameters = {**PARAMETERS, "package": package}
    options = {**OPTIONS[strategy], "entrypoint": f"own_steps:{name}"}
    tasks = list(make_cluster(**options, parameters=parameters).start_all().values())
    assert [task.ended() for task in tasks] == [0] * len(tasks)
    end = [record.fields for record in tasks[0].records(Event.PROGRESS) if record.fields["epoch_end"]][-1]
    metrics = alone(name, package)
    trained = {key: value for key, value in end["metrics"].items() if not key.startswith("val_")}
    wanted = {key: value for key, value in metrics.items() if not key.startswith("val_")}
    if not _is_compiled_loss(name, package, "loss"):
        trained["loss"] = end["loss"]
    assert trained == pytest.approx(wanted, rel=1e-4)
    scores = {key[4:]: value for key, value in metrics.items() if key.startswith("val_")}

    def scored(record: Any) -> dict[str, float]:
        values = record.fields["metrics"].items()
        return {key: value for key, value in values if not _is_compiled_loss(name, package, key)}

    assert scored(tasks[0].records(Event.EVALUATION)[-1]) == pytest.approx(scores, rel=1e-4)
    (exported,) = tasks[0].records(Event.EXPORTED)
    parts = ("encoder", "decoder") if name in ("Parts", "Late") else ("",)
    assert all(Path(exported.fields["path"], part, "saved_model.pb").is_file() for part in parts)
    tasks = list(make_cluster(**options, parameters=parameters, mode="Evaluate").start_all().values())
    assert [task.ended() for task in tasks] == [0] * len(tasks)
    (evaluation,) = [record for task in tasks for record in task.records(Event.EVALUATION)]
    assert scored(evaluation) == pytest.approx(scores, rel=1e-4)


@pytest.mark.by_day("True", runtime=())
@pytest.mark.parametrize("evaluated", [False, True])
def test_a_step_that_takes_the_data_apart(make_cluster: MakeCluster, evaluated: bool) -> None:
    entrypoint = "own_steps:DividedScored" if evaluated else "own_steps:Divided"
    cluster = make_cluster(**OPTIONS["Mirrored"], entrypoint=entrypoint, parameters=PARAMETERS)
    (task,) = cluster.start_all().values()
    assert task.ended() == (ExitCode.PROGRAM_ERROR if evaluated else 0)
    messages = [record.fields["message"] for record in task.records(Event.FAILED)]
    assert ["give the program a test_step(model, batch)" in each for each in messages] == [True] * evaluated
    assert bool(task.records(Event.TRAINING)) != evaluated  # it is told before the first epoch


def test_what_is_not_measured_is_not_reported_and_a_mean_is_told(make_cluster: MakeCluster) -> None:
    parameters = {**PARAMETERS, "package": "tf_keras"}
    cluster = make_cluster(**OPTIONS["Mirrored"], entrypoint="own_steps:Unmeasured", parameters=parameters)
    (task,) = cluster.start_all().values()
    assert task.ended() == 0
    assert [set(record.fields["metrics"]) for record in task.records(Event.EVALUATION)] == [{"mae"}] * 2
    notices = [record.fields["message"] for record in task.records(Event.NOTICE)]
    (mean_notice,) = [notice for notice in notices if "takes the gradient of a mean" in notice]
    assert "at own_steps.py:" in mean_notice
    assert "it is 2 times that of one process" in mean_notice
