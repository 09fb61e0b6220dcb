"""A successful run reports that its evaluator has failed."""

from __future__ import annotations

import dataclasses
import io
from datetime import timezone

import pytest
from rich.console import Console

from launcher.backends.base import History, LogLine
from launcher.cli import console
from launcher.report.page import page
from launcher.report.page_content import report
from launcher.status import Phase
from launcher.task_records import evaluator_outcome
from tests.unit.cli.test_console import _Nowhere
from tests.unit.histories import history, pod, says
from worker.contract.records import Event

READY = says("evaluator", 0, 0, 2.0, Event.READY)
SCORED = says("evaluator", 0, 0, 3.0, Event.EVALUATION, checkpoint="ckpt-2", epoch=2, metrics={"loss": 0.5})
SAID = says(
    "evaluator", 0, 0, 8.0, Event.FAILED, message="no such table", traceback="at films.py", exit_code=70
)


def ended(*lines: LogLine, code: int | None = 70, deleted: bool = False, evaluator: str = "") -> History:
    """Returns a successful run, whose evaluator has failed unless its state is given."""
    pods = [pod("chief", finished=9, exit_code=0)]
    pods.append(pod("evaluator", finished=9, exit_code=code, deleted=deleted))
    run_history = history(pods, lines, finished=9)
    chief, other = run_history.status.roles
    phase = Phase(evaluator or "Failed")
    roles = (chief, dataclasses.replace(other, phase=phase, message="" if code == 70 else "the run is over"))
    return dataclasses.replace(run_history, status=dataclasses.replace(run_history.status, roles=roles))


KEPT = "the model is trained and kept, but the evaluator"


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (ended(READY, SAID), f"{KEPT} failed and scored no checkpoint: no such table"),
        (ended(READY, SCORED, SAID), f"{KEPT} failed after the evaluation of epoch 2: no such table"),
        (ended(), f"{KEPT} failed and scored no checkpoint"),
        (
            ended(READY, SCORED, code=143, deleted=True),
            f"{KEPT} was stopped after the evaluation of epoch 2: the run is over",
        ),
        (ended(code=143, deleted=True), ""),
        (ended(READY, SCORED, code=0, evaluator="Succeeded"), ""),
        (ended(READY, code=None, evaluator="Running"), ""),
    ],
    ids=["nothing", "later", "no word", "stopped", "a script that was stopped", "fine", "still at it"],
)
def test_what_is_said(of: History, expected: str) -> None:
    assert evaluator_outcome.trouble(of.status) == expected


def test_one_that_never_started() -> None:
    of = ended(code=None).status
    waits = dataclasses.replace(of.tasks[1], running=None, phase=Phase.PENDING)
    of = dataclasses.replace(of, tasks=(of.tasks[0], waits))
    assert evaluator_outcome.trouble(of) == f"{KEPT} never started and scored no checkpoint: the run is over"


def test_a_run_that_has_failed_explains_itself() -> None:
    of = ended(READY, SAID).status
    failed = dataclasses.replace(of.roles[0], phase=Phase.FAILED)
    assert (
        evaluator_outcome.trouble(dataclasses.replace(of, phase=Phase.FAILED, roles=(failed, of.roles[1])))
        == ""
    )


def test_the_summary_has_it_in_red_with_the_evaluators_own_lines_and_the_run_has_succeeded() -> None:
    status = ended(READY, SAID).status
    out = Console(file=(file := io.StringIO()), force_terminal=True, color_system="standard", width=200)
    console.show_summary(_Nowhere(), status, out)  # type: ignore[arg-type]
    assert f"\x1b[1;31m{KEPT} failed and scored no checkpoint: no such table" in file.getvalue()
    assert "at films.py" in file.getvalue()
    assert "run mnist has succeeded" in file.getvalue()
    assert console.exit_code(status) == 0


def test_the_report_has_it() -> None:
    run_report = report(ended(READY, SAID), timezone.utc)
    assert run_report.troubles == (f"{KEPT} failed and scored no checkpoint: no such table",)
    assert "scored no checkpoint" in page(run_report)
