"""Records -> what a run's tracker has of it. The supervisors of the first task and the evaluator log to one
run of MLflow's. A thread does it: nothing waits for the server.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from worker.contract.exit_codes import ExitCode
from worker.contract.json_values import finite
from worker.contract.records import Content, Evaluation, Exported, Notice, Progress, content_of
from worker.tracking.mlflow import MOST_METRICS, RUN_TAG, Server, TrackerError

_MOST_WAITING = 10_000
"""Metrics that wait for a server that is away. The newest are kept."""
_AGAIN_SECONDS = 10.0
_GATHER_SECONDS = 1.0
"""Between two requests, so that a fast training makes few of them."""
_FINISH_SECONDS, _LEAVE_SECONDS = 15.0, 3.0
"""Limits for the last values, of a task that is done and of one that ends before, as on SIGTERM."""
_OTHER = re.compile(r"[^\w\-. /]", re.ASCII)
_LONGEST_NAME = 250


class Logged(NamedTuple):
    """MLflow's run, and the last step of each of its metrics."""

    run: str
    steps: Mapping[str, int]


class Tracker:
    """What one task logs. `creates`: this task makes the run where there is none; another one waits for it.
    `say` gets notices, in any thread.
    """

    def __init__(
        self,
        server: Server,
        experiment: str,
        name: str,
        run_id: str,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        *,
        creates: bool,
    ) -> None:
        self._server, self._experiment, self._name, self._run_id = server, experiment, name, run_id
        self._parameters = {as_name(key): value for key, value in parameters.items()}
        self._tags = {**tags, RUN_TAG: run_id}
        self._creates = creates
        self._logged: Logged | None = None
        self._say: Callable[[Content], Any] = lambda _: None
        self._waiting: deque[dict[str, Any]] = deque(maxlen=_MOST_WAITING)
        self._facts: dict[str, str] = {}
        """Tags that are not sent yet."""
        self._changed = threading.Condition()
        self._over: int | None = None
        self._notice_given = False
        self._thread: threading.Thread | None = None

    def join(self) -> str | None:
        """Returns the id of MLflow's run, which this task makes where there is none; None where it is not the
        one to make it. Raises TrackerError.
        """
        if self._logged is None:
            run = self._server.find(self._experiment, self._run_id)
            if run is None and self._creates:
                now = int(time.time() * 1000)
                run = self._server.create(self._experiment, self._name, self._tags, now)
            if run is None:
                return None
            steps = self._server.last_steps(run)
            if self._creates:
                self._server.log(run, parameters=self._parameters)
                self._server.update(run, "RUNNING")
            self._logged = Logged(run, steps)
        return self._logged.run

    def follow(self, say: Callable[[Content], Any]) -> None:
        """Logs from now on, in a thread."""
        self._say = say
        self._thread = threading.Thread(target=self._work, name="tracker", daemon=True)
        self._thread.start()

    def read(self, record: Mapping[str, Any]) -> None:
        """The training process has printed a record."""
        try:
            content, milliseconds = content_of(record["event"], record), int(finite(record["time"]) * 1000)
        except (ValueError, KeyError):
            return
        metrics = list(_metrics(content, milliseconds))
        facts = {"tf-launcher.model": content.path} if isinstance(content, Exported) else {}
        if self._thread is not None and (metrics or facts):
            with self._changed:
                self._waiting.extend(metrics)
                self._facts.update(facts)
                self._changed.notify_all()

    def finish(self, exit_code: int) -> None:
        """The task ends with this code. Returns when all is logged, after 15 s at most."""
        if self._thread is None:
            return
        with self._changed:
            self._over = exit_code
            self._changed.notify_all()
        self._thread.join(_FINISH_SECONDS if exit_code == ExitCode.DONE else _LEAVE_SECONDS)

    def notice(self, error: TrackerError) -> Notice:
        """Returns what a user reads, once, of a server that does not do its part."""
        self._notice_given = True
        then = "they are sent when it answers" if error.again else "they are not sent"
        return Notice(f"MLflow does not take the run's metrics: {error}; the training goes on, and {then}")

    def _work(self) -> None:
        pause = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._over is not None, pause)
                self._changed.wait_for(lambda: self._waiting or self._facts or self._over is not None)
                batch = [self._waiting.popleft() for _ in range(min(MOST_METRICS, len(self._waiting)))]
                facts, self._facts = self._facts, {}
                over = self._over
            try:
                self._send(batch, facts)
                pause = _GATHER_SECONDS
            except TrackerError as error:
                self._tell(error)
                pause = _AGAIN_SECONDS
                if error.again:
                    self._take_back(batch, facts)
                    time.sleep(0.0 if over is None else _GATHER_SECONDS)
            if over is not None and not self._waiting and not self._facts:
                self._end(over)
                return

    def _send(self, batch: Sequence[Mapping[str, Any]], facts: Mapping[str, str]) -> None:
        if self.join() is None and (batch or facts):
            raise TrackerError("the first task has made no run there yet", again=True)
        if self._logged is None:
            return
        # A step that is repeated after the loss of a task was logged before.
        last = dict(self._logged.steps)
        new = [each for each in batch if each["step"] > last.get(each["key"], -1)]
        if new or facts:
            self._server.log(self._logged.run, new, facts)
        self._logged = Logged(self._logged.run, {**last, **{each["key"]: each["step"] for each in new}})

    def _take_back(self, batch: list[dict[str, Any]], facts: Mapping[str, str]) -> None:
        with self._changed:
            room = _MOST_WAITING - len(self._waiting)
            self._waiting.extendleft(reversed(batch[-room:] if room else []))
            self._facts = {**facts, **self._facts}

    def _tell(self, error: TrackerError) -> None:
        if not self._notice_given and self._creates:  # one notice, of the first task
            self._say(self.notice(error))

    def _end(self, code: int) -> None:
        """Closes the run where no other attempt will go on with it."""
        ends: Mapping[int, str] = {ExitCode.DONE: "FINISHED", ExitCode.PROGRAM_ERROR: "FAILED"}
        status = ends.get(code)
        if self._creates and self._logged is not None and status is not None:
            try:
                self._server.update(self._logged.run, status, int(time.time() * 1000))
            except TrackerError as error:
                self._tell(error)


def _metrics(content: Content | None, milliseconds: int) -> Iterator[dict[str, Any]]:
    """Yields the metrics of a record, as MLflow takes them: those within an epoch by the step of the whole
    training, `epoch_` those of an epoch and `evaluation_` those of the evaluator by the epoch.
    """
    prefix = ""
    step: int | None = None
    values: Mapping[str, float] = {}
    if isinstance(content, Evaluation):
        prefix, step, values = "evaluation_", content.epoch, content.metrics
    elif isinstance(content, Progress) and content.epoch_end:
        rate = {} if content.learning_rate is None else {"learning_rate": content.learning_rate}
        prefix, step, values = "epoch_", content.epoch, {**content.values, **rate}
    elif isinstance(content, Progress) and content.steps is not None:
        step, values = (content.epoch - 1) * content.steps + content.step, content.values
    for name, value in values.items() if step is not None else ():
        key = as_name(f"{prefix}{name}")
        yield {"key": key, "value": _as_json(value), "timestamp": milliseconds, "step": step}


def as_name(text: str) -> str:
    """Returns what MLflow takes for a name: a path below a folder. Another one is refused with all that comes
    with it.
    """
    parts = (part.lstrip(".") for part in _OTHER.sub("_", text)[:_LONGEST_NAME].split("/"))
    return "/".join(part for part in parts if part) or "_"


def _as_json(value: float) -> float | str:
    """Returns what protobuf's JSON has for a number."""
    if value != value:
        return "NaN"
    return value if abs(value) < float("inf") else "Infinity" if value > 0 else "-Infinity"
