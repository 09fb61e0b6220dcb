"""Checkpoints in the middle of an epoch: what a kill costs, and that nothing is counted twice or left out."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.worker import model_files
from tests.worker.cluster import Cluster, RunningTask
from tests.worker.conftest import MakeCluster
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

EXAMPLES, BATCH, EPOCHS = 480, 4, 2
STEPS = EXAMPLES // BATCH
SUM = sum((number / 1000) ** 2 for number in range(EXAMPLES)) / EXAMPLES
"""The loss of an epoch that has trained each example once: see programs/positions.py."""
RUNS: Mapping[str, Mapping[str, Any]] = {
    "OneDevice": {"strategy": "OneDevice", "replicas": {"chief": 1}},
    "Mirrored": {"strategy": "Mirrored", "replicas": {"chief": 1}, "strategy_options": {"logical_cpus": 2}},
    "MultiWorkerMirrored": {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}},
    "ParameterServer": {"replicas": {"chief": 1, "worker": 1, "ps": 2}},
}


def run_of(
    make_cluster: MakeCluster,
    name: str,
    program: str,
    pause: int = 150,
    replicas: Mapping[str, int] | None = None,
    **checkpoints: Any,
) -> Cluster:
    """`pause` is in milliseconds for each batch."""
    parameters = {
        "epochs": EPOCHS,
        "stepsPerEpoch": None,
        "globalBatchSize": BATCH,
        "examples": EXAMPLES,
        "data": "shuffled",
        "wait": 0,
        "pause": pause,
        "stepsPerExecution": 3,
    }
    others = {} if replicas is None else {"replicas": replicas}
    options = {
        **RUNS[name],
        **others,
        "entrypoint": f"positions:{program}",
        "keras": 3 if program == "Keras3" else 2,
    }
    return make_cluster(**options, parameters=parameters, checkpoints=checkpoints)


def _servers(workers: int, ps: int) -> dict[str, int]:
    return {"chief": 1, "worker": workers, "ps": ps}


def losses(task: RunningTask) -> dict[int, float]:
    """The loss of each epoch that this attempt has ended."""
    ends = [record.fields for record in task.records(Event.PROGRESS) if record.fields["epoch_end"]]
    return {fields["epoch"]: fields["loss"] for fields in ends}


def saved(task: RunningTask) -> list[tuple[int, int]]:
    """Epochs and steps of its checkpoints."""
    return [(record.fields["epochs"], record.fields["steps"]) for record in task.records(Event.CHECKPOINT)]


NIGHTLY = [pytest.mark.thorough, pytest.mark.nightly]


@pytest.mark.by_day(runtime=("MultiWorkerMirrored-Looped",))
@pytest.mark.parametrize(
    ("name", "program"),
    [
        pytest.param("OneDevice", "Compiled", marks=NIGHTLY),
        pytest.param("OneDevice", "Keras3", marks=NIGHTLY),
        pytest.param("Mirrored", "Stepped", marks=pytest.mark.thorough),
        pytest.param("MultiWorkerMirrored", "Looped", marks=pytest.mark.thorough),
        pytest.param("MultiWorkerMirrored", "Keras3", marks=NIGHTLY),
        pytest.param("ParameterServer", "Keras3", marks=pytest.mark.thorough),
        pytest.param("ParameterServer", "Compiled", marks=NIGHTLY),
    ],
)
def test_a_kill_costs_the_steps_since_the_last_checkpoint(
    make_cluster: MakeCluster, name: str, program: str
) -> None:
    """All tasks are killed in the middle of the first epoch, twice."""
    cluster = run_of(make_cluster, name, program, everySteps=6)
    for at in (20, 60):
        tasks = cluster.start_all()
        first = next(iter(tasks.values()))
        first.eventually(lambda: any(steps >= at for _, steps in saved(first)), "a checkpoint")  # noqa: B023
        for task in tasks.values():
            task.kill()
    cluster = run_of(make_cluster, name, program, pause=10, everySteps=6)
    tasks = cluster.start_all()
    assert [task.ended() for task in tasks.values()] == [0] * len(tasks)
    last = next(iter(tasks.values()))
    # Under ParameterServer each worker reads for itself: docs/failures.md.
    far = 0.1 if name == "ParameterServer" else 1e-5
    assert losses(last) == pytest.approx({1: SUM, 2: SUM}, rel=far)
    assert model_files.iterations(cluster.model_dir, EPOCHS) == EPOCHS * STEPS
    steps = [steps for epochs, steps in saved(last) if epochs == 0 and steps]
    assert min(steps) >= 66, "it went on from the checkpoint"
    last.until_notice("of epoch 1, from the checkpoint in modelDir")
    assert saved(last)[-1] == (EPOCHS, 0)
    assert not list((cluster.model_dir / "backup").glob("*"))


@pytest.mark.by_day(runtime=("ParameterServer-Keras3-replicas3", "MultiWorkerMirrored-Keras3-replicas0"))
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "program", "replicas"),
    [
        ("MultiWorkerMirrored", "Keras3", [{"worker": 2}, {"worker": 1}]),
        ("MultiWorkerMirrored", "Looped", [{"worker": 1}, {"worker": 4}, {"worker": 2}]),
        ("ParameterServer", "Compiled", [_servers(1, 2), _servers(2, 1), _servers(1, 3)]),
        ("ParameterServer", "Keras3", [_servers(1, 2), _servers(2, 1)]),
    ],
)
def test_the_middle_of_an_epoch_goes_on_with_other_tasks(
    make_cluster: MakeCluster, name: str, program: str, replicas: list[dict[str, int]]
) -> None:
    """The tasks of each number are killed, the last ones go on to the end."""
    for number, there in enumerate(replicas):
        is_last = number == len(replicas) - 1
        cluster = run_of(make_cluster, name, program, 10 if is_last else 150, there, everySteps=6)
        tasks = cluster.start_all()
        first = next(iter(tasks.values()))
        if is_last:
            assert [task.ended() for task in tasks.values()] == [0] * len(tasks)
            break
        least = 20 * (number + 1)
        first.eventually(lambda: any(steps >= least for _, steps in saved(first)), "a checkpoint")  # noqa: B023
        cluster.stop()
    far = 0.1 if name == "ParameterServer" else 1e-5
    assert losses(first) == pytest.approx({1: SUM, 2: SUM}, rel=far)
    assert min(steps for epochs, steps in saved(first) if epochs == 0 and steps) >= 20 * (len(replicas) - 1)
    assert model_files.iterations(cluster.model_dir, EPOCHS) == EPOCHS * STEPS


@pytest.mark.nightly
@pytest.mark.thorough
@pytest.mark.parametrize("program", ["Stepped", "Keras3"])
@pytest.mark.parametrize(
    ("strategies", "far"),
    [
        (["Mirrored", "OneDevice", "MultiWorkerMirrored", "Mirrored"], 1e-5),
        (["ParameterServer", "MultiWorkerMirrored", "ParameterServer"], 0.1),
    ],
)
def test_the_middle_of_an_epoch_goes_on_by_another_strategy(
    make_cluster: MakeCluster, program: str, strategies: list[str], far: float
) -> None:
    """And so with another number of replicas."""
    for number, strategy in enumerate(strategies):
        is_last = number == len(strategies) - 1
        cluster = run_of(make_cluster, strategy, program, 10 if is_last else 150, everySteps=6)
        tasks = cluster.start_all()
        first = next(iter(tasks.values()))
        if is_last:
            assert [task.ended() for task in tasks.values()] == [0] * len(tasks)
            break
        least = 12 * (number + 1)
        first.eventually(lambda: any(steps >= least for _, steps in saved(first)), "a checkpoint")  # noqa: B023
        cluster.stop()
    assert losses(first) == pytest.approx({1: SUM, 2: SUM}, rel=far)
    assert min(steps for epochs, steps in saved(first) if epochs == 0 and steps) >= 12 * (len(strategies) - 1)
    assert model_files.iterations(cluster.model_dir, EPOCHS) == EPOCHS * STEPS


@pytest.mark.nightly
@pytest.mark.thorough
@pytest.mark.parametrize(("name", "program"), [("OneDevice", "Keras3"), ("MultiWorkerMirrored", "Looped")])
def test_kills_at_any_moment_leave_whole_checkpoints(
    make_cluster: MakeCluster, name: str, program: str
) -> None:
    """Also while a copy is taken or written: a checkpoint is always being written."""
    random_ = random.Random(7)
    kills, before = 3, (0, 0)
    for number in range(kills + 1):
        cluster = run_of(make_cluster, name, program, 10 if number == kills else 60, everySteps=1)
        tasks = cluster.start_all()
        first = next(iter(tasks.values()))
        if number == kills:
            break
        first.eventually(lambda: bool(saved(first)), "a checkpoint")  # noqa: B023
        assert saved(first)[0] > before, "what was saved is not trained again"
        time.sleep(random_.uniform(0.0, 0.5))
        for task in tasks.values():
            task.kill()
        before = saved(first)[-1]
        if before[0] or before[1] > STEPS - 30:
            break  # a busy machine was late: the next attempt may end by itself
    tasks = cluster.start_all() if first.process.poll() is not None else tasks
    assert [task.ended() for task in tasks.values()] == [0] * len(tasks)
    last = next(iter(tasks.values()))
    assert losses(last)[2] == pytest.approx(SUM, rel=1e-5)
    assert losses(last).get(1, SUM) == pytest.approx(SUM, rel=1e-5)
    assert model_files.iterations(cluster.model_dir, EPOCHS) == EPOCHS * STEPS


@pytest.mark.nightly
@pytest.mark.thorough
def test_what_cannot_be_written_ends_no_training(make_cluster: MakeCluster) -> None:
    """First in the middle of an epoch, then at its end; and the last one is waited for."""
    cluster = run_of(make_cluster, "OneDevice", "Compiled", everySeconds=1)
    backup, checkpoints = cluster.model_dir / "backup", cluster.model_dir / "checkpoints"
    chief = cluster.start("chief")
    chief.eventually(lambda: (0, 0) not in saved(chief) and bool(saved(chief)), "a checkpoint")
    shutil.rmtree(backup)
    backup.write_text("in the way")
    checkpoints.write_text("in the way")
    until_failing(chief)
    problem = chief.records(Event.CHECKPOINT)[-1].fields
    assert str(backup) in problem["problem"]
    assert time.time() - 60 < problem["failing_since"] < time.time()
    chief.until_notice("its last checkpoint is tried again")
    assert losses(chief) == pytest.approx({1: SUM, 2: SUM}, rel=1e-5)
    checkpoints.unlink()
    backup.unlink()
    assert chief.ended() == 0
    last = chief.records(Event.CHECKPOINT)[-1].fields
    assert (last["epochs"], last.get("problem", "")) == (EPOCHS, "")
    assert model_files.iterations(cluster.model_dir, EPOCHS) == EPOCHS * STEPS
    assert (cluster.model_dir / "export" / "1" / "saved_model.pb").exists()


def until_failing(task: RunningTask) -> None:
    def fails() -> bool:
        return bool(task.records(Event.CHECKPOINT)[-1].fields.get("problem"))

    task.eventually(fails, "a checkpoint that fails")


@pytest.mark.nightly
@pytest.mark.thorough
def test_no_run_succeeds_without_its_model(make_cluster: MakeCluster) -> None:
    cluster = run_of(make_cluster, "OneDevice", "Compiled")
    cluster.config = type(cluster.config)(**{**vars(cluster.config), "stall_seconds": 5})
    chief = cluster.start("chief")
    chief.until(Event.TRAINING)
    (cluster.model_dir / "checkpoints").write_text("in the way")
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    assert "cannot write" in chief.records(Event.FAILED)[-1].fields["message"]
    assert model_files.state(cluster.model_dir)["phase"] == "failed"


@pytest.mark.thorough
def test_the_best_epoch_stays(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """By the loss, which falls: the first one is the best by Max."""
    parameters: dict[str, Any] = {"epochs": 5, "stepsPerEpoch": 5}
    options = {"strategy": "OneDevice", "replicas": {"chief": 1}, "parameters": parameters}
    for mode, kept in (("Max", [1, 4, 5]), ("Min", [4, 5])):
        best = {"metric": "val_loss", "mode": mode}
        cluster = make_cluster(**options, checkpoints={"keep": 2, "keepBest": best})
        chief = cluster.start("chief")
        assert chief.ended() == 0
        assert model_files.epochs(cluster.model_dir) == kept
        shutil.rmtree(cluster.model_dir)


@pytest.mark.nightly
@pytest.mark.thorough
def test_the_best_epoch_by_the_evaluator_stays(make_cluster: MakeCluster) -> None:
    """It scores each epoch before the next ones are over."""
    parameters = {"epochs": 5, "stepsPerEpoch": 5, "waitMilliseconds": 800}
    options = {"strategy": "OneDevice", "replicas": {"chief": 1, "evaluator": 1}, "parameters": parameters}
    best = {"metric": "val_loss", "mode": "Max"}
    cluster = make_cluster(**options, checkpoints={"keep": 2, "keepBest": best})
    tasks = cluster.start_all()
    assert [task.ended() for task in tasks.values()] == [0, 0]
    assert model_files.epochs(cluster.model_dir) == [1, 4, 5]
