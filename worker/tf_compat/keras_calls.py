"""The methods by which a script trains and asks its Keras models, given to the runtime.

They are replaced in the base class of either Keras, so those of subclasses, Sequential and functional models
are, too. A class of the script's own that overrides one calls the replacement by `super()`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import tensorflow as tf

from worker.tf_compat import keras_models, replaced_methods

Call = Callable[[Any, dict[str, Any]], Any]
"""Gets the model and the call's arguments by their names, the defaults too."""


def replace(calls: Mapping[str, Call]) -> None:
    """Has the methods named in `calls` of every model of Keras 3 and Keras 2 be carried out by these."""
    for kind in _kinds():
        for name, call in calls.items():
            setattr(kind, name, _calling(getattr(kind, name), call))


def save_where_told(strategy: Any) -> None:
    """Has callbacks write each task's files, under the names that they are given. Those of Keras 2, and
    KerasTuner's, remove what a task writes that is none to save checkpoints, and the script may load it.
    """
    replaced_methods.replace(type(strategy.extended), should_checkpoint=property(lambda _: True))


def save_at_once() -> None:
    """Has a model's file appear under its name when it is whole. Tasks that share a volume, or a machine, may
    save to the same file, and HDF5 refuses a second writer.
    """
    for kind in _kinds():
        replaced_methods.replace(kind, save=_at_once(kind.save), save_weights=_at_once(kind.save_weights))


def _at_once(method: Any) -> Any:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def saved(self: Any, *arguments: Any, **named: Any) -> Any:
        bound = signature.bind(self, *arguments, **named)
        given = bound.arguments["filepath"]
        path = Path(os.path.realpath(given) if isinstance(given, (str, os.PathLike)) else "")
        asks_before = not bound.arguments.get("overwrite", True)
        if path.suffix not in (".keras", ".h5") or asks_before or not os.access(path.parent, os.W_OK):
            return method(self, *arguments, **named)
        with tempfile.TemporaryDirectory(prefix=".saved-", dir=path.parent) as folder:
            whole = Path(folder, path.name)
            bound.arguments["filepath"] = str(whole)
            result = method(*bound.args, **bound.kwargs)
            whole.replace(path)
        sys.audit("open", str(path), None, os.O_WRONLY)  # as a plain save does: see lost_files
        return result

    return saved


def call_loaded_functions() -> None:
    """Has a script call a function of a SavedModel that it has loaded under the strategy: TensorFlow (2.21)
    raises there, since it would read a variable of one replica.
    """
    from tensorflow.python.distribute.distribute_utils import is_distributed_variable
    from tensorflow.python.saved_model.load import _WrapperFunction

    call = _WrapperFunction._call_flat

    def call_flat(self: Any, args: Any, captured_inputs: Any) -> Any:
        if tf.distribute.in_cross_replica_context():
            captured_inputs = [
                each._primary.handle if is_distributed_variable(each) else each for each in captured_inputs
            ]
        return call(self, args, captured_inputs)

    _WrapperFunction._call_flat = call_flat


def keep_losses_whole() -> None:
    """Has a loss that a script calls by itself, outside a step, be that of one process: Keras 3 would divide
    it by the number of replicas, and Keras 2 refuses it.
    """
    if importlib.util.find_spec("keras") is not None:
        from keras.src.losses import loss as module

        for name in ("scale_loss_for_distribution", "unscale_loss_for_distribution"):
            setattr(module, name, _within_replicas(getattr(module, name)))
    if importlib.util.find_spec("tf_keras") is not None:
        from tf_keras.src.losses import Loss
        from tf_keras.src.utils import losses_utils

        reduction_of, means = Loss._get_reduction, losses_utils.ReductionV2

        def get_reduction(loss: Any) -> Any:
            is_mean = loss.reduction in (means.AUTO, means.SUM_OVER_BATCH_SIZE)
            if is_mean and tf.distribute.in_cross_replica_context():
                return means.SUM_OVER_BATCH_SIZE
            return reduction_of(loss)

        Loss._get_reduction = get_reduction
        scale = losses_utils.scale_loss_for_distribution
        losses_utils.scale_loss_for_distribution = _within_replicas(scale)


def _within_replicas(scale: Any) -> Any:
    @functools.wraps(scale)
    def scaled(value: Any) -> Any:
        return value if tf.distribute.in_cross_replica_context() else scale(value)

    return scaled


def on_new_graph(around: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
    """Has `clear_session` of either Keras make its new default graph in the context `around()`. A scope of a
    strategy belongs to the graph in which it was entered.
    """
    for module in (tf.compat.v1, tf.compat.v2.compat.v1):
        module.reset_default_graph = _in_context(module.reset_default_graph, around)


def _in_context(function: Any, around: Callable[[], contextlib.AbstractContextManager[None]]) -> Any:
    @functools.wraps(function)
    def called() -> None:
        with around():
            function()

    return called


def returned(model: Any, results: dict[str, Any], *, as_dict: bool) -> Any:
    """Returns what `evaluate` and its like return: a dict in Keras' order, or else the values as a list, or
    the only one.
    """
    is_3 = keras_models.is_keras_3(model)
    if as_dict:
        return dict(sorted(results.items())) if is_3 else results
    if is_3:
        return model._flatten_metrics_in_order(results)
    from tf_keras.src.engine.training import flatten_metrics_in_order

    return flatten_metrics_in_order(results, model.metrics_names)


def on_foreign_strategy(refuse: Callable[[], NoReturn]) -> None:
    """Has `refuse` called where a strategy is made from now on."""

    @functools.wraps(tf.distribute.Strategy.__init__)
    def init(*_: Any, **__: Any) -> NoReturn:
        refuse()

    tf.distribute.Strategy.__init__ = init


def on_gradients(check_look: Callable[[], None], check: Callable[[], None]) -> None:
    """Has `check_look` called whenever a tape is asked for the gradients of variables, and `check` whenever
    an optimizer of either Keras is about to apply some.
    """
    gradient = tf.GradientTape.gradient

    @functools.wraps(gradient)
    def checked(tape: Any, target: Any, sources: Any, *arguments: Any, **options: Any) -> Any:
        if any(isinstance(keras_models.tf_variable(each), tf.Variable) for each in tf.nest.flatten(sources)):
            check_look()
            sources = tf.nest.map_structure(_read_copy, sources)
        return gradient(tape, target, sources, *arguments, **options)

    tf.GradientTape.gradient = checked
    if importlib.util.find_spec("keras") is not None:
        import keras

        keras.optimizers.Optimizer.apply = _checked(keras.optimizers.Optimizer.apply, check)
    if importlib.util.find_spec("tf_keras") is not None:
        import tf_keras

        for kind in (tf_keras.optimizers.Optimizer, tf_keras.optimizers.legacy.Optimizer):
            kind.apply_gradients = _checked(kind.apply_gradients, check)


def _read_copy(source: Any) -> Any:
    """Returns the copy of a distributed variable that is read outside of a replica."""
    from tensorflow.python.distribute.distribute_utils import is_distributed_variable

    variable = keras_models.tf_variable(source)
    in_replica = tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()
    return variable._primary if is_distributed_variable(variable) and not in_replica else source


def _checked(method: Any, check: Callable[[], None]) -> Any:
    @functools.wraps(method)
    def checked(*arguments: Any, **named: Any) -> Any:
        check()
        return method(*arguments, **named)

    return checked


def _kinds() -> list[Any]:
    model_classes = []
    if importlib.util.find_spec("keras") is not None:
        import keras

        model_classes.append(keras.Model)
    if importlib.util.find_spec("tf_keras") is not None:
        import tf_keras

        model_classes.append(tf_keras.Model)
    return model_classes


def _calling(method: Any, call: Call) -> Any:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def replaced(self: Any, *arguments: Any, **named: Any) -> Any:
        bound = signature.bind(self, *arguments, **named)
        bound.apply_defaults()
        given = dict(bound.arguments)
        given.pop("kwargs", None)
        del given["self"]
        return call(self, given)

    return replaced
