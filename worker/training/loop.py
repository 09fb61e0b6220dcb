"""The training loop: the epochs of every program, with a model of either Keras, under every strategy.

An executor takes an epoch's steps: `replicas` those of strategies whose replicas step together,
`coordination` those that a ParameterServer chief schedules on its workers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import tensorflow as tf

from worker.checkpoints.position import Position
from worker.context import Loop
from worker.contract.records import Training
from worker.evaluation import scoring
from worker.failures import program_error
from worker.input import datasets
from worker.progress.records import Records
from worker.reporting import as_floats
from worker.steps.choice import steps_of
from worker.steps.replica_model import replica_model
from worker.tf_compat import keras_3, keras_models, versions
from worker.tf_compat.strategies import uses_coordinator
from worker.training import callbacks
from worker.training.build import build
from worker.training.coordination import Coordination
from worker.training.epoch_metrics import EpochMetrics
from worker.training.executor import Executor, Work
from worker.training.replicas import Replicas


class Trained(NamedTuple):
    """A trained model. `stopped_at` is the number of steps of the last epoch where a callback has stopped it
    in its middle.
    """

    model: Any
    stopped_at: int | None


def train(loop: Loop) -> Trained:
    """Trains the program's model to the last epoch, from the newest checkpoint if there is one."""
    datasets.check_batch_size(loop)
    try:
        return _Training(loop).run()
    except tf.errors.OpError:
        raise
    except Exception as error:
        # TensorFlow wraps an error that a dataset raised when a worker built it.
        original = getattr(error, "original_exception", None)
        if original is None:
            raise
        raise original from error


class _Training:
    def __init__(self, loop: Loop) -> None:
        parameters, strategy = loop.parameters, loop.strategy
        self._loop = loop
        loop.hooks.kept.append(self)
        # The model precedes the datasets: lookup tables that they use are made in it.
        self._model = model = replica_model(loop)
        if keras_models.is_keras_3(model):
            _check_keras_3(loop, model)
        with strategy.scope():
            dataset, epoch_steps = datasets.training_dataset(loop)
            build(model, dataset, loop)
            steps = steps_of(loop, model, dataset.element_spec)
            loop.hooks.built(steps)
            loop.hooks.enter("reading the checkpoint")
            notice = loop.hooks.reporter.notice
            source = loop.newest() if loop.newest is not None else loop.directory
            position = source.resume(model, notice) if source else Position()
        loop.beside.source = source
        if source is not loop.directory:
            loop.notice(f"goes on at {position}, from a copy in memory")
        elif position.steps:
            loop.notice(f"goes on at {position}, from the checkpoint in modelDir")
        first = Position(parameters.initial_epoch)
        self._position = position = max(position, first).within(parameters.epochs, epoch_steps)
        self._begun = EpochMetrics(strategy, source, position, steps.metrics)
        records = Records(
            loop.hooks.reporter if loop.writes else None,
            parameters.epochs,
            must_be_finite=not loop.program.is_of_one_process,
        )
        loop.hooks.enter("running callbacks()")
        called = callbacks.of_program(loop, model)
        by_batch = callbacks.with_batch_hooks(loop, called)
        if by_batch and uses_coordinator(strategy):
            callbacks.tell_of_single_steps(by_batch[0], loop)
        stops = callbacks.StopTogether(strategy)
        called.append(stops)
        if loop.directory is not None:
            called += callbacks.saving(loop, model, loop.directory)
        self._callbacks = keras_models.callback_list(
            model, called, epochs=parameters.epochs, steps=epoch_steps, add_history=True
        )
        self._steps, self._epoch_steps = steps, epoch_steps
        # The first epoch, whatever its number, begins with the first batch.
        of_data = replace(position, epochs=max(0, position.epochs - first.epochs))
        self._work = work = Work(
            loop,
            model,
            steps,
            epoch_steps,
            of_data,
            records,
            self._begun,
            self._callbacks,
            bool(by_batch),
            stops.agree,
        )
        loop.hooks.enter("preparing the first step")
        kind = Coordination if uses_coordinator(strategy) else Replicas
        self._executor: Executor = kind(work, dataset)

    def run(self) -> Trained:
        loop, model, epochs = self._loop, self._model, self._loop.parameters.epochs
        if loop.writes:
            loop.hooks.reporter.emit(Training(epochs, self._epoch_steps, initial_epoch=self._position.epochs))
        model.stop_training = False
        self._callbacks.on_train_begin()
        logs: dict[str, Any] = {}
        taken, stopped_at = 0, None
        for epoch in range(self._position.epochs, epochs):
            loop.hooks.enter(f"training epoch {epoch + 1}")
            self._callbacks.on_epoch_begin(epoch)
            done, logs = self._train(epoch)
            logs |= self._score(epoch)
            taken = epoch * self._epoch_steps + done
            stopped_at = done if done < self._epoch_steps else None
            self._callbacks.on_epoch_end(epoch, logs)
            if model.stop_training:
                break
        loop.hooks.trained(taken)
        with loop.strategy.scope():
            self._steps.end()
        self._callbacks.on_train_end(logs)
        return Trained(model, stopped_at)

    def _train(self, epoch: int) -> tuple[int, dict[str, Any]]:
        """Trains the rest of `epoch`, from 0. Returns how many of its steps are done, and their metrics."""
        done = self._position.steps if epoch == self._position.epochs else 0
        with self._loop.strategy.scope():
            self._steps.reset()
        self._begun.begin()
        self._work.records.begin(epoch + 1, self._epoch_steps, done)
        done = self._executor.train(epoch, done)
        parameters = self._loop.parameters
        if done == self._epoch_steps and parameters.steps_per_epoch is None:
            with self._loop.strategy.scope():
                self._loop.program.data_ended(first=epoch == parameters.initial_epoch)
        logs = self._steps.results(training=True)
        metrics = as_floats(logs)
        self._work.records.end(done, metrics, keras_models.rate_of(self._model.optimizer))
        self._work.check(done, metrics)
        return done, logs

    def _score(self, epoch: int) -> dict[str, Any]:
        """Returns the metrics on the evaluation dataset, by the names that callbacks know."""
        scorer, hooks = self._executor.scorer, self._loop.hooks
        if scorer is None or not self._loop.parameters.validates(epoch):
            return {}
        hooks.enter(f"evaluating epoch {epoch + 1}")
        metrics = scoring.called(scorer, self._callbacks)
        hooks.enter(f"training epoch {epoch + 1}")  # to which the callbacks belong
        return {f"val_{name}": value for name, value in metrics.items()}


def _check_keras_3(loop: Loop, model: Any) -> None:
    """Raises Failure for what Keras 3 cannot train under the strategy."""
    untested = versions.keras_untested(keras_3.version())
    if untested is not None:
        loop.notice(untested)
    unsupported = keras_3.unsupported(model, loop.strategy)
    if unsupported is not None:
        raise program_error(
            f"{loop.program.entrypoint}: Keras 3 cannot do what {unsupported} asks for under this strategy, "
            "with its several replicas or workers; leave it out, or use another spec.strategy"
        )
