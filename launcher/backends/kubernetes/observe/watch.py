"""Lists and watches one kind of objects, and goes on after dropped connections, expired resourceVersions and
restarts of the API server.
"""

from __future__ import annotations

import json
import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from launcher.backends.kubernetes.api_server.api_errors import ApiError, UnreachableError, not_understood
from launcher.backends.kubernetes.api_server.client import Client, Object
from launcher.backends.kubernetes.api_server.streams import Stream
from launcher.errors import BackendError

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 8.0
_LONGEST_RETRY: Final = 60.0
"""The longest pause between two tries, also where the server asks for a longer one."""

_PUT_SECONDS: Final = 0.5
_GONE: Final = 410
"""The resourceVersion is too old to watch from."""

REFUSALS: Final = 6
"""How many times in a row the server may refuse a request that it has granted before: a token may have to be
renewed, and a server that has just started does not know all rights yet.
"""


@dataclass(frozen=True)
class Listed:
    """All objects of a kind, slim. They replace what was known before."""

    kind: str
    items: list[Any]


@dataclass(frozen=True)
class Changed:
    """One object, slim; `gone`: it was deleted."""

    kind: str
    item: Any
    gone: bool


@dataclass(frozen=True)
class Lost:
    """The server cannot be reached, or cannot answer; it is tried again."""

    kind: str
    error: BackendError


@dataclass(frozen=True)
class Regained:
    """It answers again."""

    kind: str


@dataclass(frozen=True)
class Denied:
    """The server refuses for good."""

    kind: str
    error: BackendError


class Mailbox:
    """A queue from the threads to the one that reads. When it is full, the threads wait."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(20_000)
        self.closed = threading.Event()

    def put(self, message: object) -> bool:
        """False once nobody reads any more."""
        while not self.closed.is_set():
            try:
                self._queue.put(message, timeout=_PUT_SECONDS)
                return True
            except queue.Full:
                continue
        return False

    def get(self, seconds: float) -> list[Any]:
        """All messages; waits so long for the first one."""
        messages = []
        try:
            messages.append(self._queue.get(timeout=seconds))
            while True:
                messages.append(self._queue.get_nowait())
        except queue.Empty:
            return messages


class ObjectWatch(threading.Thread):
    """Sends `Listed`, then `Changed` and the rest, to the mailbox until it is stopped.

    `slim` takes from an object what is needed, so that the rest is not kept in memory.
    """

    def __init__(
        self,
        client: Client,
        mailbox: Mailbox,
        kind: str,
        namespace: str,
        *,
        labels: str = "",
        fields: str = "",
        slim: Callable[[Object], Any],
    ) -> None:
        super().__init__(name=f"watch-{kind}", daemon=True)
        self._client = client
        self._mailbox = mailbox
        self._kind = kind
        self._where = (namespace, labels, fields)
        self._slim = slim
        self._stream: Stream | None = None
        self._stopped = threading.Event()
        self._version: str | None = None
        self._begun = False
        self._lost = False
        self._lively = False

    def stop(self) -> None:
        """Ends the thread soon; does not wait for it."""
        self._stopped.set()
        if (stream := self._stream) is not None:
            stream.close()

    def run(self) -> None:
        """The thread."""
        pause, refusals = _FIRST_PAUSE, 0
        while not self._stopped.is_set():
            self._lively = False
            began = time.monotonic()
            failure: BackendError | None = None
            try:
                self._once()
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                self._mailbox.put(Denied(self._kind, not_understood(error, self._client.connection.host)))
                return
            except (ApiError, UnreachableError) as error:
                if isinstance(error, ApiError) and error.status == _GONE:
                    self._version = None
                else:
                    failure = error
            if self._stopped.is_set():
                return
            if self._lively or time.monotonic() - began > _LONGEST_PAUSE:
                pause, refusals = _FIRST_PAUSE, 0
            if failure is not None:
                refused = isinstance(failure, ApiError) and not failure.passing
                refusals = refusals + 1 if refused else 0
                if refusals >= (REFUSALS if self._begun else 1):
                    self._mailbox.put(Denied(self._kind, failure))
                    return
                if not self._lively:
                    self._lose(failure)
            if failure is not None or not self._lively:
                after = min(getattr(failure, "retry_after", None) or 0.0, _LONGEST_RETRY)
                self._stopped.wait(max(after, pause * random.uniform(0.7, 1.0)))  # noqa: S311
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _once(self) -> None:
        if self._version is None:
            items, version = self._client.list(self._kind, *self._where, repeated=False)
            self._mailbox.put(Listed(self._kind, [self._slim(item) for item in items]))
            self._version = version
            self._begun = True
        self._stream = self._client.watch(self._kind, self._where[0], self._version, *self._where[1:])
        if self._stopped.is_set():
            self._stream.close()
        self._regain()
        for line in self._stream.lines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                return  # cut off in the middle; what was cut off comes again
            self._take(event["type"], event["object"])

    def _take(self, kind: str, item: Object) -> None:
        if kind == "ERROR":
            code = item.get("code")
            status = code if isinstance(code, int) else 500
            raise ApiError(f"the watch ended: {item.get('message')}", status=status)
        self._lively = True
        self._version = item["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            self._mailbox.put(Changed(self._kind, self._slim(item), kind == "DELETED"))

    def _lose(self, error: BackendError) -> None:
        if not self._lost:
            self._lost = True
            self._mailbox.put(Lost(self._kind, error))

    def _regain(self) -> None:
        if self._lost:
            self._lost = False
            self._mailbox.put(Regained(self._kind))
