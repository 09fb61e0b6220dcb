"""How often a training is saved in the middle of an epoch, where the user says nothing.

By J. W. Young (1974, https://doi.org/10.1145/361147.361115) and J. T. Daly (2006,
https://doi.org/10.1016/j.future.2004.11.016) the work that is lost and the time that saving takes are least
together at the square root of twice the cost of a save times the mean time between two losses.
"""

from __future__ import annotations

import math

UNKNOWN_SECONDS = 3600.0
"""The time between two losses where none has come yet."""
LEAST_SECONDS = 5.0
"""Between two saves, and to the first one, which shows what one costs."""
_MOST_OF_TIME = 0.01
_MOST_OF_NEW_TIME = 0.05
_MOST_FOR_FEW_SECONDS = 0.04
_LEAST_IN_MEMORY_SECONDS, _FEW_SECONDS = 2.0, 4.0


def between_losses(lived_seconds: float, losses: int) -> float:
    """Returns the mean time between two losses of a run that has lived so long, and was lost so often."""
    return max(1.0, lived_seconds / losses) if losses else max(UNKNOWN_SECONDS, lived_seconds)


def interval(cost_seconds: float, write_seconds: float, loss_seconds: float) -> float:
    """Returns the seconds between two saves.

    `cost_seconds` is what a save takes of the training's time, of which all take 1% at most; `write_seconds`
    is how long it is being written, beside the training or not. Saves never overlap, and are written for at
    most half of the time.
    """
    best = math.sqrt(2 * cost_seconds * loss_seconds)
    return max(best, cost_seconds / _MOST_OF_TIME, 2 * write_seconds, LEAST_SECONDS)


def in_memory(cost_seconds: float, write_seconds: float, *, is_new: bool = False) -> float:
    """Returns the seconds between two copies in memory: as often as 1% of the training's time allows. They
    are there to make a loss cost seconds: so they are four seconds apart where that takes 4% at most, and
    otherwise may take 2%. An attempt that `is_new` may take 5%: few copies do not yet show what one costs,
    and losses often follow each other.
    """
    by_cost = cost_seconds / _MOST_OF_TIME
    if is_new:
        by_cost = cost_seconds / _MOST_OF_NEW_TIME
    elif by_cost > _FEW_SECONDS:
        is_dear = cost_seconds > _MOST_FOR_FEW_SECONDS * _FEW_SECONDS
        by_cost = cost_seconds / (2 * _MOST_OF_TIME) if is_dear else _FEW_SECONDS
    return max(by_cost, 2 * write_seconds, _LEAST_IN_MEMORY_SECONDS)
