"""What Keras' fit, evaluate and predict take, as batches: one way for a script's calls and for the methods of
a program.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tensorflow as tf

from worker.data_adapters import arrays, numbered, python_batches
from worker.data_adapters.array_orders import Order
from worker.data_adapters.arrays import Triple
from worker.data_adapters.class_weights import ClassWeights
from worker.failures import program_error
from worker.tf_compat import seeds

_BATCH_SIZE = 32
"""What Keras takes where it is given none."""


@dataclass(frozen=True)
class FitData:
    """Data in batches of the GLOBAL size.

    `batches` are those of a pass, `examples` the examples of a pass, `batch_size` the examples of the first
    batch; each is None where it is not known. `validation` is what validation_split has left for
    validation, for `evaluation_data`.
    """

    source: Any
    batches: int | None
    examples: int | None = None
    batch_size: int | None = None
    validation: Triple | None = None

    def dataset(self) -> tf.data.Dataset:
        """Returns a pass through the data. `of` finds these data again by the dataset."""
        if isinstance(self.source, tf.data.Dataset):
            return self.source
        if isinstance(self.source, python_batches.Stream):
            dataset = self.source.dataset().take(-1 if self.batches is None else self.batches)
        else:
            dataset = numbered.dataset(self.source, last=self.batches, rows=self._rows_from(0))
        dataset.fit_data = self
        return dataset

    @property
    def is_read_once(self) -> bool:
        """Returns whether it is a generator's."""
        return isinstance(self.source, python_batches.Stream)

    def kept(self, steps: int | None = None) -> FitData:
        """Returns the batches of a generator, at most `steps`, which are all read into memory now."""
        kept = self.source.kept(steps)
        return FitData(kept, kept.batches, batch_size=self.batch_size)

    def from_batch(self, done: int) -> tf.data.Dataset:
        """Returns the data without the first `done` batches, which are not read, and without an end. Each
        pass has its own order. A generator is read, from where it is.
        """
        if isinstance(self.source, python_batches.Stream):
            return self.source.dataset(done)
        return numbered.dataset(self.source, done, rows=self._rows_from(done))

    def use_up(self, epochs: int) -> None:
        """Leaves the process' random numbers, and a PyDataset, as so many epochs of Keras' fit do."""
        if isinstance(self.source, python_batches.Sequence):
            self.source.use_up(epochs)

    def _rows_from(self, batch: int) -> tf.data.Dataset | None:
        return self.source.rows_from(batch) if isinstance(self.source, arrays.Arrays) else None


def of(dataset: Any) -> FitData | None:
    """Returns the data that gave `dataset`, None for any other dataset."""
    data = getattr(dataset, "fit_data", None)
    return data if isinstance(data, FitData) else None


def training_data(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    keras_3: bool,
    batch_size: int | None = None,
    shuffle: bool | str = True,
    class_weight: Any = None,
    validation_split: float = 0.0,
    steps_per_epoch: int | None = None,
    epochs: int | None = None,
    seed: int | None = None,
    workers: int = 1,
    call: str = "fit",
) -> FitData:
    """Returns what fit is to train with, in so many `epochs`, where that is known. `keras_3` says which Keras
    the model is of, whose casts and refusals these are. Fits of the same `seed` have the same orders; `call`
    names the call in messages.

    Raises Failure for what cannot be trained with.
    """
    given, validation = Triple(x, y, sample_weight), None
    if validation_split:
        given, validation = arrays.split(given, validation_split, call, keras_3=keras_3)
    seed = _seed(seed)
    of = _Call(
        keras_3,
        call,
        Order(shuffle, seed, keras_3=keras_3),
        batch_size,
        steps_per_epoch,
        class_weight,
        workers,
        seed,
        validation,
        epochs,
    )
    return of.data(given)


def evaluation_data(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    keras_3: bool,
    batch_size: int | None = None,
    steps: int | None = None,
    workers: int = 1,
    call: str = "evaluate",
) -> FitData:
    """Returns what evaluate, or fit's validation, is to score: in the order that it has, at most `steps`
    batches. A generator's are read at once and kept, for the next evaluation. Raises Failure as
    `training_data` does.
    """
    of = _Call(keras_3, call, Order(False, 0, keras_3=keras_3), batch_size, steps, workers=workers)
    data = of.data(Triple(x, y, sample_weight))
    return data.kept(steps) if data.is_read_once else _first(data, steps)


def prediction_data(
    x: Any,
    *,
    keras_3: bool,
    batch_size: int | None = None,
    call: str = "predict",
) -> FitData:
    """Returns what predict is to predict for: see `evaluation_data`. A generator is read once only."""
    of = _Call(keras_3, call, Order(False, 0, keras_3=keras_3), batch_size, None)
    return of.data(Triple(x))


def of_program(given: Any, method: str, batch_size: int, *, keras_3: bool, call: str) -> Any:
    """Returns the dataset of what `method` of a program has returned, by `call`: one of these data, or what
    Keras' fit takes, where a tuple is (x, y) or (x, y, sample_weight). Anything else is returned as it is.
    """
    if isinstance(given, FitData):
        return given.dataset()
    triple = Triple(*given) if isinstance(given, tuple) and len(given) in (1, 2, 3) else Triple(given)
    if not _is_taken(triple, keras_3=keras_3):
        return given
    if method == "train_dataset":
        return training_data(*triple, batch_size=batch_size, keras_3=keras_3, call=call).dataset()
    if method == "predict_dataset" and triple.y is None:
        return prediction_data(triple.x, batch_size=batch_size, keras_3=keras_3, call=call).dataset()
    return evaluation_data(*triple, batch_size=batch_size, keras_3=keras_3, call=call).dataset()


def _is_taken(given: Triple, *, keras_3: bool) -> bool:
    rest = given.y is None and given.sample_weight is None
    is_batched = python_batches.is_sequence(given.x) or python_batches.is_stream(given.x)
    return (is_batched and rest) or arrays.are_arrays(given, keras_3=keras_3)


@dataclass(frozen=True)
class _Call:
    """What a call says of its data beside them."""

    keras_3: bool
    call: str
    order: Order
    batch_size: int | None = None
    steps: int | None = None
    class_weight: Any = None
    workers: int = 1
    seed: int = 0
    validation: Triple | None = None
    epochs: int | None = None

    @property
    def floatx(self) -> str:
        return str((sys.modules["keras"] if self.keras_3 else tf.keras).backend.floatx())

    def data(self, given: Triple) -> FitData:
        """Raises Failure for what is not taken."""
        weights = None
        if self.class_weight is not None:
            weights = ClassWeights(self.class_weight, self.floatx, self.call, keras_3=self.keras_3)
        if arrays.are_arrays(given, keras_3=self.keras_3):
            return self._of_arrays(given, weights)
        kind, x = arrays.described(given.x), given.x
        is_dataset = isinstance(x, tf.data.Dataset)
        if not (is_dataset or python_batches.is_sequence(x) or python_batches.is_stream(x)):
            raise program_error(
                f"{self.call}: cannot read {kind}: give arrays, a tf.data.Dataset, a PyDataset or a generator"
            )
        if given.y is not None or given.sample_weight is not None:
            raise program_error(
                f"{self.call}: {kind} gives targets and weights itself: leave y and sample_weight out"
            )
        if is_dataset:
            x = x if weights is None else x.map(weights.of_batch)
            size = int(x.cardinality())
            return FitData(x, size if size >= 0 else None)
        if not python_batches.is_sequence(x):
            if self.class_weight is not None and self.keras_3:
                raise program_error(
                    f"{self.call}: Keras 3 takes no class_weight with a generator: yield sample weights"
                )
            stream = python_batches.Stream(x, partial(self._standardized, weights), self.call)
            return FitData(stream, None, batch_size=stream.size)
        source = python_batches.Sequence(
            x,
            partial(self._standardized, weights),
            self.order,
            self.seed,
            epoch=self.steps,
            epochs=self.epochs,
            workers=max(self.workers, int(getattr(x, "workers", 1))),
            keras_3=self.keras_3,
            call=self.call,
        )
        return FitData(source, source.batches, batch_size=source.size)

    def _of_arrays(self, given: Triple, weights: ClassWeights | None) -> FitData:
        rows = arrays.rows_of(given, weights, self.floatx, keras_3=self.keras_3, call=self.call)
        count = tf.nest.flatten(rows)[0].count
        steps = self.steps
        size = self.batch_size or (math.ceil(count / steps) if steps else _BATCH_SIZE)
        source = arrays.Arrays(rows, size, self.order)
        return FitData(source, source.batches, count, size, self.validation)

    def _standardized(self, weights: ClassWeights | None, batch: Any) -> Any:
        batch = python_batches.standardized(batch, self.floatx, self.call, keras_3=self.keras_3)
        if weights is None or not isinstance(batch, tuple):
            return batch
        x, y, sample_weights = (*batch, None, None)[:3]
        weights.check(y, sample_weights)
        return x, y, weights.of(y, sample_weights)


def _first(data: FitData, steps: int | None) -> FitData:
    """Returns the first `steps` batches of a pass."""
    if steps is None or (data.batches is not None and steps >= data.batches):
        return data
    if isinstance(data.source, tf.data.Dataset):
        return FitData(data.source.take(steps), steps)
    examples = None if data.examples is None else min(data.examples, steps * (data.batch_size or 0))
    return replace(data, batches=steps, examples=examples)


def _seed(given: int | None) -> int:
    global_seed = seeds.global_seed()
    return (seeds.UNSET if global_seed is None else global_seed) + (given or 0)
