"""What a training saves beside its model, in checkpoints and in copies in memory alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from worker.checkpoints.model_directory import ModelDirectory
from worker.checkpoints.position import Position


class Beside:
    """`source` is the directory from whose checkpoint, or copy in memory, the training has gone on; None
    where it began.
    """

    def __init__(self) -> None:
        self.source: ModelDirectory | None = None
        self._values: dict[str, Callable[[Position], Any]] = {}

    def add(self, name: str, value: Callable[[Position], Any]) -> None:
        """Has `value` give the `int64` array of this name at a position."""
        self._values[name] = value

    def at(self, position: Position) -> dict[str, Any]:
        """Returns the arrays that are saved at `position`."""
        return {name: value(position) for name, value in self._values.items()}

    def resumed(self, name: str) -> Any:
        """Returns the array that was saved; None where there is none."""
        return None if self.source is None else self.source.resumed_beside(name)
