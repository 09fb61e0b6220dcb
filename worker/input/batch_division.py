"""Divides each batch of a dataset evenly among the replicas.

TensorFlow's own `Strategy.experimental_distribute_dataset` cuts a repeated dataset into pieces of one size.
It fills a smaller last batch with examples of the next epoch, or leaves a replica with an empty batch, on
which some gradients fail (Conv2D's). This module keeps the batches that the program made, so that several
replicas take the same steps as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from worker.tf_compat import keras_models
from worker.tf_compat.strategies import worker_count


class Share(NamedTuple):
    """The share of a replica: `part` of the global batch, `float32[]`, its number of `examples`, `int64[]`,
    and that with those behind them that do not count, `int32[]`.
    """

    part: Any
    examples: Any
    rows: Any


class Distributed:
    """A dataset as batches for the replicas of a strategy.

    `iter` and a `tf.distribute` loop take `elements`. With `has_shares` each element is a batch and its
    `Share`; the batch may have further examples at its end, which must not count.
    """

    def __init__(self, elements: Any, has_shares: bool) -> None:
        self.elements = elements
        self.has_shares = has_shares

    def parts(self, element: Any) -> tuple[Any, Share | None]:
        """Returns an element's batch and its share, in a replica; None where all have equal shares."""
        if not self.has_shares:
            return element, None
        batch, (part, examples) = element
        return batch, Share(part, examples, batch_count(batch))


def distribute(
    strategy: Any,
    dataset: Any,
    *,
    policy: str | None = None,
    with_shares: bool = False,
    fill: int = 0,
    spread: Callable[[Any], Callable[[int], Any]] | None = None,
) -> Distributed:
    """Distributes `dataset`, which it repeats without an end.

    `policy` is the AutoShardPolicy of a run of several tasks, None for one task. With DATA every task reads
    all batches, and takes its replicas' parts; with FILE or OFF TensorFlow shards the data. `with_shares`
    adds the shares where they may differ; batches then have at least `fill` examples. With `spread` the tasks
    do not all read `dataset`, which has no end: `spread(parts)` gets the parts of all tasks in turn, and
    returns a function from a task's number to its own parts.
    """
    replicas = strategy.num_replicas_in_sync
    is_tpu = isinstance(strategy, tf.distribute.TPUStrategy)  # TPUs need shapes that are known before the run
    if replicas == 1 or is_tpu or policy not in (None, "DATA"):
        dataset = shared_out(dataset.repeat(), policy).prefetch(tf.data.AUTOTUNE)
        return Distributed(strategy.experimental_distribute_dataset(dataset), has_shares=False)
    size = batch_size(dataset.element_spec)
    is_tuple = isinstance(dataset.element_spec, tuple)  # whose parts `map` gives apart from each other

    def element(batch: tuple[Any, ...]) -> Any:
        return batch if is_tuple else batch[0]

    has_shares = with_shares and may_differ(strategy, dataset.element_spec)
    if spread is not None:
        tasks = worker_count(strategy)
        order = [
            first + number
            for number in range(replicas // tasks)
            for first in range(0, replicas, replicas // tasks)
        ]
        parts = dataset.repeat().flat_map(
            lambda *batch: tf.data.Dataset.from_tensor_slices(tf.constant(order, tf.int64)).map(
                lambda replica: _part(element(batch), replica, replicas, size, has_shares, fill)
            )
        )
        own_parts = spread(parts)
        return Distributed(
            strategy.distribute_datasets_from_function(
                lambda context: own_parts(context.input_pipeline_id).prefetch(tf.data.AUTOTUNE)
            ),
            has_shares,
        )

    def of_task(context: Any) -> Any:
        first = context.input_pipeline_id * replicas // context.num_input_pipelines
        own_replicas = range(first, first + replicas // context.num_input_pipelines)
        shared = dataset
        if len(own_replicas) == 1:
            shared = shared.map(
                lambda *batch: _part(element(batch), own_replicas[0], replicas, size, has_shares, fill)
            )
        else:
            shared = shared.flat_map(
                lambda *batch: tf.data.Dataset.range(own_replicas.start, own_replicas.stop).map(
                    lambda replica: _part(element(batch), replica, replicas, size, has_shares, fill)
                )
            )
        # prefetch comes last: TensorFlow then knows that the data has no end, and need not ask at every step.
        return shared.repeat().prefetch(tf.data.AUTOTUNE)

    return Distributed(strategy.distribute_datasets_from_function(of_task), has_shares)


def distributed_batch(strategy: Any, batch: Any) -> Any:
    """Returns one batch of tensors as the elements of `distribute` are, with shares where there are several
    replicas. Every task has the whole batch.
    """
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return batch
    return strategy.experimental_distribute_values_from_function(
        lambda context: _part(batch, context.replica_id_in_sync_group, replicas, None, True, 1)
    )


def _part(element: Any, replica: Any, replicas: int, size: int | None, has_shares: bool, fill: int) -> Any:
    """Returns the part of `replica` of a batch of `size` examples (None: not known in advance)."""
    if size is not None and size % replicas == 0:
        each = size // replicas
        return cut(element, replica * each, each)
    count = tf.cast(batch_count(element), tf.int64)
    replica = tf.cast(replica, tf.int64)
    begin = replica * count // replicas
    number = (replica + 1) * count // replicas - begin
    share = (tf.cast(number, tf.float32) / tf.cast(count, tf.float32), number)
    if has_shares and fill:
        begin, number = tf.minimum(begin, count - 1), tf.maximum(number, 1)

    def of(value: Any) -> Any:
        rows = tf.cast(batch_count(value), tf.int64)
        is_usual = rows == count
        with tf.control_dependencies([_divisible(is_usual, rows, count, replicas)]):
            own_begin = tf.where(is_usual, begin, replica * rows // replicas)
            own_number = tf.where(is_usual, number, rows // replicas)
        return cut(value, own_begin, own_number)

    # The parts of an element may be batches of their own, as of tf.data.Dataset.zip.
    have_one_size = size is not None or len(tf.nest.flatten(element)) == 1
    part = cut(element, begin, number) if have_one_size else tf.nest.map_structure(of, element)
    if not has_shares:
        return part
    return (_filled(part, number, fill) if fill > 1 else part), share


def _divisible(is_usual: Any, rows: Any, count: Any, replicas: int) -> Any:
    """Returns an operation that fails where a batch has parts of several sizes and the replicas do not divide
    each: they would weigh the examples of one part otherwise than those of another.
    """
    message = (
        f"the parts of a batch have different numbers of examples, and the {replicas} replicas do not divide "
        "each of them: give each a batch size that they divide, with drop_remainder=True"
    )
    divides = (rows % replicas == 0) & (count % replicas == 0)
    return tf.debugging.Assert(is_usual | divides, [message])


def _filled(part: Any, number: Any, fill: int) -> Any:
    """Repeats the `number` examples until there are `fill`."""
    filled = tf.maximum(number, fill)
    indices = tf.range(filled) % number

    def of(value: Any) -> Any:
        if isinstance(value, tf.SparseTensor):  # tf.gather cannot
            return cut(tf.sparse.concat(0, [value] * fill), 0, filled)
        return tf.gather(value, indices)

    return tf.nest.map_structure(of, part)


def cut(element: Any, begin: Any, number: Any) -> Any:
    """Returns `number` examples of a batch from `begin` on, or as many as there are."""

    def of(value: Any) -> Any:
        if isinstance(value, tf.SparseTensor):
            rank = value.shape.rank - 1
            start = tf.concat([[tf.cast(begin, tf.int64)], tf.zeros([rank], tf.int64)], 0)
            size = tf.concat([[tf.cast(number, tf.int64)], value.dense_shape[1:]], 0)
            return tf.sparse.slice(value, start, size)
        part = value[begin : begin + number]
        if isinstance(number, int) and isinstance(part, tf.Tensor):
            part.set_shape([number, *part.shape[1:]])
        return part

    return tf.nest.map_structure(of, element)


def batch_size(element: Any) -> int | None:
    """Returns the batch size that all parts of an `element_spec` have, None where it is not known
    in advance.
    """
    shapes = [getattr(spec, "shape", None) for spec in tf.nest.flatten(element)]
    sizes = {shape[0] if shape is not None and shape.rank else None for shape in shapes}
    return sizes.pop() if len(sizes) == 1 else None


def can_be_joined(element: Any) -> bool:
    """Returns whether batches with this element_spec can be joined: TensorFlow can join dense tensors whose
    examples have one shape.
    """
    specs = tf.nest.flatten(element)
    return all(
        isinstance(spec, tf.TensorSpec) and spec.shape.rank and spec.shape[1:].is_fully_defined()
        for spec in specs
    )


def may_differ(strategy: Any, element: Any) -> bool:
    """Returns whether replicas may get different numbers of examples of a batch with this `element_spec`."""
    size = batch_size(element)
    return strategy.num_replicas_in_sync > 1 and (size is None or size % strategy.num_replicas_in_sync != 0)


def counted(batch: Any, share: Share | None, least: int = 0) -> Any:
    """Returns the examples of a batch that count, and at least `least` of the examples that are there."""
    if share is None:
        return batch
    number = tf.maximum(share.examples, least)

    def of(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, tf.SparseTensor):
            return cut(value, 0, number)
        return keras_models.first_rows(value, number)

    return tf.nest.map_structure(of, batch)


def copied(element: Any) -> Any:
    """Returns `element` in tuples and dicts of its own: a step may take the labels out of a dict, which a
    tf.function does not let it do with an argument.
    """
    return tf.nest.map_structure(lambda part: part, element)


def batch_count(element: Any) -> Any:
    """Returns the number of examples in a batch, an integer tensor."""
    first = tf.nest.flatten(element)[0]
    if isinstance(first, tf.RaggedTensor):
        return first.nrows()
    if isinstance(first, tf.SparseTensor):
        return first.dense_shape[0]
    return tf.shape(first)[0]


def shared_out(dataset: Any, policy: str | None) -> Any:
    """Sets the policy in the dataset's options. Only strategies whose tasks each read the data use it."""
    if policy is None:
        return dataset
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
    return dataset.with_options(options)
