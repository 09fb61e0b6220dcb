"""A run's past: its pods with their times, the records in their logs, and the cluster's events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from launcher.backends.base import History, LogLine
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.api_server.parallel import together
from launcher.backends.kubernetes.observe import events
from launcher.backends.kubernetes.observe.log_choice import has_begun, tells_progress
from launcher.backends.kubernetes.observe.pod_logs import LogSource, PodLog
from launcher.backends.kubernetes.observe.session import look
from launcher.backends.kubernetes.state.clock_skew import local_history
from launcher.backends.kubernetes.state.root_object import RootObject
from launcher.backends.kubernetes.state.run_state import RunState, SlimPod, has_ended
from launcher.backends.latest_records import LatestRecords
from launcher.errors import BackendError, NotFoundError
from launcher.status import attempts, seconds, task_of

_MOST_LOGS: Final = 64
"""Logs that are read in addition to those with the progress. Of more pods only the times are shown."""

_MOST_LINES: Final = 200_000
"""Lines of one log: two days with one record per second."""


def histories(client: Client, namespace: str, root: RootObject, spec: Mapping[str, Any]) -> Iterator[History]:
    """See `base.Backend.histories`. Of the run with this `spec`.

    A log or the events that cannot be read are missing, and said to be. Raises NotFoundError once the run is
    deleted.
    """
    logs = _Logs(client, namespace)
    while True:
        run_state = look(client, namespace, root)
        if run_state.deleted:
            raise NotFoundError(f"run {root.run} was deleted")
        pods = run_state.pods()
        lines, missing = logs.read(run_state, pods)
        try:
            happened = list(events.of_run(client, namespace, root, until_end=False))
        except BackendError as error:
            happened = []
            missing.append(f"The cluster's events could not be read: {error.message}.")
        records = LatestRecords()
        records.add(lines)
        seen = History(
            status=run_state.status(records.of_task),
            seen=time.time() - client.ahead,
            submitted=seconds(root.created),
            attempts=attempts(run_state.jobs, pods),
            lines=lines,
            events=happened,
            missing=missing,
            spec=spec,
        )
        yield local_history(seen, client.ahead)


class _Logs:
    """The records in the logs of a run's pods. Each line is read once."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._logs: dict[str, tuple[PodLog, list[LogLine]]] = {}
        """By the pod's name: its log, and the records of it."""
        self._whole: set[str] = set()

    def read(self, run_state: RunState, pods: Sequence[SlimPod]) -> tuple[list[LogLine], list[str]]:
        """All records until now, and sentences about what could not be read."""
        begun = [pod for pod in pods if has_begun(pod)]
        telling = [pod for pod in begun if tells_progress(run_state, pod)]
        others = [pod for pod in begun if not tells_progress(run_state, pod)]
        # Failed pods first, then those that the report shows first.
        others.sort(key=lambda pod: (pod["status"]["phase"] != "Failed", task_of(pod)[1]))
        chosen = [*telling, *others[:_MOST_LOGS]]
        for pod in chosen:
            log = PodLog(self._client, LogSource.of(pod, self._namespace))
            self._logs.setdefault(pod["metadata"]["name"], (log, []))
        failures = [error for error in together([partial(self._read, pod) for pod in chosen]) if error]
        missing = []
        if failures:
            text = f"{len(failures)} of {len(chosen)} logs could not be read: {failures[0].message}."
            missing.append(text)
        if len(others) > _MOST_LOGS:
            left = len(others) - _MOST_LOGS
            text = f"The logs of {left} pods were not read: of those, only their pods' times are known."
            missing.append(text)
        return [line for pod in chosen for line in self._logs[pod["metadata"]["name"]][1]], missing

    def _read(self, pod: SlimPod) -> BackendError | None:
        name = pod["metadata"]["name"]
        log, lines = self._logs[name]
        if name in self._whole:
            return None
        patience = self._client.patience
        try:
            with patience.waiting():
                for line in log.read(tail=_MOST_LINES, within=patience.left()):
                    if line.record is not None:
                        lines.append(line)
        except BackendError as error:
            return error  # the other nodes' logs can be read
        if has_ended(pod):
            self._whole.add(name)
        return None
