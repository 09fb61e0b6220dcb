"""SavedModels that are written a part at a time, so that a task can export tables that it cannot hold.

The model is made with large variables that have no values. Those are copied from the training's checkpoint.

    with variables_without_values(LARGE_BYTES) as large:
        model = program.model()
    names = names_in_checkpoint(path, root, large)
    ...  # everything else is loaded
    with written_from(path, names):
        model.export(...)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import PART_BYTES, Piece, StateCopy, part_of, row_ranges
from worker.tf_compat import saved_models
from worker.tf_compat.checkpoint_tensors import Entry
from worker.tf_compat.saved_models import WithoutValue

LARGE_BYTES = PART_BYTES
"""A variable of this size, or more, has no value in a model that is made to be exported."""


def written_from(path: str, names: Mapping[int, str]) -> contextlib.AbstractContextManager[None]:
    """Has each SavedModel that is written in the block take the variables of `names`, by their `id`, from the
    tensors of these names in a checkpoint.
    """
    if not names:
        return contextlib.nullcontext()
    return saved_models.written_by(lambda saver: _Saver(saver, path, names))


class _Saver:
    """In place of `saver`, TensorFlow's."""

    def __init__(self, saver: Any, path: str, names: Mapping[int, str]) -> None:
        self._saver = saver
        self._path = path
        self._names = names

    def save(self, prefix: str, options: Any = None) -> None:
        """Writes the variables of a SavedModel."""
        StateCopy(Position(), self._pieces(saved_models.entries(self._saver))).write(prefix)

    def _pieces(self, entries: Iterable[Entry]) -> Iterator[Piece]:
        for entry in entries:
            if isinstance(entry.value, WithoutValue):
                yield from self._parts(entry.name, entry.value)
            elif (value := entry.read()) is not None:
                yield Piece(entry.name, entry.part, value)

    def _parts(self, name: str, variable: WithoutValue) -> Iterator[Piece]:
        """Yields a variable's rows, each part read when it is due."""
        for first, count in row_ranges(variable):
            part = part_of("", variable.shape, first, count)
            with tf.device("/cpu:0"):
                (value,) = tf.raw_ops.RestoreV2(
                    prefix=self._path,
                    tensor_names=[self._names[id(variable)]],
                    shape_and_slices=[part],
                    dtypes=[variable.dtype],
                )
            yield Piece(name, part, value)
            del value
