"""How far a training is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Position:
    """How far a run is: `epochs` epochs are done, and `steps` steps of the next epoch."""

    epochs: int = 0
    steps: int = 0

    def within(self, epochs: int, steps_per_epoch: int) -> Position:
        """Returns this position in a run of `epochs` epochs, whose number of steps may differ from that of
        the run that saved it.
        """
        here = self if self.steps < steps_per_epoch else Position(self.epochs + 1)
        return here if here.epochs < epochs else Position(epochs)

    def __str__(self) -> str:
        return f"step {self.steps} of epoch {self.epochs + 1}" if self.steps else f"epoch {self.epochs}"
