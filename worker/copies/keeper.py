"""Keeps copies of a training in this task's memory, beside the training."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from worker.checkpoints.interval import Costs, in_memory
from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import StateCopy
from worker.checkpoints.writer import Writer
from worker.copies.memory import MemoryCopies
from worker.copies.neighbours import Neighbours
from worker.failures import Failure, classify, is_lost_peer
from worker.process.processors import processors


class Keeper:
    """Keeps `copies` of a training, one at a time. `notice` is told where that fails, and then there are no
    more. `came_further` is called for each copy. `neighbours` get a copy of each.
    """

    def __init__(
        self,
        copies: MemoryCopies,
        notice: Callable[[str], None],
        came_further: Callable[[], None],
        neighbours: Neighbours | None = None,
    ) -> None:
        self._copies = copies
        self._notice = notice
        self._came_further = came_further
        self._neighbours = neighbours
        self._writer = Writer(self._failed)
        self._since = time.monotonic()
        """When the newest copy was taken."""
        self._at = Position()
        """The newest copy's position."""
        self._costs = Costs()

    @property
    def every(self) -> float:
        """Returns the seconds between two copies, 0 where there are none."""
        return in_memory(self._costs) if self._copies.keeps and self._costs.any else 0.0

    def is_due(self, position: Position) -> bool:
        """Returns whether it is time for the next copy."""
        if not self._copies.keeps or position == self._at or self._writer.busy:
            return False
        return time.monotonic() - self._since >= in_memory(self._costs)

    def keep(
        self,
        model: Any,
        position: Position,
        counted: Mapping[str, Any],
        idle_seconds: float,
        *,
        further: Mapping[str, Any] | None = None,
        beside: bool = True,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Takes a copy of `model`, the metrics' variables `counted` and `further` arrays, and begins to write
        it; with `beside` False it waits until that is done. All tasks of a collective must call it at the
        same boundary, also one that keeps none. `idle_seconds` is how long nothing was computed since
        the boundary.
        """
        began = time.monotonic()
        if not self._copies.keeps or self._writer.busy:
            StateCopy.unread(model, position, counted).read()
            return
        copy = StateCopy.of(model, position, counted, {**(further or {}), **self._copies.mark})
        if not self._copies.has_room(copy):
            return
        self._since, self._at = time.monotonic(), position
        pause = self._since - began + idle_seconds

        def write(go_on: Callable[[], bool]) -> None:
            started, used = time.monotonic(), time.thread_time()
            self._copies.write(copy, go_on)
            if self._neighbours is not None:
                self._neighbours.put(self._copies, position)
            seconds = time.monotonic() - started
            processor_seconds = (time.thread_time() - used) / processors()
            self._costs.add(pause + (processor_seconds if beside else seconds), seconds)
            self._came_further()

        def go_on() -> bool:
            alive()
            return True

        if beside:
            self._writer.begin(write)
        else:
            self._writer.run(write, go_on)

    def settle(self, alive: Callable[[], None]) -> None:
        """Waits until nothing is being written."""
        self._writer.wait(alive)

    def _failed(self, error: BaseException) -> None:
        """Runs in the thread that writes. The training goes on."""
        if is_lost_peer(error) and not isinstance(error, Failure):
            return  # the training gets that error, too
        self._copies.keeps = False
        reason = classify(error, "keeping a copy in memory").message
        self._notice(f"no copies of the training are kept in memory any more: {reason}")
