"""Prints, for each thing that fit takes, whether the batches that plain Keras trains on are those of
`fit_data.training_data`: "same", "both refuse", or what differs. Arguments: 2 or 3, the Keras.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from worker.data_adapters import fit_data
from worker.failures import Failure

KERAS: Any = importlib.import_module("keras" if sys.argv[1] == "3" else "tf_keras")
EXAMPLES = 10


class Recorder(KERAS.Model):
    """Keeps what its steps are given."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Any] = []
        self.compile(run_eagerly=True, loss="mse")

    def call(self, features: Any) -> Any:
        return features

    def train_step(self, data: Any) -> Any:
        self.batches.append(data)
        return {"loss": tf.constant(0.0)}

    def test_step(self, data: Any) -> Any:
        return {"loss": tf.constant(0.0)}


def cases() -> Iterator[tuple[str, Callable[[], Any], dict[str, Any]]]:
    """Yields a name, what makes x and y, and further arguments of fit."""
    random = np.random.RandomState(0)
    x, y, weights = random.rand(EXAMPLES, 3), random.randint(0, 3, EXAMPLES), random.rand(EXAMPLES)
    classes = {0: 1.0, 1: 2.5, 2: 0.5}
    ragged = tf.RaggedTensor.from_row_lengths(random.rand(30), random.multinomial(30, [0.1] * 10))
    sparse = tf.sparse.from_dense(random.rand(EXAMPLES, 5) * (random.rand(EXAMPLES, 5) > 0.6))
    words = np.array(["a", "bb", "ccc", "d", "e", "f", "g", "h", "i", "j \u00e9"], dtype=object)
    yield "float64", lambda: (x, y), {}
    yield "float16, targets of float64", lambda: (x.astype("float16"), y.astype("float64")), {}
    yield "uint8", lambda: ((255 * x).astype("uint8"), y.astype("uint8")), {}
    yield "bool", lambda: (x > 0.5, y > 1), {}
    yield "not contiguous", lambda: (np.asfortranarray(x)[:, ::2], y), {}
    yield "without targets", lambda: (x,), {}
    yield "a list without targets", lambda: ([x, y],), {}
    yield "tensors", lambda: (tf.constant(x), tf.constant(y)), {}
    yield "bfloat16", lambda: (tf.cast(x, tf.bfloat16), tf.constant(y)), {}
    yield "dicts", lambda: ({"a": x, "b": y}, {"output": weights}), {}
    yield "lists", lambda: ([x, y], [y, weights]), {}
    yield "strings", lambda: (words, y), {}
    yield "ragged", lambda: (ragged, y), {}
    yield "sparse", lambda: (sparse, y), {}
    yield "sample weights", lambda: (x, y), {"sample_weight": weights}
    yield "sample weights of outputs", lambda: (x, [y, x]), {"sample_weight": [weights, 2 * weights]}
    yield "one sample weight for outputs", lambda: (x, [y, x]), {"sample_weight": weights}
    yield "sample weights of another shape", lambda: (x, [y, x]), {"sample_weight": np.ones((10, 2))}
    yield "class weights", lambda: (x, y), {"class_weight": classes}
    yield "integer class weights", lambda: (x, y), {"class_weight": {0: 1, 1: 2, 2: 3}}
    yield "class weights, one-hot", lambda: (x, np.eye(3)[y]), {"class_weight": classes}
    yield "class weights, a column", lambda: (x, y[:, None].astype("float64")), {"class_weight": classes}
    yield "class weights of outputs", lambda: (x, [y, x]), {"class_weight": classes}
    yield "class weights with gaps", lambda: (x, y), {"class_weight": {0: 2.0, 2: 3.0}}
    yield "lists of numbers", lambda: ([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0]), {}
    yield "unequal", lambda: (x, y[:5]), {}
    yield "validation_split", lambda: (x, y), {"validation_split": 0.25}
    yield "validation_split of nothing", lambda: (x, y), {"validation_split": 0.99}
    yield "steps_per_epoch", lambda: (x, y), {"steps_per_epoch": 3, "batch_size": None}
    if importlib.util.find_spec("pandas"):
        pandas: Any = importlib.import_module("pandas")
        frame = pandas.DataFrame({"a": weights, "b": y})
        yield "DataFrame and Series", lambda: (frame, pandas.Series(y)), {}
        yield "DataFrame of integers", lambda: (frame[["b"]], pandas.Series(weights)), {}
        yield "DataFrame, split", lambda: (frame, frame["b"]), {"validation_split": 0.25}
    if importlib.util.find_spec("scipy"):
        sparse_arrays: Any = importlib.import_module("scipy.sparse")
        matrix = sparse_arrays.random(EXAMPLES, 6, 0.4, random_state=0).tocsr()
        yield "scipy", lambda: (matrix, y), {}


SEQUENCE: Any = KERAS.utils.PyDataset if sys.argv[1] == "3" else KERAS.utils.Sequence


class Rolled(SEQUENCE):
    """Gives other batches in each epoch, as its `on_epoch_end` decides."""

    def __init__(self, batch: Callable[[Any], Any], **options: Any) -> None:
        if sys.argv[1] == "3":
            super().__init__(**options)
        self.batch = batch
        self.numbers = np.arange(EXAMPLES)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return self.batch(self.numbers[4 * index : 4 * index + 4])

    def on_epoch_end(self) -> None:
        self.numbers = np.roll(self.numbers, 1)


def rolled(batch: Callable[[Any], Any]) -> Any:
    return (Rolled(batch),)


def generated(batch: Callable[[Any], Any]) -> Any:
    return ((batch(np.arange(4 * number, 4 * number + 4) % EXAMPLES) for number in range(9)),)


def made() -> Iterator[tuple[str, Callable[[], Any], dict[str, Any]]]:
    """Yields cases of batches that Python code makes."""
    random = np.random.RandomState(0)
    x, y, weights = random.rand(EXAMPLES, 3), random.randint(0, 3, EXAMPLES), random.rand(EXAMPLES)
    classes = {"class_weight": {0: 1.0, 1: 2.5, 2: 0.5}}
    ragged = tf.RaggedTensor.from_row_lengths(random.rand(30), random.multinomial(30, [0.1] * 10))
    kinds: dict[str, Callable[[Any], Any]] = {
        "pairs": lambda rows: (x[rows], y[rows]),
        "weighted": lambda rows: (x[rows], y[rows], weights[rows]),
        "a list": lambda rows: [x[rows].astype("float32"), y[rows]],
        "dicts": lambda rows: ({"a": x[rows], "b": y[rows]}, {"o": weights[rows]}),
        "inputs": lambda rows: ([x[rows], y[rows]], y[rows]),
        "ragged": lambda rows: (tf.gather(ragged, rows), y[rows]),
        "sizes": lambda rows: (x[rows, : 1 + len(rows) % 2], y[rows]),
        "strings": lambda rows: (np.array([f"w{row}" for row in rows]), y[rows]),
    }
    for name, batch in kinds.items():
        epochs = {"epochs": 3}
        yield f"PyDataset, {name}", partial(rolled, batch), epochs
        if name in ("pairs", "inputs", "ragged"):
            steps = {"steps_per_epoch": 3}
            yield f"generator, {name}", partial(generated, batch), {**steps, "epochs": 3}
    threads = {"workers": 3}
    if sys.argv[1] == "3":
        yield "PyDataset, threads", lambda: (Rolled(kinds["pairs"], **threads),), {"epochs": 3}
    else:
        yield "PyDataset, threads", lambda: (Rolled(kinds["pairs"]),), {"epochs": 3, **threads}
    yield "PyDataset, class weights", lambda: (Rolled(kinds["pairs"]),), classes
    yield "PyDataset, both weights", lambda: (Rolled(kinds["weighted"]),), classes
    yield "generator, class weights", lambda: ((kinds["pairs"]([0, 1]) for _ in range(3)),), classes
    yield "PyDataset and targets", lambda: (Rolled(kinds["pairs"]), y), {}
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    for name, targets in (("classes", y), ("one-hot", np.eye(3)[y]), ("column", y[:, None].astype(float))):
        labelled = tf.data.Dataset.from_tensor_slices((x, targets)).batch(4)
        yield f"Dataset, class weights, {name}", partial(tuple, [labelled]), classes
    yield "Dataset", lambda: (dataset,), {}
    yield "Dataset and targets", lambda: (dataset, y), {}


def outcome(give: Callable[[], Any], arguments: dict[str, Any]) -> str:
    arguments = {"shuffle": False, **arguments}
    if not hasattr(give()[0], "element_spec") and not isinstance(give()[0], (SEQUENCE, Generator)):
        arguments.setdefault("batch_size", 4)
    model, refused = Recorder(), ""
    try:
        model.fit(*give(), verbose=0, **arguments)
    except (ValueError, TypeError) as error:
        refused = str(error)
    is_keras_3, epochs = sys.argv[1] == "3", arguments.pop("epochs", 1)
    try:
        data = fit_data.training_data(*give(), keras_3=is_keras_3, **arguments)
    except Failure as failure:
        return "both refuse" if refused else f"only we refuse: {failure}"
    if refused:
        return f"only Keras refuses: {refused}"
    dataset = data.dataset()
    if epochs > 1:
        dataset = data.from_batch(0).take(len(model.batches))
    return difference(model.batches, list(dataset), dataset.element_spec) or "same"


def difference(expected: list[Any], batches: list[Any], element: Any) -> str | None:
    if len(expected) != len(batches):
        return f"{len(batches)} batches, not {len(expected)}"
    for theirs, ours in zip(expected, batches, strict=True):
        tf.nest.assert_same_structure(theirs, ours, expand_composites=True)
        tf.nest.assert_same_structure(theirs, element, expand_composites=True)
        flat = [tf.nest.flatten(each, expand_composites=True) for each in (theirs, ours, element)]
        for one, other, spec in zip(*flat, strict=True):
            if one.dtype != other.dtype or one.shape != other.shape or not spec.is_compatible_with(one):
                return f"{other.dtype}{other.shape} by {spec}, not {one.dtype}{one.shape}"
            if one.numpy().tobytes() != other.numpy().tobytes() and one.dtype != tf.string:
                return f"{other}, not {one}"
            if (one.numpy() != other.numpy()).any():
                return f"{other}, not {one}"
    return None


if __name__ == "__main__":
    print(json.dumps({name: outcome(give, arguments) for name, give, arguments in (*cases(), *made())}))
