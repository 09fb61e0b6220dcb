"""What TensorFlow would write into a checkpoint, tensor by tensor.

`tf.train.Checkpoint.write` has no way to read everything now and to write it later, nor to write a part at a
time. The names and the graph of objects that it writes are made by a private function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.checkpoint import graph_view, save_util
from tensorflow.python.ops.resource_variable_ops import is_resource_variable
from tensorflow.python.training.saving import saveable_object_util
from tensorflow.python.training.saving.saveable_object import SaveSpec

from worker.tf_compat import spread_variables

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


class Entry(NamedTuple):
    """A tensor of a checkpoint: its `name`, the `part` of the whole that it is, "" for all of it, and how to
    read it. `read` returns None where there is nothing to write. One that is `remote`, a variable on a
    parameter server, may be read by any thread.

    A part is `<shape of the whole> <first>,<length>:...`, as SaveV2 expects it.
    """

    name: str
    part: str
    read: Callable[[], Any]
    remote: bool = False
    value: Any = None
    """What TensorFlow would read."""


class _View(graph_view.ObjectGraphView):  # type: ignore[misc]
    """Looks for the objects once."""

    @functools.cached_property
    def objects(self) -> Any:
        return super().breadth_first_traversal()

    def breadth_first_traversal(self) -> Any:
        return self.objects


def entries(*roots: Any) -> list[Entry]:
    """Returns what a checkpoint of the first of `roots` has, and the tensors of the others. Nothing is read
    yet, but for lookup tables, values of Python, and what is spread over replicas: all tasks of a collective
    must call it.

    What `read` returns shares the memory of a variable on the same device. TensorFlow copies it before the
    variable's next update. Raises ValueError for an object that writes files of its own.
    """
    views = [_View(root) for root in roots]
    with spread_variables.added_up(each for view in views for each in view.objects[0]) as values:
        first, *others = [entries_of(view, values) for view in views]
    return [*first, *(each for listed in others for each in listed if each.name != OBJECT_GRAPH)]


def entries_of(view: Any, values: Mapping[int, Any] | None = None) -> list[Entry]:
    """Returns those of the objects that a TrackableSaver looks at, as `entries` does. `values` has those of
    the spread variables that were read, by their `id`.
    """
    tensors_by_object, _, savers, graph = save_util.serialize_graph_view(view)
    if savers:
        raise ValueError(f"{', '.join(map(str, savers))}: these objects write checkpoint files of their own")
    listed = [
        _entry(trackable, name, part, value, values or {})
        for trackable, tensors in tensors_by_object.items()
        for name, parts in tensors.items()
        for part, value in (parts.items() if isinstance(parts, dict) else [("", parts)])
    ]
    document = graph.SerializeToString()
    return [*listed, Entry(OBJECT_GRAPH, "", lambda: tf.constant(document))]


def _entry(trackable: Any, name: str, part: str, value: Any, values: Mapping[int, Any]) -> Entry:
    if (added := values.get(id(spread_variables.of(trackable)))) is not None:
        return Entry(name, part, lambda: _on_host(added), value=value)
    handle = _handle(trackable, value)
    if handle is not None and tf.DeviceSpec.from_string(value.device).job == "ps":
        return Entry(name, part, lambda: _read(handle, value), remote=True, value=value)
    if isinstance(value, SaveSpec):
        return Entry(name, part, lambda: _on_host(value.tensor), value=value)
    # Keras 3 gives its variables.
    return Entry(name, part, lambda: _on_host(tf.convert_to_tensor(value)), value=value)


def _handle(trackable: Any, value: Any) -> Any:
    """Returns that of the variable whose `value` TensorFlow would write, None for anything else."""
    for each in getattr(trackable, "saveables", ()):
        if isinstance(each, saveable_object_util.ResourceVariableSaveable) and value in each.specs:
            return each.handle_op
    variable: Any = getattr(trackable, "value", None)  # of Keras 3
    return variable.handle if is_resource_variable(variable) else None


def _read(handle: Any, value: Any) -> Any:
    """Returns what a variable has, without a copy. TensorFlow's own way to read `value` takes five requests
    to the variable's task in place of two.
    """
    with tf.device(value.device):
        tf.raw_ops.DisableCopyOnRead(resource=handle)
        return _on_host(tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype))


def _on_host(tensor: Any) -> Any:
    """Returns the tensor in the memory of its task, and not in that of a GPU."""
    where = None if tensor is None else tf.DeviceSpec.from_string(tensor.device)
    if where is None or where.device_type in (None, "CPU"):
        return tensor
    with tf.device(where.replace(device_type="CPU", device_index=0).to_string()):
        return tf.identity(tensor)
