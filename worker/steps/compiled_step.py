"""The step of one replica for a compiled model of Keras 2 or 3, equal to that of its Model.fit."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker.input import replica_shares
from worker.input.batch_division import Share, batch_count, counted
from worker.program import LoadedProgram
from worker.steps.own_results import flat
from worker.steps.reductions import is_sum
from worker.steps.step import Steps, scaled, unscaled
from worker.tf_compat import keras_3, keras_models
from worker.tf_compat.layer_kinds import layers
from worker.tf_compat.replaced_methods import replace


class CompiledSteps(Steps):
    """The steps of a `model` for a program without `loss` and `train_step`.

    They compute what the model was compiled with, or call the `train_step` and `test_step` of the model's
    class if it defines them. The arguments are those of `Steps`. Raises Failure where such a step returns no
    dict.
    """

    def __init__(
        self,
        program: LoadedProgram,
        model: Any,
        global_batch_size: int,
        element: Any,
        notice: Callable[[str], None],
    ) -> None:
        super().__init__(program, model, global_batch_size, element, notice)
        self._own_training = keras_models.has_own(model, "train_step")
        self._own_evaluation = self._own_evaluation or keras_models.has_own(model, "test_step")
        self._own_metrics = keras_models.has_own(model, "compute_metrics")
        self._train = self._train_by_model if self._own_training else self._train_as_compiled
        if keras_models.uses_xla(model):
            self._train = tf.function(self._train, jit_compile=True, reduce_retracing=True)
        self._computed = threading.local()
        try:
            keras_models.build_compiled(model, element)
        except Exception:
            # A step of the model's own need not call it, nor take features and labels.
            if not self._own_training:
                raise
        strategy = tf.distribute.get_strategy()
        keras_3.mend_metrics(strategy, self.metrics())
        for metric in keras_models.compiled_loss_metrics(model):
            replace(metric, update_state=self._weighed(metric.update_state))
        # A model may have had steps before.
        compute_loss = getattr(model.compute_loss, "of_model", model.compute_loss)
        replace(model, compute_loss=self._remembering(compute_loss))
        if program.is_of_one_process:
            self._weigh_scalars()
            for layer in layers(model):
                replace(layer, add_loss=self._summed(getattr(layer.add_loss, "of_layer", layer.add_loss)))
        if self._own_training:
            replica_shares.leave_out(model)
            self.trace_own("train_step", element, training=True)
        elif self._own_metrics:
            self.trace_own("compute_metrics", element, training=True)
        keras_3.mend_metrics(strategy, self.means.values())

    def _weigh_scalars(self) -> None:
        """Has the means of the model count a scalar of a layer or a step of its own as one process would: a
        mean over the replica's examples by the replica's part of the batch, and what is their sum as a part
        of a sum.
        """
        for metric in keras_models.means_of(self.model):
            update = getattr(metric.update_state, "of_metric", metric.update_state)

            def update_state(values: Any, sample_weight: Any = None, *, update: Any = update) -> Any:
                part = replica_shares.whole_part()
                values = tf.convert_to_tensor(values)
                if part is None or values.shape.rank or sample_weight is not None:
                    return update(values, sample_weight=sample_weight)
                if is_sum(values):
                    values = tf.math.divide_no_nan(values, tf.cast(part, values.dtype))
                return update(values, sample_weight=part * self.replicas)

            update_state.of_metric = update  # type: ignore[attr-defined]
            replace(metric, update_state=update_state)

    def _summed(self, add_loss: Callable[..., None]) -> Callable[..., None]:
        """Returns a layer's `add_loss` by which the sums over the replicas' examples add up to that over the
        batch: Keras multiplies each by the replica's part, as it does means.
        """

        @functools.wraps(add_loss)
        def of_replica(losses: Any, **options: Any) -> None:
            if self.replicas > 1 and tf.distribute.get_replica_context() is not None:
                part = self.part_of(replica_shares.current())
                losses = tf.nest.map_structure(functools.partial(_by_part, part), losses)
            add_loss(losses, **options)

        of_replica.of_layer = add_loss  # type: ignore[attr-defined]
        return of_replica

    as_compiled = True

    @property
    def is_own(self) -> bool:
        """Returns whether code of the program applies the gradients."""
        return self._own_training

    def steps_per_execution(self, given: int | None) -> int | None:
        """Returns `given`, or the number that the model was compiled with; None where it is to be
        measured.
        """
        compiled = keras_models.steps_per_execution(self.model)
        return compiled if given is None and compiled > 1 else given

    @property
    def gives_loss(self) -> bool:
        """Returns whether the result of `train` is a share of the loss."""
        return True not in self.own_results or "loss" in self.own_results[True].names

    def evaluate(self, batch: Any, share: Share | None = None) -> None:
        """Updates the metrics with a batch of evaluation examples, in a replica's context."""
        if self._own_evaluation:
            self.by_own_step("test_step", batch, share, training=False)
            return
        features, labels, weights = tf.keras.utils.unpack_x_y_sample_weight(batch)
        with replica_shares.of(share):
            predictions = self.model(features, training=False)
            if keras_models.computes_loss(self.model):
                self._loss_of(features, labels, predictions, weights, share, training=False)
        self._measure((features, labels, predictions, weights), share, training=False)

    def metrics(self) -> list[Any]:
        """Returns the metrics that the steps update."""
        return [self.mean_loss, *self.model.metrics, *self.means.values()]

    def _train_as_compiled(self, batch: Any, share: Share | None) -> Any:
        model, optimizer = self.model, self.model.optimizer
        features, labels, weights = tf.keras.utils.unpack_x_y_sample_weight(batch)
        variables = model.trainable_weights
        with replica_shares.of(share):
            with tf.GradientTape() as tape, self.exchange.reading(tape, variables) as sources:
                predictions = model(features, training=True)
                loss, part = self._loss_of(features, labels, predictions, weights, share, training=True)
                loss = scaled(optimizer, loss)
            gradients = unscaled(optimizer, tape.gradient(loss, sources))
            self.exchange.apply(optimizer, gradients, variables)
        self._measure((features, labels, predictions, weights), share, training=True)
        return part

    def _measure(self, known: tuple[Any, Any, Any, Any], share: Share | None, training: bool) -> None:
        """Updates the metrics with features, labels, predictions and weights of a batch."""
        counts = counted(known, share)
        if self._own_metrics:
            returned = flat(self.model.compute_metrics(*counts))
            examples = batch_count(known[0]) if share is None else share.examples
            self.own_results[training].update_means(returned, examples, _mean)
        else:
            self.update_compiled_metrics(*counts[1:])

    def _loss_of(
        self, features: Any, labels: Any, predictions: Any, weights: Any, share: Share | None, training: bool
    ) -> tuple[Any, Any]:
        """Returns the replica's share of the loss, as the model computes it and as `float32[]`. Adds it to
        the mean.
        """
        size = tf.cast(batch_count(features) if share is None else share.examples, tf.float32)
        # A replica without an example computes on one filler example: a mean over none would be NaN.
        known = counted((features, labels, predictions, weights), share, least=1)
        # Keras 3 counts each batch once in the losses of single outputs, also a smaller last one.
        each_batch_once = self.program.is_of_one_process and keras_models.is_keras_3(self.model)
        self._computed.size = self.part_of(share) if each_batch_once else size
        try:
            loss, mean = self.compiled_loss(known, share, training)
        finally:
            del self._computed.size  # a tensor of this trace
        part = self.part_of(share)
        weight = size if keras_models.weighs_losses_by_examples(self.model) else part
        self.count_loss(mean * weight, weight, training=training)
        return loss, mean * part

    def _remembering(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the model's `compute_loss` that notes what it returns where that is a share of the loss.

        One of the model's own adds to Keras' loss what it likes, mostly a mean over the replica's examples.
        So it computes as in one process, and what it returns is weighed as a whole.
        """
        is_own = keras_models.has_own(self.model, "compute_loss")

        def compute_loss(*arguments: Any, **options: Any) -> Any:
            if not is_own or replica_shares.is_whole():
                loss = compute(*arguments, **options)
                return replica_shares.made(loss) if replica_shares.was_scaled() else loss
            with replica_shares.as_in_one_process():
                loss = tf.convert_to_tensor(compute(*arguments, **options))
            if loss.shape.rank != 0:
                return loss
            return replica_shares.made(self.weighed_loss(replica_shares.current(), loss))

        compute_loss.of_model = compute  # type: ignore[attr-defined]
        return compute_loss

    def _train_by_model(self, batch: Any, share: Share | None) -> Any:
        returned = self.by_own_step("train_step", batch, share, training=True)
        if not self.gives_loss:
            return tf.constant(0.0)
        return returned["loss"] * self.part_of(share)

    def _weighed(self, update: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a mean's `update_state` that weighs by the number of examples that count.

        Keras gives no weight where a batch's size is not known when the step is traced.
        """

        def update_state(values: Any, sample_weight: Any = None) -> Any:
            return update(values, sample_weight=getattr(self._computed, "size", sample_weight))

        return update_state


def _mean(value: Any) -> Any:
    return tf.reduce_mean(tf.cast(value, tf.float32))


def _by_part(part: Any, loss: Any) -> Any:
    # The losses of a vector are added up.
    if tf.is_symbolic_tensor(loss) and is_sum(tf.reduce_sum(loss)):
        return tf.math.divide_no_nan(loss, tf.cast(part, loss.dtype))
    return loss
