"""Notes SIGTERM, such as on a spot node that is taken away, so that a task can leave without losing a step.

A training task notes the signal and continues to the next boundary between two executions of steps. There it
saves and leaves: see `saver`. The next attempt resumes at that very step.

The chief does the same when a parameter server gets SIGTERM. The parameter server stays until the chief has
saved, since the chief can only save with it, and is then dismissed: its replacement comes when it is gone.

TensorFlow's tf.distribute.experimental.PreemptionCheckpointHandler does nothing on a CPU of Google Cloud, and
on a GPU there it waits for a maintenance event and not for SIGTERM:
tensorflow/python/distribute/failure_handling/failure_handling.py.
"""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import time
from types import FrameType

import tensorflow as tf

from worker.contract.exit_codes import ExitCode
from worker.contract.task_names import TaskFile
from worker.devices import on_server
from worker.process.sigterm import leave_on_signal
from worker.task import Task

_SERVERS_SECONDS = 2.0


class Preemption:
    """Whether this task, or a parameter server that it trains with, got SIGTERM; or SIGUSR2, by which its
    supervisor says that the workers change. It must be used in the main thread.
    """

    def __init__(self, task: Task) -> None:
        self.signalled = False
        """Whether this task got a signal."""
        self.signalled_at = 0.0
        """When SIGTERM came, by `time.monotonic`; 0 without it."""
        self._training = False
        self._servers = _Servers(task)

    def begin(self) -> None:
        """Begins before training, when the strategy exists: from the first boundary on, SIGTERM is only
        noted.
        """
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGUSR2, self._note)

    def end(self) -> None:
        """From now on SIGTERM ends the process at once again, and so does one that came."""
        leave_on_signal()
        if self.signalled:
            os._exit(ExitCode.PREEMPTED)

    def leaving(self) -> bool:
        """Returns whether to leave; called at each boundary. It is cheap."""
        self._training = True
        return self.signalled or self._servers.leaving()

    def dismiss_servers(self) -> None:
        """Tells the parameter servers that got SIGTERM that they are not needed any more."""
        self._servers.dismiss()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signalled = True
        if number == signal.SIGTERM:
            self.signalled_at = self.signalled_at or time.monotonic()
        if not self._training:
            os._exit(ExitCode.PREEMPTED)


class _Servers:
    """The parameter servers, which write a file to their disks when they get SIGTERM."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._indexes: list[int] = []
        if task.directory is not None and task.config.is_coordinated:
            self._indexes = list(task.cluster.get("ps", {}))
        self._look_at = 0.0

    def leaving(self) -> bool:
        """Returns whether one of them got SIGTERM. It asks them every two seconds, which takes a millisecond
        each.
        """
        now = time.monotonic()
        if not self._indexes or now < self._look_at:
            return False
        self._look_at = now + _SERVERS_SECONDS
        return any(map(self._is_leaving, self._indexes))

    def dismiss(self) -> None:
        """Tells those that got SIGTERM that they are not needed any more."""
        for index in self._indexes:
            with contextlib.suppress(tf.errors.OpError):  # it is gone already
                if self._is_leaving(index):
                    with on_server("ps", index):
                        tf.io.write_file(self._path("dismissed", index), "")

    def _is_leaving(self, index: int) -> bool:
        pattern = glob.escape(self._path("leaving", index))
        with on_server("ps", index):
            return bool(tf.size(tf.io.matching_files(pattern)) > 0)

    def _path(self, name: TaskFile, index: int) -> str:
        return self._task.file_of(self._task.pod("ps", index), name)
