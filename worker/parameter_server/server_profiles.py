"""Profiles of the servers, for the steps that their chief names.

The chief writes a file on each of their disks, by an operation placed on them, as when it releases them. Its
text is `begin NUMBER` or `end NUMBER`. The server answers by files beside it: `profile.NUMBER.began`, which
is empty or says why it cannot, and `profile.NUMBER.done` with the profile. Only the chief has the model
directory.
"""

from __future__ import annotations

import contextlib
import glob
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import tensorflow as tf

from worker.contract.strategies import STRATEGIES
from worker.devices import on_server
from worker.peers import probes
from worker.process.process_profile import Profile
from worker.task import Task

_BEGIN, _END = "begin", "end"
_BEGAN, _DONE = "began", "done"
_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 10.0
"""A server looks ten times a second."""
_DONE_SECONDS = 30.0
_LONGEST_SECONDS = 600.0
"""After which a server gives a profile up, whose chief was lost."""


class ServerProfile:
    """A server's part."""

    def __init__(self, task: Task) -> None:
        self._path = task.file("profile")
        self._profile: Profile | None = None
        self._number = ""
        self._until = 0.0

    def look(self) -> None:
        """Begins or ends a profile where the chief says so. The main loop calls it often."""
        if self._profile is not None and time.monotonic() > self._until:
            self._end()
        if self._path is None or not self._path.exists():
            return
        word, _, number = self._path.read_text(encoding="utf-8").partition(" ")
        if word == _BEGIN and number != self._number:
            self._begin(self._path, number)
        elif word == _END:
            self._path.unlink()
            content = self._end()
            if content is not None and number == self._number:
                _write(self._path, number, _DONE, content)

    def _begin(self, path: Path, number: str) -> None:
        self._end()
        self._number, self._until = number, time.monotonic() + _LONGEST_SECONDS
        for earlier in path.parent.glob(f"{path.name}.*"):
            earlier.unlink()
        problem = ""
        try:
            self._profile = Profile()
        except (tf.errors.OpError, OSError) as error:
            problem = str(error)
        _write(path, number, _BEGAN, problem.encode())

    def _end(self) -> bytes | None:
        profile, self._profile = self._profile, None
        if profile is not None:
            with contextlib.suppress(tf.errors.OpError, OSError):
                return profile.end()
        return None


def _write(path: Path, number: str, what: str, content: bytes) -> None:
    """Writes an answer: the whole file or nothing."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.write_bytes(content)
    unfinished.replace(f"{path}.{number}.{what}")


class Servers:
    """The workers and parameter servers of the chief `task`, in one profile, which they have begun when this
    is made. `problems` says why the others have not, by pod name.

    No step may be under way. `alive` is called while it waits.
    """

    def __init__(self, task: Task, number: str, alive: Callable[[], None]) -> None:
        self._task = task
        self._number = number
        self._alive = alive
        self.problems: dict[str, str] = {}
        servers = {
            task.pod(role, index): (role, index, address)
            for role in STRATEGIES[task.config.strategy].servers
            for index, address in task.cluster.get(role, {}).items()
        }
        # A hung one would block the first operation sent to it. Workers of an elastic run may not be there.
        away = probes.faults({name: address for name, (_, _, address) in servers.items()})
        if task.elastic is None:
            self.problems.update(away)
        self._places = {name: place[:2] for name, place in servers.items() if name not in away}
        for name in list(self._places):
            self._order(name, _BEGIN)
        for name, content in self._answers(_BEGAN, _ANSWER_SECONDS):
            if content:
                self._leave_out(name, content.decode(errors="replace"))

    def end(self) -> None:
        """Has them all end it."""
        for name in list(self._places):
            self._order(name, _END)

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yields pod names and profiles, once they have ended it."""
        return self._answers(_DONE, _DONE_SECONDS)

    def _order(self, name: str, word: str) -> None:
        path = self._task.file_of(name, "profile")
        with self._reached(name):
            tf.io.write_file(path, f"{word} {self._number}")

    def _answers(self, what: str, seconds: float) -> Iterator[tuple[str, bytes]]:
        waiting: Collection[str] = list(self._places)
        until = time.monotonic() + seconds
        while waiting:
            for name in waiting:
                if (content := self._answer(name, what)) is not None:
                    yield name, content
                elif time.monotonic() > until:
                    self._leave_out(name, f"it has not answered within {seconds:.0f} s")
                else:
                    continue
                waiting = [other for other in waiting if other != name]
            waiting = [name for name in waiting if name in self._places]
            self._alive()
            time.sleep(_POLL_SECONDS)

    def _answer(self, name: str, what: str) -> bytes | None:
        """Returns None where there is none yet."""
        path = self._task.file_of(name, "profile")
        path = f"{path}.{self._number}.{what}"
        with self._reached(name):
            if tf.size(tf.io.matching_files(glob.escape(path))) > 0:
                return bytes(tf.io.read_file(path).numpy())
        return None

    @contextlib.contextmanager
    def _reached(self, name: str) -> Iterator[None]:
        """Places operations on a server, and leaves out one that is lost."""
        role, index = self._places[name]
        try:
            with on_server(role, index):
                yield
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            self._leave_out(name, f"it was lost: {str(error).splitlines()[0]}")

    def _leave_out(self, name: str, problem: str) -> None:
        self._places.pop(name, None)
        self.problems[name] = problem
