"""What those tasks tell whose logs are not followed: restarts in their pods, where the time of their steps
goes, and what they have measured of their nodes.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from launcher.backends.base import LogLine
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.api_server.parallel import together
from launcher.backends.kubernetes.observe.log_choice import has_begun, tells_progress
from launcher.backends.kubernetes.observe.pod_logs import LogSource, PodLog
from launcher.backends.kubernetes.state.root_object import RootObject
from launcher.backends.kubernetes.state.run_state import RunState, SlimPod
from launcher.backends.latest_records import HEAD_BYTES, written_once
from launcher.errors import BackendError
from launcher.status import task_of
from worker.contract.records import Event

TAIL_LINES: Final = 400
"""Lines at the end of an older log that are searched for records."""
_EVENTS: Final = (Event.RESTARTED, Event.SPENT, Event.PRECHECKED)
_MOST: Final = 64
_MOST_PRECHECKS: Final = 1_000
"""Where each task has measured its node, and any may be far off."""
_SECONDS: Final = 5.0
"""For all of them: a node may not answer, and all else is known without it."""
_INTERVAL_SECONDS: Final = 10.0
_FEW_LINES: Final = 50
"""Lines that a task may print from one look to the next; of more, the last ones count."""


def read(client: Client, namespace: str, pods: Sequence[SlimPod], tail: int = TAIL_LINES) -> list[LogLine]:
    """The records of these pods at the end of their logs, and those that a task writes once."""
    until = time.monotonic() + _SECONDS
    lines_per_pod = together([partial(_of_pod, client, namespace, tail, until, pod) for pod in pods])
    return [line for lines in lines_per_pod for line in lines]


def others(run_state: RunState, root: RootObject) -> list[SlimPod]:
    """The latest pods of the tasks whose logs are not followed, as many as are read."""
    most = _MOST_PRECHECKS if root.prechecks else _MOST
    latest = {task_of(pod): pod for pod in run_state.pods() if has_begun(pod)}
    return [pod for pod in latest.values() if not tells_progress(run_state, pod)][:most]


def _of_pod(client: Client, namespace: str, tail: int, until: float, pod: SlimPod) -> list[LogLine]:
    """The same of one pod, until that monotonic time."""
    left = until - time.monotonic()
    if left <= 0:
        return []
    try:
        log = PodLog(client, LogSource.of(pod, namespace))
        lines = list(log.read(tail=tail, within=left))
        if len(lines) >= TAIL_LINES:
            head = PodLog(client, LogSource.of(pod, namespace)).read(head=HEAD_BYTES)
            lines = [*written_once(head), *lines]
    except BackendError:
        return []
    return [line for line in lines if line.record is not None and line.record.event in _EVENTS]


class OtherLogs:
    """Reads them again and again while a run is followed, in a thread that nobody waits for."""

    def __init__(self, client: Client, namespace: str, root: RootObject) -> None:
        self._client = client
        self._namespace = namespace
        self._root = root
        self._lines: queue.SimpleQueue[list[LogLine]] = queue.SimpleQueue()
        self._next = 0.0
        self._known: set[str] = set()
        """The names of pods that were read before."""
        self._restarts: set[tuple[str, int, float]] = set()

    def look(self, run_state: RunState) -> list[LogLine]:
        """Returns what has been read since the last call, and begins to read again when it is time."""
        lines: list[LogLine] = []
        while not self._lines.empty():
            lines += self._lines.get()
        if time.monotonic() >= self._next and (pods := others(run_state, self._root)):
            self._next = float("inf")
            threading.Thread(target=self._read, args=[pods], name="other-logs", daemon=True).start()
        return lines

    def new_restarts(self, lines: Sequence[LogLine]) -> list[LogLine]:
        """Returns those of the lines that tell of a restart in its pod, each once: lines are read again."""
        new = []
        for line in lines:
            if line.record is not None and line.record.event == Event.RESTARTED:
                restart = (line.role, line.index, line.record.time)
                new += [line] if restart not in self._restarts else []
                self._restarts.add(restart)
        return new

    def _read(self, pods: Sequence[SlimPod]) -> None:
        try:
            known = [pod for pod in pods if pod["metadata"]["name"] in self._known]
            new = [pod for pod in pods if pod["metadata"]["name"] not in self._known]
            self._lines.put(read(self._client, self._namespace, new))
            self._lines.put(read(self._client, self._namespace, known[:_MOST], _FEW_LINES))
            self._known |= {pod["metadata"]["name"] for pod in new}
        finally:
            self._next = time.monotonic() + _INTERVAL_SECONDS
