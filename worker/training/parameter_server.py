"""Training by `loss` or `train_step` under ParameterServer: the workers run what the chief schedules.

The loop is that of https://www.tensorflow.org/tutorials/distribute/parameter_server_training, with several
steps in an execution, which returns no value, and a limited number of executions scheduled ahead.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import tensorflow as tf

from worker.checkpoints.model_directory import Position
from worker.cluster.executions import Executions
from worker.context import Loop
from worker.contract import Training
from worker.evaluation import inline
from worker.input import datasets
from worker.program import LoadedProgram
from worker.progress.records import Records
from worker.reporting import as_floats
from worker.steps.choice import steps_of
from worker.steps.metric_sums import Sums
from worker.steps.step import Steps
from worker.steps.steps_per_execution import Packing
from worker.steps.variable_exchange import Together
from worker.tf_compat import keras_models
from worker.training import callbacks, fit
from worker.training.epoch_metrics import EpochMetrics

_EXECUTIONS_PER_WORKER = 4
_MEASURED_PER_WORKER = 2
_UNROLLED = (4, 5, 3, 2)


def coordinate(loop: Loop, model: Any) -> Any:
    """Trains the program's `model` to the last epoch, from the newest checkpoint if there is one. Returns the
    model.
    """
    try:
        return _Coordination(loop, model).run()
    except tf.errors.OpError:
        raise
    except Exception as error:
        # TensorFlow wraps an error that a dataset raised when a worker built it.
        original = getattr(error, "original_exception", None)
        if original is None:
            raise
        raise original from error


class _Coordination:
    def __init__(self, loop: Loop, model: Any) -> None:
        parameters = loop.parameters
        self._loop = loop
        self._model = model
        loop.hooks.kept.append(self)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(loop.strategy)
        with loop.strategy.scope():
            dataset, steps = datasets.training_dataset(loop)
            datasets.check_is_dataset(loop, dataset)
            # Never None here: training_dataset() raises Failure where the number is unknown.
            self._epoch_steps = steps = steps or 0
            if self._model.run_eagerly:
                loop.hooks.reporter.notice(
                    "model.compile(run_eagerly=True) has no meaning under ParameterServer: workers run graphs"
                )
            fit.build(self._model, dataset, loop)
            self._steps = steps_of(
                loop.program,
                model,
                parameters.global_batch_size,
                dataset.element_spec,
                loop.hooks.reporter.notice,
            )
            loop.hooks.enter("reading the checkpoint")
            notice = loop.hooks.reporter.notice
            position = loop.directory.resume(self._model, notice) if loop.directory else Position()
        self._position = position.within(parameters.epochs, steps)
        self._begun = EpochMetrics(loop.strategy, loop.directory, self._position, self._steps.metrics)
        self._records = Records(loop.hooks.reporter if loop.writes else None, parameters.epochs)
        self._executions = Executions(self._coordinator, loop.count_workers, self._moved, loop.hooks.failed)
        packed = self._steps.steps_per_execution(parameters.steps_per_execution)
        self._packing = Packing(packed)
        self._is_packed = packed is None
        if loop.strategy.num_replicas_in_sync == 1:
            self._steps.exchange = Together(_learning_rate(self._model, loop.program))
        self._unrolled = _unrolled(packed)
        self._single, self._several = _functions(loop, self._steps, self._unrolled)
        self._read = tf.function(partial(self._steps.results_in_graph, True))
        self._iterator = iter(self._coordinator.create_per_worker_dataset(_dataset_function(loop, dataset)))
        self._evaluation = inline.evaluation(loop, self._coordinator, self._executions, self._steps)
        self._callbacks = self._calling()
        self._done = 0
        self._has_stepped = self._is_asked = self._is_warm = False

    def run(self) -> Any:
        loop, model, epochs = self._loop, self._model, self._loop.parameters.epochs
        loop.hooks.reporter.emit(Training(epochs, self._epoch_steps, initial_epoch=self._position.epochs))
        model.stop_training = False
        self._callbacks.on_train_begin()
        logs: dict[str, float] = {}
        for epoch in range(self._position.epochs, epochs):
            loop.hooks.enter(f"training epoch {epoch + 1}")
            self._callbacks.on_epoch_begin(epoch)
            logs = self._train(epoch)
            is_saved = (epoch + 1) % loop.parameters.checkpoint_epochs == 0 or epoch + 1 == epochs
            if self._evaluation is not None and is_saved:
                loop.hooks.enter(f"evaluating epoch {epoch + 1}")
                self._callbacks.on_test_begin()
                found = self._evaluation.run()
                self._callbacks.on_test_end(found)
                logs |= {f"val_{name}": value for name, value in found.items()}
                loop.hooks.enter(f"training epoch {epoch + 1}")  # to which the callbacks belong
            self._callbacks.on_epoch_end(epoch, logs)
            if model.stop_training:
                break
        with loop.strategy.scope():
            self._steps.end()
        self._callbacks.on_train_end(logs)
        return model

    def _calling(self) -> Any:
        loop = self._loop
        loop.hooks.enter("running callbacks()")
        called = callbacks.of_program(loop, self._model)
        for callback in called:
            callbacks.check_hooks(callback, loop.program.entrypoint)
        if loop.directory is not None:
            called += fit.saving(loop, self._model, loop.directory)
        return keras_models.keras_of(self._model).callbacks.CallbackList(
            called, model=self._model, epochs=loop.parameters.epochs, steps=self._epoch_steps, verbose=0
        )

    def _train(self, epoch: int) -> dict[str, float]:
        """Trains the rest of `epoch`, from 0. Returns the metrics of its steps, all of which are done."""
        first = self._position.steps if epoch == self._position.epochs else 0
        with self._loop.strategy.scope():
            self._steps.reset()
        self._begun.begin()
        self._records.begin(epoch + 1, self._epoch_steps, first)
        self._done = step = first
        while step < self._epoch_steps:
            # The first step has a trace of its own, which shows how the unrolled steps must be traced.
            steps = self._packing.steps(min(self._most, self._epoch_steps - step)) if self._has_stepped else 1
            self._loop.hooks.boundary(self._model, epoch, step, self._steps.metrics, self._executions.join)
            if self._packing.settled or not self._has_stepped:
                self._schedule(steps)
                step += steps
                if not self._has_stepped:
                    self._executions.join()
                    self._begun.stepped()
            else:
                step += self._measure(steps, self._epoch_steps - step)
        self._executions.join()
        if not self._packing.settled:
            self._packing.epoch_ended()
            self._bound()
        metrics = self._steps.results(training=True)
        self._records.end(self._epoch_steps, metrics)
        return metrics

    def _measure(self, steps: int, left: int) -> int:
        """Has each worker run executions of `steps`, and measures them. Returns the number of steps."""
        count = _MEASURED_PER_WORKER * self._loop.workers
        if count * steps > left:
            self._schedule(steps)
            return steps
        if steps >= self._unrolled and not self._is_warm:
            # `several` is traced here, and loaded by each worker. That takes seconds, which must not count as
            # its time.
            self._is_warm = True
            for _ in range(count):
                self._schedule(steps)
            self._executions.join()
            return count * steps
        began = time.monotonic()
        for _ in range(count):
            self._schedule(steps)
        self._executions.join()
        self._packing.measured(steps, (time.monotonic() - began) / _MEASURED_PER_WORKER)
        self._bound()
        return count * steps

    @property
    def _most(self) -> int:
        """Returns how many steps an execution may have. Every worker gets several executions of an epoch, or
        some would wait long for the last.
        """
        if not self._is_packed:
            return self._epoch_steps
        return max(1, self._epoch_steps // (_EXECUTIONS_PER_WORKER * self._loop.workers))

    def _bound(self) -> None:
        """Ends the search where more steps are of no use. With fewer workers they may be later."""
        if self._packing.number > self._most:
            self._packing.agree(self._packing.number, True)

    def _schedule(self, steps: int) -> None:
        """Schedules `steps`: in calls of `several` as far as its unrolled steps fit, the rest one by one."""
        times, rest = divmod(steps, self._unrolled)
        if times and steps > 1:
            arguments = (self._iterator, tf.constant(times, tf.int32))
            self._executions.schedule(self._several, arguments, times * self._unrolled)
        else:
            rest = steps
        for _ in range(rest):
            self._executions.schedule(self._single, (self._iterator,), 1)
        if self._records.due and self._has_stepped and not self._is_asked:
            self._is_asked = True
            self._executions.schedule(self._read, (), report=self._tell)

    def _moved(self, steps: int) -> None:
        self._done += steps
        if steps and not self._has_stepped:
            self._has_stepped = True
            self._loop.hooks.stepped()
        self._loop.hooks.alive()

    def _tell(self, value: Any) -> None:
        """Writes a record with the metrics in `value`."""
        self._is_asked = False
        metrics = as_floats(value.fetch())
        self._records.check(metrics)
        self._records.write(self._done, metrics)


def _dataset_function(loop: Loop, given: Any) -> Any:
    """Returns the function that makes a worker's dataset on the worker. `given` is that of the chief."""
    strategy, dataset = loop.strategy, datasets.on_each_worker(loop, given)

    def distributed() -> Any:
        if strategy.num_replicas_in_sync == 1:
            return dataset(None)
        return strategy.distribute_datasets_from_function(dataset)

    return distributed


def _functions(loop: Loop, steps: Steps, unrolled: int) -> tuple[Any, Any]:
    """Returns two functions: `(iterator)` does one step, `(iterator, times)` does `unrolled` steps `times`
    times.

    Neither returns a value. Each round of a loop costs a message to each ps, and unrolled steps cost none.
    """
    strategy = loop.strategy
    sums = Sums(steps.unread_metrics(training=True) if strategy.num_replicas_in_sync == 1 else [])

    def step(iterator: Any, totals: list[Any]) -> list[Any]:
        with sums.collected() as added:
            strategy.run(steps.train, args=(next(iterator),))
        return [total + addend for total, addend in zip(totals, added)]

    def single(iterator: Any) -> None:
        sums.add(step(iterator, sums.zeros()))

    def several(iterator: Any, times: Any) -> None:
        totals = sums.zeros()
        for _ in tf.range(times):
            for _ in range(unrolled):
                totals = step(iterator, totals)
        sums.add(totals)

    return tf.function(single), tf.function(several)


def _learning_rate(model: Any, program: LoadedProgram) -> float | None:
    """Returns the rate where nothing changes it; callbacks might change it."""
    rate = keras_models.learning_rate(model.optimizer)
    return None if program.has("callbacks") or not isinstance(rate, tf.Variable) else float(rate.numpy())


def _unrolled(fixed: int | None) -> int:
    """Returns how many steps are unrolled: a divisor of the number in an execution, if that is given."""
    if fixed is None:
        return _UNROLLED[0]
    return next((number for number in _UNROLLED if fixed % number == 0), 1)
