"""Objects from which a checkpoint is written, under names that the runtime chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf


class Named(tf.Module):  # type: ignore[misc]
    """The root of a checkpoint. When it is saved or restored, `named` returns its objects, each under its
    key.
    """

    def __init__(self, named: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__()
        self._named = named

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> dict[str, Any]:
        """Returns the objects to TensorFlow, which calls this hook."""
        return dict(self._named())


def children(trackable: Any) -> dict[str, Any]:
    """Returns the objects that are saved below `trackable`, by their names."""
    return dict(trackable._trackable_children("checkpoint"))
