"""The program's data: how tasks and replicas share it, how many steps it has, and what it may not contain."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from worker.checkpoints.position import Position
from worker.context import Loop
from worker.data_adapters import fit_data
from worker.failures import Failure, program_error
from worker.input import (
    batch_size,
    chief_reader,
    continuation,
    data_service_reader,
    file_sharding,
    pass_length,
    used_shuffle_orders,
)
from worker.input.batch_division import Distributed, batch_count, distribute, may_differ
from worker.input.continuation import check_size
from worker.input.dataset_transfer import carried, copied
from worker.input.pass_reader import PassProgress
from worker.input.row_lookups import has_sparse_gradients, rows_vary
from worker.input.seeding import alike, train_dataset
from worker.tf_compat import batch_functions, graphs
from worker.tf_compat.strategies import replicas_share_variables, uses_coordinator

_BEGINNING = Position()
_READ = "data_service_read"
_CREATOR = "train_dataset() returns a DatasetCreator"
_NOT_TOLD = (
    "what data workers had given of this pass is not known any more: the first task's copy was lost with its "
    "pod; some examples of the pass may be trained twice, and others not"
)


def training_dataset(loop: Loop) -> tuple[Any, int]:
    """Returns the program's training dataset, and the number of steps in an epoch.

    Raises Failure for an error of the program or its parameters.
    """
    loop.hooks.enter("running train_dataset()")
    with used_shuffle_orders.counted():
        dataset = train_dataset(loop)
    if not isinstance(dataset, tf.data.Dataset):
        if loop.program.has("loss") or loop.program.has("train_step"):
            raise program_error(
                f"{loop.program.entrypoint}: train_dataset() returned a {type(dataset).__name__}, which is "
                "for Model.fit; with loss() or train_step() return the tf.data.Dataset itself"
            )
        return dataset, _steps_of_creator(loop)
    batch_size.check(loop, dataset)
    steps = steps_per_epoch(loop, dataset)
    chief_reader.check(loop, dataset)
    return dataset, steps


def wants_equal_shapes(loop: Loop, model: Any, element: Any) -> bool:
    """Returns whether the replicas' batches must have one size throughout an execution of several steps.

    The replicas gather the rows of sparse gradients. TensorFlow (2.21) gathers, in one call of a function,
    only rows of the shape that it had the first time: "Shape mismatch in the collective instance".
    """
    return (
        _gathers(loop) and may_differ(loop.strategy, element) and has_sparse_gradients(loop, model, element)
    )


def wants_single_steps(loop: Loop, model: Any, element: Any) -> bool:
    """Returns whether an execution must have one step only, for the reason that `wants_equal_shapes` gives:
    even equally large batches do not give the sparse gradients of all steps the same shape, or nobody knows
    how large batches are. A notice says so where the file asks for several.
    """
    looks_up = _gathers(loop) and rows_vary(loop, model, element)
    looks_up = looks_up or (not loop.parameters.has_size and wants_equal_shapes(loop, model, element))
    wanted = looks_up or gathers_batches(loop, model, element)
    asked = loop.parameters.steps_per_execution or 1
    if wanted and asked > 1:
        why = (
            "looks up another number of rows in each" if looks_up else "has a loss or metric of whole batches"
        )
        loop.notice(
            f"spec.program.parameters.stepsPerExecution: {asked}: an execution takes one step all the same, "
            f"since the model {why}, and TensorFlow gathers rows of one shape in an execution"
        )
    return wanted


def gathers_batches(loop: Loop, model: Any, element: Any) -> bool:
    """Returns whether `batch_functions` may gather batches of several shapes, with this `element_spec`: then
    an execution must have one step only.
    """
    shapes = [getattr(spec, "shape", tf.TensorShape(None)) for spec in tf.nest.flatten(element)]
    is_fixed = all(shape.is_fully_defined() for shape in shapes)
    return _gathers(loop) and not is_fixed and batch_functions.has_own(model)


def _gathers(loop: Loop) -> bool:
    kinds = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
    return isinstance(loop.strategy, kinds) and loop.strategy.num_replicas_in_sync > 1


def refusing_small_batches(loop: Loop, dataset: Any) -> Any:
    """Returns `dataset` for a step of the program's own.

    A replica without an example gets a batch of filler examples. Where the replicas share the metrics, these
    cannot leave the filler out, so such a batch raises an error.
    """
    strategy = loop.strategy
    if not (replicas_share_variables(strategy) and may_differ(strategy, dataset.element_spec)):
        return dataset
    message = (
        f"a batch has fewer examples than the {strategy.num_replicas_in_sync} replicas, which a step of the "
        "program's own cannot leave out under CentralStorage: end train_dataset() with "
        ".batch(batch_size, drop_remainder=True)"
    )

    def checked(*batch: Any) -> Any:
        element = batch if isinstance(dataset.element_spec, tuple) else batch[0]
        enough = batch_count(element) >= strategy.num_replicas_in_sync
        with tf.control_dependencies([tf.debugging.Assert(enough, [message])]):
            return tf.nest.map_structure(tf.identity, element)

    return dataset.map(checked)


def served_training(loop: Loop, dataset: Any, steps: int, position: Position = _BEGINNING) -> Any:
    """Returns the training dataset as data workers give it, where the run has them: without an
    end, and from the batch at `position` on. In a collective whose tasks share the data, only
    the first task reads it, and `distributed_training` hands it out.

    Raises Failure where the dataset cannot be sent to data workers.
    """
    service = loop.data_service
    if service is None or (_has_shared_service(loop) and not loop.writes):
        return dataset
    done = continuation.steps_done(steps, position)
    shares = service.shared or loop.workers == 1
    saved = loop.beside.resumed(_READ) if shares and done else None
    begun = None if saved is None else PassProgress.of(saved)
    given = data_service_reader.served(loop, service, dataset, begun=begun)
    out = 0
    if begun is None or given.passes is None:
        out = _begun(loop, dataset, steps, done if shares else done // loop.workers)
    if shares and given.passes is not None:
        read = given.passes.progress
        loop.beside.add(_READ, lambda at: read(continuation.steps_done(steps, at) - done + out).values())
        if out:
            loop.notice(_NOT_TOLD)
    return continuation.left(given.read(), out, loop.hooks.alive)


def _begun(loop: Loop, dataset: Any, steps: int, done: int) -> int:
    """Returns how many of the `done` batches that data workers have given belong to a pass that is not
    over.
    """
    cycle = continuation.cycle(loop, dataset, steps, done) if done else None
    return done if cycle is None else done % cycle.batches


def _has_shared_service(loop: Loop) -> bool:
    """Returns whether the tasks of a collective get their parts of the same batches from the data service."""
    return loop.data_service is not None and loop.data_service.shared and loop.workers > 1


def distributed_training(loop: Loop, dataset: Any, **shares: Any) -> Distributed:
    """Distributes `dataset`, which is `served_training`'s, to the replicas, as the strategy's options say,
    without an end.

    `shares` are `with_shares` and `fill` of `distribution.distribute`.
    """
    loop.hooks.enter("sharing train_dataset() out")
    if not isinstance(dataset, tf.data.Dataset):  # a DatasetCreator
        return Distributed(
            loop.strategy.distribute_datasets_from_function(dataset.dataset_fn), has_shares=False
        )
    if loop.data_service is not None and loop.workers > 1:
        policy: str | None = "DATA" if loop.data_service.shared else "OFF"
        spread = partial(data_service_reader.parts_of_tasks, loop) if loop.data_service.shared else None
    else:
        policy, spread = file_sharding.policy(loop, dataset), None
        if policy in ("AUTO", "FILE"):
            file_sharding.notice_unequal_files(loop, dataset)
    return distribute(loop.strategy, dataset, policy=policy, spread=spread, **shares)


def distributed_evaluation(loop: Loop, dataset: Any, **shares: Any) -> Distributed:
    """Distributes the evaluation dataset to the replicas, without an end, for one evaluation after the other.

    Each worker of a collective reads all of it and keeps its share, whatever `autoShard` says of the training
    data. With FILE, a worker with fewer samples would end before the others.
    """
    policy = "DATA" if loop.workers > 1 else None
    return distribute(loop.strategy, dataset, policy=policy, **shares)


def on_each_worker(loop: Loop, given: Any, steps: int, position: Position) -> Any:
    """Returns a function of an InputContext that a ParameterServer worker calls to make its own dataset,
    without an end, and from `position` on as far as that is known. `given` is the dataset that the chief has
    made, or a DatasetCreator, which knows itself.
    """
    program, size = loop.program, loop.parameters.global_batch_size
    replicas = loop.strategy.num_replicas_in_sync
    if loop.data_service is not None:
        loop.hooks.enter("running train_dataset() for the workers")
        with loop.strategy.scope():
            dataset = program.train_dataset(size // replicas)
            served = data_service_reader.served(loop, loop.data_service, dataset)
        done = continuation.steps_done(steps, position) * replicas
        if not loop.data_service.shared:
            begun = _begun(loop, given, steps, done // loop.workers)
            return lambda _: continuation.left(served.read(), begun)
        # All workers read one stream, which some may join later: it must begin once.
        for _ in served.read().take(_begun(loop, given, steps, done)):
            loop.hooks.alive()
        return lambda _: served.read()
    if not isinstance(given, tf.data.Dataset):
        return given.dataset_fn
    if replicas > 1:
        loop.hooks.enter("running train_dataset() for the workers")
        with loop.strategy.scope():
            given = program.train_dataset(size // replicas)
    given = continuation.of_worker(loop, given, steps, position)
    loop.hooks.enter("sending the dataset to the workers")
    give = carried(given, program.entrypoint, "train_dataset")
    return lambda _: give().prefetch(tf.data.AUTOTUNE)


def evaluation_dataset(loop: Loop) -> tuple[Any, int]:
    """Returns the program's evaluation dataset, and its number of batches. Raises Failure where it has no
    end, or no batch.
    """
    loop.hooks.enter("running evaluation_dataset()")
    program, batch_size = loop.program, loop.parameters.global_batch_size
    dataset = alike(program.evaluation_dataset, batch_size)
    size = int(dataset.cardinality())
    if size == tf.data.INFINITE_CARDINALITY:
        raise program_error(f"{program.entrypoint}: evaluation_dataset() must be finite")
    if size == tf.data.UNKNOWN_CARDINALITY:
        # Executions of several steps need the number of batches.
        counted = copied(dataset) if graphs.shuffles_of(dataset) else dataset  # which uses up no order
        size = _counted(counted)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(size))
    if size == 0:
        raise program_error(f"{program.entrypoint}: evaluation_dataset({batch_size}) is empty")
    return dataset, size


def check_batch_size(loop: Loop) -> None:
    """Raises Failure where a batch cannot be divided evenly among the replicas. Those of an elastic
    collective, whose number changes, may get parts that differ by one example.
    """
    size, replicas = loop.parameters.global_batch_size, loop.strategy.num_replicas_in_sync
    if loop.elastic is not None:
        check_size(loop)
    elif size % replicas and not loop.program.is_of_one_process:
        lower = size - size % replicas
        choices = [str(choice) for choice in (lower, lower + replicas) if choice]
        raise program_error(
            f"spec.program.parameters.globalBatchSize: {size} cannot be divided by {replicas} replicas; "
            f"use {' or '.join(choices)}"
        )


def steps_per_epoch(loop: Loop, dataset: Any) -> int:
    """Returns the number in the parameters, or the number of batches in the dataset, which it counts where
    its transformations do not tell.

    Raises Failure that names `stepsPerEpoch` where the dataset has no end.
    """
    given = loop.parameters.steps_per_epoch
    if given is not None:
        return given
    if (failure := without_end(dataset)) is not None:
        raise failure
    size = int(dataset.cardinality())
    if size == tf.data.UNKNOWN_CARDINALITY:
        size = pass_length.count(loop, dataset)
    if size == 0:
        raise _empty(loop)
    return size


def without_end(dataset: Any) -> Failure | None:
    """Returns the Failure of a run without stepsPerEpoch whose train_dataset() has returned data without an
    end; None where they have one.
    """
    if not isinstance(dataset, tf.data.Dataset):
        return _needed(_CREATOR)
    given_once = fit_data.of(dataset)
    endless = int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY
    if endless or (given_once is not None and given_once.batches is None):
        return _needed("the training dataset is infinite, or a generator")
    return None


def _needed(reason: str) -> Failure:
    return program_error(f"spec.program.parameters.stepsPerEpoch: needed, because {reason}")


def _counted(dataset: Any) -> int:
    """Returns the number of elements, which it counts by reading them."""
    return int(dataset.reduce(tf.constant(0, tf.int64), lambda count, *_: count + 1))


def ended_early(loop: Loop, epoch: int, done: int, steps: int) -> Failure:
    """Returns the failure of a dataset that ended after about `done` of the `steps` of `epoch` (from 1),
    although it is repeated.
    """
    if epoch == 1 and done == 0:
        return _empty(loop)
    return program_error(
        f"{loop.program.entrypoint}: train_dataset({loop.parameters.global_batch_size}) ended before the "
        f"{steps} steps of epoch {epoch} were done, and gives nothing when it is read again; make it from a "
        "source that can be read twice, end it with .repeat(), or lower spec.program.parameters.stepsPerEpoch"
    )


def _steps_of_creator(loop: Loop) -> int:
    """Returns the parameters' number of steps. A `DatasetCreator` makes its datasets on the workers, and
    repeats and shards them itself.
    """
    if loop.parameters.steps_per_epoch is None:
        raise _needed(_CREATOR)
    if uses_coordinator(loop.strategy):
        _check_creator(loop)
    return loop.parameters.steps_per_epoch


def _check_creator(loop: Loop) -> None:
    if chief_reader.calls_python(loop.program.datasets[-1]):
        raise program_error(
            f"{loop.program.entrypoint}: the dataset_fn of train_dataset() calls Python code "
            "(from_generator, py_function or numpy_function), which the workers of a ParameterServer run "
            "cannot; return the dataset itself, which the chief then reads"
        )


def _empty(loop: Loop) -> Failure:
    size = loop.parameters.global_batch_size
    return program_error(f"{loop.program.entrypoint}: train_dataset({size}) is empty")
