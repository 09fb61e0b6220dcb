"""What is read again while somebody looks, once for all who look."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from launcher.errors import LauncherError

_SHARE: Final = 10
"""Between two reads passes so many times what one takes: reading takes a tenth of a core at most."""

_LONGEST: Final = 10.0
"""Seconds between two reads of what does not change."""

_SOON: Final = 1.0
"""Seconds after which a read that is under way may have ended."""

T = TypeVar("T")


@dataclass(frozen=True)
class Known(Generic[T]):
    """What was read last, at the time `at`; the value is None before the first time. `error` says why it
    could not be read since.
    """

    value: T | None = None
    at: float = 0.0
    error: LauncherError | None = None


class SharedRead(Generic[T]):
    """Reads when somebody asks and the last time is long enough ago, at least `seconds`; who asks meanwhile
    gets the same object. It stays the same while what is read stays equal, and is then read less often.
    """

    def __init__(self, read: Callable[[], T], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._known: Known[T] = Known()
        self._done = threading.Condition()
        self._reading = False
        self._due = 0.0
        self._every = seconds
        self.asked = time.monotonic()
        """When somebody last did."""

    @property
    def every(self) -> float:
        """Seconds after which there may be something else to know."""
        return _SOON if self._reading else self._every

    def known(self, wait: float) -> Known[T]:
        """What is known. Waits so many seconds where a read is under way, and then gives what was known."""
        with self._done:
            self.asked = time.monotonic()
            if not self._reading and self.asked >= self._due:
                self._reading = True
                threading.Thread(target=self._read_once, name="read", daemon=True).start()
            self._done.wait_for(lambda: not self._reading, wait)
            return self._known

    def _read_once(self) -> None:
        began = time.monotonic()
        before = self._known
        try:
            latest = Known(self._read(), time.time())
        except LauncherError as error:
            latest = replace(before, error=error)
        except Exception as error:  # noqa: BLE001 - the page shows it, and goes on
            words = f"error in the launcher itself: {type(error).__name__}: {error}"
            latest = replace(before, error=LauncherError(words))
        same = latest.value == before.value and str(latest.error) == str(before.error)
        now = time.monotonic()
        pause = min(2 * self._every, _LONGEST) if same else self._seconds
        with self._done:
            self._every = max(pause, self._seconds, _SHARE * (now - began))
            self._known = before if same else latest
            self._due = now + self._every
            self._reading = False
            self._done.notify_all()
