"""One pod's log."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from launcher.backends.base import LogLine, log_lines
from launcher.backends.kubernetes.api_server.api_errors import ApiError, UnreachableError
from launcher.backends.kubernetes.api_server.client import SILENCE_SECONDS, Client
from launcher.backends.kubernetes.api_server.streams import Stream
from launcher.backends.kubernetes.observe.watch import REFUSALS, Mailbox
from launcher.backends.kubernetes.state.run_state import SlimPod
from launcher.object_names import CONTAINER
from launcher.status import ATTEMPT_ANNOTATION, seconds, task_of

_MAX_LINE_BYTES: Final = 1 << 20
"""A longer line is cut off."""

_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_FRACTION: Final = re.compile(r"\.[0-9]+")
_ANSWER_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE: Final = 15.0
_TRIES_AFTER_END: Final = 3
"""Tries to read the rest of a log when the pod has ended and its node does not answer."""

_UNREAD_TRIES: Final = 4
"""Tries in a row, of about 7 s together, after which it is said that a log cannot be read."""


@dataclass(frozen=True)
class LogSource:
    """Whose log."""

    namespace: str
    pod: str
    role: str
    index: int
    attempt: int

    @classmethod
    def of(cls, pod: SlimPod, namespace: str) -> LogSource:
        """The source for a pod whose attempt was counted."""
        metadata = pod["metadata"]
        return cls(
            namespace,
            metadata["name"],
            *task_of(pod),
            int(metadata["annotations"][ATTEMPT_ANNOTATION]),
        )


class PodLog:
    """Reads each line of a log once: after a dropped connection it goes on behind the last line's time."""

    def __init__(self, client: Client, source: LogSource) -> None:
        self.source = source
        self._client = client
        self._after = ""
        self._stream: Stream | None = None
        self._closed = False
        self._following = False

    @property
    def begun(self) -> bool:
        """Whether the server has ever sent something of it."""
        return self._stream is not None

    def end_following(self) -> None:
        """Ends a `read` with `follow`, from any thread; another one goes on behind its last line."""
        if self._following and (stream := self._stream) is not None:
            stream.close()

    def close(self) -> None:
        """Ends what is being read, from any thread."""
        self._closed = True
        if (stream := self._stream) is not None:
            stream.close()

    def read(
        self,
        *,
        tail: int | None = None,
        since: float | None = None,
        follow: bool = False,
        within: float | None = None,
        head: int | None = None,
    ) -> Iterator[LogLine]:
        """The lines after the last one that was read: at most the last `tail` ones, and only those of the
        last `since` seconds. With `follow`, also new ones until the container ends. Reading takes at most
        `within` seconds; None means no limit. `head`: only so many bytes from the beginning.

        Raises ApiError while there is no container, or the node or the log is gone.
        """
        query = {"container": CONTAINER, "timestamps": "true"}
        if follow:
            query["follow"] = "true"
        if tail is not None and not self._after:
            query["tailLines"] = str(tail)
        if head is not None:
            query["limitBytes"] = str(head)
        if self._after:
            query["sinceTime"] = self._after
        elif since is not None:
            query["sinceSeconds"] = str(max(1, math.ceil(since)))
        answer = _ANSWER_SECONDS if within is None else min(_ANSWER_SECONDS, within)
        # A quiet task's log is asked for anew: a connection that hangs looks the same.
        silence = SILENCE_SECONDS if follow else answer
        stream = self._client.log(self.source.namespace, self.source.pod, query, silence=silence)
        self._stream, self._following = stream, follow
        if self._closed:
            stream.close()
        source = self.source
        after = self._after
        for line in stream.lines(_MAX_LINE_BYTES, within):
            time, _, content = line.partition(b" ")
            stamp = time.decode(errors="replace")
            # kubelet answers in sentences of its own, such as "unable to retrieve container logs for ...".
            if not _STAMP.fullmatch(stamp):
                continue
            # sinceTime counts whole seconds, so some lines come again.
            if stamp <= after:
                continue
            self._after = stamp
            text = content.decode(errors="replace").rstrip("\r")
            yield from log_lines(source.role, source.index, source.attempt, text, _seconds(stamp))


def _seconds(stamp: str) -> float | None:
    """A time with up to nine digits of a second, of which Python reads six; None for what is no time."""
    whole = _FRACTION.sub("", stamp)
    fraction = _FRACTION.search(stamp)
    try:
        return (seconds(whole) or 0.0) + float(fraction[0] if fraction else 0)
    except ValueError:
        return None


@dataclass(frozen=True)
class Unread:
    """The API server answers, and cannot give the log of a pod that runs; it is asked again."""

    source: LogSource
    error: ApiError


class Tail(threading.Thread):
    """Sends the lines of a log to the mailbox, until its container has ended or it is stopped, and `Unread`
    once where it cannot.
    """

    def __init__(
        self,
        client: Client,
        mailbox: Mailbox,
        source: LogSource,
        *,
        tail: int | None,
        log: PodLog | None = None,
    ) -> None:
        super().__init__(name=f"log-{source.pod}", daemon=True)
        self._mailbox = mailbox
        self._log = log or PodLog(client, source)
        self._tail = tail
        self._stopped = threading.Event()
        self._over = threading.Event()

    def stop(self) -> None:
        """Ends the thread soon; does not wait for it."""
        self._stopped.set()
        self._over.set()
        self._log.close()

    def pod_ended(self) -> None:
        """Call it when the pod has ended: what cannot be read soon is given up."""
        self._over.set()

    def read_rest(self) -> None:
        """Call it when the pod has ended, and its log does not: the rest is asked for on a new connection."""
        self._log.end_following()

    def run(self) -> None:
        """The thread. What fails is tried again for as long as the pod runs."""
        tries, refusals, failures, pause = 0, 0, 0, _PAUSE_SECONDS
        while not self._stopped.is_set():
            over = self._over.is_set()
            try:
                for line in self._log.read(tail=self._tail, follow=not over):
                    refusals, failures, pause = 0, 0, _PAUSE_SECONDS
                    if not self._mailbox.put(line):
                        return
                if over:
                    return
                # Either the container has ended, or just the stream. `pod_ended` tells.
            except (LookupError, TypeError, ValueError, AttributeError):
                return  # what is no log
            except (ApiError, UnreachableError) as error:
                if isinstance(error, ApiError) and error.status in (403, 404):
                    refusals += 1
                    if error.status == 404 or refusals >= (REFUSALS if self._log.begun else 1):
                        return
                tries += over
                if tries >= _TRIES_AFTER_END:
                    return
                if isinstance(error, ApiError) and not over:
                    failures += 1
                    if failures == _UNREAD_TRIES:
                        self._mailbox.put(Unread(self._log.source, error))
            self._wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _wait(self, seconds: float) -> None:
        """Waits before the next try: at most until the pod has ended, and then for a fixed time."""
        if self._over.is_set():
            self._stopped.wait(_PAUSE_SECONDS)
        else:
            self._over.wait(seconds)
