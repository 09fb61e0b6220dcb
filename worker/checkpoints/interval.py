"""How often a training is saved in the middle of an epoch, where the user says nothing.

By J. W. Young (1974, https://doi.org/10.1145/361147.361115) and J. T. Daly (2006,
https://doi.org/10.1016/j.future.2004.11.016) the work that is lost and the time that saving takes are least
together at the square root of twice the cost of a save times the mean time between two losses.
"""

from __future__ import annotations

import math
from collections import deque

UNKNOWN_SECONDS = 3600.0
"""The time between two losses where none has come yet."""
_LEAST_SECONDS = 4.0
"""Between two saves, and to the first one, which shows what one costs."""
_MOST_OF_TIME = 0.01
_MOST_OF_NEW_TIME = 0.05
_SO_LITTLE_OF_TIME = 0.005
_MOST_FOR_FEW_SECONDS = 0.04
_LEAST_IN_MEMORY_SECONDS, _FEW_SECONDS = 2.0, 4.0
_MEASURED = 5


class Costs:
    """What the latest saves of an attempt have cost. `any` is whether there was one."""

    def __init__(self) -> None:
        self._costs: deque[float] = deque(maxlen=_MEASURED)
        self._writes: deque[float] = deque(maxlen=_MEASURED)
        self.any = False

    def add(self, cost_seconds: float, write_seconds: float) -> None:
        """Notes what a save took of the training's time, and how long it was being written, beside the
        training or not. The first one is left out, since it traces functions.
        """
        if self.any:
            self._costs.append(cost_seconds)
            self._writes.append(write_seconds)
        self.any = True

    @property
    def cost_seconds(self) -> float:
        """Returns the least of the costs: a busy machine makes some of them more. 0 where none is known."""
        return min(self._costs, default=0.0)

    @property
    def write_seconds(self) -> float:
        """Returns the same of the writes."""
        return min(self._writes, default=0.0)

    @property
    def is_new(self) -> bool:
        """Returns whether the saves are too few to show what one costs. Losses often follow each other, too,
        so that a new attempt may spend more on them.
        """
        return len(self._costs) < _MEASURED


def between_losses(lived_seconds: float, losses: int) -> float:
    """Returns the mean time between two losses of a run that has lived so long, and was lost so often."""
    return max(1.0, lived_seconds / losses) if losses else max(UNKNOWN_SECONDS, lived_seconds)


def in_storage(costs: Costs, loss_seconds: float) -> float:
    """Returns the seconds between two saves, which take 1% of the training's time at most, and 5% in a new
    attempt. They are four seconds apart where that takes half a percent. Saves never overlap, and are
    written for at most half of the time.
    """
    cost = costs.cost_seconds
    if costs.is_new:
        by_cost = cost / _MOST_OF_NEW_TIME
    elif cost <= _SO_LITTLE_OF_TIME * _LEAST_SECONDS:
        by_cost = _LEAST_SECONDS
    else:
        by_cost = max(cost / _MOST_OF_TIME, math.sqrt(2 * cost * loss_seconds))
    return max(by_cost, 2 * costs.write_seconds, _LEAST_SECONDS)


def in_memory(costs: Costs) -> float:
    """Returns the seconds between two copies in memory: as often as 1% of the training's time allows, and 5%
    in a new attempt. They are there to make a loss cost seconds: so they are four seconds apart where that
    takes 4% at most, and otherwise may take 2%.
    """
    cost_seconds = costs.cost_seconds
    by_cost = cost_seconds / _MOST_OF_TIME
    if costs.is_new:
        by_cost = cost_seconds / _MOST_OF_NEW_TIME
    elif by_cost > _FEW_SECONDS:
        is_dear = cost_seconds > _MOST_FOR_FEW_SECONDS * _FEW_SECONDS
        by_cost = cost_seconds / (2 * _MOST_OF_TIME) if is_dear else _FEW_SECONDS
    return max(by_cost, 2 * costs.write_seconds, _LEAST_IN_MEMORY_SECONDS)
