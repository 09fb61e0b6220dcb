"""An answer that goes on: a watch, or a log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from launcher.backends.kubernetes.api_server.api_errors import UnreachableError
from launcher.backends.kubernetes.api_server.transport import Answer


class Stream:
    """`close` may be called from any thread, and ends `lines`. `unreachable` makes an error of an OSError."""

    def __init__(self, answer: Answer, unreachable: Callable[[BaseException], UnreachableError]) -> None:
        self._answer = answer
        self._unreachable = unreachable
        self._closed = False
        self._late = False

    def lines(self, longest: int | None = None, seconds: float | None = None) -> Iterator[bytes]:
        """Yields the lines without line ends, cut off after `longest` bytes. The last one may be incomplete.

        Raises UnreachableError if the connection breaks, or reading takes more than so many seconds.
        """
        rest = b""
        timer = None if seconds is None else threading.Timer(seconds, self._expire)
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            for chunk in self._answer.stream():
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    yield line[:longest]
                rest = rest[:longest]
            if self._late:
                raise TimeoutError("timed out")
        except OSError as error:
            if self._late:
                raise self._unreachable(TimeoutError("timed out")) from None
            if not self._closed:
                raise self._unreachable(error) from error
            return
        finally:
            if timer is not None:
                timer.cancel()
            # A connection with unread data cannot be used again.
            self._answer.close()
        if rest and not self._closed:
            yield rest

    def _expire(self) -> None:
        self._late = True
        self.close()

    def close(self) -> None:
        """Ends the stream."""
        self._closed = True
        try:
            self._answer.shut()
        except (ValueError, OSError):  # it has ended already
            pass
