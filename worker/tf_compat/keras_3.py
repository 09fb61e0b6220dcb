"""Corrections to Keras 3 under TensorFlow's strategies, measured with TensorFlow 2.21 and Keras 3.15.

Keras 3 adds to a variable by assigning `value + delta`. What another worker writes in between is lost: of
1,000 steps of two workers, 680 were counted. It clips gradients, and looks for infinite ones, before it adds
up those of the replicas. It gives all replicas the same dropout. Each replica keeps its own batch statistics,
and only those of the first replica are saved. It reads a whole embedding to look up some rows of it.

`mend` changes Keras' classes, once for a process and before a model is made. `mend_metrics` is for one model.
"""

from __future__ import annotations

import contextlib
import functools
import random
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from worker.tf_compat import keras_3_shards, versions
from worker.tf_compat.exclusive_updates import constraining
from worker.tf_compat.graphs import is_constant
from worker.tf_compat.strategies import replicas_share_variables, uses_coordinator

_mended: list[Any] = []
"""The strategy, once Keras' classes are changed."""
_NUMBERED = ("keras_tensor", "scratch_graph", "seed_generator")
_STRIDE = 0x9E3779B97F4A7C15 >> 1
"""Distance between the seeds of two replicas: an odd number without a pattern (the golden ratio's, of
splitmix64).
"""


def mend(strategy: Any, share: Callable[[], Any], over_replicas: Callable[..., Any]) -> None:
    """Has Keras 3 train under `strategy` as one process trains.

    `share` returns the replica's part of the global batch, `float32[]`, or None where all have the same.
    Losses are multiplied by it. `over_replicas` adds up its arguments over all replicas.
    """
    if _mended or versions.keras_too_old(version()):
        return  # the image may lack Keras 3, if the program does not use it
    _mended.append(strategy)
    if uses_coordinator(strategy):
        keras_3_shards.mend(strategy)
    _add_in_one_operation()
    _draw_for_each_replica()
    _look_rows_up()
    _sum_gradients_first()
    _decide_for_all_replicas()
    _keep_losses_apart()
    _scale_losses(share)
    _reduce_losses(share, over_replicas)
    _weigh_masks(over_replicas)
    _assign_parts(strategy)
    _share_seed_generator()
    with strategy.scope():
        remember_seed_generator()


def version() -> str:
    """Returns the version of Keras 3 in this process."""
    import keras

    return str(keras.__version__)


def remember_seed_generator() -> None:
    """Has the replicas draw from this thread's seed generator, for layers without a seed of their own.

    Keras has one generator for each thread, so each replica would make another within a step. Call it again
    when the program may have set a seed.
    """
    from keras.src.random import seed_generator

    of_python = random.getstate()  # from which Keras draws the generator's seed
    with _names_left():
        seed_generator.global_seed_generator()
    random.setstate(of_python)


@contextlib.contextmanager
def _names_left() -> Iterator[None]:
    """Leaves the names that Keras gives by number as they are, for what Keras alone would not make here: a
    script may write one down, such as that of an input in an export's signature.
    """
    from keras.src.backend.common import global_state

    def numbers() -> dict[str, int]:
        return global_state.get_global_attribute("object_name_uids") or {}  # none before the first name

    before = {name: numbers().get(name) for name in _NUMBERED}
    try:
        yield
    finally:
        for name, number in before.items():
            numbers().pop(name, None)
            if number is not None:
                numbers()[name] = number


def random_states(model: Any) -> list[Any]:
    """Returns the variables from which random numbers are drawn: of the seed generators of `model`, and of
    this thread's once `mend` was called.
    """
    weights = {id(weight) for weight in model.weights}
    variables = [each.value for each in model.variables if id(each) not in weights]
    if _mended:
        from keras.src.random import seed_generator

        variables.append(seed_generator.global_seed_generator().state.value)
    return variables


def mend_metrics(strategy: Any, metrics: Iterable[Any]) -> None:
    """Has the updates of Keras' own `metrics` add to a variable in one operation, where replicas or workers
    share a metric's variables. A metric of the program's own is not changed.

    Compiled metrics that are not built yet are built for all replicas at once, and changed then.
    """
    shared = uses_coordinator(strategy) or replicas_share_variables(strategy)
    for metric in metrics:
        if _contains_compiled(metric) and not metric.built and "build" not in metric.__dict__:
            metric.__dict__["build"] = _building_for_all(metric)
        for leaf in leaves([metric]) if shared else ():
            is_own = type(leaf).__module__.startswith("keras.src.metrics.")
            if is_own and not only_adds(leaf):
                # An attribute of the instance has precedence over the class's method.
                leaf.__dict__.update(update_state=_adding_update(leaf), adds=True)


def leaves(metrics: Iterable[Any]) -> Iterator[Any]:
    """Yields `metrics`, with the compiled metrics in place of the metric that contains them."""
    for metric in metrics:
        if _contains_compiled(metric):
            yield from metric.metrics
        else:
            yield metric


def parts(metric: Any) -> list[Any]:
    """Returns `metric`, and the compiled metrics that it contains."""
    return [metric, *(leaf for leaf in leaves([metric]) if leaf is not metric)]


def _contains_compiled(metric: Any) -> bool:
    return type(metric).__name__ == "CompileMetrics"


def only_adds(metric: Any) -> bool:
    """Returns whether `metric` is one of Keras' own that `mend_metrics` has changed."""
    return "adds" in metric.__dict__


def compiled_loss_metrics(model: Any) -> list[Any]:
    """Returns the means of the outputs' losses of a compiled model with several outputs."""
    return list(model._compile_loss.metrics) if model._compile_loss is not None else []


def build_compiled(model: Any, element: Any) -> None:
    """Makes the variables of the compiled losses and metrics. `model` has its own variables already;
    `element` is an element_spec of its data, a tuple.
    """
    if model.run_eagerly:
        _build_compiled_eagerly(model, element)
    else:
        with _names_left():
            model._symbolic_build(data_batch=element)


def _build_compiled_eagerly(model: Any, element: Any) -> None:
    """Does the same by a call of `model`, which may do what no graph and no symbolic call can."""
    import keras

    features, labels, _ = keras.utils.unpack_x_y_sample_weight(element)
    predictions = model(tf.nest.map_structure(zeros_of, features))
    for compiled in (model._compile_metrics, model._compile_loss):
        if labels is not None and compiled is not None and not compiled.built:
            compiled.build(tf.nest.map_structure(zeros_of, labels), predictions)


def zeros_of(spec: Any) -> Any:
    """Returns a tensor of zeros of the `tf.TensorSpec`, with one entry where a dimension is open."""
    return tf.zeros([1 if size is None else size for size in spec.shape], spec.dtype)


def computes_loss(model: Any) -> bool:
    """Returns whether `model` has a loss, compiled or its own."""
    import keras

    overrides = type(model).compute_loss is not keras.Model.compute_loss
    return bool(overrides or model._compile_loss is not None or model.losses)


def compute_loss(model: Any, data: tuple[Any, Any, Any, Any], training: bool) -> Any:
    """Returns the loss that `model` computes, regularisation included: in a replica, its share of the mean.

    `data` are features, labels, predictions and weights.
    """
    return model._compute_loss(*data, training=training)


def has_batch_hooks(callback: Any, kind: str = "train") -> bool:
    """Returns whether `callback` has hooks for every batch: "train", "test" or "predict"."""
    import keras

    for name in ("save_freq", "update_freq"):
        # A callback of Keras' own: its batch hooks do nothing where the frequency is "epoch".
        if type(callback).__module__.startswith("keras.src.") and hasattr(callback, name):
            return kind == "train" and bool(getattr(callback, name) != "epoch")
    names = [f"on_{kind}_batch_begin", f"on_{kind}_batch_end"]
    if kind == "train":
        names += ["on_batch_begin", "on_batch_end"]
    # A LambdaCallback has its hooks as attributes of the instance, which are no methods.
    hooks = (getattr(callback, name) for name in names)
    without = {getattr(keras.callbacks.Callback, name) for name in names}
    return any(getattr(hook, "__func__", hook) not in without for hook in hooks)


def save_elsewhere(callback: Any) -> None:
    """Has a ModelCheckpoint of Keras 3 save to a temporary folder, as Keras 2's does in each task but the
    first: two tasks cannot write one file. All tasks save, since some variables are read by all.
    """
    import keras

    if isinstance(callback, keras.callbacks.ModelCheckpoint):
        folder = Path(tempfile.mkdtemp(prefix="checkpoints-"))
        callback.filepath = str(folder / Path(callback.filepath).name)


def unsupported(model: Any, strategy: Any) -> str | None:
    """Returns which option of `model` or its optimizer fails under `strategy`; None where all work."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if strategy.num_replicas_in_sync == 1 and not uses_coordinator(strategy):
        return None
    shared = replicas_share_variables(strategy)
    if shared and optimizer is not model.optimizer:
        return "mixed precision's LossScaleOptimizer"
    if shared and getattr(optimizer, "use_ema", False):
        return f"{type(optimizer).__name__}(use_ema=True)"
    if shared and _keeps_a_product(optimizer):
        return type(optimizer).__name__
    if (shared or uses_coordinator(strategy)) and (option := _updates_in_some_steps(optimizer)):
        return f"{type(optimizer).__name__}({option})"
    if strategy.num_replicas_in_sync > 1 and versions.sums_activity_losses(version()):
        for layer in model._flatten_layers():
            if layer.activity_regularizer is not None:
                return f"the activity_regularizer of {layer.name} (Keras {version()}; from 3.14 on it can)"
    return None


def _keeps_a_product(optimizer: Any) -> bool:
    """Returns whether `optimizer` keeps a product beside its slots, which replicas cannot set together."""
    import keras

    return isinstance(optimizer, keras.optimizers.Nadam)


def _is_in_replica_of(variable: Any) -> bool:
    replica = tf.distribute.get_replica_context()
    return replica is not None and replica.strategy is variable.distribute_strategy


def _in_stateless_scope() -> bool:
    from keras.src.backend.common.stateless_scope import in_stateless_scope

    return bool(in_stateless_scope())


def _add_in_one_operation() -> None:
    import keras
    from tensorflow.python.distribute.values import SyncOnReadVariable

    def mended(name: str) -> Any:
        original = getattr(keras.Variable, name)

        @functools.wraps(original)
        def add(self: Any, value: Any) -> Any:
            variable = self._value
            # A metric's variable outside of the replicas can only be assigned, and no replica assigns it
            # then.
            if isinstance(variable, SyncOnReadVariable) and not _is_in_replica_of(variable):
                return original(self, value)
            if _in_stateless_scope():
                return original(self, value)
            value = tf.cast(tf.convert_to_tensor(value), variable.dtype)
            getattr(variable, name)(tf.broadcast_to(value, variable.shape))
            return self

        return add

    for name in ("assign_add", "assign_sub"):
        setattr(keras.Variable, name, mended(name))


def _draw_for_each_replica() -> None:
    import keras

    original = keras.random.SeedGenerator.next

    @functools.wraps(original)
    def next_seed(self: Any, ordered: bool = True) -> Any:
        replica = tf.distribute.get_replica_context()
        if replica is None or _in_stateless_scope():
            return original(self, ordered)
        if uses_coordinator(tf.distribute.get_strategy()):
            # A state on a ps would take a message, and two workers could read the same value.
            highest = tf.constant(tf.int64.max, tf.int64)
            zero = tf.constant(0, tf.int64)
            return tf.raw_ops.RandomUniformInt(shape=[2], minval=zero, maxval=highest, seed=0, seed2=0)
        seed = original(self, ordered)
        number = tf.cast(replica.replica_id_in_sync_group, seed.dtype)
        return seed + tf.stack([number * tf.constant(_STRIDE, seed.dtype), tf.constant(0, seed.dtype)])

    keras.random.SeedGenerator.next = next_seed


def _share_seed_generator() -> None:
    from keras.src.random import seed_generator

    original = seed_generator.global_seed_generator
    kept: list[Any] = []

    @functools.wraps(original)
    def global_seed_generator() -> Any:
        if tf.distribute.has_strategy() and tf.distribute.get_replica_context() is not None:
            return kept[0]
        kept[:] = [original()]
        return kept[0]

    seed_generator.global_seed_generator = global_seed_generator


def _look_rows_up() -> None:
    import keras
    from keras.src.backend.tensorflow import numpy

    original = numpy.take

    @functools.wraps(original)
    def take(x: Any, indices: Any, axis: int | None = None) -> Any:
        if axis != 0 or not isinstance(x, keras.Variable) or _in_stateless_scope():
            return original(x, indices, axis=axis)
        if isinstance(indices, (tf.SparseTensor, tf.RaggedTensor, keras.KerasTensor)) or x._value is None:
            return original(x, indices, axis=axis)
        indices = tf.convert_to_tensor(indices)
        # As in Keras, a negative index counts from the end.
        indices = tf.where(indices < 0, indices + tf.cast(x.shape[0], indices.dtype), indices)
        return tf.cast(keras_3_shards.rows(x._value, indices), x.dtype)

    numpy.take = take


def _sum_gradients_first() -> None:
    import keras
    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    def mended(original: Any) -> Any:
        @functools.wraps(original)
        def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
            inner = getattr(self, "inner_optimizer", None)
            if inner is not None:
                inner.__dict__["gets_sums"] = True
            replica = tf.distribute.get_replica_context()
            if replica is not None and trainable_variables is not None and not self.built:
                _once_for_all(lambda: self.built or self.build(list(trainable_variables)))
            several = replica is not None and replica.num_replicas_in_sync > 1
            if several and "gets_sums" not in self.__dict__:
                grads = _summed(replica, list(grads))
            if inner is not None or not uses_coordinator(tf.distribute.get_strategy()):
                return original(self, grads, trainable_variables)
            variables = self._trainable_variables if trainable_variables is None else trainable_variables
            with constraining(list(grads), list(variables)):
                return original(self, grads, trainable_variables)

        return apply

    for kind in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
        kind.apply = mended(kind.apply)
    TFOptimizer._all_reduce_sum_gradients = lambda _self, grads_and_vars: list(grads_and_vars)


def _decide_for_all_replicas() -> None:
    """Has an optimizer that updates in some steps only, as it accumulates gradients or overwrites weights
    with their averages, decide once for all replicas: within a condition they cannot meet.
    """
    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    original = TFOptimizer._backend_apply_gradients
    meetings = tf.__internal__.distribute.interim
    meet = meetings.maybe_merge_call

    def maybe_merge_call(function: Any, strategy: Any, *args: Any, **options: Any) -> Any:
        if tf.distribute.in_cross_replica_context():
            return function(strategy, *args, **options)
        return meet(function, strategy, *args, **options)

    @functools.wraps(original)
    def apply(self: Any, grads: Any, trainable_variables: Any) -> Any:
        def of_all(strategy: Any, sums: Any) -> None:
            # All replicas have the same sums.
            alike = [strategy.experimental_local_results(each)[0] for each in sums]
            original(self, alike, trainable_variables)

        replica = tf.distribute.get_replica_context()
        if not _updates_in_some_steps(self) or _in_stateless_scope():
            return original(self, grads, trainable_variables)
        if replica is None:
            return of_all(tf.distribute.get_strategy(), grads)
        return replica.merge_call(of_all, args=(list(grads),))

    meetings.maybe_merge_call = maybe_merge_call
    TFOptimizer._backend_apply_gradients = apply


def _updates_in_some_steps(optimizer: Any) -> str | None:
    """Returns the option for which `optimizer` does not do the same in each step."""
    for name in ("gradient_accumulation_steps", "ema_overwrite_frequency"):
        if getattr(optimizer, name, None):
            return f"{name}={getattr(optimizer, name)}"
    return None


def _summed(replica: Any, gradients: list[Any]) -> list[Any]:
    """Returns the sums over the replicas, by one all-reduce.

    Rows are not added up but listed, and Keras' optimizers square each of them by itself. Those that all
    replicas look up alike, as for the positions in a sequence, one process looks up once.
    """
    alike = [isinstance(each, tf.IndexedSlices) and is_constant(each.indices) for each in gradients]
    known = [
        gradient.values if same else gradient
        for gradient, same in zip(gradients, alike)
        if gradient is not None
    ]
    if not known:
        return gradients
    sums = iter(replica.all_reduce(tf.distribute.ReduceOp.SUM, known))
    return [
        None
        if gradient is None
        else tf.IndexedSlices(next(sums), gradient.indices, gradient.dense_shape)
        if same
        else next(sums)
        for gradient, same in zip(gradients, alike)
    ]


def _keep_losses_apart() -> None:
    """Has each replica read the losses that its own trace has added to a layer, as an activity regularizer
    does.

    A layer keeps them in one list, which a trace clears at its beginning. TensorFlow traces each replica in a
    thread, and another thread goes on at each sum over replicas.
    """
    import keras

    # An attribute of the class that has a setter has precedence over those of the instances.
    keras.Layer._losses = _ByThread()


class _ByThread:
    """An attribute with a list for each object and thread."""

    def __init__(self) -> None:
        self._local = threading.local()

    def __get__(self, layer: Any, kind: Any = None) -> Any:
        return self if layer is None else self._lists.setdefault(layer, [])

    def __set__(self, layer: Any, values: Iterable[Any]) -> None:
        self._lists[layer] = list(values)

    @property
    def _lists(self) -> WeakKeyDictionary[Any, list[Any]]:
        if not hasattr(self._local, "lists"):
            self._local.lists = WeakKeyDictionary()
        return self._local.lists  # type: ignore[no-any-return]


def _scale_losses(share: Callable[[], Any]) -> None:
    from keras.src.losses import loss as module

    scale, unscale = module.scale_loss_for_distribution, module.unscale_loss_for_distribution

    @functools.wraps(scale)
    def scale_loss_for_distribution(value: Any) -> Any:
        part = share()
        return scale(value) if part is None else value * tf.cast(part, value.dtype)

    @functools.wraps(unscale)
    def unscale_loss_for_distribution(value: Any) -> Any:
        part = share()
        # 0 where the replica has no example
        return unscale(value) if part is None else tf.math.divide_no_nan(value, tf.cast(part, value.dtype))

    module.scale_loss_for_distribution = scale_loss_for_distribution
    module.unscale_loss_for_distribution = unscale_loss_for_distribution


def _reduce_losses(share: Callable[[], Any], over_replicas: Callable[..., Any]) -> None:
    """Has the losses that Keras does not scale by replica add up to that of one process: a sum, a mean
    over the sample weights, and what a compiled function returns as a scalar.
    """
    from keras.src.losses import loss as module
    from keras.src.trainers.compile_utils import CompileLoss

    original, call = module.reduce_values, CompileLoss.call
    compiled = threading.local()

    @functools.wraps(original)
    def reduce_values(values: Any, sample_weight: Any = None, reduction: Any = "sum_over_batch_size") -> Any:
        is_scalar = tuple(values.shape) == ()
        if reduction in (None, "none") or (is_scalar and not getattr(compiled, "calls", 0)):
            return original(values, sample_weight, reduction)
        if reduction == "sum":
            return _of_examples(share(), tf.reduce_sum(values))
        if is_scalar:
            return module.scale_loss_for_distribution(values)
        if reduction == "mean_with_sample_weight" and sample_weight is not None:
            total = _of_examples(share(), tf.reduce_sum(values))
            (weight,) = over_replicas(tf.cast(tf.reduce_sum(sample_weight), total.dtype))
            return tf.math.divide_no_nan(total, weight)
        return original(values, sample_weight, reduction)

    @functools.wraps(call)
    def counted_call(*arguments: Any, **options: Any) -> Any:
        compiled.calls = getattr(compiled, "calls", 0) + 1
        try:
            return call(*arguments, **options)
        finally:
            compiled.calls -= 1

    module.reduce_values = reduce_values
    CompileLoss.call = counted_call


def _of_examples(part: Any, loss: Any) -> Any:
    """Returns `loss`, and 0 where the replica's `part` of the batch has no example."""
    return loss if part is None else tf.where(part > 0, loss, tf.zeros_like(loss))


def _weigh_masks(over_replicas: Callable[..., Any]) -> None:
    """Has a loss divide by the number of entries that no mask leaves out in the global batch, and not in the
    replica's part of it.
    """
    from keras.src.losses import loss as module

    original = module.apply_mask

    @functools.wraps(original)
    def apply_mask(sample_weight: Any, mask: Any, dtype: Any, reduction: Any) -> Any:
        if mask is None or reduction not in ("mean", "sum_over_batch_size"):
            return original(sample_weight, mask, dtype, reduction)
        total, valid = over_replicas(tf.cast(tf.size(mask), dtype), tf.reduce_sum(tf.cast(mask, dtype)))
        return original(sample_weight, mask, dtype, "sum") * tf.math.divide_no_nan(total, valid)

    module.apply_mask = apply_mask


def _assign_parts(strategy: Any) -> None:
    """Makes assignments of CentralStorage's replicas to a metric of the program's own count once.

    TensorFlow adds up the values that the replicas assign to a variable that they share. With 2 replicas,
    `value + delta` doubles the previous value. So each replica assigns only its part.
    """
    import keras

    replicas = strategy.num_replicas_in_sync
    if replicas == 1 or not replicas_share_variables(strategy):
        return
    assign = keras.Variable._direct_assign

    @functools.wraps(assign)
    def assign_part(variable: Any, value: Any) -> None:
        in_replica = tf.distribute.has_strategy() and tf.distribute.get_replica_context() is not None
        if in_replica and variable.aggregation == "sum":
            already = tf.cast(variable.value, tf.float32) * (1.0 - 1.0 / replicas)
            value = value - tf.cast(already, value.dtype)
        assign(variable, value)

    keras.Variable._direct_assign = assign_part


def _building_for_all(metric: Any) -> Callable[..., None]:
    build = metric.build

    def build_for_all(*arguments: Any) -> None:
        _once_for_all(lambda: metric.built or build(*arguments))
        mend_metrics(tf.distribute.get_strategy(), [metric])

    return build_for_all


def _once_for_all(make: Callable[[], Any]) -> None:
    """Calls `make`, which makes variables, once and not in each replica: a step that is being traced cannot
    make them there.
    """

    def make_in_scope(strategy: Any) -> None:
        with tf.init_scope(), strategy.scope():
            make()

    replica = tf.distribute.get_replica_context()
    if replica is None:
        make()
    else:
        replica.merge_call(make_in_scope)


def _adding_update(metric: Any) -> Callable[..., None]:
    update = metric.update_state

    def update_state(*arguments: Any, **options: Any) -> None:
        if _in_stateless_scope():
            update(*arguments, **options)
            return
        variables = metric.variables
        zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
        added = metric.stateless_update_state(zeros, *arguments, **options)
        for variable, value in zip(variables, added):
            variable.assign_add(value)

    return update_state
