"""An elastic MultiWorkerMirrored run trains in generations, and each example once in an epoch."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from tests.worker import model_files
from tests.worker.cluster import RunningTask, running
from tests.worker.conftest import MakeCluster
from tests.worker.supervisor.test_supervisor import kill_in_its_pod
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event
from worker.contract.run_config import ElasticWorkers

pytestmark = [pytest.mark.thorough, pytest.mark.nightly]
EPOCHS, STEPS = 6, 40
WAIT = 0.4
"""Seconds after each step, while the workers change."""


class Elastic:
    """A chief and up to three workers."""

    def __init__(
        self, make_cluster: MakeCluster, directory: Path, entrypoint: str, *, stored: bool = True
    ) -> None:
        self.stored = stored
        self.pace = directory / "pace"
        self.pace.write_text(str(WAIT))
        self.cluster = make_cluster(
            strategy="MultiWorkerMirrored",
            replicas={"chief": 1, "worker": 3},
            elastic=ElasticWorkers(min=1, max=3, replicas=3),
            entrypoint=entrypoint,
            parameters={
                "epochs": EPOCHS,
                "stepsPerEpoch": STEPS,
                "globalBatchSize": 50,
                "stepsPerExecution": 1,
                "pace": str(self.pace),
            },
            restarts_in_place=3,
            model_dir="" if stored else None,
            copies=None if stored else directory / "copies",
            starting_deadline_seconds=170,
            stall_seconds=170,
        )
        self.chief = self.cluster.start("chief")
        self.workers: dict[int, RunningTask] = {}

    def comes(self, *workers: int) -> None:
        for worker in workers:
            self.workers[worker] = self.cluster.start("worker", worker)

    def trains_with(self, *workers: int, least: int = 0) -> None:
        """Waits until the latest generation, from the number `least` on, is of these workers and trains."""

        def is_so() -> bool:
            memberships = self.chief.records(Event.MEMBERSHIP)[least:]
            if not memberships or memberships[-1].fields["workers"] != list(workers):
                return False
            return any(each.time > memberships[-1].time for each in self.chief.records(Event.PROGRESS))

        self.chief.eventually(is_so, f"it trains with {workers}")

    def trains_to_the_end(self, *workers: int) -> None:
        faster = self.pace.with_suffix(".new")
        faster.write_text("0")
        faster.replace(self.pace)  # a reader never sees an empty file
        codes = [self.chief.ended(), *(self.workers[worker].ended() for worker in workers)]
        tasks = [self.chief, *self.workers.values()]
        assert codes == [0] * (len(workers) + 1), "\n".join(task.output for task in tasks)

    def trained_each_example_once_in_an_epoch(self) -> None:
        losses = {
            record.fields["epoch"]: record.fields["loss"]
            for record in self.chief.records(Event.PROGRESS)
            if record.fields["epoch_end"]
        }
        assert losses == pytest.approx({epoch: 1.0 - epoch for epoch in range(1, EPOCHS + 1)}, abs=1e-3)
        if self.stored:
            weights = model_files.extremes(self.cluster.model_dir, EPOCHS, "kernel")
            assert weights == pytest.approx((-EPOCHS, -EPOCHS), abs=1e-3)


def trained(chief: RunningTask) -> dict[int, dict[str, float]]:
    """The loss and the metrics of each epoch's steps."""
    return {
        record.fields["epoch"]: {"loss": record.fields["loss"], **record.fields["metrics"]}
        for record in chief.records(Event.PROGRESS)
        if record.fields["epoch_end"]
    }


@pytest.mark.parametrize("stored", [True, False], ids=["checkpoints", "copies"])
def test_five_generations_train_each_example_once_in_an_epoch(
    make_cluster: MakeCluster, tmp_path: Path, stored: bool
) -> None:
    """Two tasks, three, four, three and two; 50 examples over three tasks are an uneven split."""
    run = Elastic(make_cluster, tmp_path, "weighted:Counted", stored=stored)
    for worker in (0, 1, 2):
        run.comes(worker)
        run.trains_with(*range(worker + 1))
    for worker, left in ((1, (0, 2)), (2, (0,))):
        run.workers[worker].signal(signal.SIGTERM)
        assert run.workers[worker].ended() == ExitCode.PREEMPTED
        run.trains_with(*left)
    run.trains_to_the_end(0)
    run.trained_each_example_once_in_an_epoch()


def test_a_lost_or_wrong_worker_is_done_without_and_a_killed_process_comes_back(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    run = Elastic(make_cluster, tmp_path, "weighted:Compiled")
    source = run.cluster.source
    run.cluster.source = shutil.copytree(source, tmp_path / "other")
    (tmp_path / "other" / "more.py").touch()
    run.comes(2)
    run.cluster.source = source
    run.comes(0, 1)
    run.trains_with(0, 1)
    kill_in_its_pod(run.workers[0])
    run.trains_with(0, 1, least=len(run.chief.records(Event.MEMBERSHIP)))
    run.workers[1].kill()
    run.trains_with(0)
    run.trains_to_the_end(0)
    run.trained_each_example_once_in_an_epoch()
    assert run.workers[2].ended() == ExitCode.PROGRAM_ERROR, "it has another program"
    run.chief.until_notice("tiny-worker-2 is not taken in: its program differs from the chief's")
    assert not run.chief.records(Event.RESTARTED), "the loss of another counts as none of its restarts"


@pytest.mark.parametrize("entrypoint", ["phrases:Phrases", "phrases:Phrases3"])
def test_its_numbers_are_those_of_one_process(
    make_cluster: MakeCluster, tmp_path: Path, entrypoint: str
) -> None:
    """Tables, embeddings, validation and metrics; 50 examples over two tasks, and over three."""
    run = Elastic(make_cluster, tmp_path, entrypoint)
    run.comes(0)
    run.trains_with(0)
    run.comes(1)
    run.trains_with(0, 1)
    run.workers[0].signal(signal.SIGTERM)
    run.trains_with(1)
    run.trains_to_the_end(1)
    with running(
        tmp_path / "alone",
        strategy="OneDevice",
        replicas={"chief": 1},
        entrypoint=entrypoint,
        parameters=run.cluster.config.parameters,
    ) as alone:
        chief = alone.start("chief")
        assert chief.ended() == 0
        scores = [
            {record.fields["epoch"]: record.fields["metrics"] for record in task.records(Event.EVALUATION)}
            for task in (run.chief, chief)
        ]
        assert sorted(scores[1]) == list(range(1, EPOCHS + 1))
        for epoch, expected in scores[1].items():
            assert scores[0][epoch] == pytest.approx(expected, abs=1e-3), epoch
        # Also of an epoch in whose middle the workers changed.
        assert trained(run.chief) == {
            epoch: pytest.approx(expected, abs=1e-3) for epoch, expected in trained(chief).items()
        }
        expected = model_files.variables(alone.model_dir, EPOCHS)
        variables = model_files.variables(run.cluster.model_dir, EPOCHS)
        assert len(variables) >= 9, "embedding, kernel and bias, each with two moments"
        assert sorted(variables) == sorted(expected)
        for name in expected:
            assert variables[name] == pytest.approx(expected[name], abs=1e-3), name
