"""Runs that Kueue itself admits, preempts and stops, while they train: as one JobSet where the cluster has
the kind, else as a group of pods.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.status import ADMISSION
from tests.api.plain_requests import wait_for
from tests.kind import endless
from tests.kind.runs import SECONDS, Runs
from tests.peers.queues import LOCAL, Queues
from worker.contract.records import Event

SPEC: dict[str, Any] = {
    "strategy": "MultiWorkerMirrored",
    "modelDir": "/model",
    "worker": {"replicas": 1},
    "scheduling": {"queue": LOCAL},
    "runPolicy": {"backoffLimit": 0},
}
"""Of a run with two tasks, which need 200m, and may not fail once."""
QUOTA = "300m"
"""Enough for one run and one task of another."""
FIRST, SECOND = "first", "second"


def submit(runs: Runs, directory: Path, run: str, **more: Any) -> None:
    (directory / run).mkdir()
    endless.submit(runs, directory / run, run=run, **SPEC, **more)


def state(runs: Runs, run: str) -> dict[str, Any]:
    done = runs.of("status", "-o", "json", run=run)
    assert done.stdout, done.stderr
    run_status: dict[str, Any] = json.loads(done.stdout)["status"]
    return run_status


def waits(runs: Runs, run: str, words: str) -> None:
    """Waits until the run waits for its queue, with these words of Kueue's, and has no task on a node."""

    def is_waiting() -> bool:
        run_status = state(runs, run)
        return run_status["reason"] == ADMISSION and words in run_status["message"]

    assert wait_for(is_waiting, 90), state(runs, run)
    assert wait_for(lambda: not any("nodeName" in pod["spec"] for pod in runs.pods(run=run)), 60)


def first_epoch(runs: Runs, run: str) -> int:
    """Returns the epoch at which the latest training of the run has begun, from 0."""
    began = runs.records("chief", event=Event.TRAINING, run=run)
    return int(began[-1].fields["initial_epoch"])


def test_a_run_waits_is_admitted_as_a_whole_and_frees_its_quota(
    runs: Runs, queues: Queues, tmp_path: Path
) -> None:
    queues.make(QUOTA)
    submit(runs, tmp_path, FIRST)
    endless.trains_on(runs, FIRST)
    assert queues.used()["cpu"] == "200m"
    submit(runs, tmp_path, SECOND)
    # There is quota for one of its tasks, which does not start.
    waits(runs, SECOND, "insufficient unused quota for cpu")
    endless.trains_on(runs, FIRST)
    assert not any("nodeName" in pod["spec"] for pod in runs.pods(run=SECOND))

    endless.finish(runs, FIRST)
    endless.trains_on(runs, SECOND)
    assert len([pod for pod in runs.pods(run=SECOND) if "nodeName" in pod["spec"]]) == 2
    assert queues.used()["cpu"] == "200m"
    endless.finish(runs, SECOND)
    queues.free()


def test_a_run_is_preempted_while_it_trains_and_goes_on(runs: Runs, queues: Queues, tmp_path: Path) -> None:
    queues.make(QUOTA)
    submit(runs, tmp_path, FIRST)
    endless.trains_on(runs, FIRST)
    submit(runs, tmp_path, SECOND, labels=queues.urgent)
    waits(runs, FIRST, "Preempted")
    endless.trains_on(runs, SECOND)
    assert state(runs, FIRST)["ended"] is False
    endless.finish(runs, SECOND)

    endless.trains_on(runs, FIRST)
    assert first_epoch(runs, FIRST) >= 1
    run_status = state(runs, FIRST)
    # It may not fail once, and has not.
    assert {role["failed"] for role in run_status["roles"]} == {0}
    endless.finish(runs, FIRST)
    queues.free()


def test_a_run_is_suspended_and_resumed_by_its_queue(runs: Runs, queues: Queues, tmp_path: Path) -> None:
    queues.make(QUOTA)
    submit(runs, tmp_path, FIRST)
    endless.trains_on(runs, FIRST)
    assert runs.of("suspend", run=FIRST).returncode == 0
    waits(runs, FIRST, "it is held back")
    queues.free()
    assert runs.of("resume", run=FIRST).returncode == 0
    endless.trains_on(runs, FIRST)
    assert first_epoch(runs, FIRST) >= 1
    endless.finish(runs, FIRST)
    queues.free()


@pytest.mark.timeout(1200)
def test_an_elastic_run_begins_with_what_it_needs_and_has_others_as_the_queue_allows(
    runs: Runs, queues: Queues, tmp_path: Path
) -> None:
    def ready(role: str) -> int:
        return next(int(each["ready"]) for each in state(runs, FIRST)["roles"] if each["role"] == role)

    queues.make("400m")
    elastic = {**SPEC, "worker": {"replicas": 4, "minReplicas": 1}}
    (tmp_path / FIRST).mkdir()
    endless.submit(runs, tmp_path / FIRST, run=FIRST, **elastic)
    # Chief and worker are admitted together, and two of three others have room.
    assert wait_for(lambda: ready("extra-worker") == 2, 90), state(runs, FIRST)
    endless.trains_on(runs, FIRST)
    assert queues.used()["cpu"] == "400m"

    # Of the chief with its worker, and the extra workers, Kueue may preempt either. Those leave then.
    submit(runs, tmp_path, SECOND, labels=queues.urgent)
    endless.trains_on(runs, SECOND)
    assert wait_for(lambda: ready("extra-worker") == 0 and ready("chief") == 1, 180), state(runs, FIRST)
    endless.trains_on(runs, FIRST)
    endless.finish(runs, SECOND)
    assert wait_for(lambda: ready("extra-worker") == 2, 120), state(runs, FIRST)
    endless.trains_on(runs, FIRST)
    assert {role["failed"] for role in state(runs, FIRST)["roles"] if role["role"] != "extra-worker"} == {0}

    assert runs.of("suspend", run=FIRST).returncode == 0
    waits(runs, FIRST, "it is held back")
    queues.free()
    assert runs.of("resume", run=FIRST).returncode == 0
    endless.trains_on(runs, FIRST)
    endless.finish(runs, FIRST)
    queues.free()


def test_a_run_that_fails_frees_its_quota(runs: Runs, queues: Queues, tmp_path: Path) -> None:
    queues.make(QUOTA)
    file = endless.write(tmp_path, run=FIRST, fails=True, **SPEC)
    done = runs.launcher("submit", str(file), *runs.settings())
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ValueError: odd" in done.stdout
    queues.free()
    assert state(runs, FIRST)["phase"] == "Failed"


def test_a_run_that_waits_is_deleted(runs: Runs, queues: Queues, tmp_path: Path) -> None:
    queues.make("100m")
    submit(runs, tmp_path, FIRST)
    waits(runs, FIRST, "insufficient quota for cpu")
    done = runs.of("delete", run=FIRST)
    assert done.returncode == 0, done.stderr
    assert wait_for(lambda: not queues.workloads() and not runs.pods(), SECONDS), queues.workloads()
