"""Training by `loss` or `train_step` under the strategies whose replicas take every step together.

The loop is that of TensorFlow's tutorials distribute/custom_training and distribute/multi_worker_with_ctl. It
has the same records, checkpoints and callbacks as `worker/training/fit.py`.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import tensorflow as tf

from worker.checkpoints.model_directory import Position
from worker.cluster.kv_store import by_first_task
from worker.context import Loop
from worker.contract import Training
from worker.input import continuation, datasets
from worker.progress.heartbeat import heartbeat
from worker.progress.records import Records
from worker.steps.choice import steps_of
from worker.steps.iteration import ALL, Iteration
from worker.steps.steps_per_execution import Packing
from worker.tf_compat import keras_models
from worker.training import callbacks, fit
from worker.training.epoch_metrics import EpochMetrics

_EVALUATION_STEPS = 32


def train_together(loop: Loop, model: Any) -> Any:
    """Trains the program's `model` to the last epoch, from the newest checkpoint if there is one. Returns the
    model.
    """
    with datasets.reading(loop):
        return _Synchronous(loop, model).run()


class _Synchronous:
    def __init__(self, loop: Loop, model: Any) -> None:
        parameters, strategy = loop.parameters, loop.strategy
        self._loop = loop
        self._model = model
        loop.hooks.kept.append(self)
        with strategy.scope():
            dataset, self._epoch_steps = datasets.training_dataset(loop)
            datasets.check_is_dataset(loop, dataset)
            fit.build(self._model, dataset, loop)
            self._steps = steps_of(
                loop.program, model, parameters.global_batch_size, dataset.element_spec, self._notice
            )
            loop.hooks.enter("reading the checkpoint")
            notice = loop.hooks.reporter.notice
            position = loop.directory.resume(self._model, notice) if loop.directory else Position()
        self._position = position.within(parameters.epochs, self._epoch_steps)
        self._begun = EpochMetrics(strategy, loop.directory, self._position, self._steps.metrics)
        dataset = continuation.continued(loop, dataset, self._epoch_steps, self._position)
        if self._steps.is_own and self._steps.as_compiled:
            continuation.check_parts(loop)
        self._records = Records(loop.hooks.reporter if loop.writes else None, parameters.epochs)
        loop.hooks.enter("running callbacks()")
        called = callbacks.of_program(loop, model)
        self._tells_batches = self._steps.as_compiled and any(
            keras_models.has_batch_hooks(callback) for callback in called
        )
        packed = self._steps.steps_per_execution(parameters.steps_per_execution)
        if packed is None and self._tells_batches:
            packed = 1
        fixed = {"batches": 1, "epoch": ALL, "steps": packed}
        self._packing = Packing(fixed[parameters.iteration])
        self._agree = by_first_task(strategy, loop.writes)
        self._eagerly = bool(self._model.run_eagerly)
        by_batch, shares = parameters.iteration == "batches", {"with_shares": True, "fill": 1}
        equal = datasets.wants_equal_shapes(loop, self._model, dataset.element_spec)
        by_batch = by_batch or datasets.wants_single_steps(loop, self._model, dataset.element_spec)
        dataset = datasets.served_training(loop, dataset, self._epoch_steps)
        self._checked: Any = None
        if self._steps.is_own:
            # The program's own arithmetic cannot leave filler examples out, so batches cannot be filled to
            # one size.
            by_batch = by_batch or equal
            checked = datasets.refusing_small_batches(loop, dataset)
            self._checked, dataset = None if checked is dataset else checked, checked
        elif equal:
            shares["fill"] = loop.part_size
        self._training = Iteration(
            strategy,
            self._steps.train,
            datasets.distributed_training(loop, dataset, self._epoch_steps, **shares),
            endless=self._epoch_steps is not None,
            by_batch=by_batch,
            eagerly=self._eagerly,
        )
        self._evaluation, self._evaluation_steps = self._evaluating()
        if loop.directory is not None:
            called += fit.saving(loop, model, loop.directory)
        self._callbacks = keras_models.keras_of(model).callbacks.CallbackList(
            called, model=model, epochs=parameters.epochs, steps=self._epoch_steps, verbose=0
        )
        self._has_stepped = False

    def _notice(self, sentence: str) -> None:
        if self._loop.writes:
            self._loop.hooks.reporter.notice(sentence)

    def run(self) -> Any:
        loop, model, epochs = self._loop, self._model, self._loop.parameters.epochs
        if loop.writes:
            loop.hooks.reporter.emit(Training(epochs, self._epoch_steps, initial_epoch=self._position.epochs))
        model.stop_training = False
        self._callbacks.on_train_begin()
        logs: dict[str, float] = {}
        for epoch in range(self._position.epochs, epochs):
            loop.hooks.enter(f"training epoch {epoch + 1}")
            self._callbacks.on_epoch_begin(epoch)
            logs = self._train(epoch)
            if self._evaluation is not None:
                loop.hooks.enter(f"evaluating epoch {epoch + 1}")
                self._callbacks.on_test_begin()
                found = self._evaluate(self._evaluation)
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

    def _train(self, epoch: int) -> dict[str, float]:
        """Trains the rest of `epoch`, from 0. Returns the metrics of its steps."""
        loop, steps, packing = self._loop, self._epoch_steps, self._packing
        done = self._position.steps if epoch == self._position.epochs else 0
        self._reset()
        self._begun.begin()
        self._records.begin(epoch + 1, steps, done)
        if steps is None and epoch > self._position.epochs:
            self._training.restart()
        began = self._iterations() - done
        while steps is None or done < steps:
            loop.hooks.boundary(self._model, epoch, done, self._steps.metrics)
            wanted = packing.steps(ALL if steps is None else steps - done)
            self._callbacks.on_train_batch_begin(done)
            try:
                with self._watched(began):
                    ran = self._execute(wanted)
            except tf.errors.OutOfRangeError as error:
                gone = self._iterations() - began
                # Of a batch that is refused one replica may see the error, and another the end of the data.
                for _ in self._checked.take(gone + 1) if self._checked is not None else ():
                    pass
                raise datasets.ended_early(loop, epoch + 1, gone, steps or gone) from error
            done += ran
            self._begun.stepped()
            if ran:
                self._moved(done)
            if ran < wanted:
                if steps is not None or done == 0:
                    raise datasets.ended_early(loop, epoch + 1, done, steps or 1)
                break
        if not packing.settled:
            packing.epoch_ended()
            packing.agree(*self._agree(packing.number, packing.settled))
        metrics = self._steps.results(training=True)
        self._records.end(done, metrics)
        return metrics

    def _execute(self, wanted: int) -> int:
        """Runs at most `wanted` steps. Returns how many it ran."""
        packing = self._packing
        began = time.monotonic()
        self._last_loss, ran = self._training.run(wanted)
        if not packing.settled:
            float(self._last_loss)  # waits for a GPU
            packing.measured(ran, time.monotonic() - began)
            packing.agree(*self._agree(packing.number, packing.settled))
        return ran

    def _moved(self, done: int) -> None:
        if not self._has_stepped:
            self._has_stepped = True
            self._loop.hooks.stepped()
        self._loop.hooks.alive()
        # All tasks of a collective must read the metrics at the same time, so they are read for hooks only.
        logs = {"loss": self._last_loss} if self._steps.gives_loss else {}
        if self._tells_batches:
            logs = self._steps.results(training=True)
        self._callbacks.on_train_batch_end(done - 1, logs)
        if self._records.due:
            metrics = {name: float(value) for name, value in logs.items()}
            self._records.check(metrics)
            self._records.write(done, metrics)

    def _watched(self, began: int) -> Any:
        """Gives signs of life during an execution of a whole epoch, in which this thread cannot."""
        if self._loop.parameters.iteration != "epoch":
            return contextlib.nullcontext()

        def moved(iterations: int) -> None:
            self._loop.hooks.alive()
            self._records.write(iterations - began, {})

        return heartbeat(self._iterations, moved)

    def _iterations(self) -> int:
        """Returns the optimizer's iterations, read from this task's first replica."""
        variable = keras_models.tf_variable(self._model.optimizer.iterations)
        return int(self._loop.strategy.experimental_local_results(variable)[0])

    def _evaluating(self) -> tuple[Iteration | None, int]:
        """Returns the iteration that evaluates, and its number of steps."""
        loop, strategy = self._loop, self._loop.strategy
        if not (loop.validates and loop.program.has("evaluation_dataset")):
            return None, 0
        with strategy.scope():
            dataset, steps = datasets.evaluation_dataset(loop)
            distributed = datasets.distributed_evaluation(loop, dataset, with_shares=True, fill=1)

        def step(batch: Any, share: Any) -> Any:
            self._steps.evaluate(batch, share)
            return tf.constant(0.0)

        return Iteration(strategy, step, distributed, endless=True, eagerly=self._eagerly), steps

    def _evaluate(self, evaluation: Iteration) -> dict[str, float]:
        self._reset()
        is_packed = self._loop.parameters.iteration == "steps"
        wanted = self._packing.number if is_packed else _EVALUATION_STEPS
        left = self._evaluation_steps
        while left:
            _, ran = evaluation.run(min(wanted, left))
            left -= ran
            self._loop.hooks.alive()
        return self._steps.results()

    def _reset(self) -> None:
        with self._loop.strategy.scope():
            self._steps.reset()
