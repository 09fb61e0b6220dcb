"""Decides from which copy a training goes on. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from worker.checkpoints.position import Position


@dataclass(frozen=True)
class Choice:
    """All tasks go on at `position`. The tasks of these numbers have the copy of it in memory; where none
    does, it is the storage's newest, or the beginning.
    """

    position: Position
    holders: tuple[int, ...] = ()

    def holder_for(self, task: int) -> int | None:
        """Returns the task that gives `task` the copy; None where it needs none. Several share the work."""
        if not self.holders or task in self.holders:
            return None
        return self.holders[task % len(self.holders)]


NOTHING = Choice(Position())


def newest(
    held: Sequence[Collection[Position]],
    stored: Position,
    refused: Collection[Position] = (),
    most_epochs: float = math.inf,
) -> Choice:
    """Chooses the newest copy that some task has whole. `held` are those of each task, and `stored` is the
    position of the newest checkpoint in storage. The copies at `refused` could not be had by all; those of
    more than `most_epochs` are left out.

    Of a copy and a checkpoint at the same position the copy is taken: it is nearer.
    """
    known = {each for copies in held for each in copies if each.epochs <= most_epochs}
    best = max(known - set(refused), default=Position())
    if best == Position() or best < stored:
        return Choice(stored)
    return Choice(best, tuple(task for task, copies in enumerate(held) if best in copies))
