"""Variables of Keras 3 that ParameterServerStrategy's partitioner splits by rows over the ps.

TensorFlow makes a ShardedVariable of several variables, the shards. A variable of Keras 3 expects one
variable, and fails at the first gradient: 'ShardedVariable' object has no attribute 'handle'. Here it holds
the shards and is one variable to all others. It has the shape of the whole, reading it joins the shards, rows
are looked up on the ps that have them, and its gradient is of the whole. A checkpoint has it whole, too, and
does not say how it was split.

An optimizer updates shard by shard, on the shard's ps: the gradient is split, and the variable and its slots
stand for their shards (`_one_shard`). The slots are split as the variable is.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.sharded_variable import ShardedVariable
from tensorflow.python.framework.composite_tensor_gradient import CompositeTensorGradient

from worker.tf_compat.connections import own_device
from worker.tf_compat.strategies import without_partitioner

_NUMBERS_OF_A_STEP = 4
"""Numbers of 32 bits that Philox makes of each value of its counter."""
_BY_ROWS = ("SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lion")
"""Of Keras' optimizers. Adafactor, Lamb and Muon look at the whole variable."""


class _Current(threading.local):
    """What a thread is about."""

    like: Any = None
    """The shards that a new variable is to be split as."""
    updated: Any = None
    """The shards of which one is updated."""
    number: int = 0
    """Which one."""
    keeps_whole: bool = False
    """Whether new variables are not split."""


_current = _Current()


def mend(strategy: Any) -> None:
    """Has Keras 3 use variables that the partitioner of `strategy` has split.

    It splits those that are trained, and an optimizer's slots of them.
    """
    _make_shards(strategy)
    _make_slots()
    _update_shards(strategy)
    ShardedVariable.__composite_gradient__ = _GradientOfShards()
    ShardedVariable.__array__ = _array


def rows(value: Any, indices: Any) -> Any:
    """Returns the rows of a Keras variable's `value` at `indices`: of shards each from the ps that has it."""
    if isinstance(value, ShardedVariable):
        return tf.nn.embedding_lookup(value.variables, indices)
    return tf.gather(value, indices)


def _are_alike(one: Any, other: Any) -> bool:
    return one.shape == other.shape and len(one.variables) == len(other.variables)


@contextlib.contextmanager
def _one_shard(updated: Any, number: int) -> Iterator[Any]:
    """Has Keras variables that are split as `updated` is stand for their shard `number` in the block."""
    before = _current.updated, _current.number
    _current.updated, _current.number = updated, number
    try:
        yield updated.variables[number]
    finally:
        _current.updated, _current.number = before


class _Value:
    """The attribute `_value` of a split variable, with which all of Keras begins: the shards, or the one
    that is updated now.
    """

    def __get__(self, variable: Any, kind: Any = None) -> Any:
        value, updated = variable.__dict__["_value"], _current.updated
        is_updated = updated is not None and _are_alike(value, updated)
        return value.variables[_current.number] if is_updated else value

    def __set__(self, variable: Any, value: Any) -> None:
        variable.__dict__["_value"] = value


@functools.cache
def _split_kind() -> Any:
    """Returns the class of variables that hold shards."""
    import keras
    from keras.src.backend.common.variables import get_autocast_scope

    class Split(keras.Variable):  # type: ignore[misc]
        _value = _Value()

        @property
        def shape(self) -> Any:
            return self._value.shape

        @property
        def constraint(self) -> Any:
            return super().constraint

        @constraint.setter
        def constraint(self, value: Any) -> None:
            if not _constrains_rows(value, len(self.shape)):
                raise ValueError(
                    f"{self.path} is split by rows over the parameter servers, and {type(value).__name__} "
                    "may look at more than a row: give it to add_weight(), which keeps the variable whole"
                )
            self._constraint = value

        @property
        def handle(self) -> Any:
            # GradientTape differentiates by it. Shards are a composite tensor: see `_GradientOfShards`.
            value = self._value
            return value if isinstance(value, ShardedVariable) else value.handle

        def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> Any:
            return tf.convert_to_tensor(_joined(self.value), dtype, name=name)

        def _maybe_autocast(self, value: Any) -> Any:
            is_cast = self._autocast and get_autocast_scope() is not None
            return super()._maybe_autocast(_joined(value) if is_cast else value)

        def _gather_saveables_for_checkpoint(self) -> Any:
            # It has precedence over the methods of the base class, whose tensors cannot be of slices.
            return self._value._gather_saveables_for_checkpoint()

    return Split


def _joined(value: Any) -> Any:
    # TensorFlow does not convert shards where a name has "embedding_lookup" in it, as a layer's may.
    return tf.concat(value.variables, 0) if isinstance(value, ShardedVariable) else value


def _make_shards(strategy: Any) -> None:
    import keras

    original, with_initializer = keras.Variable._initialize, keras.Variable._initialize_with_initializer

    @functools.wraps(original)
    def initialize(self: Any, value: Any) -> None:
        if tf.distribute.get_strategy() is not strategy or isinstance(value, tf.Variable):
            original(self, value)
        elif _current.like is not None:
            with tf.variable_creator_scope(functools.partial(_split_alike, _current.like)):
                original(self, value)
        elif self.trainable and not _current.keeps_whole:
            shape = self._shape if callable(value) else value.shape
            with tf.variable_creator_scope(functools.partial(_split, shape)):
                original(self, value)
        else:
            with without_partitioner(strategy):
                original(self, value)
        if isinstance(self._value, ShardedVariable):
            self.__class__ = _split_kind()

    @functools.wraps(with_initializer)
    def initialize_with_initializer(self: Any, initializer: Any) -> None:
        if _is_constant(initializer):
            self._initialize(_Constant(initializer, self._shape, self._dtype))
        elif _is_drawn_by_rows(initializer, self._dtype):
            self._initialize(_Drawn(initializer, self._shape, self._dtype))
        else:
            with_initializer(self, initializer)

    add_weight = keras.layers.Layer.add_weight
    signature = inspect.signature(add_weight)

    @functools.wraps(add_weight)
    def add_weight_of_rows(self: Any, *arguments: Any, **options: Any) -> Any:
        given = signature.bind(self, *arguments, **options).arguments
        constraint = keras.constraints.get(given.get("constraint"))
        shape, before = given.get("shape"), _current.keeps_whole
        rank = 1 if isinstance(shape, int) else len(shape or ())
        _current.keeps_whole = before or not _constrains_rows(constraint, rank)
        try:
            return add_weight(self, *arguments, **options)
        finally:
            _current.keeps_whole = before

    keras.Variable._initialize = initialize
    keras.Variable._initialize_with_initializer = initialize_with_initializer
    keras.layers.Layer.add_weight = add_weight_of_rows


def _constrains_rows(constraint: Any, rank: int) -> bool:
    """Returns whether each row meets `constraint` by itself, so that it can be applied shard by shard."""
    from keras import constraints

    if constraint is None or type(constraint) is constraints.NonNeg:
        return True
    known = (constraints.MaxNorm, constraints.MinMaxNorm, constraints.UnitNorm)
    return type(constraint) in known and not {0, -rank} & set(np.atleast_1d(constraint.axis).tolist())


def _is_constant(initializer: Any) -> bool:
    from keras import initializers

    known = type(initializer) in (initializers.Zeros, initializers.Ones)
    return known or (type(initializer) is initializers.Constant and np.ndim(initializer.value) == 0)


class _Constant:
    """An initial value that has the same number everywhere."""

    def __init__(self, initializer: Any, shape: Any, dtype: Any) -> None:
        self._initializer = initializer
        self._shape = shape
        self._dtype = dtype

    def __call__(self, partition_shape: Any = None, partition_offset: Any = None) -> Any:
        shape = self._shape if partition_shape is None else tuple(int(size) for size in partition_shape)
        return self._initializer(shape, dtype=self._dtype)


def _is_drawn_by_rows(initializer: Any, dtype: str) -> bool:
    from keras import initializers

    known = type(initializer) in (initializers.RandomUniform, initializers.RandomNormal)
    return known and isinstance(initializer.seed, int) and dtype == "float32"


class _Drawn(_Constant):
    """An initial value of random numbers, of which any rows can be drawn by themselves. They are the same as
    in the whole, since the generator, Philox, can begin anywhere in its sequence.
    """

    def __call__(self, partition_shape: Any = None, partition_offset: Any = None) -> Any:
        if partition_shape is None:
            return super().__call__()
        from keras import initializers
        from keras.src.backend.tensorflow.random import _cast_seed
        from keras.src.random.seed_generator import draw_seed

        given = self._initializer
        is_uniform = type(given) is initializers.RandomUniform
        bounds = (given.minval, given.maxval) if is_uniform else (given.mean, given.stddev)
        first = partition_offset[0] * math.prod(self._shape[1:])
        numbers = _numbers(
            _cast_seed(draw_seed(given.seed)),
            *(tf.constant(number, tf.int64) for number in (first, math.prod(partition_shape))),
            *(tf.constant(number, tf.float32) for number in bounds),
            is_uniform=is_uniform,
        )
        return tf.reshape(numbers, partition_shape)


@tf.function(autograph=False)  # type: ignore[untyped-decorator]
def _numbers(seed: Any, first: Any, size: Any, low: Any, high: Any, *, is_uniform: bool) -> Any:
    """Returns `size` numbers as Keras draws them, of the sequence that `seed` begins, from the one at
    `first`: from `low` to `high`, or around `low` by `high`. A function of TensorFlow has them in memory
    once.
    """
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
    skipped = first % _NUMBERS_OF_A_STEP
    draw = tf.raw_ops.StatelessRandomUniformV2 if is_uniform else tf.raw_ops.StatelessRandomNormalV2
    numbers = draw(
        shape=[skipped + size],
        key=key,
        counter=counter + tf.cast([first // _NUMBERS_OF_A_STEP, 0], tf.uint64),
        alg=tf.random.Algorithm.PHILOX.value,
    )[skipped:]
    return numbers * (high - low) + low if is_uniform else numbers * high + low


def _split(shape: Any, next_creator: Callable[..., Any], /, **options: Any) -> Any:
    """Makes a variable in the shards that the partitioner says; one variable where it says one."""
    options["initial_value"] = _by_rows(options["initial_value"])
    return next_creator(**{**options, "shape": tf.TensorShape(shape), "dtype": tf.as_dtype(options["dtype"])})


def _split_alike(like: Any, next_creator: Callable[..., Any], /, **options: Any) -> Any:
    """Makes a variable in shards like those of another, each beside the other's."""
    rows, name = _by_rows(options.pop("initial_value")), options.pop("name")
    shards: list[Any] = []
    first = 0
    for number, beside in enumerate(like.variables):
        value = functools.partial(rows, beside.shape, (first,))
        shard = next_creator(
            initial_value=value, name=f"{name}/part_{number}", colocate_with=beside, **options
        )
        shards.append(shard)
        first += int(beside.shape[0])
    return ShardedVariable(shards, name=name)


def _by_rows(value: Any) -> Callable[..., Any]:
    """Returns a function that gives rows of the initial `value`, a tensor or a function, by the names that
    the strategy has for them.

    A constant is made on the ps of the rows, and so are Keras' uniform and normal random numbers. Anything
    else is made whole, once, on this task: for each shard it would be on each ps, of other random numbers.
    """
    if isinstance(value, _Constant):
        return value
    whole: list[Any] = []

    def rows(partition_shape: Any = None, partition_offset: Any = None) -> Any:
        if partition_shape is None:
            return value() if callable(value) else value
        with tf.device(own_device()):
            if not whole:
                whole.append(tf.convert_to_tensor(value() if callable(value) else value))
            first = partition_offset[0]
            return whole[0][first : first + partition_shape[0]]

    return rows


def _make_slots() -> None:
    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    original = TFOptimizer.add_variable_from_reference

    @functools.wraps(original)
    def add_variable_from_reference(self: Any, reference_variable: Any, *rest: Any, **options: Any) -> Any:
        like = _native(reference_variable)
        if not isinstance(like, ShardedVariable):
            return original(self, reference_variable, *rest, **options)
        _current.like = like
        try:
            return super(TFOptimizer, self).add_variable_from_reference(reference_variable, *rest, **options)
        finally:
            _current.like = None

    TFOptimizer.add_variable_from_reference = add_variable_from_reference


def _update_shards(strategy: Any) -> None:
    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    key, step, update = (
        TFOptimizer._var_key,
        TFOptimizer._distributed_tf_update_step,
        strategy.extended.update,
    )

    @functools.wraps(key)
    def var_key(self: Any, variable: Any) -> Any:
        updated, native = _current.updated, _native(variable)
        is_shard = updated is not None and native.handle is updated.variables[_current.number].handle
        return key(self, updated if is_shard else variable)

    @functools.wraps(step)
    def update_step(self: Any, distribution: Any, grads_and_vars: Any, learning_rate: Any) -> None:
        for _, variable in grads_and_vars:
            if isinstance(variable, ShardedVariable) and not _updates_by_rows(self):
                name = variable.variables[0].name.partition("/part_")[0]
                raise ValueError(
                    f"{type(self).__name__} may look at all of {name} for the update of a row, and its rows "
                    f"are split into {len(variable.variables)} shards: use one of "
                    f"{', '.join(_BY_ROWS)}, or keep variables whole by spec.strategyOptions "
                    "{partitioner: FixedShards, numShards: 1}"
                )
        step(self, distribution, grads_and_vars, learning_rate)

    @functools.wraps(update)
    def update_variable(var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        if not isinstance(var, ShardedVariable):
            return update(var, fn, args, kwargs, group)
        parts = [_parts(argument, var) for argument in args]
        done = []
        for number in range(len(var.variables)):
            with _one_shard(var, number) as shard:
                done.append(update(shard, fn, tuple(part[number] for part in parts), kwargs, group))
        return done

    TFOptimizer._var_key = var_key
    TFOptimizer._distributed_tf_update_step = update_step
    strategy.extended.update = update_variable


def _updates_by_rows(optimizer: Any) -> bool:
    """Returns whether the update of a row depends on no other row. That of an optimizer of the program's own
    may.
    """
    from keras import optimizers

    defining_class = next(kind for kind in type(optimizer).__mro__ if "update_step" in vars(kind))
    return defining_class in [getattr(optimizers, name) for name in _BY_ROWS]


def _native(variable: Any) -> Any:
    import keras

    return variable._value if isinstance(variable, keras.Variable) else variable


def _parts(argument: Any, whole: Any) -> list[Any]:
    """Returns for each shard its part of a gradient of the `whole`; any other argument as it is."""
    if isinstance(argument, tf.IndexedSlices):
        return [
            tf.IndexedSlices(part.values, part.indices, tf.constant(shard.shape.as_list(), tf.int64))
            for part, shard in zip(whole._decompose_indexed_slices(argument), whole.variables)
        ]
    # In a branch of tf.cond, as mixed precision has one, the shape is not known. A learning rate's always is.
    if isinstance(argument, tf.Tensor) and argument.shape.is_compatible_with(whole.shape):
        argument = tf.ensure_shape(argument, whole.shape)
        return list(tf.split(argument, [int(shard.shape[0]) for shard in whole.variables]))
    return [argument] * len(whole.variables)


def _array(value: Any, dtype: Any = None, copy: Any = None) -> Any:
    """Without this method numpy would make an array of the shards, which can be iterated over."""
    return np.asarray(_joined(value).numpy(), dtype)


class _GradientOfShards(CompositeTensorGradient):  # type: ignore[misc]
    """Has GradientTape differentiate by the shards, and gives the gradient of the whole."""

    def get_gradient_components(self, value: Any) -> Any:
        return [shard.handle for shard in value.variables]

    def replace_gradient_components(self, value: Any, component_grads: Any) -> Any:
        if any(part is None for part in component_grads):
            return None
        if not all(isinstance(part, tf.IndexedSlices) for part in component_grads):
            return tf.concat([tf.convert_to_tensor(part) for part in component_grads], 0)
        indices, first = [], 0
        for part, shard in zip(component_grads, value.variables):
            indices.append(part.indices + tf.cast(first, part.indices.dtype))
            first += int(shard.shape[0])
        values = tf.concat([part.values for part in component_grads], 0)
        return tf.IndexedSlices(values, tf.concat(indices, 0), tf.constant(value.shape.as_list(), tf.int64))
