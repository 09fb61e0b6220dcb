"""Models, optimizers and callbacks of Keras 2 (tf_keras) and Keras 3, where no public function exists."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from worker.tf_compat import keras_3

_NEVER = 1 << 60
"""Steps that no training reaches."""


class Callback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """A callback whose batch hooks get tensors, or under ParameterServer RemoteValues, and not numbers.

    For any other callback Keras 2 waits for the numbers at each batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self._supports_tf_logs = True


for _kind in ("train", "test", "predict"):
    # Keras 2 asks its callbacks; where tf.keras is Keras 3, a script's models may still be tf_keras'.
    if not hasattr(Callback, f"_implements_{_kind}_batch_hooks"):
        _asked = functools.partialmethod(keras_3.has_batch_hooks, _kind)
        setattr(Callback, f"_implements_{_kind}_batch_hooks", _asked)


def has_batch_hooks(callback: Any, kind: str = "train") -> bool:
    """Returns whether `callback` has hooks for every batch: "train", "test" or "predict"."""
    if kind == "train" and terminates_on_nan(callback):
        return False  # the loop calls it itself
    if is_keras_3(callback):
        return keras_3.has_batch_hooks(callback, kind)
    return bool(getattr(callback, f"_implements_{kind}_batch_hooks")())


def callback_list(model: Any, callbacks: Iterable[Any], **options: Any) -> Any:
    """Returns Keras' CallbackList, which calls the hooks of all `callbacks` of `model`."""
    return keras_of(model).callbacks.CallbackList(list(callbacks), model=model, verbose=0, **options)


def terminates_on_nan(callback: Any) -> bool:
    """Returns whether `callback` is Keras' TerminateOnNaN."""
    return isinstance(callback, keras_of(callback).callbacks.TerminateOnNaN)


def keras_of(model: Any) -> Any:
    """Returns the package that `model`, a callback or an optimizer is of: keras (Keras 3), or tf_keras, which
    a script may import where tf.keras is Keras 3.
    """
    if is_keras_3(model):
        import keras

        return keras
    return sys.modules.get("tf_keras", tf.keras)


def is_keras_3(thing: Any) -> bool:
    """Returns whether a model, a callback or an optimizer is Keras 3's, and not Keras 2's."""
    return any(kind.__module__.startswith("keras.src.") for kind in type(thing).__mro__)


def tf_variable(variable: Any) -> Any:
    """Returns the TensorFlow variable in a variable of Keras 3; any other variable unchanged."""
    return variable.value if is_keras_3(variable) else variable


def without_tables(weights: Iterable[Any]) -> list[Any]:
    """Returns the variables among a model's `weights`, where tf_keras lists vocabularies of layers, too."""
    return [each for each in weights if hasattr(each, "shape")]


def random_states(model: Any) -> dict[str, Any]:
    """Returns the variables from which the model's random numbers are drawn, by names that are the same in
    each attempt. Keras 2 has none: it draws by operations whose state is TensorFlow's.
    """
    if not is_keras_3(model):
        return {}
    from worker.tf_compat import keras_3

    return {str(number): state for number, state in enumerate(keras_3.random_states(model))}


def find_in_checkpoints(model: Any) -> None:
    """Has checkpoints of `model` include all of its layers. Those of Keras 2 do."""
    if is_keras_3(model):
        from worker.tf_compat import keras_3_collections

        keras_3_collections.find_in_checkpoints()


def is_compiled(model: Any) -> bool:
    """Returns whether `model.compile` was called."""
    return bool(model.compiled if is_keras_3(model) else model._is_compiled)


def compilation(model: Any) -> Any:
    """Returns an object that each call of `model.compile` makes anew; None before the first."""
    return getattr(model, "_compile_config", None)


@contextlib.contextmanager
def trainable_as_compiled(model: Any) -> Iterator[None]:
    """Has the layers of a Keras 2 `model` be trainable as they were at `compile`, as its `fit` does: one that
    is frozen for another model is trained on with this one. Keras 3 takes them as they are.
    """
    if is_keras_3(model) or not is_compiled(model):
        yield
        return
    from tf_keras.src.engine.training_utils import RespectCompiledTrainableState

    with RespectCompiledTrainableState(model):
        yield


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


def parts_of(model: Any) -> dict[str, Any]:
    """Returns the models of `model` that know their inputs, by the names of its attributes."""
    kind = keras_of(model).Model
    return {
        name: part
        for name, part in vars(model).items()
        if isinstance(part, kind) and part is not model and getattr(part, "inputs", None)
    }


def builds_by_shape(model: Any) -> bool:
    """Returns whether `model` is a Sequential of Keras 3, which a call would give inputs of the call's batch
    size.
    """
    return is_keras_3(model) and isinstance(model, keras_of(model).Sequential)


def means_of(model: Any) -> list[Any]:
    """Returns the metrics of `model` that are Keras' own Mean, without those of what it was compiled with."""
    return [metric for metric in model.metrics if type(metric) is keras_of(model).metrics.Mean]


def has_trainable_variables(model: Any) -> bool:
    """Returns whether `model` has variables to train, and all of them: Keras 2 raises ValueError else."""
    try:
        return bool(model.trainable_variables)
    except ValueError:
        return False


def export(model: Any, path: str) -> None:
    """Writes `model` as a SavedModel."""
    if is_keras_3(model):
        model.export(path, verbose=False)
    else:
        model.save(path, save_format="tf", include_optimizer=False)


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


def count_step(model: Any) -> None:
    """Has the optimizers of `model` that have made steps count one more, which they have not made. One that
    scales losses, or adds gradients up, counts by what the step computes.
    """
    every = {id(optimizer): optimizer for optimizer in (model.optimizer, *optimizers_of(model).values())}
    for optimizer in every.values():
        by_step = hasattr(optimizer, "inner_optimizer") or hasattr(optimizer, "loss_scale")
        if optimizer is None or by_step or getattr(optimizer, "gradient_accumulation_steps", None):
            continue
        count = tf_variable(optimizer.iterations)
        if int(tf.convert_to_tensor(count)):
            count.assign_add(1)


def take_averages(model: Any) -> None:
    """Sets the weights of `model` to the moving averages of its optimizer, where that keeps some, as
    Model.fit does at its end.
    """
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if getattr(optimizer, "use_ema", False):
        optimizer.finalize_variable_values(model.trainable_variables)


def learning_rate(optimizer: Any) -> Any:
    """Returns a variable or a schedule; None for an optimizer of tf.keras.optimizers.legacy, or without a
    rate.
    """
    if not isinstance(optimizer, keras_of(optimizer).optimizers.Optimizer):
        return None
    # The optimizer may be the program's own class, or scale losses for another one: neither needs the
    # attribute.
    return getattr(optimizer, "_learning_rate", None)


def rate_of(optimizer: Any) -> float | None:
    """Returns the learning rate of the next step; None for an optimizer that has none, or that has made no
    step: a model's own `train_step` may use others.
    """
    try:
        if not int(tf.convert_to_tensor(optimizer.iterations)):
            return None
        # Not Keras 2's attribute: where there is a schedule, that is the rate of the last step.
        rate: Any = learning_rate(optimizer)
        rate = getattr(optimizer, "learning_rate", None) if rate is None else rate
        # A variable of several replicas is no number to Python.
        return float(tf.convert_to_tensor(rate(optimizer.iterations) if callable(rate) else rate))
    except (AttributeError, TypeError, ValueError):
        return None


def current_learning_rate(optimizer: Any) -> Any:
    """Returns the variable in which Keras 2 keeps a schedule's rate of the current step."""
    return optimizer._current_learning_rate


def rate_variable(optimizer: Any) -> Any:
    """Returns the variable in which `optimizer` keeps its rate; None for a schedule, or without a rate."""
    rate = vars(optimizer).get("_learning_rate")
    variable = None if callable(rate) else tf_variable(rate)
    return variable if isinstance(variable, tf.Variable) else None


def constant_rate(optimizer: Any) -> float | None:
    """Returns the value of `rate_variable`; None where there is none."""
    variable = rate_variable(optimizer)
    return None if variable is None else float(variable.numpy())


@contextlib.contextmanager
def fixed_rate(optimizer: Any, rate: float | None) -> Iterator[None]:
    """Has `optimizer` use `rate` in the block, in place of the variable in which it keeps one; None changes
    nothing.
    """
    before = vars(optimizer).get("_learning_rate")
    if rate is not None:
        # The optimizer's `__setattr__` would make it a tracked variable.
        vars(optimizer)["_learning_rate"] = rate
    try:
        yield
    finally:
        if rate is not None:
            vars(optimizer)["_learning_rate"] = before


def begin_trace(optimizer: Any) -> None:
    """Has each trace of a step compute with `optimizer` as in Keras' own `fit`. Keras 2's Nadam compares the
    number of its steps with that of its traces, a Python number, and leaves an update out where they are
    equal. In `fit`, which traces a step twice, they are not, but for models of few variables.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if hasattr(inner, "_u_product_counter"):
        inner._u_product_counter = _NEVER


def takes_gradients_as_they_are(optimizer: Any) -> bool:
    """Returns whether `optimizer` neither clips nor scales gradients. Those of
    tf.keras.optimizers.legacy are not looked at.
    """
    clips = [getattr(optimizer, name, None) for name in ("clipnorm", "clipvalue", "global_clipnorm")]
    scales = hasattr(optimizer, "inner_optimizer") or bool(getattr(optimizer, "loss_scale_factor", None))
    is_known = is_keras_3(optimizer) or hasattr(optimizer, "_clip_gradients")
    return is_known and not scales and not any(clips)


def apply_sums(optimizer: Any, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Has `optimizer` apply gradients, each beside its variable, that need not be added up over replicas."""
    # Keras 2 would bring the gradients from the ps to the worker. Keras 3 adds up those of several replicas
    # only (`keras_3.mend`).
    options = {} if is_keras_3(optimizer) else {"skip_gradients_aggregation": True}
    optimizer.apply_gradients(pairs, **options)


@contextlib.contextmanager
def signature_learnt(model: Any) -> Iterator[None]:
    """Has a `model` of Keras 2 learn from its calls in the block what it is called with, which an export has
    as its signature. Without a call it stays what it was.
    """
    before = model._saved_model_inputs_spec, model._saved_model_arg_spec
    model._saved_model_inputs_spec = model._saved_model_arg_spec = None
    try:
        yield
    finally:
        if model._saved_model_inputs_spec is None:
            model._saved_model_inputs_spec, model._saved_model_arg_spec = before


def steps_per_execution(model: Any) -> int:
    """Returns the number that `model` was compiled with."""
    if is_keras_3(model):
        return int(model.steps_per_execution)
    return int(model._steps_per_execution.numpy())


def uses_xla(model: Any) -> bool:
    """Returns whether a Keras 2 `model` was compiled with jit_compile=True. Keras 3 decides by itself whether
    its own `fit` uses XLA, and not by what the program says.
    """
    return not is_keras_3(model) and bool(model.jit_compile)


def build_compiled(model: Any, element: Any) -> None:
    """Makes the variables of the compiled losses and metrics. `model` has its own variables already;
    `element` is an element_spec of its data. A part that is built already is not changed.
    """
    if is_keras_3(model):
        keras_3.build_compiled(model, element)
        return
    features, labels, _ = tf.keras.utils.unpack_x_y_sample_weight(element)
    traced = tf.function(lambda inputs: model(inputs, training=False))
    predictions = traced.get_concrete_function(features).structured_outputs
    build_compiled_metrics(model, labels, predictions)
    if not model.compiled_loss.built:
        model.compiled_loss.build(predictions)


def build_compiled_metrics(model: Any, labels: Any, predictions: Any) -> None:
    """Makes the variables of the metrics given to `compile`. The arguments are tensors of a trace."""
    metrics = compiled_metrics(model)
    if metrics is None or metrics.built:
        return
    if is_keras_3(model):
        metrics.build(labels, predictions)
    else:
        metrics.build(predictions, labels)


def compiled_loss_metrics(model: Any) -> list[Any]:
    """Returns the means of losses that the compiled loss keeps: with Keras 2 that of the whole loss, and with
    both those of the outputs, where there are several. They exist when the loss is built.
    """
    return keras_3.compiled_loss_metrics(model) if is_keras_3(model) else list(model.compiled_loss.metrics)


def computes_loss(model: Any) -> bool:
    """Returns whether `model` has a loss: compiled, of its own, or added by a layer in the call before."""
    if is_keras_3(model):
        return keras_3.computes_loss(model)
    return bool(model.loss) or bool(model.losses) or has_own(model, "compute_loss")


def weighs_losses_by_examples(model: Any) -> bool:
    """Returns whether the loss of an epoch is the mean over its examples. Keras 2 takes that over its batches
    where all losses are added by layers, since no labels tell the number of examples.
    """
    return is_keras_3(model) or bool(model.loss) or has_own(model, "compute_loss")


def compute_loss(model: Any, data: tuple[Any, Any, Any, Any], training: bool) -> Any:
    """Returns the loss that `model` computes, regularisation included: in a replica, its share of the mean.

    `data` are features, labels, predictions and weights. Raises ValueError where there are no labels for it.
    """
    if is_keras_3(model):
        return keras_3.compute_loss(model, data, training)
    loss = model.compute_loss(*data)
    if training:
        model._validate_target_and_loss(data[1], loss)
    return loss


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


def scale_losses(share: Callable[[], Any], of_examples: Callable[[Any], Any]) -> None:
    """Has `compiled_loss` of Keras 2 multiply a replica's loss by the result of `share()`, `float32[]`.

    Where the result is None, Keras divides the loss by the number of replicas, as before. So it does with the
    mean of a loss that a step of the program's own calls, which Keras 2 refuses under any strategy and
    Keras 3 takes. `of_examples` gets what `compiled_loss` returns, and returns what it is to return: a sum is
    not scaled. It is called once for a process, where the image has Keras 2.
    """
    if "tf_keras" not in sys.modules:
        return
    from tf_keras.src.engine.compile_utils import LossesContainer
    from tf_keras.src.losses import Loss
    from tf_keras.src.utils import losses_utils

    original, call = losses_utils.scale_loss_for_distribution, LossesContainer.__call__
    if hasattr(original, "without_shares"):
        return

    def scale_loss_for_distribution(loss_value: Any) -> Any:
        part = share()
        return original(loss_value) if part is None else loss_value * tf.cast(part, loss_value.dtype)

    @functools.wraps(call)
    def counted_call(*arguments: Any, **options: Any) -> Any:
        return of_examples(call(*arguments, **options))

    means = (losses_utils.ReductionV2.AUTO, losses_utils.ReductionV2.SUM_OVER_BATCH_SIZE)
    reduction_of, loss_of = Loss._get_reduction, Loss.__call__

    def is_refused(loss: Any) -> bool:
        compiled = loss._allow_sum_over_batch_size
        return not compiled and loss.reduction in means and tf.distribute.has_strategy()

    def get_reduction(loss: Any) -> Any:
        return losses_utils.ReductionV2.SUM_OVER_BATCH_SIZE if is_refused(loss) else reduction_of(loss)

    @functools.wraps(loss_of)
    def scaled_call(loss: Any, *arguments: Any, **named: Any) -> Any:
        value = loss_of(loss, *arguments, **named)
        return scale_loss_for_distribution(value) if is_refused(loss) else value

    Loss._get_reduction, Loss.__call__ = get_reduction, scaled_call
    scale_loss_for_distribution.without_shares = original  # type: ignore[attr-defined]
    losses_utils.scale_loss_for_distribution = scale_loss_for_distribution
    LossesContainer.__call__ = counted_call
