"""Arrays in memory, as fit takes them: of numpy, pandas, TensorFlow and scipy, dense, ragged or sparse.

They are not copied. A batch takes its rows and casts them as Keras casts the whole: array_data_adapter.py and
array_slicing.py of Keras 3, data_adapter.py of tf_keras.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from worker.data_adapters.array_orders import Order
from worker.data_adapters.class_weights import ClassWeights
from worker.failures import program_error


class Triple(NamedTuple):
    """What fit and evaluate are given."""

    x: Any
    y: Any = None
    sample_weight: Any = None


class Rows(Protocol):
    """The examples of one array: their number, the spec of a batch, and how to take some of them."""

    count: int

    def spec(self, batch: int | None) -> Any:
        """Returns the spec of a batch of so many examples, None for any number."""

    def take(self, which: Any) -> Any:
        """Returns the examples of `which`, an array of numbers or a slice."""


class _Dense:
    def __init__(self, array: Any, dtype: Any) -> None:
        self.count = int(array.shape[0])
        self._array = array
        self._dtype = tf.as_dtype(dtype)

    def spec(self, batch: int | None) -> Any:
        return tf.TensorSpec([batch, *self._array.shape[1:]], self._dtype)

    def take(self, which: Any) -> Any:
        part = self._array[which]
        if self._dtype == tf.string:
            return part
        return part.astype(self._dtype.as_numpy_dtype, copy=False)


class _Ragged:
    def __init__(self, tensor: Any, dtype: Any) -> None:
        self.count = int(tensor.nrows())
        self._tensor = tensor
        self._dtype = tf.as_dtype(dtype)

    def spec(self, batch: int | None) -> Any:
        tensor = self._tensor
        shape = [batch, *tensor.shape[1:]]
        return tf.RaggedTensorSpec(shape, self._dtype, tensor.ragged_rank, tensor.row_splits.dtype)

    def take(self, which: Any) -> Any:
        part = self._tensor[which] if isinstance(which, slice) else tf.gather(self._tensor, which)
        return tf.cast(part, self._dtype) if part.dtype != self._dtype else part


class _Sparse:
    """`places` are the positions of the `values`, in the order of the rows, whose bounds are `splits`."""

    def __init__(self, places: Any, values: Any, splits: Any, shape: Any, dtype: Any) -> None:
        self.count = int(shape[0])
        self._places, self._values, self._splits, self._shape = places, values, splits, tuple(shape)
        self._dtype = tf.as_dtype(dtype)

    def spec(self, batch: int | None) -> Any:
        return tf.SparseTensorSpec([batch, *self._shape[1:]], self._dtype)

    def take(self, which: Any) -> Any:
        rows = np.arange(self.count)[which]
        begin = self._splits[rows]
        lengths = self._splits[rows + 1] - begin
        chosen = np.repeat(begin - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        row = np.repeat(np.arange(len(rows)), lengths)
        places = np.concatenate([row[:, None], self._places[chosen]], 1).astype(np.int64)
        values = tf.cast(self._values[chosen], self._dtype)
        return tf.SparseTensor(places, values, [len(rows), *self._shape[1:]])


class Arrays:
    """See `numbered.Source`: the batches of `size` of arrays, in `order`. `structure` is of `Rows`."""

    def __init__(self, structure: Any, size: int, order: Order) -> None:
        self._rows = structure
        self._size = size
        self._order = order
        self.examples = tf.nest.flatten(structure)[0].count
        self.batches = -(-self.examples // size)
        self._drawn = order.drawn(self.examples)
        fixed = size if self.examples % size == 0 else None
        self.element = tf.nest.map_structure(lambda rows: rows.spec(fixed), structure)

    def rows_from(self, number: int) -> tf.data.Dataset | None:
        """Returns which rows each batch from `number` on has, int64[rows]; None where `read` knows."""
        if self._drawn is None:
            return None
        number_of_pass, batch = divmod(number, self.batches)
        return self._drawn.skip(number_of_pass).flat_map(self._in_batches).skip(batch)

    def _in_batches(self, rows: Any) -> Any:
        size = self._size
        numbers = tf.data.Dataset.range(self.batches)
        return numbers.map(lambda batch: rows[batch * size : (batch + 1) * size])

    def read(self, number: int, rows: Any = None) -> Any:
        """See `numbered.Source`."""
        number_of_pass, batch = divmod(number, self.batches)
        which = rows
        if which is None:
            which = self._order.rows(number_of_pass, batch, self._size, self.examples)
        return tf.nest.map_structure(lambda rows: rows.take(which), self._rows)


def are_arrays(given: Triple, *, keras_3: bool) -> bool:
    """Returns whether all of it is in memory."""
    if not keras_3 and _is_list_of_scalars(given.x):
        return True
    leaves = [leaf for leaf in tf.nest.flatten(tuple(given)) if leaf is not None]
    return all(_is_array(leaf) for leaf in leaves)


def rows_of(
    given: Triple, class_weights: ClassWeights | None, floatx: str, *, keras_3: bool, call: str
) -> Any:
    """Returns the structure of `Rows` that a batch has. Raises Failure for what Keras refuses, too."""
    if not keras_3 and _is_list_of_scalars(given.x):
        given = Triple(*(None if each is None else np.asarray(each) for each in given))
    x, y, weights = given
    if weights is not None:
        weights = _weights_of_outputs(y, weights, call, keras_3=keras_3)
    if class_weights is not None:
        class_weights.check(y, weights)
    packed: Any = (x, y, weights) if weights is not None else (x, y)
    if y is None:
        packed = (x,) if isinstance(x, (list, tuple)) else x
    structure = tf.nest.map_structure(
        lambda leaf: _rows(leaf, floatx, call, keras_3=keras_3), as_tuples(packed)
    )
    counts = {rows.count for rows in tf.nest.flatten(structure)}
    if len(counts) > 1:
        sizes = [
            f"{name}: {', '.join(str(rows.count) for rows in tf.nest.flatten(part))}"
            for name, part in zip(("x", "y", "sample_weight"), structure)
        ]
        raise program_error(f"{call}: the arrays have different numbers of examples ({'; '.join(sizes)})")
    if counts == {0}:
        raise program_error(f"{call}: the arrays have no example")
    if class_weights is not None:
        structure = (*structure[:2], _ByClass(structure[1], class_weights, (*structure, None)[2]))
    return structure


def split(given: Triple, fraction: float, call: str, *, keras_3: bool) -> tuple[Triple, Triple]:
    """Returns the training data and the last `fraction` of it, for validation. The parts share its memory."""
    if not are_arrays(given, keras_3=keras_3):
        raise program_error(
            f"{call}: validation_split is for arrays, not for {described(given.x)}: give validation_data"
        )
    if not keras_3 and _is_list_of_scalars(given.x):
        given = Triple(*(None if each is None else np.asarray(each) for each in given))
    first = next(leaf for leaf in tf.nest.flatten(tuple(given)) if leaf is not None)
    count = int(first.shape[0])
    at = math.floor(count * (1.0 - fraction))
    if at in (0, count):
        raise program_error(
            f"{call}: validation_split={fraction} leaves one of the parts of {count} examples without any"
        )

    def part(begin: int, end: int) -> Triple:
        return Triple(*tf.nest.map_structure(lambda leaf: _sliced(leaf, begin, end), tuple(given)))

    return part(0, at), part(at, count)


def described(value: Any) -> str:
    """Returns what `value` is, for a sentence."""
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}".replace("a builtins.", "a ")


def _rows(leaf: Any, floatx: str, call: str, *, keras_3: bool) -> Rows:
    if isinstance(leaf, tf.RaggedTensor):
        return _Ragged(leaf, floatx if keras_3 and leaf.dtype.is_floating else leaf.dtype)
    if isinstance(leaf, tf.SparseTensor):
        leaf = tf.sparse.reorder(leaf)
        places, values = leaf.indices.numpy(), leaf.values.numpy()
        shape = leaf.dense_shape.numpy()
        splits = np.searchsorted(places[:, 0], np.arange(shape[0] + 1))
        dtype = floatx if keras_3 and leaf.dtype.is_floating else leaf.dtype
        return _Sparse(places[:, 1:], values, splits, shape, dtype)
    if _is_scipy(leaf):
        csr = leaf.tocsr().sorted_indices()
        dtype = floatx if np.issubdtype(csr.dtype, np.floating) else csr.dtype
        return _Sparse(csr.indices[:, None], csr.data, csr.indptr, csr.shape, dtype)
    is_tensor = isinstance(leaf, tf.Tensor)
    array = host_array(leaf, floatx, keras_3=keras_3)
    if not array.ndim:
        raise program_error(
            f"{call}: {described(leaf)} without a dimension, where an array of examples is needed"
        )
    if array.dtype.kind in "OUS":
        if array.dtype.kind == "O" and not all(isinstance(each, (str, bytes)) for each in array.flat):
            raise program_error(
                f"{call}: an array of Python objects (dtype object) that are not all strings: convert it, as "
                "by .astype('float32'); rows of different lengths need a tf.RaggedTensor"
            )
        return _Dense(array, tf.string)
    try:
        dtype = tf.as_dtype(array.dtype)
    except TypeError:
        raise program_error(f"{call}: TensorFlow has no type for an array of {array.dtype}") from None
    # tf_keras casts what is numpy's, and leaves a tensor and a DataFrame as they are.
    casts = dtype.is_floating if keras_3 else not is_tensor and np.issubdtype(array.dtype, np.floating)
    if not keras_3 and _pandas(leaf) == "DataFrame":
        casts = False
    return _Dense(array, floatx if casts else dtype)


def host_array(leaf: Any, floatx: str, *, keras_3: bool) -> Any:
    """Returns a numpy array in the memory of `leaf`, as far as that has one."""
    if isinstance(leaf, np.ndarray):
        return leaf
    if isinstance(leaf, tf.Tensor):
        return leaf.numpy()
    kind = _pandas(leaf)
    if kind == "Series":
        return np.expand_dims(leaf.to_numpy(), -1)
    if kind == "DataFrame":
        kinds = [np.dtype(each) for each in leaf.dtypes if isinstance(each, np.dtype)]
        if keras_3 and any(each.kind == "f" and each != np.dtype(floatx) for each in kinds):
            leaf = leaf.astype(floatx)
        return leaf.to_numpy()
    return np.asarray(leaf)


def _weights_of_outputs(y: Any, weights: Any, call: str, *, keras_3: bool) -> Any:
    """Returns the sample weights with the structure of `y`. An output without any has ones."""
    if isinstance(weights, (list, tuple, dict)):
        try:
            tf.nest.assert_same_structure(y, weights, check_types=False)
        except (TypeError, ValueError):
            raise program_error(
                f"{call}: sample_weight must have an array for each output in y, in the same structure"
            ) from None

        def filled(target: Any, weight: Any) -> Any:
            return np.ones(target.shape[0], np.float32) if weight is None else weight

        return tf.nest.map_structure(filled, y, weights, check_types=False)
    if keras_3 and tf.nest.is_nested(y):
        shape = weights.shape
        if not (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)):
            raise program_error(
                f"{call}: one sample_weight for several outputs must have one number an example, and has the "
                f"shape {tuple(shape)}: give one array for each output"
            )
        return tf.nest.map_structure(lambda _: weights, y)
    return weights


class _ByClass:
    """The weights of examples by their classes, computed for each batch."""

    def __init__(self, targets: Rows, weights: ClassWeights, sample_weights: Rows | None) -> None:
        self.count = targets.count
        self._targets, self._weights, self._sample_weights = targets, weights, sample_weights

    def spec(self, batch: int | None) -> Any:
        return (
            self._sample_weights.spec(batch)
            if self._sample_weights is not None
            else tf.TensorSpec([batch], self._weights.dtype)
        )

    def take(self, which: Any) -> Any:
        sample_weights = self._sample_weights.take(which) if self._sample_weights is not None else None
        return self._weights.of(self._targets.take(which), sample_weights)


def _sliced(leaf: Any, begin: int, end: int) -> Any:
    if leaf is None:
        return None
    if isinstance(leaf, tf.SparseTensor):
        size = [end - begin, *leaf.shape[1:]]
        return tf.sparse.slice(leaf, [begin, *(0 for _ in leaf.shape[1:])], size)
    if _is_scipy(leaf):
        return leaf.tocsr()[begin:end]
    if isinstance(leaf, tf.Tensor):
        leaf = leaf.numpy()
    return leaf.iloc[begin:end] if _pandas(leaf) else leaf[begin:end]


def as_tuples(value: Any) -> Any:
    """Returns a structure with tuples in the place of lists, which tf.data would make a tensor of."""
    if isinstance(value, dict):
        return {name: as_tuples(part) for name, part in value.items()}
    if type(value) in (list, tuple):
        return tuple(as_tuples(part) for part in value)
    return value


def _is_array(leaf: Any) -> bool:
    kinds = (np.ndarray, tf.Tensor, tf.RaggedTensor, tf.SparseTensor)
    if isinstance(leaf, kinds) or _pandas(leaf) or _is_scipy(leaf):
        return True
    return hasattr(leaf, "__array__") and not isinstance(leaf, np.generic)


def _is_list_of_scalars(value: Any) -> bool:
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (float, int, str, bytes))


def _pandas(leaf: Any) -> str:
    """Returns "DataFrame", "Series" or "", without an import of pandas, which may be absent."""
    kind = type(leaf)
    is_pandas = kind.__module__.partition(".")[0] == "pandas"
    return kind.__name__ if is_pandas and kind.__name__ in ("DataFrame", "Series") else ""


def _is_scipy(leaf: Any) -> bool:
    return type(leaf).__module__.startswith("scipy.sparse") and hasattr(leaf, "tocsr")
