"""The door through which a script's calls of its Keras models come: each is carried out by the runtime."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from worker.context import Loop
from worker.contract.notebook_lines import NOTEBOOK
from worker.evaluation import standalone
from worker.failures import Failure, place, program_error
from worker.input import continuation, fit_iterations, replica_shares, used_shuffle_orders
from worker.input.fit_iterations import Scored
from worker.input.seeding import in_order
from worker.prediction.forward_pass import ForwardPass
from worker.script import data, fit
from worker.script.by_batch import ByBatch
from worker.script.fit_records import FitRecords
from worker.script.given_program import GivenProgram, in_words_of_a_script
from worker.steps import model_build, statistics
from worker.steps.replica_model import mend_keras_2
from worker.tf_compat import keras_3, keras_calls, keras_models, seeds, strategies
from worker.tf_compat.strategies import uses_coordinator
from worker.training.fitting import Fitting


class Door:
    """Carries out the calls of one process. `name` is the script's, `roots` are the user's files, and `kind`
    is what a call of `fit` does.
    """

    def __init__(
        self, fitting: Fitting, name: str, roots: Sequence[Path], kind: Callable[..., fit.Fit]
    ) -> None:
        self._fitting = fitting
        self._strategy = fitting.strategy
        self._name = name
        self.roots = list(roots)
        directory = fitting.directory
        self._parameters = fitting.parameters
        self._records = FitRecords(None if directory is None else directory.files, fitting.writes)
        self._kind = kind
        self.fits = 0
        self.steps = 0
        """How many times the script has called train_on_batch()."""
        self._by_batch: dict[Any, tuple[Any, ByBatch]] = {}
        self._passes: dict[Any, tuple[Any, ForwardPass]] = {}
        """What is traced for a model, which they keep, as it is compiled."""
        self._scope: Any = None
        self._calls = 0
        """How many of the script's calls are carried out now, one within the other."""
        self._looks: set[tuple[tuple[str, int | None], ...]] = set()
        """From where the script has asked for gradients, to look at them."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Has the strategy be the script's in the block, and the calls come here."""
        keras_3.mend(self._strategy, replica_shares.part, replica_shares.over_replicas)
        calls: dict[str, keras_calls.Call] = {
            "fit": self._fit,
            "evaluate": self._evaluate,
            "predict": self._predict,
            "train_on_batch": partial(self._on_batch, "train_on_batch"),
            "test_on_batch": partial(self._on_batch, "test_on_batch"),
            "predict_on_batch": self._predict_on_batch,
        }
        keras_calls.replace(calls)
        keras_calls.on_foreign_strategy(self._refuse_strategy)
        if self._is_spread:
            keras_calls.on_gradients(self._check_gradients, self._check_step)
        keras_calls.save_where_told(self._strategy)
        keras_calls.save_at_once()
        keras_calls.call_loaded_functions()
        keras_calls.keep_losses_whole()
        statistics.average(self._strategy)
        mend_keras_2()  # a model is built by its own step before it is trained
        keras_calls.on_new_graph(self._outside)
        seeds.seed_all()
        self._scope = strategies.scope(self._strategy)
        self._scope.__enter__()
        try:
            used_shuffle_orders.count(lambda: not self._calls, self._due)
            with (
                seeds.imports_draw(),
                contextlib.nullcontext() if uses_coordinator(self._strategy) else in_order(),
            ):
                yield
        finally:
            self._scope.__exit__(None, None, None)

    @contextlib.contextmanager
    def _within(self) -> Iterator[str]:
        """Leaves the strategy's scope for a call, as the loop expects. Yields the script's line."""
        where = self._here()
        is_script_s = tf.distribute.has_strategy()  # and not a callback's
        self._calls += 1
        try:
            with self._outside():
                yield where
        except Failure as failure:
            failure.message = in_words_of_a_script(failure.message)
            raise
        finally:
            self._calls -= 1
        if is_script_s:
            self._fitting.idle()

    @contextlib.contextmanager
    def _outside(self) -> Iterator[None]:
        """Leaves the strategy's scope for the block, where it is entered."""
        if not tf.distribute.has_strategy():
            yield
            return
        self._scope.__exit__(None, None, None)
        try:
            yield
        finally:
            self._scope = strategies.scope(self._strategy)
            self._scope.__enter__()

    def _due(self, dataset: Any) -> Any:
        return continuation.due(dataset, self._strategy)

    def _orders(self, model: Any, of: data.Data) -> fit_iterations.Orders:
        """Returns those of one evaluation or prediction."""
        drawn = used_shuffle_orders.of(of.dataset)
        scored = of.scored or Scored(of.dataset, None, tf.data.UNKNOWN_CARDINALITY)
        at = fit_iterations.of_scoring(scored, drawn, keras_3=keras_models.is_keras_3(model))
        return fit_iterations.Orders(None, [at], drawn)

    def _fit(self, model: Any, given: dict[str, Any]) -> Any:
        with self._within() as where:
            self.fits += 1
            training = data.training(model, given, self.fits, where, self._fitting.notice)
            evaluation = data.validation(model, given, training.validation, where)
            program = GivenProgram(
                model,
                "fit",
                where,
                self.roots,
                training=training.dataset,
                evaluation=None if evaluation is None else evaluation.dataset,
                scored=None if evaluation is None else evaluation.scored,
                counts_end=data.counts_end(model, given, training.dataset),
                callbacks=_listed(model, given["callbacks"]),
            )
            parameters = replace(
                self._parameters,
                epochs=given["epochs"],
                initial_epoch=given["initial_epoch"],
                steps_per_epoch=data.epoch_steps(model, given, training.dataset, where, self._fitting.notice),
                validation_freq=given["validation_freq"],
                global_batch_size=training.batch_size,
                has_size=training.has_size,
            )
            with keras_models.trainable_as_compiled(model):
                return self._kind(self._fitting, self._records, program, parameters, self.fits).run()

    def _evaluate(self, model: Any, given: dict[str, Any]) -> Any:
        with self._within() as where:
            parts = given["x"], given["y"], given["sample_weight"]
            of = data.evaluation(model, parts, given["batch_size"], given["steps"], f"{where}: evaluate()")
            program = GivenProgram(model, "evaluate", where, self.roots, evaluation=of.dataset)
            program.orders = orders = self._orders(model, of)
            parameters = replace(self._parameters, global_batch_size=of.batch_size)
            loop = self._fitting.loop(program, parameters)
            called = _listed(model, given["callbacks"])
            results = standalone.score(loop, program.model(), callbacks=called)
            used_shuffle_orders.use(orders.end, of.dataset)
        return keras_calls.returned(model, results, as_dict=given["return_dict"])

    def _predict(self, model: Any, given: dict[str, Any]) -> Any:
        with self._within() as where:
            parts, call = (given["x"],), f"{where}: predict()"
            of = data.evaluation(model, parts, given["batch_size"], given["steps"], call)
            program = GivenProgram(model, "predict", where, self.roots, evaluation=of.dataset)
            loop = self._fitting.loop(program, replace(self._parameters, global_batch_size=of.batch_size))
            loop.hooks.enter("predicting")
            called = keras_models.callback_list(model, _listed(model, given["callbacks"]))
            called.on_predict_begin()
            predictions = []
            orders = self._orders(model, of)
            due = continuation.due(of.dataset, self._strategy, orders.evaluation[0])
            for number, batch in enumerate(due):
                called.on_predict_batch_begin(number)
                predictions.append(self._predicted(loop, model, batch, of.dataset.element_spec))
                called.on_predict_batch_end(number, {"outputs": predictions[-1]})
                loop.hooks.alive()
            called.on_predict_end()
            used_shuffle_orders.use(orders.end, of.dataset)
            if not predictions:
                raise program_error(f"{call} was given no data")
            return tf.nest.map_structure(lambda *outputs: np.concatenate(outputs), *predictions)

    def _on_batch(self, method: str, model: Any, given: dict[str, Any]) -> Any:
        with self._within() as where:
            batch, element = data.batch(model, given, f"{where}: {method}()")
            with keras_models.trainable_as_compiled(model):
                results = self._steps_of(model, method, where, element).results(
                    batch, training=method == "train_on_batch", resets=given.get("reset_metrics", True)
                )
            self.steps += method == "train_on_batch"
        return keras_calls.returned(model, results, as_dict=given["return_dict"])

    def _steps_of(self, model: Any, method: str, where: str, element: Any) -> ByBatch:
        program = GivenProgram(model, method, where, self.roots)
        key = id(program.model()), id(keras_models.compilation(model))
        if key not in self._by_batch:
            loop = self._fitting.loop(program, self._parameters)
            kept = model, keras_models.compilation(model)
            self._by_batch[key] = kept, ByBatch(loop, element, method)
        return self._by_batch[key][1]

    def _predict_on_batch(self, model: Any, given: dict[str, Any]) -> Any:
        with self._within() as where:
            batch, element = data.batch(model, given, f"{where}: predict_on_batch()")
            program = GivenProgram(model, "predict", where, self.roots)
            return self._predicted(self._fitting.loop(program, self._parameters), model, batch, element)

    def _predicted(self, loop: Loop, model: Any, batch: Any, element: Any) -> Any:
        """Returns the predictions for a `batch` with this spec as arrays of numpy, in its order."""
        features = element[0] if isinstance(element, tuple) else element
        compiled = keras_models.compilation(model)
        key = id(model), id(compiled), repr(features)
        if key not in self._passes:
            with loop.strategy.scope():
                model_build.build(model, (features,), loop.program.entrypoint)
                self._passes[key] = (model, compiled), ForwardPass(loop.strategy, model, features)
        outputs = self._passes[key][1].function(batch[0] if isinstance(batch, tuple) else batch)
        return tf.nest.map_structure(lambda output: output.numpy(), outputs)

    @property
    def _is_spread(self) -> bool:
        """Returns whether other replicas than this process' one take part in a step."""
        return self._strategy.num_replicas_in_sync > 1 or uses_coordinator(self._strategy)

    def _here(self) -> str:
        return place(traceback.extract_stack(), self.roots) or self._name

    def _check_gradients(self) -> None:
        """Raises Failure where they are those of a loop: asked for a second time from the same lines, or by a
        graph, which may run again.
        """
        lines = tuple((each.filename, each.lineno) for each in traceback.extract_stack())
        if not tf.executing_eagerly() or lines in self._looks:
            self._check_step()
        self._looks.add(lines)

    def _check_step(self) -> None:
        """Raises Failure where a step is none of the loop's."""
        if tf.distribute.in_cross_replica_context():
            raise program_error(
                f"{self._here()}: the script has a loop of its own, whose gradients no other replica would "
                "see: put the step into train_step() of a keras.Model and call fit(), or build the strategy "
                f"in the script, too, and {self._run_by_args()}"
            )

    def _refuse_strategy(self) -> NoReturn:
        raise program_error(
            f"{self._here()}: the script builds a strategy, and is given that of spec.strategy: leave it "
            f"out, or {self._run_by_args()}"
        )

    def _run_by_args(self) -> str:
        """Returns what to do with a script that is its own."""
        notebook = self._name.removesuffix(".py")
        name, way = self._name, "run it by"
        if notebook.endswith(NOTEBOOK):
            name = f"{notebook.removesuffix(NOTEBOOK)}.py"
            way = f"save it with `jupyter nbconvert --to script {notebook}`, and run that by"
        return f"{way} args: [--, {name}] in the place of program.script"


def _listed(model: Any, callbacks: Any) -> list[Any]:
    """Returns a list of its own of what Keras takes for callbacks: one, a list, or its CallbackList."""
    if callbacks is None:
        return []
    given = keras_models.keras_of(model).callbacks
    if isinstance(callbacks, given.Callback):
        return [callbacks]
    return list(callbacks.callbacks if isinstance(callbacks, given.CallbackList) else callbacks)
