"""Ends a task on SIGTERM, such as on a spot node that is taken away, without losing a step.

A training task notes the signal and continues to the next boundary between two executions of steps. There it
saves its position and values as `backup/ckpt-<epochs>-<steps>`, and leaves. The next attempt resumes at that
very step.

The chief does the same when a parameter server gets SIGTERM. The parameter server stays until the chief has
gone, since the chief can only save with it.

The tasks of a collective strategy must all stop after the same execution, or those that continue would wait
for ever for those that stopped. They agree through TensorFlow's coordination service, by the protocol of
tf.distribute.experimental.PreemptionCheckpointHandler. That class itself does nothing on a CPU of Google
Cloud, and on a GPU there it waits for a maintenance event and not for SIGTERM:
tensorflow/python/distribute/failure_handling/failure_handling.py.
"""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import tensorflow as tf

from worker.checkpoints.model_directory import ModelDirectory, Position
from worker.collective.kv_store import ERRORS, get, put
from worker.contract import task_names
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Notice
from worker.failures import Left
from worker.process.sigterm import leave_on_signal
from worker.process.watch import Silence, Watch
from worker.reporting import Reporter
from worker.task import Task
from worker.training.epoch_metrics import variables_of

_SERVERS_SECONDS = 2.0
_UPLOAD_MARGIN = 6.0
"""Seconds before the end of the grace period at which an upload is given up. The supervisor kills this
process 3 s later.
"""
_LAST_SECONDS = 10.0
"""Seconds for the other tasks to save, once the first task is ready to leave."""


class Preemption:
    """Ends a training loop at a boundary once this task, or one that it trains with, got SIGTERM; or SIGUSR2,
    by which its supervisor says that the workers change.

    `directory` is where this task writes; None, without a model directory, ends the task at once. Under a
    collective strategy every task must have the same boundaries. It must be used in the main thread.
    """

    def __init__(
        self, task: Task, directory: ModelDirectory | None, reporter: Reporter, watch: Watch
    ) -> None:
        self._directory = directory
        self._reporter = reporter
        self._watch = watch
        self._writes = task.is_primary
        self._told = False
        self._told_at = 0.0
        """When SIGTERM came; 0 without it."""
        self._upload_seconds = max(1.0, task.grace_seconds - _UPLOAD_MARGIN)
        self._training = False
        self._peers = _Peers(task) if _is_collective(task) else None
        self._servers = _Servers(task)

    def begin(self) -> None:
        """Begins before training, when the strategy exists: from the first boundary on, SIGTERM is only
        noted.
        """
        if self._directory is None:
            return
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGUSR2, self._note)
        if self._peers is not None:
            self._peers.watch()

    def end(self) -> None:
        """Ends after all steps, when the last checkpoint is where it is kept. From then on SIGTERM ends the
        process at once again.
        """
        if self._directory is not None and self._writes:
            self._upload(self._directory, "the last checkpoint")
        leave_on_signal()
        if self._told:
            os._exit(ExitCode.PREEMPTED)

    def boundary(
        self,
        model: Any,
        epoch: int,
        step: int,
        metrics: Callable[[], Iterable[Any]],
        settle: Callable[[], object] | None = None,
    ) -> None:
        """Must be called before each execution, when `epoch` epochs and `step` steps of the next are done.

        `metrics` returns those that have counted the epoch's steps. Where steps may only have been scheduled,
        `settle` waits for them. Raises Left when everything is saved and the task must end. Otherwise the
        call is cheap.
        """
        self._training = True
        if self._peers is not None:
            leaving = self._peers.boundary(self._told)
        else:
            leaving = self._told or self._servers.leaving()
        if leaving and self._directory is not None:
            self._leave(self._directory, model, Position(epoch, step), metrics, settle)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._told = True
        if number == signal.SIGTERM:
            self._told_at = self._told_at or time.monotonic()
        if not self._training:
            os._exit(ExitCode.PREEMPTED)

    def _leave(
        self,
        directory: ModelDirectory,
        model: Any,
        position: Position,
        metrics: Callable[[], Iterable[Any]],
        settle: Callable[[], object] | None,
    ) -> None:
        if settle is not None:
            settle()
        # Variables may be spread over all tasks of a collective: each must save, and one keeps the files.
        if not self._writes:
            directory = ModelDirectory(tempfile.mkdtemp(prefix="scratch-"))
        if position > Position():
            directory.back_up(model, position, variables_of(metrics()))
            self._watch.came_further()
        if self._writes:
            why = "SIGTERM" if self._told_at else "the workers change"
            if not self._told:
                why, self._told_at = "SIGTERM to another task", time.monotonic()
            if self._upload(directory, f"the checkpoint of {position}"):
                self._reporter.notice(f"{why}: checkpoint saved at {position}, exiting")
        if self._peers is not None:
            self._watch.expect(Silence(_LAST_SECONDS, _UNSAVED, ExitCode.PREEMPTED))
            with contextlib.suppress(*ERRORS):
                self._peers.saved()
        # Tasks without SIGTERM use this code too: that they leave is no failure of theirs, and must not be
        # counted.
        raise Left(ExitCode.PREEMPTED)

    def _upload(self, directory: ModelDirectory, what: str) -> bool:
        """Waits until all that was saved is in a bucket; after SIGTERM at most until the grace period ends.
        Returns whether it is.
        """

        def is_late() -> bool:
            return self._told_at > 0 and time.monotonic() > self._told_at + self._upload_seconds

        if directory.files.settle(is_late):
            return True
        self._reporter.notice(
            f"SIGTERM: {what} is lost: its upload to {directory.root} did not end within the grace period "
            "(terminationGracePeriodSeconds); the next attempt resumes from the checkpoint before"
        )
        return False


_UNSAVED = Notice("left without having heard that every other task had saved its part")


class _Servers:
    """The parameter servers, which write a file to their disks when they get SIGTERM."""

    def __init__(self, task: Task) -> None:
        self._paths = {
            f"/job:ps/replica:0/task:{index}/device:CPU:0": task_names.leaving_path(
                task.directory, task.name, task.pod("ps", index)
            )
            for index in task.cluster.get("ps", {})
            if task.directory is not None and task.config.is_coordinated
        }
        self._look_at = 0.0

    def leaving(self) -> bool:
        """Returns whether one of them got SIGTERM. It asks them every two seconds, which takes a millisecond
        each.
        """
        now = time.monotonic()
        if not self._paths or now < self._look_at:
            return False
        self._look_at = now + _SERVERS_SECONDS
        return any(self._exists(path, device) for device, path in self._paths.items())

    def _exists(self, path: str, device: str) -> bool:
        with tf.device(device):
            return bool(tf.size(tf.io.matching_files(glob.escape(path))) > 0)


class _Peers:
    """The agreement of a collective's tasks on the boundary at which all stop.

    The task that gets SIGTERM names the next boundary. It continues only when every task knows the boundary,
    so no task is past it: no execution ends without all tasks.
    """

    def __init__(self, task: Task) -> None:
        self._index = _number(task)
        self._count = 1 + len(task.peers)
        self._boundaries = 0
        self._stop_at: int | None = None

    def watch(self) -> None:
        """Starts a thread that waits for the boundary to be named: to ask at each boundary would cost a
        message.
        """
        threading.Thread(target=self._wait, name="preemption", daemon=True).start()

    def boundary(self, told: bool) -> bool:
        """Returns whether to stop here."""
        self._boundaries += 1
        if self._stop_at is None and told:
            with contextlib.suppress(tf.errors.AlreadyExistsError):  # another task got SIGTERM too
                put("stop", str(self._boundaries + 1))
            for index in range(self._count):
                get(f"known/{index}")
            return False
        return self._stop_at is not None and self._boundaries >= self._stop_at

    def saved(self) -> None:
        """Tells the first task, which hosts the service and must leave last."""
        put(f"saved/{self._index}", "yes")
        if self._index == 0:
            for index in range(self._count):
                get(f"saved/{index}")

    def _wait(self) -> None:
        try:
            self._stop_at = int(get("stop"))
            put(f"known/{self._index}", "yes")
        except ERRORS:
            return  # a task was lost; the training gets that error too


def _is_collective(task: Task) -> bool:
    return task.config.is_collective and bool(task.peers)


def _number(task: Task) -> int:
    """Returns 0 for the task that hosts the coordination service: the chief, else worker 0."""
    if task.role == "chief":
        return 0
    return task.index + ("chief" in task.cluster)
