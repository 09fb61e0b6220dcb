"""Has each update of a variable under ParameterServerStrategy run alone, whichever worker makes it.

An optimizer updates a variable and its slots in several operations. What another worker reads or writes
between them is neither the state before the update nor the one after it. With Adam a row then had its new
mean and still the old variance, which was 0: in 100 steps of Adam(0.001) on two workers it moved by up to
2.4, and with Adamax, Ftrl and amsgrad by hundreds. SGD's momentum, RMSprop and Adadelta came to 0.55 to 1.3
times their way, and two workers that add to the same row of a table lose one of the two additions.

So each update holds a lock of the variable, on the variable's ps. It holds it for as long as operations of
that ps take: whatever the update needs is there before. So no worker that is slow, lost or killed keeps the
lock. TensorFlow releases it, too, where it cancels a step.

All of Keras' optimizers, and those of a program's own that are of Keras' classes, update a variable by
`StrategyExtended.update`. Constraints they do not: a worker read the weights and assigned what it made of
them, and a quarter of the updates that two workers made was lost.

Private to TensorFlow are `_update`, `_unique_id`, the adding of control inputs, and the lists of operations
by their effects, `_v` in its wrappers, and to it and Keras 3 `_constraint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import tensorflow as tf


def make_exclusive(strategy: Any) -> None:
    """Has the updates under `strategy`, a ParameterServerStrategy, each run alone."""
    from tensorflow.python.framework import auto_control_deps

    # Else each of these operations waits for the one before it, be it on another ps.
    auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS |= {"MutexV2", "ConsumeMutexLock"}
    extended = strategy.extended
    original = extended._update

    def update(variable: Any, function: Any, arguments: Any, options: Any, group: bool) -> Any:
        return original(variable, partial(_alone, function), arguments, options, group)

    # An attribute of the instance has precedence over the class's method.
    extended._update = update


@contextmanager
def constraining(gradients: Sequence[Any], variables: Sequence[Any]) -> Iterator[None]:
    """Has an optimizer apply `gradients` in the block, and then the constraints of those `variables` that
    have a gradient, each as an update of its variable.

    `variables` are of TensorFlow or of Keras 3. The caller is in a replica's context, if in any.
    """
    constraints = []
    for gradient, variable in zip(gradients, variables):
        constraint = getattr(variable, "constraint", None)
        if gradient is not None and constraint is not None:
            owner = _innermost(variable)
            owner._constraint = None
            constraints.append((variable, owner, constraint))
    try:
        yield
    finally:
        for _, owner, constraint in constraints:
            owner._constraint = constraint

    def constrain(strategy: Any) -> None:
        for variable, _, constraint in constraints:

            def update(_: Any, variable: Any = variable, constraint: Any = constraint) -> None:
                variable.assign(constraint(variable))

            strategy.extended.update(getattr(variable, "_value", variable), update, group=False)

    if constraints:
        replica = tf.distribute.get_replica_context()
        if replica is None:
            constrain(tf.distribute.get_strategy())
        else:
            replica.merge_call(constrain)


def _innermost(variable: Any) -> Any:
    """Returns the variable within those that ParameterServerStrategy wraps around it."""
    while hasattr(variable, "_v"):
        variable = variable._v
    return variable


def _alone(function: Any, variable: Any, *arguments: Any, **options: Any) -> Any:
    """Calls `function`, which updates `variable`, and has that run under the variable's lock."""
    graph = tf.compat.v1.get_default_graph()
    if tf.executing_eagerly():
        return function(variable, *arguments, **options)
    first = len(graph.get_operations())
    # The lock waits for a copy that is on the ps, and not for a further message from the worker.
    arguments = tf.nest.map_structure(_copied, arguments, expand_composites=True)
    result = function(variable, *arguments, **options)
    made = graph.get_operations()[first:]
    handles = _written(made, variable.device)
    using = [operation for operation in made if _uses(operation, handles)]
    if not using:
        return result
    with tf.device(variable.device):
        mutex = tf.raw_ops.MutexV2(shared_name=f"update of {variable._unique_id}")
        with tf.control_dependencies(_needed(made, using, handles)):
            lock = tf.raw_ops.MutexLock(mutex=mutex)
        for operation in using:
            operation._add_control_input(lock.op)
        with tf.control_dependencies(using):
            tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
    return result


def _copied(argument: Any) -> Any:
    return tf.identity(argument) if isinstance(argument, tf.Tensor) else argument


def _written(operations: Iterable[Any], device: str) -> dict[int, Any]:
    """Returns the handles of the resources of `device` that `operations` write to, by their ids."""
    from tensorflow.python.framework import auto_control_deps_utils

    handles: dict[int, Any] = {}
    for operation in operations:
        _, written = auto_control_deps_utils.get_read_write_resource_inputs(operation)
        handles |= {id(handle): handle for handle in written}
    return {key: handle for key, handle in handles.items() if _captured(handle).device == device}


def _captured(handle: Any) -> Any:
    """Returns the tensor outside of all functions that `handle` stands for in a function."""
    while not isinstance(handle, tf.__internal__.EagerTensor):
        outer = next((outer for outer, inner in handle.graph.captures if inner is handle), None)
        if outer is None:
            break
        handle = outer
    return handle


def _uses(operation: Any, handles: dict[int, Any]) -> bool:
    return any(id(tensor) in handles for tensor in operation.inputs)


def _needed(made: list[Any], using: list[Any], handles: dict[int, Any]) -> list[Any]:
    """Returns the operations that must be done before the operations `using` the `handles`, so that these
    wait for nothing any more: the inputs of these and of what they lead to among those `made`, and all
    earlier uses of the handles in this step.
    """
    led_to = set(using)
    candidates: dict[Any, None] = {}
    for operation in made:
        inputs = [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
        if operation in led_to or any(each in led_to for each in inputs):
            led_to.add(operation)
            candidates |= dict.fromkeys(inputs)
    for handle in handles.values():
        candidates |= dict.fromkeys(handle.consumers())
    return [each for each in candidates if each not in led_to and each.type not in ("Const", "Placeholder")]
