"""Output that is not on a terminal is not cut."""

from __future__ import annotations

import io

from launcher.backends.base import LogLine, Place
from launcher.cli import console, run_table
from launcher.status import ADMISSION, Phase, RoleStatus, RunStatus


def test_a_list_cuts_no_name_short() -> None:
    run, namespace = "a-run-with-a-long-name-" + "x" * 30, "namespace-" + "y" * 40
    roles = tuple(
        RoleStatus(role, f"{run}-{role}", Phase.RUNNING, 100, 100, 100, 0, 0, 0)
        for role in ("chief", "worker", "ps", "evaluator")
    )
    status = RunStatus(run, namespace, Phase.RUNNING, False, "", "", roles, (), started=0.0)
    file = io.StringIO()
    run_table.show_list([run_table.Listed(status, Place("local"))], out=console.console(file))
    heading, line = file.getvalue().splitlines()
    assert heading.split() == ["NAMESPACE", "RUN", "STATE", "PROGRESS", "TASKS", "AGE", "DURATION"]
    assert line.startswith(f"{namespace}   {run}   Running ")
    assert " 100 chief, 100 worker, 100 ps, 100 evaluator   " in line
    assert "\x1b" not in line


def test_a_minute_has_sixty_seconds() -> None:
    roles = (RoleStatus("chief", "x-chief", Phase.RUNNING, 1, 1, 1, 0, 0, 0),)

    def took(seconds: float) -> str:
        file = io.StringIO()
        status = RunStatus("x", "y", Phase.SUCCEEDED, True, "", "", roles, (), 1.0, 1.0 + seconds)
        console.show_status(_Nowhere(), status, console.console(file))  # type: ignore[arg-type]
        return file.getvalue().splitlines()[1].removeprefix("run x has succeeded after ")

    assert [took(seconds) for seconds in (59.9, 59.97, 119.7, 3599.8)] == [
        "59.9 s",
        "1 min 0 s",
        "2 min 0 s",
        "1 h 0 min",
    ]


class _Nowhere:
    def places(self, run: str, namespace: str) -> dict[str, str]:
        return {}

    def options(self, namespace: str) -> str:
        return ""

    def logs(self, *_: object, **__: object) -> list[LogLine]:
        return []


def test_what_a_queue_says_is_whole() -> None:
    words = f"waits for admission by queue team-a: {'insufficient quota, ' * 20}5 more needed"
    roles = (RoleStatus("chief", "x-chief", Phase.SUSPENDED, 1, 0, 0, 0, 0, 0),)
    status = RunStatus("x", "y", Phase.SUSPENDED, False, ADMISSION, words, roles, ())
    file = io.StringIO()
    console.show_status(_Nowhere(), status, console.console(file))  # type: ignore[arg-type]
    assert words in file.getvalue().splitlines()
