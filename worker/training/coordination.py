"""Training under ParameterServer: the workers run what the chief schedules.

The steps are scheduled as in https://www.tensorflow.org/tutorials/distribute/parameter_server_training, with
several steps in an execution, which returns no value, and a limited number of executions scheduled ahead.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import tensorflow as tf

from worker.context import Loop
from worker.evaluation import scoring
from worker.evaluation.scoring import Scorer
from worker.input import chief_reader, datasets
from worker.program import LoadedProgram
from worker.reporting import as_floats
from worker.steps.metric_sums import Sums
from worker.steps.step import Steps
from worker.steps.steps_per_execution import Packing
from worker.steps.variable_exchange import Together
from worker.tf_compat import keras_models
from worker.training.callbacks import saves_by_step
from worker.training.executor import Work

_EXECUTIONS_PER_WORKER = 4
_MEASURED_PER_WORKER = 2
_UNROLLED = (4, 5, 3, 2)


class Coordination:
    """Takes the steps of `work` with the program's training `dataset`: see `executor.Executor`."""

    def __init__(self, work: Work, dataset: Any) -> None:
        loop, model, steps = work.loop, work.model, work.steps
        self._work = work
        self._loop = loop
        self._epoch_steps = work.epoch_steps
        self._done = 0
        if model.run_eagerly:
            loop.notice(
                "model.compile(run_eagerly=True) has no meaning under ParameterServer: workers run graphs"
            )
        self._executions = executions = loop.executions(self._moved)
        batches = chief_reader.training_data(loop, dataset, work.epoch_steps, work.position, executions)
        packed = steps.steps_per_execution(loop.parameters.steps_per_execution) if batches is None else 1
        if packed is None and work.by_batch:
            packed = 1
        self._packing = Packing(packed)
        self._is_packed = packed is None
        if loop.strategy.num_replicas_in_sync == 1:
            steps.exchange = Together(_learning_rate(model, loop.program))
        self._unrolled = _unrolled(packed)
        self._functions = _Functions(loop, steps, self._unrolled)
        self._read = tf.function(partial(steps.results_in_graph, True))
        self._batches = batches
        if batches is not None:
            self._iterator = iter(batches)
            # Not one function for all: see `variable_exchange.Together` on the first trace.
            self._of_batch = [self._functions.of_batch(batches.element_spec) for _ in range(2)]
        else:
            self._iterator = iter(
                executions.coordinator.create_per_worker_dataset(_dataset_function(work, dataset))
            )
        self._scorer = scoring.between_epochs(loop, steps, work.position, executions)
        # With hooks for every batch those that save are called after every step, too.
        self._saving = [
            each for each in work.callbacks.callbacks if saves_by_step(each) and not work.by_batch
        ]
        loop.hooks.times.examples_per_step = loop.parameters.global_batch_size
        self._has_stepped = self._is_asked = self._is_warm = False
        loop.hooks.coordinates()

    @property
    def scorer(self) -> Scorer | None:
        """See `executor.Executor`."""
        return self._scorer

    def train(self, epoch: int, done: int) -> int:
        """See `executor.Executor`."""
        work = self._work
        self._done = step = done
        while step < self._epoch_steps and not work.model.stop_training:
            # The first step has a trace of its own, which shows how the unrolled steps must be traced.
            left = self._until_saved(epoch, step)
            steps = self._packing.steps(min(self._most, left)) if self._has_stepped else 1
            work.boundary(epoch, step, self._executions.join)
            if work.by_batch:
                work.callbacks.on_train_batch_begin(step)
            if self._packing.settled or not self._has_stepped:
                self._schedule(epoch, steps)
                left, step = left - steps, step + steps
                if not self._has_stepped:
                    self._executions.join()
                    work.begun.stepped()
            else:
                taken = self._measure(epoch, steps, left)
                left, step = left - taken, step + taken
            if work.by_batch:
                self._executions.join()
                work.callbacks.on_train_batch_end(step - 1, work.steps.results(training=True))
            if not left and self._saving:
                self._executions.join()
                logs = work.steps.results(training=True)
                for callback in self._saving:
                    callback.on_train_batch_end(step - 1, logs)
        self._executions.join()
        if not self._packing.settled:
            self._packing.epoch_ended()
            self._bound()
        return step

    def _until_saved(self, epoch: int, step: int) -> int:
        """Returns how many steps there are from `step` to the next save of a callback, or the epoch's end."""
        taken = epoch * self._epoch_steps + step
        due: list[int] = [each.save_freq - taken % each.save_freq for each in self._saving]
        return min([self._epoch_steps - step, *due])

    def _measure(self, epoch: int, steps: int, left: int) -> int:
        """Has each worker run executions of `steps`, and measures them. Returns the number of steps."""
        count = _MEASURED_PER_WORKER * self._loop.workers
        if count * steps > left:
            self._schedule(epoch, steps)
            return steps
        if steps >= self._unrolled and not self._is_warm:
            # `several` is traced here, and loaded by each worker. That takes seconds, which must not count as
            # its time.
            self._is_warm = True
            for _ in range(count):
                self._schedule(epoch, steps)
            self._executions.join()
            return count * steps
        began = time.monotonic()
        for _ in range(count):
            self._schedule(epoch, steps)
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

    def _schedule(self, epoch: int, steps: int) -> None:
        """Schedules `steps`: in calls of `several` as far as its unrolled steps fit, the rest one by one."""
        times, rest = divmod(steps, self._unrolled)
        if self._batches is not None:
            times, rest = 0, steps
        if times and steps > 1:
            arguments = (self._iterator, tf.constant(times, tf.int32))
            self._executions.schedule(self._functions.several, arguments, times * self._unrolled)
        else:
            rest = steps
        for _ in range(rest):
            if self._batches is None:
                self._executions.schedule(self._functions.single, (self._iterator,), 1)
            else:
                batch = self._next_batch(epoch)
                self._executions.schedule(self._of_batch[self._has_stepped], (batch,), 1)
        if self._work.records.due and self._has_stepped and not self._is_asked:
            self._is_asked = True
            self._executions.schedule(self._read, (), report=self._tell)

    def _next_batch(self, epoch: int) -> Any:
        """Returns the next batch that the chief reads."""
        for batch in self._iterator:
            return batch
        self._executions.join()
        raise datasets.ended_early(self._loop, epoch + 1, self._done, self._epoch_steps)

    def _moved(self, steps: int) -> None:
        self._done += steps
        self._loop.hooks.times.count(steps)
        if steps and not self._has_stepped:
            self._has_stepped = True
            self._loop.hooks.stepped()
        self._loop.hooks.alive()

    def _tell(self, value: Any) -> None:
        """Writes a record with the metrics in `value`."""
        self._is_asked = False
        metrics = as_floats(value.fetch())
        self._work.check(self._done, metrics)
        self._work.records.write(self._done, metrics)


def _dataset_function(work: Work, given: Any) -> Any:
    """Returns the function that makes a worker's dataset on the worker. `given` is that of the chief, or a
    DatasetCreator.
    """
    strategy = work.loop.strategy
    dataset = datasets.on_each_worker(work.loop, given, work.epoch_steps, work.position)

    def distributed() -> Any:
        if strategy.num_replicas_in_sync == 1:
            return dataset(tf.distribute.InputContext())
        return strategy.distribute_datasets_from_function(dataset)

    return distributed


class _Functions:
    """What workers run: `single(iterator)` does one step, `several(iterator, times)` does `unrolled` steps
    `times` times.

    None returns a value. Each round of a loop costs a message to each ps, and unrolled steps cost none.
    """

    def __init__(self, loop: Loop, steps: Steps, unrolled: int) -> None:
        self._strategy = loop.strategy
        self._train = steps.train
        self._unrolled = unrolled
        alone = loop.strategy.num_replicas_in_sync == 1
        self._sums = Sums(steps.unread_metrics(training=True) if alone else [])
        self.single = tf.function(self._single)
        self.several = tf.function(self._several)

    def of_batch(self, element: Any) -> Any:
        """Returns a new function that does one step with a batch of this `element_spec`."""
        return tf.function(self._one, input_signature=[element])

    def _single(self, iterator: Any) -> None:
        self._one(next(iterator))

    def _one(self, batch: Any) -> None:
        self._sums.add(self._step(batch, self._sums.zeros()))

    def _several(self, iterator: Any, times: Any) -> None:
        totals = self._sums.zeros()
        for _ in tf.range(times):
            for _ in range(self._unrolled):
                totals = self._step(next(iterator), totals)
        self._sums.add(totals)

    def _step(self, batch: Any, totals: list[Any]) -> list[Any]:
        with self._sums.collected() as added:
            self._strategy.run(self._train, args=(batch,))
        return [total + addend for total, addend in zip(totals, added)]


def _learning_rate(model: Any, program: LoadedProgram) -> float | None:
    """Returns the rate where nothing changes it; callbacks might change it."""
    return None if program.has("callbacks") else keras_models.constant_rate(model.optimizer)


def _unrolled(fixed: int | None) -> int:
    """Returns how many steps are unrolled: a divisor of the number in an execution, if that is given."""
    if fixed is None:
        return _UNROLLED[0]
    return next((number for number in _UNROLLED if fixed % number == 0), 1)
