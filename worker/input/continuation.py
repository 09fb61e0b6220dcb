"""The training data after an interruption: it goes on with the batch after the last one that was trained.

What tells is the position, in steps, and not what was read. All attempts have one order (`seeding`), so the
batches before the position are those that were trained.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from worker.checkpoints.position import Position
from worker.context import Loop
from worker.contract.run_config import ElasticWorkers
from worker.data_adapters import fit_data
from worker.failures import program_error
from worker.input import (
    batch_division,
    due_orders,
    file_sharding,
    fit_iterations,
    pass_length,
    used_shuffle_orders,
)
from worker.input.due_orders import Source
from worker.input.fit_iterations import Drawn
from worker.tf_compat import graphs
from worker.tf_compat.graphs import CACHE, SHUFFLE, transformations
from worker.tf_compat.strategies import worker_number

Alive = Callable[[], object]
_SECONDS = 1.0
_MOST_SECONDS = 300.0
"""How long a coordinator's worker leaves batches out. The chief does not see that it reads."""


class Cycle(NamedTuple):
    """After so many `batches`, `passes` through the data are over, and it begins anew."""

    passes: int
    batches: int


def continued(loop: Loop, dataset: Any, steps: int, position: Position) -> Any:
    """Returns the training data of `steps` steps in an epoch, from the batch at `position` on, and without an
    end; `dataset` itself at the beginning of the training, unless it has what fit takes, or is shuffled for
    it. What data workers read is returned as it is: `datasets.served_training` leaves out what comes from
    them. Nothing is read behind the last step.

    Raises Failure for data of which the beginning cannot be left out.
    """
    is_dataset = isinstance(dataset, tf.data.Dataset)
    if loop.elastic is not None and not is_dataset:
        raise program_error(
            f"{loop.program.entrypoint}: with spec.worker.minReplicas train_dataset() must return a "
            f"tf.data.Dataset, not a {type(dataset).__name__}"
        )
    done = steps_done(steps, position)
    numbered = fit_data.of(dataset)
    if numbered is not None and loop.data_service is None:
        file_sharding.check_whole(loop)
        return numbered.from_batch(done)
    if loop.data_service is not None or not (done or is_dataset):
        return dataset
    if done:
        loop.hooks.enter(f"leaving out the {done} batches of train_dataset() that are done")
    if not is_dataset:
        return _creator_from(loop, dataset, done)
    policy = file_sharding.policy(loop, dataset)
    if policy not in (None, "DATA"):
        return _of_own_share(loop, dataset, done, policy) if done else dataset
    before = fit_iterations.of_program(loop.program, loop.parameters, dataset)
    is_next = used_shuffle_orders.are_next(dataset)
    if is_next and not (done or before):
        return dataset
    data_cycle = cycle(loop, dataset, steps, done)
    if data_cycle is None and done:
        loop.notice(
            f"{_endless(loop)}, so all {done} batches that are done are read again, and left out; {_ADVICE}"
        )
    alive = loop.hooks.alive
    return due_orders.read(
        dataset,
        loop.strategy,
        lambda source: from_batch(source, done, data_cycle, before, alive, to_the_end=True),
    )


def due(dataset: Any, strategy: Any, before: Drawn | None = None) -> Any:
    """Returns what has the elements of a script's `dataset` in the order that is due, when what is drawn
    `before` has been drawn: itself, if it has.
    """
    at = used_shuffle_orders.of(dataset) if before is None else before
    if used_shuffle_orders.are_next(dataset) and at == used_shuffle_orders.of(dataset):
        return dataset
    return due_orders.read(dataset, strategy, lambda source: source.advanced(at).concatenate(source.dataset))


def scored(loop: Loop, dataset: Any, first: int) -> Any:
    """Returns a script's evaluation `dataset` pass after pass, from the one with the number `first` on;
    itself where all are alike.
    """
    orders = loop.program.orders
    if orders is None or first >= len(orders.evaluation) or not graphs.shuffles_of(dataset):
        return dataset
    before = orders.evaluation

    def passes(source: Source) -> Any:
        begun = source.advanced(before[first]).concatenate(source.dataset)
        return source.passes(before, first, begun, endless=True)

    return due_orders.read(dataset, loop.strategy, passes, is_alone=orders.evaluation_is_alone)


def steps_done(steps: int, position: Position) -> int:
    """Returns the number of steps before `position`, where an epoch has `steps` of them."""
    return position.epochs * steps + position.steps


def of_worker(loop: Loop, dataset: Any, steps: int, position: Position) -> Any:
    """Returns the dataset of a coordinator's worker, which goes on after `position`, without an end.
    `dataset` gives a replica's batches.

    Which batches a worker has taken is not known, so each leaves out its share of all steps. It leaves out
    nothing where the order is another one in each attempt.
    """
    replicas = int(loop.strategy.num_replicas_in_sync)
    done = steps_done(steps, position) // loop.workers * replicas
    before = fit_iterations.of_program(loop.program, loop.parameters, dataset)
    used = used_shuffle_orders.of(dataset)
    is_first = not (any(used.values()) or used_shuffle_orders.before_caches(dataset))
    if (is_first and not (done or before)) or graphs.has_random_order(dataset):
        return dataset.repeat()
    data_cycle = cycle(loop, dataset, steps * replicas, done)
    if data_cycle is None and done:
        loop.notice(f"{_endless(loop)}, so each worker begins with the first batch again; {_ADVICE}")
        return dataset.repeat()
    return due_orders.carried(
        dataset, lambda source: from_batch(source, done, data_cycle, before, seconds=_MOST_SECONDS)
    )


def cycle(loop: Loop, dataset: Any, steps: int, done: int) -> Cycle | None:
    """Returns when `dataset`, with `steps` steps in an epoch, begins anew; None where it has no end, and that
    cannot be found out. It reads the data, `done` batches at most, where nothing else tells.
    """
    size = int(dataset.cardinality())
    if size == tf.data.INFINITE_CARDINALITY:
        source, packed = graphs.repeated(dataset) or (None, 0)
        elements = _elements(loop, dataset, source, done * packed) if packed else 0
        return Cycle(1, done + 1) if elements > done * packed else _cycle_of(elements, packed)
    if size < 0 and loop.parameters.steps_per_epoch is None:
        size = steps  # an epoch is a pass: `datasets.training_dataset` has counted it
    elif size < 0:
        size = pass_length.count(loop, dataset, done + 1)
    return Cycle(1, size or done + 1)


def _endless(loop: Loop) -> str:
    return f"{loop.program.entrypoint}: train_dataset() has no end, and its passes cannot be told apart"


_ADVICE = "leave .repeat() out, or put it behind the other transformations"


def _elements(loop: Loop, dataset: Any, source: Any, most: int) -> int:
    """Returns the number of elements of the `source` that `dataset` repeats, 0 where it is unknown, and more
    than `most` where it is not read that far.
    """
    size = int(source.cardinality())
    if size == tf.data.UNKNOWN_CARDINALITY and loop.data_service is None:
        below = graphs.packed(source, [SHUFFLE])
        if SHUFFLE in transformations(below.source):  # reading it would use up an order
            again = graphs.repeated(pass_length.made_again(loop, dataset))
            below = graphs.packed(again[0] if again else source, [SHUFFLE])
        size = pass_length.batches(below, most + 1, loop)
    return max(0, size)


def _cycle_of(elements: int, size: int) -> Cycle | None:
    """Returns the cycle of batches of `size`, taken from passes of so many `elements` without a gap."""
    if not elements:
        return None
    batches = elements // math.gcd(elements, size)
    return Cycle(batches * size // elements, batches)


def from_batch(
    read: Source,
    done: int,
    data_cycle: Cycle | None,
    before: list[Drawn] | None = None,
    alive: Alive | None = None,
    seconds: float | None = None,
    to_the_end: bool = False,
) -> Any:
    """Returns what is `read`, one pass after the other without an end, from the batch after `done` ones on.
    What is shuffled has the same order as if they had been read. `before` says what is drawn before each
    pass, and with `to_the_end` nothing follows the last of these. `alive` and `seconds` are those of `left`.
    """
    dataset, original = read.dataset, read.original
    # The last part tells TensorFlow that there is no end; what has none itself never reaches it.
    endless = dataset.repeat()
    if before:
        over, rest = divmod(done, data_cycle.batches if data_cycle is not None else done + 1)
        begun = read.advanced(before[min(over, len(before) - 1)])
        begun = begun.concatenate(left(dataset, rest, alive, seconds))
        later = read.passes(before, over, begun, endless=not to_the_end)
        return later.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    due = read.advanced(used_shuffle_orders.of(original))
    if dataset is not original and graphs.repeated(original):
        data_cycle = None  # of what .repeat() precedes, a variant does not have the part that is repeated
    if data_cycle is None:
        return due.concatenate(left(endless, done, alive, seconds)).concatenate(endless)
    over, rest = divmod(done, data_cycle.batches)
    repeated = graphs.repeated(dataset)
    source = repeated[0] if repeated else dataset
    kinds = transformations(source if dataset is original else original)
    begun = _passes_over(source, over * data_cycle.passes, alive, kinds)
    if repeated:
        begun = begun.flat_map(lambda *_: dataset.take(0))
    return due.concatenate(begun).concatenate(left(dataset, rest, alive, seconds)).concatenate(endless)


def _of_own_share(loop: Loop, dataset: Any, done: int, policy: str) -> Any:
    """Returns `dataset` so that what TensorFlow makes of it for this task begins after `done` steps. In each
    step a task takes its share of a batch, out of what it reads by itself.
    """
    size = graphs.batch_size(dataset)
    alive = loop.hooks.alive
    if size is None or not batch_division.can_be_joined(dataset.element_spec):
        # TensorFlow cuts each of the task's batches into a part for each replica of all tasks.
        return from_batch(Source.of(dataset), done // loop.workers, None, alive=alive)

    def of_task(whole: Any) -> Any:
        shared = batch_division.shared_out(whole, policy)
        if policy == "OFF":
            return shared
        return graphs.of_own_files(shared, loop.workers, worker_number(loop.strategy))

    taken = done * size // loop.workers
    repeated = graphs.repeated(dataset)
    source, packed = repeated if repeated is not None else (dataset, 1)
    of_pass = 0
    if repeated is not None or int(dataset.cardinality()) != tf.data.INFINITE_CARDINALITY:
        # A pass of what is shuffled must not be used up by counting.
        again = pass_length.made_again(loop, dataset) if SHUFFLE in transformations(source) else dataset
        again = graphs.repeated(again) if repeated is not None else (again, 1)
        count = pass_length.elements if packed > 1 else pass_length.examples
        of_pass = count(of_task(again[0]), loop) if again is not None else 0
    over, rest = divmod(taken, of_pass) if of_pass else (0, taken)
    begun = _passes_over(source, over, alive, transformations(source), sharded=True)
    if source is not dataset:
        begun = begun.flat_map(lambda *_: dataset.take(0))
    examples = (dataset if of_pass else dataset.repeat()).unbatch()
    whole = begun.concatenate(left(examples, rest, alive).batch(size)).concatenate(dataset.repeat())
    fixed = batch_division.batch_size(dataset.element_spec) is not None
    return whole.rebatch(size, drop_remainder=True) if fixed else whole


def _creator_from(loop: Loop, creator: Any, done: int) -> Any:
    """Returns a DatasetCreator whose datasets begin after `done` steps. It repeats and shards its data
    itself, and each replica takes one element in a step.
    """
    later, made = copy.copy(creator), creator.dataset_fn

    def from_step(context: Any) -> Any:
        dataset = made(context)
        elements = done * context.num_replicas_in_sync // context.num_input_pipelines
        repeated = graphs.repeated(dataset)
        source, size = repeated if repeated is not None else (dataset, 1)
        data_cycle = _cycle_of(max(0, int(source.cardinality())), size)
        return from_batch(Source.of(dataset), elements, data_cycle, alive=loop.hooks.alive)

    later.dataset_fn = from_step
    return later


def left(dataset: Any, done: int, alive: Alive | None = None, seconds: float | None = None) -> Any:
    """Returns `dataset` without its first `done` elements, or without those that are read in `seconds`.
    `alive` is called while they are read.
    """
    if done and alive is not None:
        dataset = _watched(dataset, done, alive)
    if not done or seconds is None:
        return dataset.skip(done)

    def numbered(state: Any, element: Any) -> Any:
        number, end = state
        is_due = (number >= done) | (tf.timestamp() > end)
        # From the first one on that is due, all are.
        return (tf.where(is_due, tf.int64.max - 1, number) + 1, end), (is_due, element)

    state = tf.constant(0, tf.int64), tf.timestamp() + seconds
    pairs = dataset.scan(state, numbered)
    return pairs.filter(lambda is_due, _: is_due).map(lambda _, element: element)


def _watched(dataset: Any, done: int, alive: Alive) -> Any:
    """Returns `dataset` so that `alive` is called until `done` elements are read."""
    with tf.init_scope(), tf.device("CPU:0"):
        read = tf.Variable(0, dtype=tf.int64, trainable=False)

    def watch() -> None:
        over, last = threading.Event(), 0
        while last < done and not over.wait(_SECONDS):
            now = int(read.numpy())
            if now != last:
                alive()
            last = now

    threading.Thread(target=watch, name="left-out", daemon=True).start()
    # A filter is what TensorFlow finds the files through.
    return dataset.filter(lambda *_: read.assign_add(1) > 0)


def _passes_over(
    dataset: Any, count: int, alive: Alive | None, kinds: list[str], *, sharded: bool = False
) -> Any:
    """Returns an empty dataset, after which `dataset`, with transformations of these `kinds`, has the order
    that it has after `count` passes.

    Each iteration of a shuffled dataset has the next order. For that it need not be read, unless there are
    several shuffles: each begins when the first element is asked of it. With `sharded` TensorFlow is to find
    files in it: then it may have no source without them.
    """
    shuffles, before = kinds.count(SHUFFLE), dataset.take(0)
    if not (count and shuffles):
        return before
    if CACHE in kinds:
        # Only the first pass shuffles what precedes the cache, and only a whole one fills the cache.
        whole = dataset if alive is None else _watched(dataset, _WHOLE, alive)
        before, count = whole.filter(lambda *_: False), count - 1
    if shuffles > 1 or sharded:
        one = dataset.take(1).filter(lambda *_: False)
        while count:  # not .repeat(), which begins one more
            before = before.concatenate(one) if count % 2 else before
            one, count = one.concatenate(one), count // 2
        return before

    return before.concatenate(due_orders.skipped(dataset, count))


_WHOLE = 2**62
"""More elements than any pass has."""


def check_size(loop: Loop) -> None:
    """Raises Failure where a replica of an elastic collective may get no example of a batch."""
    most = _replicas(loop, loop.elastic.max) if loop.elastic is not None else 0
    if most > loop.parameters.global_batch_size:
        raise program_error(
            f"spec.program.parameters.globalBatchSize: {loop.parameters.global_batch_size} examples cannot "
            f"be shared by {most} replicas, which there may be (spec.worker.maxReplicas): give {most} or more"
        )


def check_parts(loop: Loop) -> None:
    """Raises Failure where the parts of a batch may differ, for a step of the model's own: it computes the
    mean of its part, and TensorFlow that of the parts, in which an example of a smaller one weighs more.
    """
    if loop.elastic is None:
        return
    size = loop.parameters.global_batch_size
    counts = [_replicas(loop, workers) for workers in _possible(loop.elastic)]
    uneven = next((count for count in counts if size % count), None)
    if uneven is not None:
        raise program_error(
            f"spec.program.parameters.globalBatchSize: {size} cannot be divided by {uneven} replicas, which "
            "there may be (spec.worker.minReplicas), and the model's own train_step() needs equal parts: "
            f"give a multiple of {int(np.lcm.reduce(counts))}, other numbers of workers, or a "
            "train_step() of the program's, which gets global_batch_size"
        )


def _possible(elastic: ElasticWorkers) -> range:
    return range(elastic.min, elastic.max + 1)


def _replicas(loop: Loop, workers: int) -> int:
    """Returns the number of replicas with the chief and so many workers."""
    return (workers + 1) * int(loop.strategy.num_replicas_in_sync) // loop.workers
