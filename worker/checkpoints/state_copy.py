"""A copy of all that a checkpoint has, as of one moment between two executions of steps.

It can be written later, while the training goes on: as a checkpoint that TensorFlow reads, or as bytes.

    copy = StateCopy.of(model, position, metrics)
    copy.write(prefix)
    StateCopy.from_bytes(b"".join(copy.pieces())).write(prefix)

A tensor of the copy stays where its variable is: in the memory of this task, or of a parameter server. There
the copy costs nothing until an update of the variable, which copies the value first. Of a GPU's variables it
is in this task's memory at once. The writer fetches a part at a time.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from worker.checkpoints.position import Position
from worker.failures import is_lost_peer
from worker.tf_compat import checkpoint_tensors, connections
from worker.tf_compat.trackable import Named, children

METRICS = "epoch_metrics"
"""The name of the metrics of the epoch in whose middle a checkpoint is."""
RANDOM = "random_state"
"""The name of what Keras 3 draws random numbers from."""
PART_BYTES = 64 << 20
"""What is in memory at a time of tensors that are fetched from parameter servers."""
_READERS = 16
"""Threads that read from parameter servers: a request takes a millisecond, and waits for most of it."""
Arrays = Mapping[str, Any]
_HEAD = struct.Struct("<8sQI")
"""The kind, the length of the list and its checksum."""
_KIND = b"tflcopy1"


class Abandoned(Exception):  # noqa: N818 - nothing is wrong
    """The write of a copy was given up, and left no checkpoint."""


class Piece(NamedTuple):
    """A tensor, or a `part` of the tensor `name`: see `checkpoint_tensors.Entry`."""

    name: str
    part: str
    value: Any

    @property
    def size(self) -> int:
        """Returns the bytes of numbers, 0 for strings."""
        return int(math.prod(self.value.shape)) * int(self.value.dtype.size)


@dataclass(frozen=True)
class StateCopy:
    """What a training has at `position`."""

    position: Position
    tensors: Iterable[Piece]

    @classmethod
    def of(
        cls,
        model: Any,
        position: Position,
        metrics: Arrays | None = None,
        beside: Arrays | None = None,
    ) -> StateCopy:
        """Copies weights, optimizer and random state of `model`, the variables of `metrics`, and the arrays
        that are to be `beside` the model.

        No step may run meanwhile. Every task of a collective must call it, since it adds up what is spread
        over them.
        """
        with concurrent.futures.ThreadPoolExecutor(_READERS) as pool:
            return cls(position, tuple(_lazily(model, position, metrics, beside, pool)))

    @classmethod
    def unread(
        cls,
        model: Any,
        position: Position,
        metrics: Arrays | None = None,
        beside: Arrays | None = None,
    ) -> StateCopy:
        """Returns what is read only when it is written, once, and needs the memory of a part at a time. No
        step may run until then.
        """
        return cls(position, _lazily(model, position, metrics, beside))

    def read(self) -> None:
        """Reads what is unread, and keeps nothing: the part of a task that does not write."""
        for _ in self.tensors:
            pass

    @property
    def size(self) -> int:
        """Returns the bytes of all numbers."""
        return sum(tensor.size for tensor in self.tensors)

    def write(
        self,
        prefix: str,
        io_device: str | None = None,
        go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        """Writes a checkpoint, its index last. `io_device` reads and writes the files.

        Raises OpError where it cannot be written, Abandoned soon after `go_on()` is false.
        """
        device = io_device or "/cpu:0"
        # The name is constant, so that a killed writer leaves one such folder and not many.
        temporary = f"{prefix.rpartition('/')[0]}/writing"
        written: list[str] = []
        try:
            _remove(temporary)
            tf.io.gfile.makedirs(temporary)
            for number, group in enumerate(_groups(self.tensors, device)):
                if not go_on():
                    raise Abandoned(prefix)
                written.append(f"{temporary}/part-{number:05d}")
                with tf.device(device):
                    names, parts, values = zip(*group)
                    tf.raw_ops.SaveV2(
                        prefix=written[-1], tensor_names=names, shape_and_slices=parts, tensors=list(values)
                    )
                del group, values
            with tf.device(device):
                tf.raw_ops.MergeV2Checkpoints(
                    checkpoint_prefixes=written, destination_prefix=prefix, delete_old_dirs=True
                )
        finally:
            with contextlib.suppress(tf.errors.OpError):
                _remove(temporary)

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yields a copy as bytes, with checksums: a list of the tensors, and then each of them. Nothing is
        copied that is in this task's memory.
        """
        tensors = list(self.tensors)
        values = [_as_bytes(tensor.value) for tensor in tensors]
        listed = [
            {
                "name": name,
                "part": part,
                "type": value.dtype.name,
                "shape": list(value.shape),
                "size": len(data),
                "checksum": zlib.crc32(data),
            }
            for (name, part, value), data in zip(tensors, values)
        ]
        position = [self.position.epochs, self.position.steps]
        head = json.dumps({"position": position, "tensors": listed}).encode()
        yield _HEAD.pack(_KIND, len(head), zlib.crc32(head)) + head
        yield from values

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> StateCopy:
        """Reads what `pieces` yields. Raises ValueError where something is missing or was changed."""
        data = memoryview(data)
        if len(data) < _HEAD.size:
            raise ValueError("no copy of a training's state: too short")
        kind, length, checksum = _HEAD.unpack(data[: _HEAD.size])
        head, at = data[_HEAD.size : _HEAD.size + length], _HEAD.size + length
        if kind != _KIND or len(head) != length or zlib.crc32(head) != checksum:
            raise ValueError("no copy of a training's state: its list of tensors is damaged")
        document, tensors = json.loads(bytes(head)), []
        for each in document["tensors"]:
            value = data[at : at + each["size"]]
            at += each["size"]
            if len(value) != each["size"] or zlib.crc32(value) != each["checksum"]:
                raise ValueError(f"a damaged copy of a training's state: {each['name']}")
            tensors.append(Piece(each["name"], each["part"], _from_bytes(value, each["type"], each["shape"])))
        return cls(Position(*document["position"]), tuple(tensors))


def beside_key(name: str) -> str:
    """Returns the name in a checkpoint of an array beside the model."""
    return f"beside/{name}"


def _lazily(
    model: Any,
    position: Position,
    metrics: Arrays | None,
    beside: Arrays | None,
    pool: concurrent.futures.Executor | None = None,
) -> Iterator[Piece]:
    """Yields the tensors, each read when it is due; with a `pool` those of parameter servers before."""
    listed = checkpoint_tensors.entries(_by_every_name(model, position.epochs), _apart(model, metrics))
    reads = [
        each.read if pool is None or not each.remote else pool.submit(each.read).result for each in listed
    ]
    for each, read in zip(listed, reads):
        value = read()
        if value is not None:
            yield Piece(each.name, each.part, value)
    with tf.device("/cpu:0"):
        for name, array in (beside or {}).items():
            yield Piece(beside_key(name), "", tf.constant(array))


def _remove(folder: str) -> None:
    if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)


def _groups(tensors: Iterable[Piece], device: str) -> Iterator[list[Piece]]:
    """Yields the tensors, at the device, in groups of about PART_BYTES. A tensor of another task that is
    larger than that comes in parts.
    """
    group: list[Piece] = []
    size = 0
    for tensor in tensors:
        for piece in _here(tensor, device):
            if group and size + piece.size > PART_BYTES:
                waiting, group, size = group, [], 0
                yield waiting
                del waiting
            size += piece.size
            group.append(piece)
            del piece  # or it would be kept while the next one is fetched
    if group:
        yield group


def _here(tensor: Piece, device: str) -> Iterator[Piece]:
    name, part, value = tensor
    if not _is_remote(value, device):
        yield tensor
        return
    ranges = row_ranges(value)
    if len(ranges) < 2:
        yield Piece(name, part, _fetch(value, device))
        return
    for first, count in ranges:
        some = _rows(value, first, count)
        yield Piece(name, part_of(part, value.shape, first, int(some.shape[0])), _fetch(some, device))


def row_ranges(value: Any) -> list[tuple[int, int]]:
    """Returns first row and number of rows of each part of about PART_BYTES of a tensor or variable."""
    rows = int(value.shape[0]) if value.shape.rank else 1
    size = math.prod(value.shape) * value.dtype.size
    at_a_time = max(1, rows * PART_BYTES // max(1, size))
    return [(first, min(at_a_time, rows - first)) for first in range(0, rows, at_a_time)]


def _rows(value: Any, first: int, count: int) -> Any:
    def slice_there() -> Any:
        with tf.device(value.device):
            return value[first : first + count]

    return _while_workers_come_and_go(slice_there)


def _fetch(value: Any, device: str) -> Any:
    def identity() -> Any:
        with tf.device(device):
            return tf.identity(value)

    return _while_workers_come_and_go(identity)


def _while_workers_come_and_go(operation: Callable[[], Any]) -> Any:
    """Repeats an operation that failed because TensorFlow's cluster was changed at that moment."""
    while True:
        changes = connections.changes()
        try:
            return operation()
        except tf.errors.OpError as error:
            if changes == connections.changes() and not connections.connecting():
                raise
            if is_lost_peer(error) and not connections.connecting():
                raise


def _is_remote(value: Any, device: str) -> bool:
    where, here = (tf.DeviceSpec.from_string(each) for each in (value.device, device))
    return here.job is not None and (where.job, where.task) != (here.job, here.task)


def part_of(part: str, shape: Any, first: int, count: int) -> str:
    """Returns the rows from `first` of a tensor, which is itself the `part` of another."""
    if part:
        *whole, ranges = part.split(" ")
        begin, *others = ranges.split(":")
        offset = 0 if begin == "-" else int(begin.partition(",")[0])
    else:
        whole, offset, others = [str(size) for size in shape], 0, ["-"] * (len(shape) - 1)
    return " ".join([*whole, ":".join([f"{offset + first},{count}", *others])])


def _as_bytes(value: Any) -> memoryview:
    if value.dtype == tf.string or value.dtype.is_quantized:
        return memoryview(tf.io.serialize_tensor(value).numpy())
    array: Any = np.ascontiguousarray(_fetch(value, "/cpu:0").numpy())
    return memoryview(array.reshape(-1).view(np.uint8)) if array.size else memoryview(b"")


def _from_bytes(data: memoryview, name: str, shape: list[int]) -> Any:
    kind = tf.dtypes.as_dtype(name)
    with tf.device("/cpu:0"):
        if kind == tf.string or kind.is_quantized:
            return tf.io.parse_tensor(bytes(data), kind)
        return tf.constant(np.frombuffer(data, kind.as_numpy_dtype).reshape(shape))


def _apart(model: Any, metrics: Arrays | None) -> Named:
    """Returns the random state and the variables of `metrics` under names of their own. In one checkpoint
    with the model, one that is the model's as well would have the model's name only.
    """
    from worker.tf_compat import keras_models  # imports Keras, which a server has no need of

    named = {RANDOM: Named(lambda: keras_models.random_states(model)), METRICS: Named(lambda: metrics or {})}
    return Named(lambda: named)


def _by_every_name(model: Any, saves: int) -> Named:
    """Returns the object from which a checkpoint is written: the model under each name that readers use, with
    each variable stored once.

    `tf.train.CheckpointManager` writes the names `model`, `optimizer` and `save_counter` for
    `tf.train.Checkpoint(model=model, optimizer=optimizer)`. Beside them are the model's own parts, as if the
    model were the root, so that `tf.train.Checkpoint(root=model)` and `model.load_weights` read the file too.
    Without these names they would restore nothing, and say so in warnings only.
    """
    # The counter is made in a thread of its own, where no strategy's scope applies. In a scope it would be a
    # variable of the strategy, which the tasks of a collective create together.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        counter = thread.submit(tf.Variable, saves, dtype=tf.int64, trainable=False).result()
    named = tutorial_names(model)
    return Named(lambda: {**children(model), **named, "save_counter": counter})


def tutorial_names(model: Any) -> dict[str, Any]:
    """Returns the objects of TensorFlow's tutorials by their names, as a checkpoint of all of `model` is
    written and read.
    """
    from worker.tf_compat import keras_models  # imports Keras, which a server has no need of

    keras_models.find_in_checkpoints(model)
    return {"model": model} if model.optimizer is None else {"model": model, "optimizer": model.optimizer}
