"""A worker or a ps: a TensorFlow server that works for the chief until the chief releases it.

`Server.join()` would block SIGTERM for ever. Here the main thread looks in turn at everything that may end
the task.

After SIGTERM a server goes on as long as its chief trains, at most for its pod's grace period. A chief that
gets SIGTERM at the same time can save only with its servers. A chief that sees that a ps got SIGTERM saves,
dismisses the ps, and starts again.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from worker.contract.exit_codes import ExitCode
from worker.contract.records import Done, Ready, WasReleased
from worker.contract.task_names import TaskFile
from worker.failures import lost_chief
from worker.imports import import_tensorflow
from worker.peers import admitted_alone, probes
from worker.peers.chief_watch import ChiefWatch
from worker.process.watch import Watch, stalled
from worker.reporting import Reporter
from worker.task import Task

_POLL_SECONDS = 0.1
_EMPTY_SECONDS = 1.0
_CHIEF_SECONDS = 2.0
"""Interval between two probes of the chief by a server that got SIGTERM; there may be 1,000 such servers."""
_HUNG_SECONDS = 60.0
"""A server looks for its release file ten times a second. One that has not looked for this long is hung, and
is ended. The chief would wait for it for ever; so this limit is below the time after which the chief itself
counts as stalled.
"""


_FILES: tuple[TaskFile, ...] = ("released", "leaving", "dismissed", "chief", "profile")


def forget_release(task: Task) -> None:
    """Removes the files that an earlier container of this pod got. Call it before the server is up."""
    for path in map(task.file, _FILES):
        if path is not None:
            path.unlink(missing_ok=True)


def serve(task: Task, reporter: Reporter, watch: Watch) -> int:
    """Runs the server. Returns the exit code."""
    tf = import_tensorflow(keras=False)
    from worker import devices
    from worker.parameter_server import admission
    from worker.parameter_server.server_profiles import ServerProfile

    devices.check(task)
    devices.report(task, reporter, tasks=int(task.role == "worker"))
    if task.elastic is not None:
        admission.introduce(task)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
        start=True,
        config=devices.server_options(task),
    )
    reporter.emit(Ready())
    watch.came_further()
    watch.expect(stalled("serving", min(_HUNG_SECONDS, task.config.stall_seconds / 2)))
    outcome = _until_released(task, watch, ServerProfile(task).look)
    reporter.emit(WasReleased(outcome))
    reporter.emit(Done())
    del server
    return ExitCode.DONE


class _Sigterm:
    """Notes SIGTERM from now on, and ends the process after it once the chief does not need it any more."""

    def __init__(self, task: Task, chief: ChiefWatch | None) -> None:
        self._chief = chief
        self._path = task.file("leaving")
        self._dismissed = task.file("dismissed")
        self._came = False
        self._look_at = 0.0
        if self._chief and self._path:
            signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = True

    def look(self) -> None:
        """Writes the file that the chief reads after SIGTERM, and ends the process if the chief has saved or
        does not train. The main loop calls it often.
        """
        if not self._came:
            return
        if self._dismissed is not None and self._dismissed.exists():
            os._exit(ExitCode.PREEMPTED)
        now = time.monotonic()
        if now < self._look_at:
            return
        if self._path is not None and not self._path.exists():
            self._path.touch()
        # A chief that waits for its tasks accepts connections, but has no gRPC server.
        if self._chief is None or all(map(probes.fault, self._chief.places)):
            os._exit(ExitCode.PREEMPTED)
        self._look_at = now + _CHIEF_SECONDS * random.uniform(0.5, 1.0)  # noqa: S311 - jitter


def _until_released(task: Task, watch: Watch, look: Callable[[], None]) -> str:
    """Returns the outcome that the chief has written. `look` is called in each round."""
    path = task.file("released")
    config = task.config
    patience = admitted_alone.patience(task, config.chief_lost_seconds)
    starting = admitted_alone.patience(task, config.starting_deadline_seconds)
    chief = ChiefWatch(config.chief_address, patience, starting) if config.chief_address else None
    sigterm = _Sigterm(task, chief)
    while True:
        if path is not None and path.exists():
            return _outcome(path)
        if chief is not None and chief.lost:
            raise admitted_alone.gives_way(patience) if task.is_extra else lost_chief(patience)
        sigterm.look()
        look()
        watch.alive()
        time.sleep(_POLL_SECONDS)


def _outcome(path: Path) -> str:
    """Returns the text of the release file. The file exists a moment before its text is there."""
    deadline = time.monotonic() + _EMPTY_SECONDS
    while True:
        text = path.read_text(encoding="utf-8", errors="replace")
        if text or time.monotonic() > deadline:
            return text
        time.sleep(0.01)
