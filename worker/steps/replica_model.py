"""Makes a program's model for the replicas of a strategy."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from worker.context import Loop
from worker.failures import program_error
from worker.input import replica_shares, used_shuffle_orders
from worker.steps import statistics
from worker.steps.reductions import adds_up
from worker.tf_compat import batch_functions, keras_3, keras_models, seeds, versions
from worker.tf_compat.replaced_methods import replaced
from worker.tf_compat.strategies import replicas_share_variables, uses_coordinator


def replica_model(loop: Loop) -> Any:
    """Returns what `model()` returns, and has Keras compute with several replicas as one process does.

    Raises Failure where the model is one of a Keras 3 that is too old.
    """
    # TensorFlow itself causes this warning for distributed datasets. The filter is set here, because a filter
    # with a pattern makes the import of TensorFlow half a second slower.
    warnings.filterwarnings("ignore", message="To make it possible to preserve tf.data options")
    keras_3.mend(loop.strategy, replica_shares.part, replica_shares.over_replicas)
    statistics.average(loop.strategy)
    loop.hooks.enter("running model()")
    with loop.strategy.scope(), _earlier_variables(loop.strategy), used_shuffle_orders.counted():
        model = loop.program.model()
    _check_scope(loop, model)
    batch_functions.mend(replica_shares.of_all_replicas, adds_up)
    if keras_models.is_keras_3(model):
        too_old = versions.keras_too_old(keras_3.version())
        if too_old is not None:
            raise program_error(f"{too_old}: take an image with a newer one")
    else:
        mend_keras_2()
        _check_xla(loop, model)
    return model


def mend_keras_2() -> None:
    """Has Keras 2, where it is imported, compute with several replicas as one process does."""
    keras_models.weigh_masks(replica_shares.over_replicas)
    keras_models.scale_losses(replica_shares.part, replica_shares.made)
    seeds.share_keras_2()


@contextlib.contextmanager
def _earlier_variables(strategy: Any) -> Iterator[None]:
    """Has Keras 2 compile models that have variables from before the scope, as an adapted layer has. Keras 3
    does not look.
    """
    with replaced(strategy.extended, variable_created_in_scope=lambda _: True):
        yield


def _check_scope(loop: Loop, model: Any) -> None:
    """Raises Failure where the model has variables to train that were made before it: the replicas would each
    have their own, or none.
    """
    if isinstance(loop.strategy, tf.distribute.OneDeviceStrategy) and keras_models.is_keras_3(model):
        return
    built = [model] if model.built else [layer for layer in model.layers if layer.built]
    for variable in [each for part in built for each in part.trainable_variables]:
        tf_variable = keras_models.tf_variable(variable)
        if isinstance(tf_variable, tf.Variable) and not loop.strategy.extended.variable_created_in_scope(
            tf_variable
        ):
            raise program_error(
                f"{loop.program.entrypoint}: model() uses the variable {variable.name}, which was made "
                "before model() was called, on import or in __init__: make its layer in model()"
            )


def _check_xla(loop: Loop, model: Any) -> None:
    """Raises Failure where XLA cannot compile a step of a Keras 2 `model`, which is not on one device alone:
    it reaches no variable elsewhere, and no other replica.
    """
    strategy, where = loop.strategy, ""
    if uses_coordinator(strategy):
        where = "under ParameterServer"
    elif strategy.num_replicas_in_sync > 1:
        where = "for several replicas"
    elif replicas_share_variables(strategy) and "GPU" in strategy.extended.worker_devices[0]:
        where = "under CentralStorage, which keeps the variables of a GPU on the CPU"
    if keras_models.uses_xla(model) and where:
        raise program_error(
            f"{loop.program.entrypoint}: model() is compiled with jit_compile=True, and TensorFlow cannot "
            f"compile a step by XLA {where}: leave jit_compile out"
        )
