"""What of Keras comes with TensorFlow, and what a program may run when it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.worker.cluster import ROOT
from tests.worker.conftest import MakeCluster
from worker.contract.records import Event

LOADED = "print(*sorted({'keras', 'tf_keras'} & {*sys.modules}))"


def printed(code: str, legacy: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nfrom worker.imports import import_tensorflow\n{code}"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TF_USE_LEGACY_KERAS": legacy,
            "TF_CPP_MIN_LOG_LEVEL": "2",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.by_day("1-tf_keras", runtime=())
@pytest.mark.parametrize(("legacy", "package"), [("1", "tf_keras"), ("0", "keras")])
def test_a_server_starts_without_keras_and_could_have_it_later(legacy: str, package: str) -> None:
    code = f"tf = import_tensorflow(keras=False)\n{LOADED}\nprint(tf.keras.Model.__module__)"
    loaded, module = printed(code, legacy)
    assert loaded == ""
    assert module.startswith(f"{package}.")


def test_a_task_that_trains_has_it() -> None:
    assert printed(f"import_tensorflow(keras=True)\n{LOADED}", "1") == ["tf_keras"]


SEVERAL: dict[str, dict[str, Any]] = {
    "Mirrored": {"strategy": "Mirrored", "replicas": {"chief": 1}, "strategy_options": {"logicalCpus": 2}},
    "MultiWorkerMirrored": {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}},
    # One worker, whose updates come in the order of one process.
    "ParameterServer": {"strategy": "ParameterServer", "replicas": {"chief": 1, "worker": 1, "ps": 1}},
}


@pytest.mark.by_day(runtime=("notebook:Notebook-strategies0",))
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("entrypoint", "strategies"),
    [
        ("notebook:Notebook", ["MultiWorkerMirrored"]),
        ("notebook:Notebook3", ["Mirrored", "ParameterServer"]),
        pytest.param("notebook:Notebook", ["Mirrored", "ParameterServer"], marks=pytest.mark.nightly),
        pytest.param("notebook:Notebook3", ["MultiWorkerMirrored"], marks=pytest.mark.nightly),
    ],
)
def test_a_program_may_run_tensorflow_where_a_notebook_does(
    make_cluster: MakeCluster, entrypoint: str, strategies: list[str]
) -> None:
    """On import, in `__init__` and in each method; by several tasks as by one."""
    options: dict[str, Any] = {
        "entrypoint": entrypoint,
        "parameters": {"epochs": 2, "globalBatchSize": 8, "stepsPerEpoch": 3},
    }

    def losses(**strategy: Any) -> list[float]:
        tasks = list(make_cluster(**options, **strategy, run_id=strategy["strategy"]).start_all().values())
        assert [task.ended() for task in tasks] == [0] * len(tasks), tasks[0].output
        ends = [
            record.fields["loss"] for record in tasks[0].records(Event.PROGRESS) if record.fields["epoch_end"]
        ]
        return ends + [record.fields["metrics"]["loss"] for record in tasks[0].records(Event.EVALUATION)]

    alone = losses(strategy="OneDevice", replicas={"chief": 1})
    assert len(alone) == 4
    for strategy in strategies:
        assert losses(**SEVERAL[strategy]) == pytest.approx(alone, rel=1e-5), strategy


@pytest.mark.parametrize(
    ("strategy", "fails", "codes"),
    [
        ("MultiWorkerMirrored", "after", [70, 70]),
        pytest.param("ParameterServer", "after", [70, 0, 0], marks=pytest.mark.thorough),
        pytest.param("MultiWorkerMirrored", "before", [70], marks=pytest.mark.thorough),
    ],
)
def test_what_fails_on_import_is_told_by_each_task(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch, strategy: str, fails: str, codes: list[int]
) -> None:
    """And by a task that is alone yet, where no operation was run."""
    monkeypatch.setenv("HASTY_FAILS", fails)
    cluster = make_cluster(**SEVERAL[strategy], entrypoint="hasty:Hasty")
    tasks = [cluster.start(*task) for task in list(cluster.addresses)[: len(codes)]]
    assert [task.ended() for task in tasks] == codes
    messages = {record.fields["message"] for task in tasks for record in task.records(Event.FAILED)}
    (message,) = messages
    assert message.endswith("(while importing hasty:Hasty)")
    assert 'File "hasty.py"' in tasks[0].records(Event.FAILED)[0].fields["traceback"]
