"""Training under the strategies whose replicas take every step together.

The steps are taken as in TensorFlow's tutorials distribute/custom_training and
distribute/multi_worker_with_ctl.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import tensorflow as tf

from worker.collective.kv_store import by_first_task
from worker.evaluation import scoring
from worker.evaluation.scoring import Scorer
from worker.input import continuation, datasets
from worker.input.row_lookups import has_losses
from worker.progress.heartbeat import heartbeat
from worker.reporting import as_floats
from worker.steps.iteration import ALL, Iteration
from worker.steps.steps_per_execution import Packing
from worker.tf_compat import keras_models
from worker.tf_compat.strategies import worker_count
from worker.training.executor import Work


class Replicas:
    """Takes the steps of `work` with the program's training `dataset`: see `executor.Executor`."""

    def __init__(self, work: Work, dataset: Any) -> None:
        loop, steps, parameters = work.loop, work.steps, work.loop.parameters
        self._work = work
        self._data = dataset
        dataset = continuation.continued(loop, dataset, work.epoch_steps, work.position)
        if steps.is_own and steps.as_compiled:
            continuation.check_parts(loop)
        packed = steps.steps_per_execution(parameters.steps_per_execution)
        if packed is None and work.by_batch:
            packed = 1
        fixed = {"batches": 1, "epoch": ALL, "steps": packed}
        self._packing = Packing(fixed[parameters.iteration])
        self._agree = by_first_task(loop.strategy, loop.writes)
        element = dataset.element_spec
        shares = {"with_shares": True, "fill": 1}
        equal = datasets.wants_equal_shapes(loop, work.model, element)
        by_batch = parameters.iteration == "batches"
        by_batch = by_batch or datasets.wants_single_steps(loop, work.model, element)
        dataset = datasets.served_training(loop, dataset, work.epoch_steps, work.position)
        self._checked: Any = None
        if steps.is_own:
            # The program's own arithmetic cannot leave filler examples out, so batches cannot be filled to
            # one size.
            by_batch = by_batch or equal
            checked = datasets.refusing_small_batches(loop, dataset)
            self._checked, dataset = None if checked is dataset else checked, checked
        elif equal and has_losses(loop, work.model, element):
            by_batch = True  # they would count the filler examples
        elif equal:
            shares["fill"] = loop.part_size
        eagerly = bool(work.model.run_eagerly)
        self._training = Iteration(
            loop.strategy,
            steps.train,
            datasets.distributed_training(loop, dataset, **shares),
            by_batch=by_batch,
            eagerly=eagerly,
        )
        is_packed = parameters.iteration == "steps"
        self._scorer = scoring.between_epochs(
            loop, steps, work.position, packed=(lambda: self._packing.number) if is_packed else None
        )
        self._has_stepped = False
        loop.hooks.times.examples_per_step = parameters.global_batch_size / worker_count(loop.strategy)

    @property
    def scorer(self) -> Scorer | None:
        """See `executor.Executor`."""
        return self._scorer

    def train(self, epoch: int, done: int) -> int:
        """See `executor.Executor`."""
        work, loop, steps, packing = self._work, self._work.loop, self._work.epoch_steps, self._packing
        began, times = self._iterations() - done, loop.hooks.times
        times.begin()
        while done < steps:
            work.boundary(epoch, done)
            wanted = packing.steps(steps - done)
            work.callbacks.on_train_batch_begin(done)
            try:
                with self._watched(began):
                    ran, waits = self._execute(wanted)
            except tf.errors.OutOfRangeError as error:
                gone = self._iterations() - began
                if gone <= 1 and not self._has_data():
                    gone = 0  # TensorFlow may count the step that found no data
                # Of a batch that is refused one replica may see the error, and another the end of the data.
                for _ in self._checked.take(gone + 1) if self._checked is not None else ():
                    pass
                raise datasets.ended_early(loop, epoch + 1, gone, steps) from error
            done += ran
            work.begun.stepped()
            if not self._has_stepped:
                with loop.strategy.scope():
                    work.steps.advise_of_replicas(self._data.element_spec)
            has_traced = self._has_stepped
            if ran:
                self._moved(done)
            if has_traced:
                times.took(ran, waits)
            else:
                times.begin()
            if ran < wanted:
                raise datasets.ended_early(loop, epoch + 1, done, steps)
            if work.model.stop_training:  # by a callback's hook for batches
                break
        if not packing.settled:
            packing.epoch_ended()
            packing.agree(*self._agree(packing.number, packing.settled))
        return done

    def _has_data(self) -> bool:
        """Returns whether the program's dataset has an element, read anew."""
        return next(iter(self._data.take(1)), None) is not None

    def _execute(self, wanted: int) -> tuple[int, tuple[float, float]]:
        """Runs at most `wanted` steps. Returns how many it ran, and their waits."""
        packing = self._packing
        began = time.monotonic()
        self._last_loss, ran, waits = self._training.run(wanted)
        if not packing.settled:
            float(self._last_loss)  # waits for a GPU
            packing.measured(ran, time.monotonic() - began)
            packing.agree(*self._agree(packing.number, packing.settled))
        return ran, waits

    def _moved(self, done: int) -> None:
        if not self._has_stepped:
            self._has_stepped = True
            self._work.loop.hooks.stepped()
        self._work.loop.hooks.alive()
        # All tasks of a collective must read the metrics at the same time, so they are read for hooks only.
        logs = {"loss": self._last_loss} if self._work.steps.gives_loss else {}
        if self._work.by_batch:
            logs = self._work.steps.results(training=True)
        self._work.callbacks.on_train_batch_end(done - 1, logs)
        if self._work.by_batch:
            self._work.agree_to_stop()
        if self._work.records.due:
            began = time.monotonic()
            float(self._last_loss)
            self._work.loop.hooks.times.read(time.monotonic() - began)
            if self._work.loop.workers == 1 and not self._work.by_batch:
                logs = self._work.steps.results(training=True)
            metrics = as_floats(logs)
            # When a record is due each task decides by its own clock: here no callback may stop the training.
            self._work.records.check(metrics)
            self._work.records.write(done, metrics)

    def _watched(self, began: int) -> Any:
        """Gives signs of life during an execution of a whole epoch, in which this thread cannot."""
        if self._work.loop.parameters.iteration != "epoch":
            return contextlib.nullcontext()

        def moved(iterations: int) -> None:
            self._work.loop.hooks.alive()
            self._work.records.write(iterations - began, {})

        return heartbeat(self._iterations, moved)

    def _iterations(self) -> int:
        """Returns the optimizer's iterations, read from this task's first replica."""
        variable = keras_models.tf_variable(self._work.model.optimizer.iterations)
        return int(self._work.loop.strategy.experimental_local_results(variable)[0])
