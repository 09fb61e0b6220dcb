"""Notices about a training's speed, each given only where the runtime can see at no cost that it applies.

They follow "Performance improvement" of
https://www.tensorflow.org/tutorials/distribute/parameter_server_training. docs/parameter-server.md has the
advice that the runtime cannot check, such as the order of a vocabulary.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from worker.context import Loop
from worker.process import memory
from worker.tf_compat import keras_models
from worker.tf_compat.strategies import ps_count, uses_coordinator
from worker.training.variable_sizes import by_device, of_optimizer, pieces, size

_MEGABYTE = 1 << 20
_LARGEST_PART = 0.5
"""Fraction of all bytes in one variable, from which on its parameter server does most of the work."""
_RESUME = 1.3
"""The memory that reading a checkpoint takes, in sizes of all variables: `make bench-checkpoints`."""


def advise(loop: Loop, model: Any, dataset: Any) -> None:
    """Emits in the first task a notice about each option or variable that slows the training or has no
    effect.

    `model` has its variables and its optimizer's, `dataset` is the program's training dataset.
    """
    if not loop.writes:
        return
    for sentence in (*_memory(loop, model), *_servers(loop, model), *_options(loop, dataset)):
        loop.notice(sentence)


def _memory(loop: Loop, model: Any) -> Iterator[str]:
    """Yields advice where parameter servers hold more than the evaluator can, or more than this task can,
    which a resume needs.
    """
    limit, count = memory.limit(), ps_count(loop.strategy)
    if loop.directory is None or not count:
        return
    sizes = [sum(map(size, pieces([variable]))) for variable in keras_models.without_tables(model.variables)]
    weights = sum(sizes)
    # To make a variable takes three times its size, and to read a checkpoint all of them once more.
    taken = memory.used() + weights + max(weights, 2 * max(sizes, default=0))
    if loop.evaluator_memory and taken > loop.evaluator_memory:
        yield (
            f"the model has {_mebibytes(weights)}, which the evaluator has in one piece. It takes about "
            f"{_mebibytes(taken)} to make it and to read a checkpoint, and may use "
            f"{_mebibytes(loop.evaluator_memory)}: raise the memory in resources of the evaluator"
        )
    if count < 2 or limit is None:
        return
    slots = sum(by_device(of_optimizer(model.optimizer)).values())
    needed = round(_RESUME * (weights + slots))
    if needed < limit - memory.used():
        return
    yield (
        f"the model has {_mebibytes(weights)} and its optimizer {_mebibytes(slots)}, over {count} parameter "
        f"servers. The chief takes about {_mebibytes(needed)} of memory to resume, and may use "
        f"{_mebibytes(limit)}: raise the memory in resources of the chief"
    )


def _mebibytes(size: int) -> str:
    return f"{size / _MEGABYTE:,.0f} MiB"


def _servers(loop: Loop, model: Any) -> Iterator[str]:
    """Yields the advice for a ParameterServer run with several parameter servers."""
    count = ps_count(loop.strategy)
    if count < 2:
        return
    yield from _hot(loop, model, count)
    yield from _unbalanced(loop, model, count)


def _hot(loop: Loop, model: Any, count: int) -> Iterator[str]:
    """Yields advice about variables that each parameter server reads from another one at every step."""
    # A mixed-precision optimizer wraps another.
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    program = loop.program
    has_train_step = program.has("train_step") or keras_models.has_own(model, "train_step")
    # Here the workers have the rate as a constant: worker/training/coordination.py.
    sends_rate = not (has_train_step or program.has("callbacks"))
    variables, advice = [], []
    schedule, rate = keras_models.learning_rate(optimizer), keras_models.rate_variable(optimizer)
    if isinstance(schedule, keras_models.keras_of(schedule).optimizers.schedules.LearningRateSchedule):
        variables.append(keras_models.current_learning_rate(optimizer))
        advice.append("a fixed learning rate")
    elif rate is not None and not sends_rate:
        variables.append(rate)
        advice.append(
            "a program without train_step() and callbacks(), whose workers have the rate as a constant"
        )
    step = getattr(type(optimizer), "update_step", None)
    if step is not None and "iterations" in step.__code__.co_names:
        variables.append(keras_models.tf_variable(optimizer.iterations))
        advice.append("an optimizer whose update does not read how many there were (SGD, Adagrad, RMSprop)")
    if variables:
        names = " and ".join(f"{_name(variable)} (on ps {_server(variable)})" for variable in variables)
        yield (
            f"the optimizer's {names}: every update on each of the {count} parameter servers reads it, at "
            f"every step of every worker. Should that ps be the slowest, this would help: {'; '.join(advice)}"
        )


def _unbalanced(loop: Loop, model: Any, count: int) -> Iterator[str]:
    """Yields advice about one variable with most of the bytes, on one parameter server."""
    sizes: dict[int, int] = {}
    variables: dict[int, Any] = {}
    # Each piece of a partitioned variable counts by itself.
    for piece in pieces(keras_models.without_tables(model.variables)):
        variables[id(piece)] = piece
        sizes[id(piece)] = size(piece)
    if not sizes:
        return
    largest = max(sizes, key=lambda key: sizes[key])
    total = sum(sizes.values())
    if sizes[largest] < _MEGABYTE or sizes[largest] <= _LARGEST_PART * total:
        return
    variable = variables[largest]
    rows = variable.shape[0] if variable.shape.rank else 1
    loads: collections.Counter[int] = collections.Counter()
    for key, piece in variables.items():
        loads[_server(piece)] += sizes[key]
    advice = (
        "use the partitioner MinSize with spec.strategyOptions.minShardBytes of "
        f"{sizes[largest] // count} or less"
        if rows >= count
        else f"TensorFlow partitions by the first axis, which has {rows} here: swap the axes"
    )
    server = _server(variable)
    yield (
        f"{_name(variable)}, {variable.dtype.name}{list(variable.shape)}, has {sizes[largest] / total:.0%} "
        f"of the {total / _MEGABYTE:.0f} MiB of the model and is not partitioned. So ps {server} holds "
        f"{loads[server] / total:.0%} and serves all that is read and updated there, while the other "
        f"{count - 1} of the {count} parameter servers have little to do: {advice}"
    )


def _options(loop: Loop, dataset: Any) -> Iterator[str]:
    """Yields advice about options of the dataset that have no effect."""
    if not isinstance(dataset, tf.data.Dataset):
        return
    policies = tf.data.experimental.AutoShardPolicy
    policy = policies(dataset.options().experimental_distribute.auto_shard_policy)
    if policy in (policies.AUTO, policies.OFF):
        return
    where = (
        f"{loop.program.entrypoint}: train_dataset() sets tf.data.Options' auto_shard_policy to {policy.name}"
    )
    given = loop.strategy_options.get("autoShard")
    if uses_coordinator(loop.strategy):
        yield (
            f"{where}, which ParameterServer ignores: each worker reads all of the data. Shuffle it without "
            "a seed, so that they read it in different orders"
        )
    elif loop.workers == 1:
        yield f"{where}, which has no effect in a run of one task: it reads all of the data. Leave it out"
    elif given is not None and given != policy.name:
        yield f"{where}, but spec.strategyOptions.autoShard says {given}, which holds. Leave one of them out"


def _name(variable: Any) -> str:
    return str(variable.name).partition(":")[0]


def _server(variable: Any) -> int:
    """Returns the number of the parameter server that has the variable."""
    return int(tf.DeviceSpec.from_string(variable.device).task or 0)
