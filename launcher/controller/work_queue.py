"""Which TFJobs are to be seen to, and when: each by one thread at a time, again after a change, a time, or an
error.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Hashable
from typing import Final

_FIRST_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 60.0
"""From an error to the next try: doubled each time, up to this."""


class WorkQueue:
    """Calls `work(key)` in `threads` threads. What it returns is the time until the next call, in seconds,
    None for none before `add`. After an error, `failed(key, error)` is called, and the key's turn comes
    later.
    """

    def __init__(
        self,
        work: Callable[[Hashable], float | None],
        failed: Callable[[Hashable, Exception], None],
        threads: int,
    ) -> None:
        self._work = work
        self._failed = failed
        self._changed = threading.Condition()
        self._due: dict[Hashable, float] = {}
        """When a key's turn is, by time.monotonic()."""
        self._heap: list[tuple[float, int, Hashable]] = []
        self._count = 0
        self._busy: set[Hashable] = set()
        self._waits: dict[Hashable, float] = {}
        self._is_closed = False
        self._size = threads
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begins to work."""
        for _ in range(self._size):
            thread = threading.Thread(target=self._run, daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self, seconds: float) -> None:
        """Takes up nothing more, and waits so long for what is being done."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def add(self, key: Hashable, seconds: float = 0.0) -> None:
        """Has the key seen to, at the latest in so many seconds."""
        with self._changed:
            due = time.monotonic() + seconds
            if due >= self._due.get(key, float("inf")):
                return
            self._due[key] = due
            self._count += 1
            heapq.heappush(self._heap, (due, self._count, key))
            self._changed.notify()

    def _take(self) -> Hashable | None:
        """Waits for the next key; None when the queue is closed."""
        with self._changed:
            while not self._is_closed:
                now = time.monotonic()
                waiting: float | None = None
                postponed = []
                next_key: Hashable | None = None
                while self._heap and next_key is None:
                    due, _, key = self._heap[0]
                    if self._due.get(key) != due:
                        heapq.heappop(self._heap)  # it was added again for an earlier time
                    elif due > now:
                        waiting = due - now
                        break
                    elif key in self._busy:
                        postponed.append(heapq.heappop(self._heap))
                    else:
                        heapq.heappop(self._heap)
                        next_key = key
                for each in postponed:
                    heapq.heappush(self._heap, each)
                if next_key is not None:
                    del self._due[next_key]
                    self._busy.add(next_key)
                    return next_key
                self._changed.wait(waiting)
        return None

    def _run(self) -> None:
        while (key := self._take()) is not None:
            later: float | None
            try:
                later = self._work(key)
                self._waits.pop(key, None)
            except Exception as error:  # noqa: BLE001 - one TFJob must not stop the others
                later = min(_LONGEST_SECONDS, 2 * self._waits.get(key, _FIRST_SECONDS / 2))
                self._waits[key] = later
                self._failed(key, error)
            with self._changed:
                self._busy.discard(key)
                self._changed.notify()
            if later is not None:
                self.add(key, later)
