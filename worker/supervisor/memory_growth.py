"""Finds a task whose memory grows towards its container's limit, before the kernel ends it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from worker.process import memory

_INTERVAL_SECONDS: Final = 2.0
_WINDOW_SECONDS: Final = 120.0
_AHEAD_SECONDS: Final = 900.0
"""Growth that would reach the limit within this time is told."""
_FULL: Final = 0.9
"""In parts of the limit: a task that has so much is named at once."""
_PARTS: Final = 4
"""The window's parts: in each of them the least memory must be more than in the one before. What a task
takes and gives back (a checkpoint's copy, an evaluation) leaves the least as it is.
"""
_MIB, _GIB = 1 << 20, 1 << 30
_ADVICE: Final = (
    "raise the memory in resources of its role (or have more ps), or look for what grows: cache() of a "
    "dataset without a file, a large shuffle buffer, a list that a callback or a generator appends to, a "
    "tf.function that is traced again and again"
)


def follow(say: Callable[[str], None]) -> None:
    """Has `say` get a sentence when the memory of the task's container goes towards its limit; nothing where
    there is none. It starts a thread.
    """
    if memory.of_container() is None:
        return
    growth = MemoryGrowth()

    def measure() -> None:
        while True:
            now = memory.of_container()
            sentence = None if now is None else growth.measured(*now, time.monotonic())
            if sentence is not None:
                say(sentence)
            time.sleep(_INTERVAL_SECONDS)

    threading.Thread(target=measure, name="memory-growth", daemon=True).start()


class MemoryGrowth:
    """Gets the memory of a container, again and again. It gives one warning of growth, and one of a full
    container; each again only after the memory has dropped below half of the limit, as in a new process.
    """

    def __init__(self) -> None:
        self._measurements: deque[tuple[float, int]] = deque()
        self._has_warned_of_growth = False
        self._has_warned_of_full = False

    def measured(self, used: int, limit: int, now: float) -> str | None:
        """Returns what there is to say of `used` and `limit`, in bytes, `now`."""
        if self._measurements and used < 0.75 * self._measurements[-1][1]:
            self._measurements.clear()  # another process, or a part of the work that is over
            if used < limit / 2:
                self._has_warned_of_growth = self._has_warned_of_full = False
        self._measurements.append((now, used))
        size, unit, places = (_GIB, "GiB", 1) if limit >= _GIB else (_MIB, "MiB", 0)
        amount = (
            f"{used / size:.{places}f} of the {limit / size:.{places}f} {unit} of memory that it may have"
        )
        if used >= _FULL * limit and not self._has_warned_of_full:
            self._has_warned_of_full = True
            return f"uses {amount}; at the limit the kernel ends it: {_ADVICE}"
        if self._has_warned_of_growth or self._has_warned_of_full:
            return None
        rate = self._rate(now)
        if rate is None or rate * _AHEAD_SECONDS < limit - used:
            return None
        self._has_warned_of_growth = True
        minutes = max(1, round((limit - used) / rate / 60))
        return (
            f"uses {amount}, {rate * 60 / _MIB:,.0f} MiB more every minute. At the limit, in about "
            f"{minutes} min, the kernel ends it: {_ADVICE}"
        )

    def _rate(self, now: float) -> float | None:
        """Returns by how many bytes a second the memory has grown at least in all parts of the window; None
        where it has not, or the window is not full yet.
        """
        while self._measurements[0][0] < now - _WINDOW_SECONDS - _INTERVAL_SECONDS:
            self._measurements.popleft()
        if self._measurements[0][0] > now - _WINDOW_SECONDS:
            return None
        length = _WINDOW_SECONDS / _PARTS
        least: dict[int, int] = {}
        for at, used in self._measurements:
            part = min(_PARTS - 1, int((now - at) / length))  # 0 is the newest
            least[part] = min(used, least.get(part, used))
        growth = min(least.get(part, 0) - least.get(part + 1, 1 << 62) for part in range(_PARTS - 1))
        return growth / length if growth > 0 else None
