"""What a log that is read only since its task has failed adds to a run's output."""

from __future__ import annotations

from typing import Any

from launcher.backends.base import LogLine
from launcher.backends.kubernetes.observe import following
from tests.unit import histories
from worker.contract.records import Event, Record


def record(at: float, event: str, *, attempt: int = 0, **fields: Any) -> LogLine:
    made = Record(event, "mnist-worker-0", histories.BEGIN + at, fields)
    return LogLine("worker", 0, attempt, made.line(), made)


def test_what_a_failed_task_did_long_before_its_end_is_no_news() -> None:
    pods = [
        histories.pod("worker", created=0.0, finished=60.0, exit_code=1),
        histories.pod("worker", created=65.0, attempt=1),
    ]
    status = histories.history(pods, []).status
    killed: dict[str, Any] = {"message": "killed", "traceback": "", "exit_code": 75}
    old = [
        record(20.0, Event.NOTICE, message="grows"),
        record(30.0, Event.FAILED, **killed),
        record(51.0, Event.NOTICE, message="waits"),
    ]
    new = [record(52.0, Event.FAILED, **killed), LogLine("worker", 0, 0, "what the program printed", None)]
    later = [record(20.0, Event.NOTICE, attempt=1, message="a clock that is late")]
    lines = [*old, *new, *later]
    assert following._without_past(lines, {("worker", 0, 0)}, status) == [*new, *later]
    assert following._without_past(lines, set(), status) == lines, "of a log that is followed"
