"""What a call of a Keras model is given, as batched datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from worker.data_adapters import fit_data
from worker.data_adapters.arrays import Arrays
from worker.data_adapters.python_batches import is_stream
from worker.failures import program_error
from worker.input import batch_size as batch_sizes
from worker.input.fit_iterations import Scored
from worker.tf_compat import keras_models

_ANY = 2**31
"""A batch size that no array reaches."""
_UNKNOWN = 32
"""What is taken for the batch size where nothing tells: Keras' default."""


class Data(NamedTuple):
    """A batched dataset, the number of examples in a whole batch, and what `validation_split` has left.
    `has_size` is False where that number is a guess.
    """

    dataset: Any
    batch_size: int
    validation: Any = None
    scored: Scored | None = None
    """How Keras reads what is evaluated."""
    has_size: bool = True


def training(
    model: Any, given: Mapping[str, Any], number: int, where: str, notice: Callable[[str], None]
) -> Data:
    """Returns the data of the arguments of `fit`, the call of this `number`. Raises Failure for a generator
    that has no batches for all of its epochs.
    """
    epochs: int = given["epochs"] - given["initial_epoch"]
    data = fit_data.training_data(
        given["x"],
        given["y"],
        given["sample_weight"],
        keras_3=keras_models.is_keras_3(model),
        batch_size=given["batch_size"],
        shuffle=given["shuffle"],
        class_weight=given["class_weight"],
        validation_split=given["validation_split"],
        steps_per_epoch=given["steps_per_epoch"],
        epochs=epochs,
        seed=number,
        workers=given.get("workers", 1),
        call=f"{where}: fit()",
    )
    if data.is_read_once and given["steps_per_epoch"] is None:
        if epochs > 1:
            raise program_error(
                f"{where}: fit() of a generator for {epochs} epochs needs steps_per_epoch: it is read once, "
                "and Keras gives the later epochs nothing, or what is left in its buffers"
            )
        notice(
            f"{where}: fit() of a generator without steps_per_epoch: all of its batches are read into memory "
            "first, to count them"
        )
        data = data.kept()
    return _data(data, given["x"])


def epoch_steps(
    model: Any, given: Mapping[str, Any], dataset: Any, where: str, notice: Callable[[str], None]
) -> int | None:
    """Returns the steps of an epoch of `fit` with `dataset`, None for a pass. `notice` is told where the data
    end before the steps do: Keras 3 ends the epoch there, as is done here. Otherwise the data are read on
    from their beginning, which Keras in one process does not do everywhere.

    Source: keras 3.15 `EpochIterator._enumerate_iterator`, tf_keras 2.21 `DataHandler.enumerate_epochs`.
    """
    steps: int | None = given["steps_per_epoch"]
    epochs: int = given["epochs"] - given["initial_epoch"]
    source, size = fit_data.of(dataset), _batches(dataset)
    if steps is None or size is None or size <= 0:
        return steps
    asks = f"{where}: fit(steps_per_epoch={steps}) asks for more than the {size} batches that the data have"
    if keras_models.is_keras_3(model):
        if steps > size:
            notice(f"{asks}: an epoch has {size} steps, as with Keras in one process")
            return size
        stops = steps * epochs > size and size % steps != 0
    elif source is not None:
        stops = steps > size
    else:
        stops = steps * epochs > size and steps != size
    if stops:
        notice(
            f"{asks} in {epochs} epochs: they are read again from the beginning, where Keras in one process "
            "would end an epoch or the training early, with a warning"
        )
    return steps


def _batches(dataset: Any) -> int | None:
    """Returns the batches of a pass; None or a negative number where their number is not known."""
    source = fit_data.of(dataset)
    return source.batches if source is not None else int(dataset.cardinality())


def counts_end(model: Any, given: Mapping[str, Any], dataset: Any) -> bool:
    """Returns whether `fit` of one process counts the step that finds the end of `dataset` as one of the
    optimizer's: TensorFlow carries out what in the graph of a step needs no data, and only there.

    Source: keras 3.15 `TensorFlowTrainer._make_function`.
    """
    # Keras does not count a generator's batches first.
    is_unknown = is_stream(given["x"]) or _batches(dataset) in (None, tf.data.UNKNOWN_CARDINALITY)
    if given["steps_per_epoch"] is not None or not is_unknown:
        return False
    return not (model.run_eagerly or model.jit_compile or keras_models.steps_per_execution(model) > 1)


def validation(model: Any, given: Mapping[str, Any], left: Any, where: str) -> Data | None:
    """Returns the validation data of the arguments of `fit`, or what was `left` by a split; None where there
    are none.
    """
    data = given["validation_data"] if given["validation_data"] is not None else left
    if data is None:
        return None
    parts = tuple(data) if isinstance(data, (tuple, list)) else (data,)
    size = given["validation_batch_size"] or given["batch_size"]
    return evaluation(model, parts, size, given["validation_steps"], f"{where}: fit()")


def evaluation(
    model: Any, parts: tuple[Any, ...], batch_size: int | None, steps: int | None, call: str
) -> Data:
    """Returns the first `steps` batches, or all, of features, labels and weights."""
    data = fit_data.evaluation_data(
        *parts, keras_3=keras_models.is_keras_3(model), batch_size=batch_size, steps=steps, call=call
    )
    of, is_dataset = _data(data, parts[0]), isinstance(parts[0], tf.data.Dataset)
    batches = int(parts[0].cardinality()) if is_dataset else tf.data.UNKNOWN_CARDINALITY
    return Data(of.dataset, of.batch_size, of.validation, Scored(of.dataset, steps, batches))


def batch(model: Any, given: Mapping[str, Any], call: str) -> tuple[Any, Any]:
    """Returns the tensors of the arguments of `train_on_batch` and its like, and their spec for any number of
    examples.
    """
    source = fit_data.training_data(
        given["x"],
        given.get("y"),
        given.get("sample_weight"),
        keras_3=keras_models.is_keras_3(model),
        batch_size=_ANY,
        shuffle=False,
        class_weight=given.get("class_weight"),
        call=call,
    ).source
    if not isinstance(source, Arrays):
        raise program_error(f"{call} takes arrays of one batch, not a {type(given['x']).__name__}")
    return tf.nest.map_structure(_tensor, source.read(0)), source.element


def _tensor(value: Any) -> Any:
    return value if tf.is_tensor(value) else tf.convert_to_tensor(value)


def _data(data: fit_data.FitData, x: Any) -> Data:
    is_dataset = isinstance(x, tf.data.Dataset)
    size = batch_sizes.batch_size(x) if is_dataset else data.batch_size
    # A generator and a PyDataset tell that of their first batch.
    has_size = size is not None and (is_dataset or isinstance(data.source, Arrays))
    return Data(data.dataset(), size or _UNKNOWN, data.validation, has_size=has_size)
