"""SavedModels whose variables are written by another saver than TensorFlow's, and need not have values.

The graph of a SavedModel has a variable's shape and type. Its values are written by a saver of TensorFlow's,
which reads all of them before it writes the first.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph
from tensorflow.python.ops.resource_variable_ops import UninitializedVariable
from tensorflow.python.saved_model import save

from worker.tf_compat import checkpoint_tensors


class Saver(Protocol):
    """What TensorFlow's `_build_meta_graph` gives to write the variables."""

    def save(self, prefix: str, options: Any = None) -> Any:
        """Writes them as a checkpoint."""


class WithoutValue(UninitializedVariable):  # type: ignore[misc]
    """A variable that is no more than a shape and a type. Reading a checkpoint passes it over."""

    is_listed = False
    """Whether it is among what is to be written, where it stands for its value."""

    def _serialize_to_tensors(self) -> dict[str, Any]:
        return {"VARIABLE_VALUE": self} if self.is_listed else {}

    def _restore_from_tensors(self, restored_tensors: Any) -> None:
        pass


@contextlib.contextmanager
def variables_without_values(at_least: int) -> Iterator[list[WithoutValue]]:
    """Makes variables of `at_least` so many bytes without values in the block, and gives them. Who reads one
    gets a FailedPreconditionError.
    """
    made: list[WithoutValue] = []

    def create(next_creator: Callable[..., Any], /, **options: Any) -> Any:
        shape, dtype = _shape_and_type(options)
        if dtype is None or math.prod(shape) * dtype.size < at_least:
            return next_creator(**options)
        kept = ("trainable", "name", "constraint", "synchronization", "aggregation")
        variable = WithoutValue(shape=shape, dtype=dtype, **{key: options.get(key) for key in kept})
        made.append(variable)
        return variable

    with tf.variable_creator_scope(create):
        yield made


def _shape_and_type(options: Mapping[str, Any]) -> tuple[list[int], Any]:
    """Returns those of a variable whose initial value is a function. Keras 2 says them. That of Keras 3 is
    traced, which computes nothing.
    """
    initial, shape, dtype = (options.get(key) for key in ("initial_value", "shape", "dtype"))
    if not callable(initial):
        return [], None
    if shape is None or dtype is None:
        with tf.Graph().as_default():
            value = tf.convert_to_tensor(initial(), dtype)
        shape, dtype = value.shape, value.dtype
    shape = tf.TensorShape(shape)
    return (shape.as_list(), tf.as_dtype(dtype)) if shape.is_fully_defined() else ([], None)


def names_in_checkpoint(path: str, root: Any, variables: list[WithoutValue]) -> dict[int, str]:
    """Returns the name of the tensor of each variable in the checkpoint of `root`, by the variable's `id`.

    Raises ValueError where it has none for one, or one of another shape.
    """
    reader, view = tf.train.load_checkpoint(path), tf.train.CheckpointView(path)
    graph = TrackableObjectGraph.FromString(reader.get_tensor(checkpoint_tensors.OBJECT_GRAPH))
    wanted, names = {id(variable): variable for variable in variables}, {}
    for node, trackable in view.match(root).items():
        variable = trackable if id(trackable) in wanted else getattr(trackable, "value", None)
        if id(variable) in wanted:
            names[id(variable)] = graph.nodes[node].attributes[0].checkpoint_key
    shapes = reader.get_variable_to_shape_map()
    for key, variable in wanted.items():
        if shapes.get(names.get(key)) != variable.shape.as_list():
            raise ValueError(f"{path} has no values of {variable.name}, {variable.shape}")
    return names


def entries(original: Any) -> list[checkpoint_tensors.Entry]:
    """Returns what the saver of TensorFlow's writes, with variables without values as their entry's `value`.

    Raises ValueError for an object that writes files of its own.
    """
    WithoutValue.is_listed = True
    try:
        return checkpoint_tensors.entries_of(original._graph_view)
    finally:
        WithoutValue.is_listed = False


@contextlib.contextmanager
def written_by(saver: Callable[[Any], Saver]) -> Iterator[None]:
    """Has the variables of each SavedModel of the block written by `saver(TensorFlow's own)`."""
    original = save._build_meta_graph

    @functools.wraps(original)
    def build(*arguments: Any, **named: Any) -> Any:
        protocol, graph, tensorflow_saver, *rest = original(*arguments, **named)
        return protocol, graph, saver(tensorflow_saver), *rest

    save._build_meta_graph = build
    try:
        yield
    finally:
        save._build_meta_graph = original
