"""The state of one run, kept up to date by watches and log streams."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from launcher.backends.base import PROGRAM, LogLine
from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.observe.pod_logs import LogSource, PodLog, Tail, Unread
from launcher.backends.kubernetes.observe.watch import (
    Changed,
    Denied,
    Listed,
    Lost,
    Mailbox,
    ObjectWatch,
    Regained,
)
from launcher.backends.kubernetes.state.root_object import RootObject
from launcher.backends.kubernetes.state.run_state import RunState, SlimPod, has_ended
from launcher.errors import BackendError
from worker.contract.records import Event, Record

TICK_SECONDS: Final = 0.25
_TOGETHER_SECONDS: Final = 0.2
"""Changes within this time are handled together: a thousand pods start within seconds."""

GIVE_UP_SECONDS: Final = 900.0
"""After so long without an answer, the command gives up. An upgrade of a control plane takes minutes."""

_JOIN_SECONDS: Final = 1.0


def look(client: Client, namespace: str, root: RootObject) -> RunState:
    """The state of the run as it is now: each kind is listed once."""
    run_state = root.run_state()
    for kind, seen in root.seen.items():
        try:
            items, _ = client.list(kind, namespace, seen.labels, seen.fields)
        except BackendError:
            # A user without the right to read events can still see the run.
            if seen.needed:
                raise
            continue
        run_state.replace(kind, [seen.slim(item) for item in items])
    note_dying_namespace(client, namespace, run_state)
    return run_state


def note_dying_namespace(client: Client, namespace: str, run_state: RunState) -> bool:
    """Looks whether a run stands still because its namespace is being deleted. Returns whether it is."""
    if run_state.stands_still and namespace_dies(client, namespace):
        run_state.dying_namespace = namespace
    return bool(run_state.dying_namespace)


def namespace_dies(client: Client, namespace: str) -> bool:
    """Whether the namespace is being deleted, or is gone. Who may not look at it does not know."""
    try:
        return (client.namespace(namespace).get("status") or {}).get("phase") == "Terminating"
    except BackendError as error:
        return isinstance(error, ApiError) and error.status == 404


@dataclass(frozen=True)
class News:
    """What has come since the last call. `notices` are sentences about the connection."""

    changed: bool
    lines: list[LogLine]
    notices: list[str]


class Session:
    """Watches a run until it is closed; a context manager. Its threads read; the caller's thread takes what
    they have read, with `pump`.
    """

    def __init__(self, client: Client, namespace: str, root: RootObject) -> None:
        self.run_state = root.run_state()
        self._client = client
        self._run = root.run
        self._needed = {kind for kind, seen in root.seen.items() if seen.needed}
        self._namespace = namespace
        self._mailbox = Mailbox()
        self._watches: list[ObjectWatch] = []
        self._tails: dict[str, Tail] = {}
        """By the pod's name."""
        self._listed: set[str] = set()
        self._lost: set[str] = set()
        self._has_unread_log = False
        self._lost_since = 0.0
        for kind, seen in root.seen.items():
            self._watches.append(
                ObjectWatch(
                    client,
                    self._mailbox,
                    kind,
                    namespace,
                    labels=seen.labels,
                    fields=seen.fields,
                    slim=seen.slim,
                )
            )

    def __enter__(self) -> Session:
        self._client.patience.lift()
        for watch in self._watches:
            watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._mailbox.closed.set()
        threads: list[ObjectWatch | Tail] = [*self._watches, *self._tails.values()]
        for thread in threads:
            thread.stop()
        until = time.monotonic() + _JOIN_SECONDS
        for thread in threads:
            # A thread that is just connecting ends later by itself.
            thread.join(max(0.0, until - time.monotonic()))
        self._client.patience.restart()

    @property
    def ready(self) -> bool:
        """Whether all that is needed has been seen once."""
        return self._listed >= self._needed

    @property
    def reading(self) -> bool:
        """Whether a log is still being read."""
        return any(tail.is_alive() for tail in self._tails.values())

    def pump(self, seconds: float = TICK_SECONDS) -> News:
        """Takes what has come; waits so long for something to come.

        Raises BackendError when the server refuses, or has been away for too long.
        """
        messages = self._mailbox.get(seconds)
        if messages:
            time.sleep(_TOGETHER_SECONDS)
            messages += self._mailbox.get(0)
        changed, lines, notices = False, [], []
        for message in messages:
            if isinstance(message, LogLine):
                lines.append(message)
            elif isinstance(message, Listed):
                self.run_state.replace(message.kind, message.items)
                self._listed.add(message.kind)
                changed = True
            elif isinstance(message, Changed):
                take = self.run_state.drop if message.gone else self.run_state.put
                take(message.kind, message.item)
                changed = True
            elif isinstance(message, Unread):
                notices += self._unread_log(message)
            else:
                notices += self._connection(message)
        if self._lost and time.monotonic() - self._lost_since > GIVE_UP_SECONDS:
            raise self._given_up()
        return News(changed, lines, notices)

    def tail(self, pod: SlimPod, *, lines: int | None, log: PodLog | None = None) -> None:
        """Begins to read the log of a pod that runs or has ended, unless that was done before."""
        name = pod["metadata"]["name"]
        tail = self._tails.get(name)
        if tail is None:
            source = LogSource.of(pod, self._namespace)
            tail = self._tails[name] = Tail(self._client, self._mailbox, source, tail=lines, log=log)
            if has_ended(pod):
                tail.pod_ended()
            tail.start()
        elif has_ended(pod):
            tail.pod_ended()

    def tailed(self, pod: SlimPod) -> bool:
        """Whether the pod's log is or was being read."""
        return pod["metadata"]["name"] in self._tails

    def end_tails(self) -> None:
        """Tells the log readers that all pods have ended."""
        for tail in self._tails.values():
            tail.pod_ended()

    def read_rest(self) -> None:
        """Reads what is left of the logs on new connections: those there are may hang."""
        for tail in self._tails.values():
            tail.read_rest()

    def _unread_log(self, message: Unread) -> list[str]:
        """One log speaks for all: where a node does not answer, none of its pods' can be read."""
        if self._has_unread_log or self._lost:
            return []
        self._has_unread_log = True
        whose = f"{message.source.role} {message.source.index}"
        reason = f"the log of {whose} cannot be read: {message.error.words}"
        return [f"{reason}. The run goes on, and its lines come when its node answers"]

    def _connection(self, message: Lost | Regained | Denied) -> list[str]:
        if message.kind not in self._needed:
            return []
        if isinstance(message, Denied):
            message.error.hint = f"The run is still running. {message.error.hint}"
            raise message.error
        if isinstance(message, Lost):
            before = bool(self._lost)
            self._lost.add(message.kind)
            if before:
                return []
            self._lost_since = time.monotonic()
            return [f"{message.error.message}; the run is still running, and is looked for again"]
        self._lost.discard(message.kind)
        return [] if self._lost else ["the API server answers again"]

    def _given_up(self) -> BackendError:
        space = self._client.connection.options(self._namespace)
        return BackendError(
            f"the API server {self._client.connection.host} has not answered for {GIVE_UP_SECONDS:.0f} s",
            f"The run is still running; follow it with: {PROGRAM} wait {self._run}{space}",
        )


def notice(text: str) -> LogLine:
    """A sentence about the run itself, as a line among its tasks' lines."""
    record = Record(Event.NOTICE, "run", time.time(), {"message": text})
    return LogLine("run", 0, 0, text, record)
