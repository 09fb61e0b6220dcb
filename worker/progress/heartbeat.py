"""Gives signs of life from a thread during an execution that lasts a whole epoch."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

_SECONDS = 1.0


@contextlib.contextmanager
def heartbeat(count: Callable[[], int], moved: Callable[[int], None]) -> Iterator[None]:
    """Calls `moved` with the result of `count` once a second, if it has changed, while the block runs."""
    over = threading.Event()

    def look() -> None:
        last = count()
        while not over.wait(_SECONDS):
            now = count()
            if now != last:
                last = now
                moved(now)

    thread = threading.Thread(target=look, name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
