"""Layers and variables that a Keras 3 layer keeps in lists, dicts and sets, found by checkpoints.

Keras 3 (3.15) has them in a SavedModel and in its own files, and not in a checkpoint of TensorFlow's. What an
optimizer trains of them is there by the optimizer's list of it, for whoever has built the optimizer; a moving
mean in a list is not there at all. Nothing says so: a model of blocks in a list was exported as it was made.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_KEPT = "_collections_in_checkpoints"
_KINDS = (list, tuple, dict, set)


def find_in_checkpoints() -> None:
    """Has checkpoints that this process writes and reads include them. It may be called again."""
    from keras.src.backend.tensorflow.layer import TFLayer

    original = TFLayer._trackable_children
    if hasattr(original, "of_attributes"):
        return

    @functools.wraps(original)
    def trackable_children(self: Any, save_type: str = "checkpoint", **options: Any) -> dict[str, Any]:
        children: dict[str, Any] = original(self, save_type, **options)
        if save_type == "checkpoint":
            children.update(_collections(self))
        return children

    trackable_children.of_attributes = original  # type: ignore[attr-defined]
    TFLayer._trackable_children = trackable_children


def _collections(layer: Any) -> Iterator[tuple[str, Any]]:
    kept = layer.__dict__.setdefault(_KEPT, {})  # Keras would take an attribute for one more collection
    for name in dict.fromkeys(layer._tracked):
        if name not in kept:
            kept[name] = _Collection(functools.partial(getattr, layer, name, ()))
        if kept[name].has_any():
            yield name, kept[name]


class _Collection(tf.Module):  # type: ignore[misc]
    """What `get()` returns, for TensorFlow: it must be the same object each time."""

    def __init__(self, get: Callable[[], Any]) -> None:
        super().__init__()
        self._get = get
        self._within: list[dict[str, _Collection]] = [{}]

    def has_any(self) -> bool:
        return bool(self._trackable_children())

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> dict[str, Any]:
        """Returns the objects to TensorFlow, which calls this hook."""
        return dict(self._children())

    def _children(self) -> Iterator[tuple[str, Any]]:
        (within,) = self._within
        for name, item in _items(self._get()):
            if isinstance(item, _KINDS):
                if name not in within:
                    within[name] = _Collection(functools.partial(self._item, name))
                if within[name].has_any():
                    yield name, within[name]
            elif isinstance(item, tf.__internal__.tracking.Trackable):
                yield name, item

    def _item(self, name: str) -> Any:
        return dict(_items(self._get())).get(name, ())


def _number(item: Any) -> list[Any]:
    """Returns by what items come in the order in which they were made: Keras counts them in their names."""
    parts = re.split(r"([0-9]+)", str(getattr(item, "name", "")))
    return [int(part) if part.isdigit() else part for part in parts]


def _items(collection: Any) -> Iterator[tuple[str, Any]]:
    """Yields the items by names that are the same in each process."""
    if isinstance(collection, dict):
        yield from ((str(key), item) for key, item in collection.items())
        return
    if isinstance(collection, set):
        collection = sorted(collection, key=_number)
    yield from ((str(number), item) for number, item in enumerate(collection))
