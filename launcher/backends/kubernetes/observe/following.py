"""A run's updates and logs while it goes on."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from launcher.backends.base import LogLine, Selection, Update
from launcher.backends.earlier_processes import of_earlier_processes
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.api_server.parallel import together
from launcher.backends.kubernetes.observe import other_logs
from launcher.backends.kubernetes.observe.log_choice import has_begun, tells_progress
from launcher.backends.kubernetes.observe.other_logs import TAIL_LINES
from launcher.backends.kubernetes.observe.pod_logs import LogSource, PodLog
from launcher.backends.kubernetes.observe.session import (
    TICK_SECONDS,
    Session,
    look,
    namespace_dies,
    note_dying_namespace,
    notice,
)
from launcher.backends.kubernetes.run_end import stopping
from launcher.backends.kubernetes.run_end.enforcement import CleanUp, CleanUpSettings
from launcher.backends.kubernetes.state.clock_skew import disagreement, local_lines, local_status
from launcher.backends.kubernetes.state.root_object import RootObject
from launcher.backends.kubernetes.state.run_state import RunState, SlimPod
from launcher.backends.latest_records import HEAD_BYTES, LatestRecords, written_once
from launcher.errors import BackendError, NotFoundError
from launcher.object_names import ROLE_LABEL
from launcher.status import ATTEMPT_ANNOTATION, Phase, Records, RunStatus, task_of
from worker.contract.records import Event

Attempt = tuple[str, int, int]
"""Role, index, and which of the task's pods."""

_PROGRESS_LINES: Final = 100
"""The same if the logs of all runs are searched."""

_FAILED_TAILS: Final = 8
"""Failed pods of a role whose logs are read; a thousand may fail for the same reason."""

_FAILURE_SECONDS: Final = 10.0
"""From a failure to the end of its task, whose log is read only since it has failed."""
_PAST_SECONDS: Final = 2.0
"""What else such a task did so long before its end is no news."""

_LAST_WORDS_SECONDS: Final = 15.0
"""Time to read the rest of the logs when the run has ended."""

_HANGING_SECONDS: Final = 5.0
"""After which a log that has not ended by then is taken to hang."""

_NAMESPACE_SECONDS: Final = 5.0
"""Interval between two looks at the namespace of a run none of whose pods goes on."""

_MOST_STREAMS: Final = 50
"""Logs followed at once, each on a connection of its own."""


def read_status(client: Client, namespace: str, root: RootObject) -> RunStatus:
    """The run as it is now, with the records at the end of the logs that tell of its progress."""
    run_state = look(client, namespace, root)
    records = LatestRecords()
    status = run_state.status(records.of_task)
    failed = {task.name for task in status.failures}
    pods = {task_of(pod): pod for pod in run_state.pods() if has_begun(pod)}  # the last attempt of each
    names = {(task.role, task.index): task.name for task in status.tasks}
    for task, pod in pods.items():
        if tells_progress(run_state, pod) or names.get(task) in failed:
            try:
                log = PodLog(client, LogSource.of(pod, namespace))
                with client.patience.waiting():
                    lines = list(log.read(tail=TAIL_LINES, within=client.patience.left()))
                if len(lines) >= TAIL_LINES:
                    records.add(_beginning(client, namespace, pod))
                records.add(lines)
            except BackendError:
                continue  # the node does not answer, or the log was deleted; the status is known without it
    records.add(other_logs.read(client, namespace, other_logs.others(run_state, root)))
    return local_status(run_state.status(records.of_task), client.ahead)


def with_progress(client: Client, runs: Sequence[tuple[str, RunState]]) -> list[RunStatus]:
    """The statuses of runs, each in its namespace. Those that run have the records at the end of the logs
    that report progress.
    """
    statuses = [run_state.status({}) for _, run_state in runs]
    calls = [
        partial(_last_records, client, namespace, run_state if status.phase is Phase.RUNNING else None)
        for (namespace, run_state), status in zip(runs, statuses, strict=True)
    ]
    pairs = zip(statuses, together(calls), strict=True)
    return [dataclasses.replace(status, records=records) for status, records in pairs]


def _last_records(client: Client, namespace: str, run_state: RunState | None) -> Records:
    records = LatestRecords()
    pods = run_state.pods() if run_state is not None else []
    for pod in {task_of(pod): pod for pod in pods if has_begun(pod)}.values():
        if run_state is not None and tells_progress(run_state, pod):
            # Without a node that answers, or a log, the status itself is still known.
            with contextlib.suppress(BackendError):
                records.add(PodLog(client, LogSource.of(pod, namespace)).read(tail=_PROGRESS_LINES))
    return records.of_task


def _beginning(client: Client, namespace: str, pod: SlimPod) -> list[LogLine]:
    """The records that a task writes once, from the beginning of its log."""
    head = PodLog(client, LogSource.of(pod, namespace)).read(head=HEAD_BYTES)
    return written_once(head)


def follow(client: Client, namespace: str, root: RootObject, settings: CleanUpSettings) -> Iterator[Update]:
    """See `base.Backend.follow`. What is left when the primary has ended is stopped."""
    records = LatestRecords()
    status: RunStatus | None = None
    with Session(client, namespace, root) as session:
        began_before_us: set[str] | None = None
        failed: set[Attempt] = set()
        clean_up = CleanUp(client, settings)
        skew_reported = False
        look_at = 0.0
        others = other_logs.OtherLogs(client, namespace, root)
        while True:
            news = session.pump()
            if not session.ready:
                # The caller has found the run, so the lists will come, unless the server is away.
                continue
            if session.run_state.deleted:
                last = news.lines + _last_words(session)
                records.add(last)
                final = _at_deletion(client, namespace, session.run_state, records, root.run)
                yield _update(client, final, last)
                return
            if news.changed or began_before_us is None:
                pods = session.run_state.pods()
                if began_before_us is None:
                    began_before_us = {pod["metadata"]["name"] for pod in pods}
                    for pod in filter(has_begun, pods):
                        if tells_progress(session.run_state, pod):
                            with contextlib.suppress(BackendError):
                                records.add(_beginning(client, namespace, pod))
                failed |= _tail(session, pods, began_before_us)
            if session.run_state.stands_still and (now := time.monotonic()) > look_at:
                look_at = now + _NAMESPACE_SECONDS
                if note_dying_namespace(client, namespace, session.run_state):
                    status = None
            lines_of_others = others.look(session.run_state)
            of_others = records.add(lines_of_others)
            if records.add(news.lines) or of_others or news.changed or status is None:
                status = session.run_state.status(records.of_task)
            notices = [*news.notices, *clean_up.see_to(status, session.run_state)]
            if client.ahead and not skew_reported:
                skew_reported = True
                notices.append(disagreement(client.ahead))
            lines = _without_past(news.lines, failed, status)
            lines += [*others.new_restarts(lines_of_others), *map(notice, notices)]
            if status.ended or clean_up.gave_up:
                last = _last_words(session)
                records.add(last)
                records.add(other_logs.read(client, namespace, other_logs.others(session.run_state, root)))
                final = dataclasses.replace(session.run_state.status(records.of_task), ended=True)
                yield _update(client, final, lines + _without_past(last, failed, final))
                return
            yield _update(client, status, lines)


def _update(client: Client, status: RunStatus, lines: list[LogLine]) -> Update:
    return Update(local_status(status, client.ahead), local_lines(lines, client.ahead))


def _at_deletion(
    client: Client, namespace: str, run_state: RunState, records: LatestRecords, run: str
) -> RunStatus:
    """The status of a run that was deleted while it was followed. Raises NotFoundError unless it had ended
    before, as when its ttlSecondsAfterFinished is over.
    """
    if run_state.primary is None or not stopping.is_over(run_state.primary):
        dies = namespace_dies(client, namespace)
        raise NotFoundError(f"run {run} was deleted{f' with its namespace {namespace}' if dies else ''}")
    return dataclasses.replace(run_state.status(records.of_task), ended=True)


def _tail(session: Session, pods: Iterable[SlimPod], began_before_us: set[str]) -> set[Attempt]:
    """Returns the attempts whose logs are read because they have failed."""
    failed: Counter[str] = Counter()
    attempts = set()
    for pod in pods:
        if not has_begun(pod):
            continue
        name = pod["metadata"]["name"]
        if session.tailed(pod) or tells_progress(session.run_state, pod):
            session.tail(pod, lines=TAIL_LINES if name in began_before_us else None)
        elif pod["status"]["phase"] == "Failed":
            role = pod["metadata"]["labels"].get(ROLE_LABEL, "")
            failed[role] += 1
            if failed[role] <= _FAILED_TAILS:
                session.tail(pod, lines=TAIL_LINES)
                attempts.add((*task_of(pod), _attempt(pod)))
    return attempts


def _without_past(lines: Sequence[LogLine], failed: Collection[Attempt], status: RunStatus) -> list[LogLine]:
    """Leaves out what the `failed` attempts have reported long before their ends. Lines of the program stay:
    the last ones are told.
    """
    every = [each for task in status.tasks for each in (task, task.before) if each is not None]
    ends = {(each.role, each.index, each.attempt): each.finished for each in every}

    def is_past(line: LogLine) -> bool:
        attempt = (line.role, line.index, line.attempt)
        end = ends.get(attempt) if attempt in failed else None
        if line.record is None or end is None:
            return False
        seconds = _FAILURE_SECONDS if line.record.event == Event.FAILED else _PAST_SECONDS
        return line.record.time < end - seconds

    return [line for line in lines if not is_past(line)]


def _last_words(session: Session) -> list[LogLine]:
    session.end_tails()
    lines: list[LogLine] = []
    now = time.monotonic()
    until, hanging = now + _LAST_WORDS_SECONDS, now + _HANGING_SECONDS
    while session.reading and time.monotonic() < until:
        lines += session.pump(TICK_SECONDS).lines
        if time.monotonic() > hanging:
            hanging = until
            session.read_rest()
    return lines + session.pump(0).lines


def logs(
    client: Client,
    namespace: str,
    root: RootObject,
    selection: Selection,
    settings: CleanUpSettings,
    *,
    until_end: bool,
) -> Iterator[LogLine]:
    """See `base.Backend.logs`. What is left when the primary has ended is stopped, if they are followed."""
    run_state = look(client, namespace, root)
    status = run_state.status({})
    desired = {role.role: role.desired for role in status.roles}
    pods = [(*task_of(pod), str(pod["metadata"]["name"])) for pod in run_state.pods()]
    selection.check(root.run, desired, pods)
    return _lines(client, namespace, root, selection, settings, run_state, until_end)


def _lines(
    client: Client,
    namespace: str,
    root: RootObject,
    selection: Selection,
    settings: CleanUpSettings,
    run_state: RunState,
    until_end: bool,
) -> Iterator[LogLine]:
    chosen = _chosen(root.run, run_state, selection)
    latest = _latest(run_state.pods())
    running = sum(1 for pod in chosen if pod["status"]["phase"] in ("Pending", "Running"))
    if until_end and running > _MOST_STREAMS:
        raise BackendError(
            f"that would follow {running} logs at once, and {_MOST_STREAMS} is the most",
            "Choose tasks with --role and --index.",
        )
    read: dict[str, PodLog] = {}
    failure: BackendError | None = None
    some = False
    for pod in filter(has_begun, chosen):
        log = PodLog(client, LogSource.of(pod, namespace))
        read[pod["metadata"]["name"]] = log
        try:
            if selection.previous and _attempt(pod) == latest[task_of(pod)]:
                lines = of_earlier_processes(log.read(since=selection.since), selection.tail)
            else:
                lines = log.read(since=selection.since, tail=selection.tail)
            for line in lines:
                some = True
                yield line
        except BackendError as error:
            failure = failure or error  # the other nodes' logs can be read
    if failure is not None and not some and not until_end:
        raise failure
    if until_end and not run_state.status({}).ended:
        clean_up = CleanUp(client, settings)
        yield from _follow_logs(client, namespace, root, selection, read, clean_up)


def _chosen(run: str, run_state: RunState, selection: Selection) -> list[SlimPod]:
    """The pods, role by role and task by task, oldest first."""
    order = {job["metadata"]["uid"]: number for number, job in enumerate(run_state.jobs)}
    chosen = [pod for pod in run_state.pods() if selection.takes(run, *task_of(pod), pod["metadata"]["name"])]
    return sorted(
        chosen,
        key=lambda pod: (min(order.get(uid, 99) for uid in pod["metadata"]["owners"]), task_of(pod)[1]),
    )


def _latest(pods: Sequence[SlimPod]) -> dict[tuple[str, int], int]:
    """The attempt of each task's latest pod: the last one overwrites the others."""
    return {task_of(pod): _attempt(pod) for pod in pods}


def _attempt(pod: SlimPod) -> int:
    return int(pod["metadata"]["annotations"][ATTEMPT_ANNOTATION])


def _follow_logs(
    client: Client,
    namespace: str,
    root: RootObject,
    selection: Selection,
    read: dict[str, PodLog],
    clean_up: CleanUp,
) -> Iterator[LogLine]:
    status: RunStatus | None = None
    with Session(client, namespace, root) as session:
        while True:
            news = session.pump()
            yield from news.lines
            if not session.ready:
                continue
            if session.run_state.deleted:
                break
            if news.changed or status is None:
                for pod in session.run_state.pods():
                    if selection.takes(root.run, *task_of(pod), pod["metadata"]["name"]) and has_begun(pod):
                        session.tail(pod, lines=None, log=read.get(pod["metadata"]["name"]))
                status = session.run_state.status({})
            clean_up.see_to(status, session.run_state)
            if status.ended or clean_up.gave_up:
                break
        yield from _last_words(session)
