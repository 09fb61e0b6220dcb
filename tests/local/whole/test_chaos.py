"""The code of `make chaos`: a run of each kind, and its messages about a faulty run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import chaos
from benchmarks.chaos_cases import DUE, EPOCHS, ROWS, STEPS, Case, cases, epochs_of, steps_of
from tests.local.machine import linux_only
from worker.contract.records import Event, Record

pytestmark = linux_only
BY_NAME = {row.name: row for row in ROWS}


def test_every_victim_meets_every_signal_and_a_seed_gives_the_same_runs() -> None:
    row = BY_NAME["ParameterServer fit"]
    todo = cases(row, 20, seed=1)
    assert todo == cases(row, 20, seed=1)
    assert todo != cases(row, 20, seed=2)
    victims = {(case.role, case.index, case.signal) for case in todo}
    assert len(victims) == 20, "five tasks, four signals"


def test_workers_that_come_and_go_have_ten_minutes_and_steps_for_all_of_them() -> None:
    (case,) = cases(BY_NAME["ParameterServer elastic"], 20, seed=1)
    assert (case.seconds, case.victim) == (600.0, "workers")
    # 600 s of four workers, each with 40 steps a second.
    assert steps_of(case) * EPOCHS == 600 * 4 * 40
    (case,) = cases(BY_NAME["MultiWorkerMirrored elastic"], 20, seed=1)
    assert (epochs_of(case), steps_of(case)) == (600, 40), "all take each step together"


def test_steps_that_a_checkpoint_held_are_counted() -> None:
    steps = {"epochs": 3, "step": 1, "steps": 40, "steps_per_second": 1.0}
    measured: dict[str, object] = {"loss": None, "metrics": {}, "epoch_end": False}

    def training(epoch: int) -> Record:
        return Record(Event.TRAINING, "t", 0.0, {"epochs": 3, "steps_per_epoch": 40, "initial_epoch": epoch})

    def progress(epoch: int) -> Record:
        return Record(Event.PROGRESS, "t", 0.0, {"epoch": epoch, **steps, **measured})

    assert chaos.repeated([training(0), progress(1), progress(2), training(1), progress(2)]) == 0
    assert chaos.repeated([training(0), progress(1), progress(3), training(0)]) == 2 * STEPS


@pytest.mark.parametrize(
    ("row", "role", "index", "signal"),
    [
        pytest.param("OneDevice fit", "chief", 0, "term", marks=pytest.mark.thorough),
        pytest.param("MultiWorkerMirrored loop", "worker", 1, "kill", marks=pytest.mark.thorough),
        pytest.param("MultiWorkerMirrored fit", "worker", 0, "crash", marks=pytest.mark.thorough),
        pytest.param("ParameterServer loop", "chief", 0, "kill", marks=pytest.mark.thorough),
    ],
)
def test_a_run_recovers(tmp_path: Path, row: str, role: str, index: int, signal: str) -> None:
    case = Case(BY_NAME[row], role, index, signal, 0.5)
    (outcome,) = chaos.run([case], tmp_path, at_a_time=1)
    assert outcome.hit
    assert outcome.problem == ""
    assert outcome.trained >= DUE
