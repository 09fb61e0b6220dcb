"""How long a command waits for a server that does not answer, and what it says meanwhile."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from launcher.errors import BackendError

SECONDS: Final = 60.0
"""For all requests of a command together, unless an option says otherwise."""

OUTAGE_SECONDS: Final = 180.0
"""The same once the server has answered: one that is restarted or upgraded is away for a minute or two. A
shorter limit that the user has chosen stays.
"""

TELL_SECONDS: Final = 5.0
"""After so long without an answer, the user is told what the command waits for."""

T = TypeVar("T")


class OutOfPatienceError(BackendError):
    """No answer came within the command's time limit."""


class Patience:
    """The time limit of one command, in `seconds`; None means no limit. Only time during which a request is
    under way, or is about to be repeated, counts. `tell` gets a sentence, once for each silence.
    """

    def __init__(self, seconds: float | None = SECONDS, tell: Callable[[str], None] | None = None) -> None:
        self._limit = seconds or None
        self._tell = tell
        self._lock = threading.Lock()
        self._under_way = 0
        self._since = 0.0
        self._spent = 0.0
        self._lifted = False
        self._reported = False
        self.answered = False
        """Whether the server has once answered as it should."""

    def left(self) -> float | None:
        """Seconds that are left; None means no limit."""
        if self._limit is None or self._lifted:
            return None
        with self._lock:
            now = time.monotonic() - self._since if self._under_way else 0.0
            return max(0.0, self._limit - self._spent - now)

    def restart(self) -> None:
        """Starts the time limit anew: what follows is another matter, or the user chose to wait."""
        with self._lock:
            self._spent, self._since, self._lifted = 0.0, time.monotonic(), False

    def note_answer(self) -> None:
        """The server has answered as it should, so that what keeps it from answering again will pass."""
        self.answered = True
        if self._limit is not None and self._limit >= SECONDS:
            self._limit = max(self._limit, OUTAGE_SECONDS)

    def lift(self) -> None:
        """Removes the limit: the command follows a run, and a server may be away for long."""
        self._lifted = True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts the time within the block."""
        with self._lock:
            if not self._under_way:
                self._since = time.monotonic()
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                if not self._under_way:
                    self._spent += time.monotonic() - self._since
                    self._reported = False

    def call(self, work: Callable[[], T], what: str, *, limited: bool = True) -> T:
        """Calls `work` in a thread, and returns or raises what it does. If it takes longer than the time
        left, it is abandoned. `what` says in messages what is waited for, as in `the API server https://...`.
        `limited`: the limit is checked here, and not by `work`. Raises OutOfPatienceError.
        """
        if self._lifted:
            return work()
        # A thread of its own, because name resolution, for one, cannot be interrupted.
        outcome: queue.SimpleQueue[tuple[list[T], BaseException | None]] = queue.SimpleQueue()

        def run() -> None:
            try:
                outcome.put(([work()], None))
            except BaseException as error:  # noqa: BLE001 - raised again by who waits
                outcome.put(([], error))

        began = time.monotonic()
        with self.waiting():
            threading.Thread(target=run, name="request", daemon=True).start()
            while True:
                left = self.left() if limited else None
                silence = TELL_SECONDS - (time.monotonic() - began)
                ends = [] if left is None else [left]
                if not self._reported:
                    ends.append(max(0.0, silence))
                try:
                    returned, error = outcome.get(timeout=min(ends, default=None))
                except queue.Empty:
                    if time.monotonic() - began >= TELL_SECONDS:
                        self._say_once(f"{what} has not answered for {TELL_SECONDS:g} s")
                    if left is not None and not self.left():
                        raise self._over(what) from None
                    continue
                if error is not None:
                    raise error
                return returned[0]

    def tell_repeated(self, message: str) -> None:
        """Says why a request is repeated, unless something was said already. Who follows a run is told by
        other means.
        """
        if not self._lifted:
            self._say_once(f"{message}; it is asked again")

    def _say_once(self, text: str) -> None:
        left = self.left()
        with self._lock:
            if self._reported:
                return
            self._reported = True
        if self._tell is not None:
            self._tell(text if left is None else f"{text}; this is given up in {round(left, left < 1):g} s")

    def _over(self, what: str) -> OutOfPatienceError:
        return OutOfPatienceError(
            f"{what} has not answered within {self._limit:g} s",
            "Check that it runs and can be reached from here; --request-timeout 5m waits longer.",
        )
