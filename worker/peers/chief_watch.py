"""Notices that the chief is lost, in a task that only works for it. Standard library only."""

from __future__ import annotations

import random
import threading
import time

from worker.peers.probes import place

_FIRST_SECONDS = 2.0
"""Interval until the first contact."""


class ChiefWatch:
    """Measures for how long the chief has not answered.

    A thread connects to the chief's port at intervals of about five seconds or more (1,000 workers do it), or
    of less if `lost_seconds` is short. Until the first contact `starting_seconds` are added to the limit.
    """

    def __init__(self, address: str, lost_seconds: float, starting_seconds: float) -> None:
        self._address = address
        self._lost_seconds = lost_seconds
        self._interval = max(0.2, min(max(5.0, lost_seconds / 10), lost_seconds / 3))
        self._deadline = time.monotonic() + starting_seconds + lost_seconds
        self._last: str | None = None
        threading.Thread(target=self._watch, name="chief-watch", daemon=True).start()

    @property
    def places(self) -> list[str]:
        """Returns its address, and where it has answered last: a name goes with the run's Service, before the
        chief's pod does.
        """
        return [self._address, *filter(None, [self._last])]

    @property
    def lost(self) -> bool:
        """Returns whether the chief has been away for longer than the limit."""
        return time.monotonic() >= self._deadline

    def _watch(self) -> None:
        while True:
            location = place(self._address)
            if location is not None:
                self._last = location
                self._deadline = time.monotonic() + self._lost_seconds
            interval = self._interval if self._last is not None else min(self._interval, _FIRST_SECONDS)
            time.sleep(interval * random.uniform(0.75, 1.25))  # noqa: S311 - jitter
