"""Output that is not on a terminal is not cut."""

from __future__ import annotations

import io

from launcher.backends.base import LogLine, Place
from launcher.cli import console, run_document, run_table
from launcher.status import ADMISSION, Phase, RoleStatus, RunStatus
from worker.contract.records import Event, Record
from worker.contract.run_config import ElasticWorkers


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


def elastic_run(phase: Phase = Phase.RUNNING) -> RunStatus:
    roles = (
        RoleStatus("chief", "x-chief", phase, 1, 1, 1, 0, 0, 0),
        RoleStatus("worker", "x-worker", phase, 8, 6, 6, 0, 0, 0, elastic=ElasticWorkers(2, 16, 8)),
    )
    fields = {"workers": [0, 1, 3], "joined": [3], "left": [2, 4], "reason": "4 is lost", "generation": 5}
    records = {"x-chief-0": {Event.MEMBERSHIP: Record(Event.MEMBERSHIP, "x-chief-0", 7.0, fields)}}
    return RunStatus("x", "y", phase, False, "", "", roles, (), records=records)


def test_elastic_workers_are_so_many_of_how_many() -> None:
    file = io.StringIO()
    console.show_status(_Nowhere(), elastic_run(), console.console(file))  # type: ignore[arg-type]
    lines = file.getvalue().splitlines()
    (worker,) = [line for line in lines if line.startswith("worker")]
    assert "   6 of 8, at least 2   " in worker
    (chief,) = [line for line in lines if line.startswith("chief")]
    assert chief.split()[1] == "1"
    assert "trains with 3 workers: worker 3 joined, workers 2, 4 left (4 is lost)" in lines


def test_elastic_workers_in_a_document() -> None:
    status = run_document.of_run(elastic_run(), Place("local"), 10.0)["status"]
    chief, worker = status["roles"]
    assert (chief["minReplicas"], chief["maxReplicas"]) == (None, None)
    assert (worker["minReplicas"], worker["replicas"], worker["maxReplicas"]) == (2, 8, 16)
    assert status["membership"] == {"workers": [0, 1, 3], "generation": 5, "time": "1970-01-01T00:00:07Z"}


def test_logs_leave_out_the_start_of_tensorflow() -> None:
    texts = ["I0000 00:00:1795342904.2 22071 port.cc:153] oneDNN custom operations are on.", "own line"]
    lines = [LogLine("worker", 0, 0, text, Record.parse(text)) for text in texts]
    shown, raw = io.StringIO(), io.StringIO()
    assert console.show_logs(lines, out=console.console(shown)) == (2, 1)
    assert console.show_logs(lines, raw=True, out=console.console(raw)) == (2, 0)
    assert shown.getvalue() == "worker-0    | own line\n"
    assert raw.getvalue().splitlines() == texts
