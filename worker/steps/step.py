"""The step of one replica, for training and for evaluation, in the runtime's own loop.

The arithmetic is that of https://www.tensorflow.org/tutorials/distribute/custom_training: each replica
divides the sum of its examples' losses by the GLOBAL batch size. The optimizer adds up the replicas'
gradients. The sum is the gradient of one replica with the whole batch, whatever the sizes of the shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

import tensorflow as tf

from worker.failures import Failure, place, program_error, sentence
from worker.input import replica_shares
from worker.input.batch_division import Share, batch_count, batch_size, copied, counted
from worker.input.batch_size import of_size
from worker.program import LoadedProgram
from worker.reporting import as_numbers
from worker.steps import batch_pairs, metric_updates, statistics
from worker.steps.own_results import OwnResults, flat, results_of
from worker.steps.reductions import differentiated, is_sum, reductions
from worker.steps.variable_exchange import Exchange
from worker.tf_compat import keras_3, keras_models
from worker.tf_compat.graphs import frames_of_operation, only_grows
from worker.tf_compat.keras_models import compiled_metrics, is_keras_3
from worker.tf_compat.strategies import replicas_share_variables, uses_coordinator

_LOSS = "loss(labels, predictions)"
_TRAIN_STEP = "train_step(model, batch, global_batch_size)"
_TEST_STEP = "test_step(model, batch)"


class Steps:
    """The steps of `program` for a replica of `model`, and the metrics that they update.

    Construct it under the strategy's scope, when the model and its optimizer have their variables. `element`
    is the `element_spec` of the program's training dataset. The constructor makes the variables of the
    metrics. `notice` is called with sentences for the user. Raises Failure that names the method where the
    value of `loss` is wrong.
    """

    def __init__(
        self,
        program: LoadedProgram,
        model: Any,
        global_batch_size: int,
        element: Any,
        notice: Callable[[str], None],
    ) -> None:
        self.program = program
        self.model = model
        self.global_batch_size = global_batch_size
        self.replicas = tf.distribute.get_strategy().num_replicas_in_sync
        self._train = self._train_by_step if program.has("train_step") else self._train_by_loss
        self._has_loss = program.has("loss")
        self._own_evaluation = program.has("test_step")
        self._own_metrics = False
        """Whether the model's class has a compute_metrics of its own, and the steps call it."""
        self.exchange = Exchange()
        self.mean_loss = tf.keras.metrics.Mean(name="loss")
        self.notice = notice
        self._in_step: set[int] | None = None
        """The ids of the metrics that the program's train_step updates, once it was traced."""
        self._may_compare: bool | None = None
        """Whether the first trace of a training step has what `batch_pairs` looks for."""
        self._no_sums: list[Any] = []
        """The metrics that this trace changes otherwise than by adding to them."""
        self._measured: set[bool] = set()
        """Whether a training step, or one of an evaluation, counts a loss, as far as they were traced."""
        self.means: dict[str, Any] = {}
        """Means, by name, of results of the program's own steps that are in none of the model's metrics."""
        self.own_results: dict[bool, OwnResults] = {}
        """The results of the program's own code, for training and for evaluation."""
        self._noting = ExitStack()
        self._read = tf.function(self.results_in_graph)
        if self._has_loss:
            self._prepare(element)
        if program.has("train_step"):
            replica_shares.leave_out(model, *program.optimizers().values())
        if is_keras_3(model):
            keras_3.remember_seed_generator()
            keras_3.mend_metrics(tf.distribute.get_strategy(), self.metrics())
        if program.has("train_step"):
            self._existing = {id(metric) for metric in self.metrics()}
            self._noted = self._noting.enter_context(metric_updates.noted(self.metrics()))

    def train(self, batch: Any, share: Share | None = None) -> Any:
        """Runs one step, in a replica's context. Returns its share of the loss, `float32[]`, to be added up.

        `share` is the replica's share of the global batch, None where all have the same.
        """
        part = self._train(batch, share)
        if self._may_compare is None and self.replicas > 1 and not tf.executing_eagerly():
            size = batch_size(batch)
            self._may_compare = batch_pairs.may_compare(tf.compat.v1.get_default_graph(), size)
            self._no_sums = [each for each in keras_3.leaves(self.metrics()) if not _adds_up(each)]
        return part

    def advise_of_replicas(self, element: Any) -> None:
        """Gives notice where the replicas' parts of a metric do not add up, and where a step compares the
        examples of a batch with each other. Call it after the first one, under the strategy's scope, in no
        replica's context. `element` is that of the constructor.
        """
        for metric in self._no_sums:
            self.notice(
                f"{self.program.entrypoint}: the metric {metric.name} ({type(metric).__name__}) does not add "
                "to its variables, but puts other values there: reported is the sum of what the "
                f"{self.replicas} replicas have there. Keep sums over the examples, and compute the rest in "
                "result()"
            )
        for name, frames in statistics.unknown():
            where = place(frames, self.program.roots)
            self.notice(
                f"{self.program.entrypoint}: the variable {name} is computed from a sum over the batch"
                f"{f' at {where}' if where else ''}, which has another shape than the variable. Each of the "
                f"{self.replicas} replicas has the sum over its own examples, and the variable gets their "
                "mean, not the sum of one process: keep a mean over the examples, or a sum of this shape"
            )
        if not self._may_compare:
            return
        strategy = tf.distribute.get_strategy()

        def train(batch: Any) -> Any:
            # A tensor of each replica: TensorFlow gathers the one of all of them by doing nothing.
            return self.train(tf.nest.map_structure(tf.identity, batch, expand_composites=True))

        def traced(size: int) -> Any:
            step = tf.function(lambda batch: strategy.run(train, args=(batch,)))
            return step.get_concrete_function(of_size(element, size)).graph

        size = max(1, self.global_batch_size // self.replicas)
        try:
            operation = batch_pairs.comparing(traced, size)
        except Exception:  # noqa: BLE001 - the program's code may take batches of one size only
            return
        if operation is None:
            return
        where = place(frames_of_operation(operation), self.program.roots)
        self.notice(
            f"{self.program.entrypoint}: {f'{where} compares' if where else 'the step compares'} the "
            "examples of a batch with each other, as a contrastive loss does: each of the "
            f"{self.replicas} replicas has the pairs of its own {size} examples, so the loss is not that of "
            f"one process with {self.global_batch_size}; docs/train.md says how a replica gets the others'"
        )

    def evaluate(self, batch: Any, share: Share | None = None) -> None:
        """Updates the metrics with a batch of evaluation examples, in a replica's context.
        `share` as above.
        """
        if self._own_evaluation:
            self.by_own_step("test_step", batch, share, training=False)
            return
        features, labels, weights = tf.keras.utils.unpack_x_y_sample_weight(batch)
        predictions = self.model(features, training=False)
        size = _size(features) if share is None else tf.cast(share.examples, tf.float32)
        known = counted((labels, predictions, weights), share, least=1)
        labels, predictions, weights = counted((labels, predictions, weights), share)
        if self._has_loss:
            losses = self.program.loss(labels, predictions)
            total = tf.nn.compute_average_loss(losses, sample_weight=weights, global_batch_size=1)
            self.count_loss(total, size, self._penalty(), training=False)
        elif keras_models.computes_loss(self.model):
            with replica_shares.of(share):
                _, mean = self.compiled_loss((features, *known), share, training=False)
            self.count_loss(mean * size, size, training=False)
        self.update_compiled_metrics(labels, predictions, weights)

    def prepare_evaluation(self, element: Any) -> None:
        """Makes the variables that `evaluate` needs, for a dataset with the `element_spec` `element`. Call it
        before, under the strategy's scope.
        """
        if self._own_evaluation:
            self.trace_own("test_step", element, training=False)
        elif self._own_metrics:
            self.trace_own("compute_metrics", element, training=False)
        elif self.program.has("train_step"):
            self._check_evaluation(element)
            if not (self._has_loss or is_keras_3(self.model)):
                keras_models.build_compiled(self.model, element)
        keras_3.mend_metrics(tf.distribute.get_strategy(), [*self.model.metrics, *self.means.values()])

    def _check_evaluation(self, element: Any) -> None:
        """Raises Failure where the model does not take the features of `element`, which train_step divides by
        itself.
        """
        strategy, size = tf.distribute.get_strategy(), max(1, self.global_batch_size // self.replicas)
        features = element[0] if isinstance(element, tuple) else element

        def forward(inputs: Any) -> Any:
            return strategy.run(lambda part: self.model(part, training=False), args=(inputs,))

        try:
            tf.function(forward).get_concrete_function(of_size(features, size))
        except (TypeError, ValueError, KeyError) as error:
            raise program_error(
                f"{self.program.entrypoint}: model() does not take what evaluation_dataset() gives "
                f"({sentence(error)}): give the program a test_step(model, batch) beside its train_step, or "
                "no evaluation_dataset()"
            ) from error

    as_compiled = False
    """Whether the steps compute what the model was compiled with."""

    @property
    def is_own(self) -> bool:
        """Returns whether code of the program applies the gradients."""
        return self.program.has("train_step")

    def steps_per_execution(self, given: int | None) -> int | None:
        """Returns `given`; None where the number is to be measured."""
        return given

    @property
    def gives_loss(self) -> bool:
        """Returns whether the result of `train` is a share of the loss."""
        return True

    def part_of(self, share: Share | None) -> Any:
        """Returns the part of the global batch that a replica with this `share` has, `float32[]`."""
        return 1.0 / self.replicas if share is None else share.part

    def reset(self) -> None:
        """Resets all metrics. It is called under the strategy's scope, in no replica's context."""
        for metric in self.metrics():
            metric.reset_state()
        for metric in self.model.metrics if self.program.has("test_step") else ():
            metric.reset_state()  # one of the name "loss", too

    def end(self) -> None:
        """Replaces the weights by the optimizer's moving averages, where it keeps some, as Model.fit does
        before the callbacks hear of the end. It is called as `reset` is.
        """
        keras_models.take_averages(self.model)

    def results(self, training: bool = False) -> dict[str, Any]:
        """Returns all metrics over all replicas, "loss" first, each a float or an array. Every task of a
        collective must call it.

        With `training`, it returns only those that a training step updates: a `train_step` may leave some
        out.
        """
        # What may change between two calls is an argument, so that the function is traced anew: the number of
        # metrics that have variables, and whether there is a loss.
        return as_numbers(self._read(training, len(self.metrics()), training in self._measured))

    def _train_by_loss(self, batch: Any, share: Share | None) -> Any:
        features, labels, weights = tf.keras.utils.unpack_x_y_sample_weight(batch)
        size = _size(features) if share is None else tf.cast(share.examples, tf.float32)
        optimizer, variables = self.model.optimizer, self.model.trainable_variables
        with tf.GradientTape() as tape, self.exchange.reading(tape, variables) as sources:
            predictions = self.model(features, training=True)
            labels, predictions, weights = counted((labels, predictions, weights), share)
            losses = self.program.loss(labels, predictions)
            average = tf.nn.compute_average_loss(
                losses, sample_weight=weights, global_batch_size=self.global_batch_size
            )
            part = average = tf.cast(average, tf.float32)
            penalty = self._penalty()
            if penalty is not None:
                # Every replica adds a penalty, so each penalty is weighed by its replica's part of the batch.
                part += penalty * self.part_of(share)
            scaled_part = scaled(optimizer, part)
        gradients = unscaled(optimizer, tape.gradient(scaled_part, sources))
        self.exchange.apply(optimizer, gradients, variables)
        self.count_loss(average * self.global_batch_size, size, penalty, training=True)
        self.update_compiled_metrics(labels, predictions, weights)
        return part

    def _train_by_step(self, batch: Any, share: Share | None) -> Any:
        if self._in_step is None:
            self._noted.updated.clear()  # by a test_step() of the program's, which is traced first
        with differentiated() as losses:
            returned = replica_shares.left_out(self.model, self._step, batch, share, trains=True)
        try:
            part = tf.cast(returned, tf.float32)
        except (TypeError, ValueError):
            part = None
        if part is None or part.shape.rank not in (0, None):
            what = f"a {type(returned).__name__}" if part is None else f"shape {list(part.shape)}"
            raise ValueError(
                f"{self.program.entrypoint}: {_TRAIN_STEP} returned {what}, not a scalar, the replica's "
                "share of the loss"
            )
        if self._in_step is None:
            self._in_step = self._found_in_step()
            self.advise_of_means(losses, _TRAIN_STEP)
        # A step counts once, and its loss is the sum of the shares.
        if share is not None:
            part = tf.where(share.examples > 0, part, 0.0)
        self.count_loss(part, 1.0 / self.replicas, training=True)
        return part

    def _found_in_step(self) -> set[int]:
        """Returns the ids of the metrics that the first step has updated. Gives notice where none of the
        compiled metrics is among them.
        """
        self._noting.close()
        # Keras makes the compiled metrics at their first update.
        made = {id(metric) for metric in self.metrics()} - self._existing
        updated = self._noted.updated | made
        compiled = compiled_metrics(self.model)
        if keras_models.is_compiled_with_metrics(self.model) and not any(
            id(metric) in updated for metric in ([compiled] if is_keras_3(self.model) else compiled.metrics)
        ):
            self.notice(
                f"{self.program.entrypoint}: {_TRAIN_STEP} does not update the metrics that the model was "
                "compiled with, so the training shows none of them: update them in the step, by "
                f"{keras_models.update_of_compiled_metrics(self.model)}"
            )
        return updated | {id(self.mean_loss)}

    def _step(self, batch: Any) -> Any:
        return self.program.train_step(self.model, copied(batch), self.global_batch_size)

    def compiled_loss(
        self, known: tuple[Any, Any, Any, Any], share: Share | None, training: bool
    ) -> tuple[Any, Any]:
        """Returns the model's loss for `known` features, labels, predictions and weights: the replica's share
        of it, for the gradients, and the mean over the replica's examples, `float32[]`.

        Call it in `replica_shares.of(share)`.
        """
        loss, part = keras_models.compute_loss(self.model, known, training), self.part_of(share)
        if not replica_shares.was_scaled():
            # The program's own compute_loss() returns a mean over the replica's examples.
            loss = loss * tf.cast(part, loss.dtype)
        value = tf.cast(loss, tf.float32)
        # A loss that is not reduced has a value for each example.
        mean = tf.reduce_mean(value) if value.shape.rank else tf.math.divide_no_nan(value, part)
        return loss, mean

    def is_share(self, value: Any) -> bool:
        """Returns whether `value`, of a step of the program's own, is the replica's share of a mean over the
        global batch, as far as the graph of the step tells.
        """
        terms = reductions(value) if self.replicas > 1 else []
        return bool(terms) and all(each.is_share(self.replicas, self.global_batch_size) for each in terms)

    def advise_of_means(self, losses: Iterable[Any], step: str) -> None:
        """Gives notice of `losses`, differentiated in `step` of the program's own, that are means over a
        replica's examples: their gradients are added up.
        """
        if self.replicas == 1 or self.program.is_of_one_process:
            return
        known = (self.replicas, self.global_batch_size)
        terms = [term for loss in losses for term in reductions(loss)]
        means = [term for term in terms if term.is_mean() and not term.is_share(*known)]
        if means:
            where = place(means[0].frames, self.program.roots)
            self.notice(
                f"{self.program.entrypoint}: {step}{f' at {where}' if where else ''} takes the gradient of a "
                f"mean over a replica's examples. Those of {self.replicas} replicas are added up, so it is "
                f"{self.replicas} times that of one process: divide the sum by the global batch size, or the "
                "mean by tf.distribute.get_strategy().num_replicas_in_sync"
            )

    def by_own_step(self, name: str, batch: Any, share: Share | None, training: bool) -> dict[str, Any]:
        """Returns the loss of the model's own step, or of the program's `test_step`, under its name: a mean
        over the replica's examples. Adds those of the step's results to means that are in no metric of the
        model.
        """
        returned: dict[str, Any] = {}
        losses: list[Any] = []

        whole = self.program.is_of_one_process

        def step(batch: Any) -> None:
            with differentiated(partial(self.weighed_loss, share)) if whole else nullcontext():
                returned.update(flat(self._call(name, batch, training) or {}))
            losses.extend(replica_shares.losses())

        replica_shares.left_out(self.model, step, batch, share, trains=training, whole=whole)
        examples = batch_count(batch) if share is None else share.examples

        def mean(value: Any) -> Any:
            is_share = any(value is loss for loss in losses) or self.is_share(value)
            is_share = is_sum(value) if whole else is_share
            value = tf.reduce_mean(tf.cast(value, tf.float32))
            return tf.math.divide_no_nan(value, self.part_of(share)) if is_share else value

        self.own_results[training].update_means(returned, examples, mean)
        return {name: mean(value) for name, value in returned.items() if name == "loss"}

    def weighed_loss(self, share: Share | None, loss: Any) -> Any:
        """Returns the replica's share of `loss`, which a step written for one process differentiates: a mean
        over the replica's examples, or their sum.
        """
        if loss.shape.rank != 0 or self.replicas == 1 or is_sum(loss):
            return loss
        return loss * tf.cast(self.part_of(share), loss.dtype)

    def trace_own(self, name: str, element: Any, training: bool) -> None:
        """Finds the results of the model's own code, and which of them are in a metric. It traces, and runs
        nothing.
        """
        strategy, model = tf.distribute.get_strategy(), self.model
        returned: dict[str, Any] = {}
        losses: list[Any] = []
        by_keras: list[bool] = []

        def once(batch: Any) -> None:
            whole = self.program.is_of_one_process
            with replica_shares.of(None, whole=whole), differentiated() as targets:
                given = self._call(name, batch, training)
                losses.extend(targets)
                by_keras.append(replica_shares.was_scaled())
            is_program_s = name == "test_step" and self.program.has(name)
            if not isinstance(given, dict) and not (given is None and is_program_s):
                where = f"{_TEST_STEP}" if is_program_s else f"{type(model).__name__}.{name}()"
                raise program_error(
                    f"{self.program.entrypoint}: {where} returned a "
                    f"{type(given).__name__}, not a dict of the metrics by their names"
                )
            returned.update(flat(given or {}))
            if name == "compute_metrics":
                returned.pop("loss", None)  # that of Model.fit, which does not train here

        size = max(1, self.global_batch_size // self.replicas)
        for _ in range(2):
            known = len(model.metrics)
            with metric_updates.noted(model.metrics) as noted:
                traced = tf.function(lambda batch: strategy.run(once, args=(batch,)))
                traced.get_concrete_function(of_size(element, size))
            # Keras 2 makes compiled metrics at their first update: what is done with them is noted then.
            if len(model.metrics) == known:
                break
        # The workers of ParameterServer take their steps at any time, so none is the last.
        counts_last = not (uses_coordinator(strategy) or replicas_share_variables(strategy))
        of_last_step = self.program.is_of_one_process and counts_last
        self.own_results[training] = OwnResults(model, returned, noted, self.means, of_last_step)
        if name == "train_step" and not any(by_keras):
            self.advise_of_means(losses, f"{type(model).__name__}.train_step(data)")

    def _call(self, name: str, batch: Any, training: bool) -> Any:
        if name == "test_step" and self.program.has(name):
            return self.program.test_step(self.model, copied(batch))
        if name != "compute_metrics":
            return getattr(self.model, name)(copied(batch))
        features, labels, weights = tf.keras.utils.unpack_x_y_sample_weight(batch)
        return self.model.compute_metrics(features, labels, self.model(features, training=training), weights)

    def _penalty(self) -> Any:
        """Returns the regularisation losses, `float32[]`; None where the model has none."""
        losses = [tf.cast(loss, tf.float32) for loss in self.model.losses]
        return tf.add_n(losses) if losses else None

    def count_loss(self, total: Any, size: Any, penalty: Any = None, *, training: bool) -> None:
        """Adds the losses of `size` examples to the mean, with the penalty for each.

        Mean.update_state would take three times as many operations, which slows a small model.
        """
        self._measured.add(training)
        # A metric of Keras is of its floatx, which may be float64. Keras 2 does not convert what is added.
        dtype = self.mean_loss.total.dtype
        total, size = tf.cast(total, dtype), tf.cast(size, dtype)
        self.mean_loss.total.assign_add(total if penalty is None else total + tf.cast(penalty, dtype) * size)
        self.mean_loss.count.assign_add(size)

    def update_compiled_metrics(self, labels: Any, predictions: Any, weights: Any) -> None:
        """Updates the metrics that the model was compiled with."""
        # Not model.compute_metrics, which also reads the results: a message to each replica for each step.
        metrics = compiled_metrics(self.model)
        if metrics is not None:
            metrics.update_state(labels, predictions, weights)

    def metrics(self) -> list[Any]:
        """Returns the metrics that the steps update, "loss" first."""
        # The compiled loss has a metric of that name too, which these steps do not update.
        of_model = (metric for metric in self.model.metrics if metric.name != "loss")
        return [self.mean_loss, *of_model, *self.means.values()]

    def unread_metrics(self, training: bool) -> list[Any]:
        """Returns the metrics that no code of the program reads while it trains, or evaluates."""
        # A step of the program's own may read the metrics that it updates, and compute a value from them.
        if (training and self.is_own) or (
            training in self.own_results and self.own_results[training].has_values
        ):
            return [self.mean_loss, *self.means.values()]
        return self.metrics()

    def results_in_graph(self, training: bool = False, *_: Any) -> dict[str, Any]:
        """Returns the results of `results` as tensors by the metrics' names, for a tf.function."""
        # Without a loss there is none among them: 0 would look like a good one.
        loss = results_of([self.mean_loss] if training in self._measured else [])
        own_results = self.own_results.get(training)
        if own_results is not None:
            by_own_step = self.is_own if training else self._own_evaluation
            return own_results.in_graph() if by_own_step else loss | own_results.in_graph()
        known = self._in_step if training else None
        others = (metric for metric in self.model.metrics if metric.name != "loss")
        return loss | results_of(each for each in others if known is None or id(each) in known)

    def _prepare(self, element: Any) -> None:
        """Traces a forward pass, which runs nothing. The trace gives the shapes and makes the metrics'
        variables.
        """
        if not isinstance(element, tuple) or len(element) not in (2, 3):
            raise program_error(
                f"{self.program.entrypoint}: {_LOSS} needs a train_dataset() of (features, labels) or "
                "(features, labels, sample_weights)"
            )
        size = max(1, self.global_batch_size // self.replicas)

        def forward(batch: Any) -> Any:
            features, labels, _ = tf.keras.utils.unpack_x_y_sample_weight(batch)
            predictions = self.model(features, training=False)
            return predictions, self.program.loss(labels, predictions)

        try:
            traced = tf.function(forward).get_concrete_function(of_size(element, size))
        except ValueError as error:
            if "tf.keras.losses.Reduction" not in str(error):
                raise
            raise self._wrong_loss("the result of a Keras loss that reduces it") from error
        predictions, given = traced.structured_outputs
        shape = getattr(given, "shape", None)
        if shape is None:
            raise self._wrong_loss(f"a {type(given).__name__}")
        if shape.rank == 0:
            raise self._wrong_loss("a scalar")
        if shape.rank is not None and shape.rank > 1 and shape[0] in (None, size):
            others = list(range(1, shape.rank))
            raise program_error(
                f"{self.program.entrypoint}: {_LOSS} returned shape {list(shape)} for {size} examples, "
                f"not each example's loss, [batch_size]: take the mean over the others of its dimensions, "
                f"tf.reduce_mean(losses, axis={others}), or tf.reduce_sum where loss() has divided by their "
                "number already"
            )
        if shape.rank is not None and (shape.rank > 1 or shape[0] not in (None, size)):
            raise self._wrong_loss(f"shape {list(shape)} for {size} examples")
        keras_models.build_compiled_metrics(self.model, element[1], predictions)

    def _wrong_loss(self, what: str) -> Failure:
        return program_error(
            f"{self.program.entrypoint}: {_LOSS} returned {what}, not each example's loss, [batch_size]: "
            "a Keras loss gives that with reduction='none'"
        )


def scaled(optimizer: Any, loss: Any) -> Any:
    """Scales the loss for mixed precision, by the method of Keras 3's or of Keras 2's optimizers, if any."""
    if hasattr(optimizer, "scale_loss"):
        return optimizer.scale_loss(loss)
    return optimizer.get_scaled_loss(loss) if hasattr(optimizer, "get_scaled_loss") else loss


def unscaled(optimizer: Any, gradients: Any) -> Any:
    """Returns the gradients of a loss that `scaled` has scaled, without the scale."""
    # Keras 3's optimizers unscale the gradients themselves.
    if hasattr(optimizer, "get_unscaled_gradients"):
        return optimizer.get_unscaled_gradients(gradients)
    return gradients


def _size(features: Any) -> Any:
    """Returns the size of the batch, `float32[]`."""
    return tf.cast(batch_count(features), tf.float32)


def _adds_up(metric: Any) -> bool:
    """Returns whether a metric of a class of the program's own only adds to its variables in the trace."""
    if type(metric).__module__.startswith(("keras.", "tf_keras.")):
        return True
    return all(only_grows(keras_models.tf_variable(variable)) for variable in metric.variables)
