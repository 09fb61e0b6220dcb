"""Models, optimizers and callbacks of Keras 2 (tf_keras) and Keras 3, where no public function exists."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker.tf_compat import keras_3


class Callback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """A callback whose batch hooks get tensors, or under ParameterServer RemoteValues, and not numbers.

    For any other callback Keras 2 waits for the numbers at each batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self._supports_tf_logs = True


def takes_tensors(callback: Any) -> bool:
    """Returns whether the batch hooks of `callback` get tensors, as those of Keras' own callbacks do."""
    # Keras reads the attribute in this way, too: the base class does not have it.
    return bool(getattr(callback, "_supports_tf_logs", False))


def has_batch_hooks(callback: Any, *, evaluation: bool = False) -> bool:
    """Returns whether `callback` has hooks for every batch of a training; or also of an `evaluation`."""
    if is_keras_3(callback):
        return keras_3.has_batch_hooks(callback, evaluation=evaluation)
    if isinstance(callback, tf.keras.callbacks.TerminateOnNaN):
        return False  # the runtime does that itself
    found = callback._implements_train_batch_hooks()
    return bool(found or (evaluation and callback._implements_test_batch_hooks()))


def keras_of(model: Any) -> Any:
    """Returns the package that `model` is of: keras (Keras 3), or tf_keras."""
    if is_keras_3(model):
        import keras

        return keras
    return tf.keras


def is_keras_3(thing: Any) -> bool:
    """Returns whether a model, a callback or an optimizer is Keras 3's, and not Keras 2's."""
    return any(kind.__module__.startswith("keras.src.") for kind in type(thing).__mro__)


def tf_variable(variable: Any) -> Any:
    """Returns the TensorFlow variable in a variable of Keras 3; any other variable unchanged."""
    return variable.value if is_keras_3(variable) else variable


def is_compiled(model: Any) -> bool:
    """Returns whether `model.compile` was called."""
    return bool(model.compiled if is_keras_3(model) else model._is_compiled)


def compiled_metrics(model: Any) -> Any:
    """Returns the container of the metrics given to `compile`; None where Keras 3 was given none."""
    return model._compile_metrics if is_keras_3(model) else model.compiled_metrics


def is_compiled_with_metrics(model: Any) -> bool:
    """Returns whether `model.compile` was given metrics."""
    compiled = compiled_metrics(model)
    if compiled is None or is_keras_3(model):
        return compiled is not None
    return bool(compiled._user_metrics or compiled._user_weighted_metrics)


def has_own(model: Any, *names: str) -> bool:
    """Returns whether the class of `model` has a method of its own for one of Keras' of these names."""
    base = keras_of(model).Model
    return any(getattr(type(model), name) is not getattr(base, name) for name in names)


def measures_loss(model: Any) -> bool:
    """Returns whether Model.evaluate gives a loss of `model`. Keras 2 gives 0 where it was compiled without
    one.
    """
    return bool(model.loss) or has_own(model, "test_step", "compute_loss")


def last_results(metric: Any) -> list[Any]:
    """Returns what the last call of `result()` of Keras 2's `metric` gave, flat; nothing before the first."""
    result = getattr(metric, "_call_result", None)
    return [] if result is None else tf.nest.flatten(result)


def update_of_compiled_metrics(model: Any) -> str:
    """Returns how a program's step updates the compiled metrics of `model`, for a sentence to the user."""
    if is_keras_3(model):
        return "model.compute_metrics(features, labels, predictions)"
    return "model.compiled_metrics.update_state(labels, predictions)"


def compile_with_loss(model: Any, loss: Any) -> None:
    """Compiles a Keras 2 `model` again with `loss`, and keeps its optimizer and metrics."""
    compiled = model.compiled_metrics
    model.compile(
        model.optimizer,
        loss,
        metrics=compiled._user_metrics,
        weighted_metrics=compiled._user_weighted_metrics,
    )


def build_optimizer(optimizer: Any, variables: Any) -> None:
    """Makes the variables of `optimizer`, which is Keras 3's, Keras 2's, or of tf.keras.optimizers.legacy."""
    if hasattr(optimizer, "build"):
        optimizer.build(variables)
    else:
        optimizer._create_all_weights(variables)


def optimizers_of(owner: Any) -> dict[str, Any]:
    """Returns the optimizers of Keras 2 or Keras 3 that are attributes of `owner`, by their names."""
    return {name: value for name, value in vars(owner).items() if _is_optimizer(value)}


def _is_optimizer(value: Any) -> bool:
    of_keras = any("keras.src.optimizers." in kind.__module__ for kind in type(value).__mro__)
    return of_keras and hasattr(value, "apply_gradients")


def keeps_averages(optimizer: Any) -> bool:
    """Returns whether `optimizer` keeps moving averages of the weights, which replace them after the
    training.
    """
    return bool(getattr(getattr(optimizer, "inner_optimizer", optimizer), "use_ema", False))


def take_averages(model: Any) -> None:
    """Sets the weights of `model` to the averages of its optimizer, as Model.fit does at its end."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    optimizer.finalize_variable_values(model.trainable_variables)


def learning_rate(optimizer: Any) -> Any:
    """Returns a variable or a schedule; None for an optimizer of tf.keras.optimizers.legacy, or without a
    rate.
    """
    if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
        return None
    # The optimizer may be the program's own class, or scale losses for another one: neither needs the
    # attribute.
    return getattr(optimizer, "_learning_rate", None)


def rate_of(optimizer: Any) -> float | None:
    """Returns the learning rate of the next step; None for an optimizer that has none."""
    try:
        # Not Keras 2's attribute: where there is a schedule, that is the rate of the last step.
        rate: Any = learning_rate(optimizer)
        rate = getattr(optimizer, "learning_rate", None) if rate is None else rate
        return float(rate(optimizer.iterations) if callable(rate) else rate)
    except (AttributeError, TypeError, ValueError):
        return None


def current_learning_rate(optimizer: Any) -> Any:
    """Returns the variable in which Keras 2 keeps a schedule's rate of the current step."""
    return optimizer._current_learning_rate


def replace_learning_rate(optimizer: Any, rate: Any) -> Any:
    """Has a Keras 2 `optimizer` use `rate`. Returns what it used before."""
    # The optimizer's `__setattr__` would make it a tracked variable.
    before = optimizer.__dict__["_learning_rate"]
    optimizer.__dict__["_learning_rate"] = rate
    return before


def clips_gradients_itself(optimizer: Any) -> bool:
    """Returns whether `optimizer` is one of Keras 2 that clips in `apply_gradients`, if it clips at all."""
    is_new = isinstance(optimizer, tf.keras.optimizers.Optimizer) and not is_keras_3(optimizer)
    return is_new and hasattr(optimizer, "_clip_gradients")


def steps_per_execution(model: Any) -> int:
    """Returns the number that a Keras 2 model was compiled with."""
    return int(model._steps_per_execution.numpy())


def set_steps_per_execution(model: Any, number: int) -> None:
    """Sets the number while `Model.fit` of Keras 2 runs, from the next execution on."""
    model._steps_per_execution.assign(number)


def configure_steps_per_execution(model: Any, number: int) -> None:
    """Sets the number before `Model.fit` of Keras 2."""
    # Outside of the scope: otherwise a ParameterServer run asks a ps for the number at every execution.
    with tf.device("/device:CPU:0"):
        model._configure_steps_per_execution(number)


def leave_steps_per_execution_to_us(model: Any) -> None:
    """Has Keras 2 make functions with a loop although the number is 1, and keeps it from changing
    the number.
    """
    model._autotune_steps_per_execution = True
    model._steps_per_execution_tuner = _Tuner()


class _Tuner:
    """Replaces Keras' own tuner, whose thread measures every 5 s and changes the number every 50 s."""

    def start(self) -> None:
        """Does nothing."""

    def stop(self) -> None:
        """Does nothing."""


def coordinator(model: Any) -> Any:
    """Returns the ClusterCoordinator of a Keras 2 model that `Model.fit` trains; None under other
    strategies.
    """
    return None if is_keras_3(model) else model._cluster_coordinator


def fit_data(model: Any) -> tuple[Any, Any]:
    """Returns data handler and iterator of the `Model.fit` of Keras 2 that calls this through a callback.

    They are local variables of `fit`, found in the frames above. Raises LookupError where they are missing.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        local = frame.f_locals
        if frame.f_code.co_name == "fit" and local.get("self") is model and "data_handler" in local:
            return local["data_handler"], local.get("iterator")
    raise LookupError("no Model.fit of Keras 2 calls this")


def ran_out_of_data(handler: Any) -> bool:
    """Returns whether the data of `handler` (see `fit_data`) ended before the epoch did."""
    return bool(handler._insufficient_data)


def first_rows(value: Any, number: Any) -> Any:
    """Returns `value[:number]` of a model's output, with what the losses of both Keras look for in it: its
    mask, and the logits of a sigmoid or softmax.

    From the probabilities alone a loss has no gradient where they are rounded to 0 or 1.
    """
    operation: Any = getattr(value, "op", None)  # None outside of a graph
    kind = operation.type if operation is not None else ""
    if kind == "Sigmoid":
        rows = tf.raw_ops.Sigmoid(x=operation.inputs[0][:number])
    elif kind == "Softmax" and operation.inputs[0].shape.rank not in (None, 1):
        rows = tf.raw_ops.Softmax(logits=operation.inputs[0][:number])
    else:
        rows = value[:number]
    for name in ("_keras_mask", "_keras_logits"):
        noted = getattr(value, name, None)
        if noted is not None:
            setattr(rows, name, noted[:number])
    return rows


def weigh_masks(over_replicas: Callable[..., Any]) -> None:
    """Has a loss of Keras 2 divide by the number of entries that no mask leaves out in the global batch, and
    not in the replica's part of it. `over_replicas` adds up its arguments over all replicas.

    It is called once for a process: the losses find the function in its module when they are called.
    """
    if "tf_keras" not in sys.modules:
        return  # the image may lack Keras 2, if the program does not use it
    from tf_keras.src.utils import losses_utils

    original = losses_utils.apply_valid_mask
    if hasattr(original, "of_replica"):
        return
    reductions = losses_utils.ReductionV2  # tf.keras may be Keras 3
    means = (reductions.AUTO, reductions.SUM_OVER_BATCH_SIZE)

    def apply_valid_mask(losses: Any, sw: Any, mask: Any, reduction: Any) -> Any:
        if mask is None or reduction not in means:
            return original(losses, sw, mask, reduction)
        total, valid = over_replicas(
            tf.cast(tf.size(mask), losses.dtype), tf.reduce_sum(tf.cast(mask, losses.dtype))
        )
        return original(losses, sw, mask, reductions.SUM) * (total / valid)

    apply_valid_mask.of_replica = original  # type: ignore[attr-defined]
    losses_utils.apply_valid_mask = apply_valid_mask


def scale_losses(share: Any) -> None:
    """Has `compiled_loss` of Keras 2 multiply a replica's loss by the result of `share()`, `float32[]`.

    Where the result is None, Keras divides the loss by the number of replicas, as before. It is called once
    for a process: `compiled_loss` finds the function in its module when it is called.
    """
    from tf_keras.src.utils import losses_utils

    original = losses_utils.scale_loss_for_distribution
    if hasattr(original, "without_shares"):
        return

    def scale_loss_for_distribution(loss_value: Any) -> Any:
        part = share()
        return original(loss_value) if part is None else loss_value * tf.cast(part, loss_value.dtype)

    scale_loss_for_distribution.without_shares = original  # type: ignore[attr-defined]
    losses_utils.scale_loss_for_distribution = scale_loss_for_distribution
