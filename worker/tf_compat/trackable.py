"""What a checkpoint is written from, under names that are chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf


class Named(tf.Module):  # type: ignore[misc]
    """The root of a checkpoint: what `named` gives when it is saved or restored, each under its key."""

    def __init__(self, named: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__()
        self._named = named

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> dict[str, Any]:
        """TensorFlow's hook for it."""
        return dict(self._named())


def children(trackable: Any) -> dict[str, Any]:
    """What is saved below `trackable`, by its names."""
    return dict(trackable._trackable_children("checkpoint"))
