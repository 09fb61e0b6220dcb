"""A run's past: its pods with their times, the records in their logs, and the cluster's events."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from launcher.backends.base import History, LogLine
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.api_server.parallel import together
from launcher.backends.kubernetes.observe import events
from launcher.backends.kubernetes.observe.following import has_begun, task_of, tells_progress
from launcher.backends.kubernetes.observe.pod_logs import LogSource, PodLog
from launcher.backends.kubernetes.observe.session import look
from launcher.backends.kubernetes.state.clock_skew import local_history
from launcher.backends.kubernetes.state.root_object import RootObject
from launcher.backends.kubernetes.state.run_state import RunState, SlimPod
from launcher.backends.latest_records import LatestRecords
from launcher.errors import BackendError
from launcher.status import attempts, seconds

_MOST_LOGS: Final = 64
"""Logs that are read in addition to those with the progress. Of more pods only the times are shown."""

_MOST_LINES: Final = 200_000
"""Lines of one log: two days with one record per second."""


def read(client: Client, namespace: str, root: RootObject, spec: Mapping[str, Any]) -> History:
    """See `base.Backend.history`. Of the run with this `spec`.

    A log or the events that cannot be read are missing, and said to be.
    """
    run_state = look(client, namespace, root)
    pods = run_state.pods()
    missing: list[str] = []
    lines = _records(client, namespace, run_state, pods, missing)
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
    return local_history(seen, client.ahead)


def _records(
    client: Client, namespace: str, run_state: RunState, pods: Sequence[SlimPod], missing: list[str]
) -> list[LogLine]:
    begun = [pod for pod in pods if has_begun(pod)]
    telling = [pod for pod in begun if tells_progress(run_state, pod)]
    others = [pod for pod in begun if not tells_progress(run_state, pod)]
    # Failed pods first, then those that the report shows first.
    others.sort(key=lambda pod: (pod["status"]["phase"] != "Failed", task_of(pod)[1]))
    chosen = [*telling, *others[:_MOST_LOGS]]
    read = together([partial(_read, client, LogSource.of(pod, namespace)) for pod in chosen])
    failures = [found for found in read if isinstance(found, BackendError)]
    if failures:
        missing.append(f"{len(failures)} of {len(chosen)} logs could not be read: {failures[0].message}.")
    if len(others) > _MOST_LOGS:
        left = len(others) - _MOST_LOGS
        missing.append(f"The logs of {left} pods were not read: of those, only their pods' times are known.")
    return [line for found in read if not isinstance(found, BackendError) for line in found]


def _read(client: Client, source: LogSource) -> list[LogLine] | BackendError:
    try:
        with client.patience.waiting():
            found = PodLog(client, source).read(tail=_MOST_LINES, within=client.patience.left())
            return [line for line in found if line.record is not None]
    except BackendError as error:
        return error  # the other nodes' logs can be read
