"""Reads a run's state and logs while it goes on. Nothing here talks to the supervisor."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from launcher.backends.base import EVERYONE, PROGRAM, History, LogLine, Selection, Update, log_lines
from launcher.backends.earlier_processes import of_earlier_processes
from launcher.backends.latest_records import HEAD_BYTES, LatestRecords, written_once
from launcher.backends.local.log_growth import Growth
from launcher.backends.local.store import BrokenRunError, RunDirectory, Submission
from launcher.backends.run_facts import submitted
from launcher.errors import NotFoundError
from launcher.object_names import ROLE_LABEL
from launcher.status import ATTEMPT_ANNOTATION, Phase, RunStatus, attempts, fold, task_of

_TICK_SECONDS: Final = 0.1
"""Seconds between two reads of the files. Users do not notice the delay, and 50 pods cost well under 1% of a
core.
"""

_ALIVE_SECONDS: Final = 1.0
"""Seconds between two checks that the supervisor runs."""

_GUARD_SECONDS: Final = 10.0
"""The longest wait for the guard's end."""

_CHUNK_BYTES: Final = 1 << 20
"""Bytes read from one log at a time, so that a long log does not delay the others."""

_TAIL_BYTES: Final = 256 << 10
"""Bytes at the end of each log that `status` searches for records."""

_MAX_LINE_BYTES: Final = 1 << 20
"""A longer line is cut into several."""


class _LogFile:
    """One attempt's output: all of it, or its last `most` bytes at most."""

    def __init__(self, directory: RunDirectory, pod: Mapping[str, Any], most: int | None = None) -> None:
        metadata, hostname = pod["metadata"], pod["spec"]["hostname"]
        self.name: str = metadata["name"]
        self._role, self._index = task_of(pod)
        self.attempt = int(metadata["annotations"][ATTEMPT_ANNOTATION])
        self._path = directory.log(hostname, self.attempt)
        self._growth_path = directory.growth(hostname, self.attempt)
        self._growth: Growth | None = None
        self._offset = 0
        self._rest = b""
        if most is not None and (size := self._size()) > most:
            self._offset = size - most

    def time_lines(self, since: float | None, tail: int | None) -> None:
        """Gives each line its time, and leaves out those from before `since`, seconds since the epoch, and
        all but the last `tail`.
        """
        self._growth = Growth(self._path, self._growth_path)
        if since is None and tail is None:
            return
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            start = 0
            if since is not None:
                start = _line_start(file, self._growth.offset(since))
            if tail is not None:
                start = max(start, _last_lines(file, tail))
            self._offset = start

    @property
    def task(self) -> tuple[str, int]:
        return self._role, self._index

    def _size(self) -> int:
        try:
            return self._path.stat().st_size if self._path.is_file() else 0
        except OSError:
            return 0

    def beginning(self) -> list[LogLine]:
        """The records that a task writes once, at its beginning, if `tail` skips them."""
        if not self._offset:
            return []
        with self._path.open("rb") as file:
            head = map(self._lines, file.read(HEAD_BYTES).split(b"\n"))
        return written_once(itertools.chain.from_iterable(head))

    def read(self, *, last: bool) -> list[LogLine]:
        """The lines since the last call, at most so many bytes. `last`: text without a line end counts as a
        line.
        """
        content = b""
        if self._size() > self._offset:
            # A log that cannot be read is treated as empty.
            with contextlib.suppress(OSError), self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read(_CHUNK_BYTES)
            self._offset += len(content)
        end = self._offset - len(content) - len(self._rest)
        *whole, self._rest = (self._rest + content).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES or (last and not content and self._rest):
            whole.append(self._rest)
            self._rest = b""
        lines = []
        for line in whole:
            end += len(line) + 1
            lines += self._lines(line, self._growth.time(end) if self._growth is not None else None)
        return lines

    def read_all(self, *, last: bool) -> Iterator[LogLine]:
        """All lines since the last call."""
        while lines := self.read(last=last):
            yield from lines

    def _lines(self, content: bytes, time: float | None = None) -> list[LogLine]:
        text = content.decode(errors="replace").rstrip("\r")
        return log_lines(self._role, self._index, self.attempt, text, time)


def _line_start(file: BinaryIO, position: int) -> int:
    """Where the line begins that this byte is of, as far back as a line may go."""
    begin = max(0, position - _MAX_LINE_BYTES)
    file.seek(begin)
    return begin + file.read(position - begin).rfind(b"\n") + 1


def _last_lines(file: BinaryIO, count: int) -> int:
    """Where the last lines begin; the end of the file where none are wanted."""
    position = file.seek(0, os.SEEK_END)
    if count == 0 or position == 0:
        return position
    position -= 1  # the last line's own end
    while position > 0:
        begin = max(0, position - _CHUNK_BYTES)
        file.seek(begin)
        content = file.read(position - begin)
        newline = len(content)
        while (newline := content.rfind(b"\n", 0, newline)) >= 0:
            count -= 1
            if count == 0:
                return begin + newline + 1
        position = begin
    return 0


class Logs:
    """All attempts' output of the selected tasks."""

    def __init__(
        self,
        directory: RunDirectory,
        selection: Selection,
        *,
        most: int | None = None,
        timed: bool = False,
    ) -> None:
        self._directory = directory
        self._selection = selection
        self._most = most
        self._timed = timed
        self._files: dict[str, _LogFile] = {}
        self._latest: set[str] = set()
        """The pods of which only earlier processes are meant."""

    def update(self, state: Mapping[str, Any], since: float | None = None) -> None:
        """Adds the logs of new pods. `since` is that of the selection, in seconds since the epoch."""
        latest = {task_of(pod): pod["metadata"]["uid"] for pod in state["pods"]}
        for pod in state["pods"]:
            uid = pod["metadata"]["uid"]
            if uid in self._files:
                continue
            file = _LogFile(self._directory, pod, self._most)
            if self._selection.takes(self._directory.run, *file.task, file.name):
                self._files[uid] = file
                only_earlier = self._selection.previous and uid == latest[task_of(pod)]
                if only_earlier:
                    self._latest.add(uid)
                if self._timed:
                    file.time_lines(since, None if only_earlier else self._selection.tail)

    def beginnings(self) -> list[LogLine]:
        """The records that the tasks write once, if `tail` skips them. Call it before reading."""
        return [line for file in self._files.values() for line in file.beginning()]

    def read(self, *, last: bool = False) -> list[LogLine]:
        """New lines, file by file, with a limit for each."""
        return [line for file in self._files.values() for line in file.read(last=last)]

    def drain(self, *, last: bool) -> Iterator[LogLine]:
        """All that is there, task by task."""
        for uid, file in sorted(self._files.items(), key=lambda item: item[1].task):
            if uid in self._latest:
                yield from of_earlier_processes(file.read_all(last=last), self._selection.tail)
            else:
                yield from file.read_all(last=last)


class StateReader:
    """The run's state, read again only when it has changed."""

    def __init__(self, directory: RunDirectory) -> None:
        submission = directory.submission()
        if submission is None:
            raise NotFoundError(
                f"there is no run {directory.run} in namespace {directory.namespace} on this machine",
                f"`{PROGRAM} list` shows those there are.",
            )
        self.submission = submission
        self.lost = False
        self._directory = directory
        self._seen: tuple[int, int] | None = None
        self._state: dict[str, Any] = {"jobs": submission.of_kind("Job"), "pods": [], "ended": False}
        self._checked = 0.0

    def read(self) -> tuple[dict[str, Any], bool]:
        """The state, and whether it differs from the last one read.

        Raises NotFoundError when the run has been removed or replaced meanwhile.
        """
        changed = self._reload()
        now = time.monotonic()
        if not self._state["ended"] and not self.lost and now - self._checked >= _ALIVE_SECONDS:
            self._checked = now
            if not self._directory.alive():
                # The supervisor may have written the state after it was read here.
                changed = self._reload() or changed
                if not self._state["ended"]:
                    self._still_there()
                    self.lost = True
                    changed = True
        return self._state, changed

    def _reload(self) -> bool:
        try:
            stat = self._directory.state_path.stat()
        except FileNotFoundError:
            self._still_there()
            return False
        seen = (stat.st_ino, stat.st_mtime_ns)
        if seen == self._seen:
            return False
        self._still_there()
        state = self._directory.state()
        if state is None:
            return False
        self._seen, self._state = seen, state
        return True

    def _still_there(self) -> None:
        submission = self._directory.submission()
        if submission is None or submission.uid != self.submission.uid:
            raise NotFoundError(f"run {self._directory.run} was deleted")


def read_status(directory: RunDirectory) -> RunStatus:
    """The run's status now, with the records at the end of each task's latest log. If a file cannot be read,
    the status says which one. Raises NotFoundError.
    """
    try:
        return _read_status(directory)
    except BrokenRunError as error:
        return RunStatus(
            run=directory.run,
            namespace=directory.namespace,
            phase=Phase.BROKEN,
            ended=True,
            reason="Broken",
            message=str(error),
            roles=(),
            tasks=(),
        )


def _read_status(directory: RunDirectory) -> RunStatus:
    reader = StateReader(directory)
    directory.expired()
    state, _ = reader.read()
    newest = {(pod["spec"]["hostname"]): pod for pod in state["pods"]}
    logs = Logs(directory, Selection(), most=_TAIL_BYTES)
    logs.update({"pods": newest.values()})
    records = LatestRecords()
    records.add(logs.beginnings())
    records.add(logs.drain(last=True))
    return fold_state(reader, state, records)


def read_jobs(directory: RunDirectory) -> list[dict[str, Any]]:
    """The run's Jobs as they are now. Raises NotFoundError."""
    jobs: list[dict[str, Any]] = StateReader(directory).read()[0]["jobs"]
    return jobs


def histories(directory: RunDirectory) -> Iterator[History]:
    """See `base.Backend.histories`. With all that the tasks have recorded."""
    reader = StateReader(directory)
    logs, records = Logs(directory, EVERYONE), LatestRecords()
    lines: list[LogLine] = []
    while True:
        state, _ = reader.read()
        logs.update(state)
        over = state["ended"] or reader.lost
        new = [line for line in logs.drain(last=over) if line.record is not None]
        lines = [*lines, *new]
        records.add(new)
        yield History(
            status=fold_state(reader, state, records),
            seen=time.time(),
            submitted=reader.submission.submitted,
            attempts=attempts(state["jobs"], state["pods"]),
            lines=lines,
            spec=_spec(reader.submission),
        )


def _spec(submission: Submission) -> Mapping[str, Any]:
    specs = (submitted(job, "spec") for job in submission.of_kind("Job"))
    return next((spec for spec in specs if isinstance(spec, dict)), {})


def fold_state(reader: StateReader, state: Mapping[str, Any], records: LatestRecords) -> RunStatus:
    """The status of a state that was read."""
    status = fold(state["jobs"], state["pods"], records.of_task, lost=reader.lost)
    submission = reader.submission
    return dataclasses.replace(
        status,
        run=submission.run,
        namespace=submission.namespace,
        created=submission.submitted,
        # The primary may have ended while the supervisor has not.
        ended=bool(state["ended"]) or reader.lost,
    )


def follow(directory: RunDirectory) -> Iterator[Update]:
    """See `base.Backend.follow`."""
    reader = StateReader(directory)
    logs = Logs(directory, Selection())
    records = LatestRecords()
    status: RunStatus | None = None
    while True:
        # The state first: when it says that all has ended, the logs are complete.
        state, changed = reader.read()
        if changed:
            logs.update(state)
        over = state["ended"] or reader.lost
        if over:
            _wait_for_guard(directory)
        lines = list(logs.drain(last=True)) if over else logs.read()
        if records.add(lines) or changed or status is None:
            status = fold_state(reader, state, records)
        yield Update(status, lines)
        if over:
            return
        time.sleep(_TICK_SECONDS)


def _wait_for_guard(directory: RunDirectory) -> None:
    """Waits until the guard has ended, milliseconds after the supervisor's last write."""
    until = time.monotonic() + _GUARD_SECONDS
    while directory.alive() and time.monotonic() < until:
        time.sleep(0.01)


def follow_logs(directory: RunDirectory, selection: Selection, *, until_end: bool) -> Iterator[LogLine]:
    """See `base.Backend.logs`."""
    reader = StateReader(directory)
    state, _ = reader.read()
    desired = {
        job["metadata"]["labels"].get(ROLE_LABEL, ""): job["spec"].get("completions") or 1
        for job in state["jobs"]
    }
    pods = [(*task_of(pod), str(pod["metadata"]["name"])) for pod in state["pods"]]
    selection.check(directory.run, desired, pods)
    return _lines(directory, reader, selection, until_end)


def _lines(
    directory: RunDirectory, reader: StateReader, selection: Selection, until_end: bool
) -> Iterator[LogLine]:
    logs = Logs(directory, selection, timed=True)
    since = None if selection.since is None else time.time() - selection.since
    logs.update(reader.read()[0], since)
    while True:
        state, changed = reader.read()
        if changed:
            logs.update(state)
        over = state["ended"] or reader.lost or not until_end
        yield from logs.drain(last=over)
        if over:
            return
        time.sleep(_TICK_SECONDS)
