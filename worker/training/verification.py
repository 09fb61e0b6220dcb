"""Notes what a training does that is compared with another one: see `RunConfig.verification`.

Each `fit` of a script, or the program's training, leaves one file in its model directory, which
`worker.comparison` reads: the weights before the first step, after it and after the last one, the results
after each step, and how often each example was seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from worker.comparison import BEGIN, FILE, FIRST, LAST
from worker.context import Loop
from worker.contract.run_config import Verification
from worker.failures import place
from worker.steps.examples_seen import ExamplesSeen
from worker.tf_compat import graphs, keras_models, layer_kinds, replaced_methods
from worker.tf_compat.strategies import uses_coordinator
from worker.training.epoch_metrics import variables_of
from worker.training.variable_sizes import of_optimizer

_ROUNDING = 2.0**-22
_LAYERS = {
    Verification.RANDOM: (layer_kinds.random_layers, layer_kinds.leave_out_randomness),
    Verification.STATISTICS: (layer_kinds.by_replica_statistics, layer_kinds.synchronize),
}


class Recorder:
    """Has a training take a few steps, and notes them. `loop` is the training's loop for that."""

    def __init__(self, loop: Loop, wanted: Verification) -> None:
        self._given, self._wanted = loop, wanted
        # Two workers of a coordinator take their steps in any order, and may take one at a time only.
        self._in_order = not uses_coordinator(loop.strategy) or loop.workers == 1
        self._arrays: dict[str, Any] = {}
        self._results: list[dict[str, list[float]]] = []
        self._examples: list[int] = []
        self._layers: dict[str, list[str]] = {}
        self._begun = 0
        """The optimizer's steps before the first one here."""
        self._drawn, self._clipped = "", ""
        """Where a step draws random numbers, and clips its gradients by the norm of all of them."""
        parameters, program = loop.parameters, loop.program
        steps = wanted.steps
        if parameters.steps_per_epoch is not None:
            steps = min(steps, parameters.steps_per_epoch * parameters.epochs)
        self._evaluation = program.evaluation_dataset
        replaced_methods.replace(program, evaluation_dataset=lambda size: self._evaluation(size).take(steps))
        self.loop = replace(
            loop,
            parameters=replace(
                parameters,
                epochs=parameters.initial_epoch + 1,
                steps_per_epoch=steps,
                steps_per_execution=1,
                iteration="steps",
                validation_freq=1,
            ),
            hooks=replace(
                loop.hooks, built=self._built, boundary=self._boundary, epoch_ended=self._epoch_ended
            ),
        )

    def _built(self, steps: Any) -> None:
        """Is called under the strategy's scope."""
        loop = self._given
        self._model = model = steps.model
        for kind, (find, leave_out) in _LAYERS.items():
            layers = find(model)
            if kind in self._wanted.without:
                for layer in layers:
                    leave_out(layer)
            else:
                self._layers[kind] = [each.name for each in layers]
        if self._wanted.perturbed:
            _perturb(model.trainable_variables)
        self._seen = seen = ExamplesSeen(apart=not uses_coordinator(loop.strategy))
        original = steps.train

        def train(batch: Any, share: Any = None) -> Any:
            seen.add(batch, share)
            part = original(batch, share)
            self._drawn = self._drawn or _line(loop.program.roots, _draws)
            self._clipped = self._clipped or _line(loop.program.roots, _clips)
            return part

        steps.train = train

    def _boundary(
        self,
        model: Any,
        epoch: int,
        step: int,
        metrics: Callable[[], Iterable[Any]],
        settle: Callable[[], object] | None = None,
    ) -> None:
        self._given.hooks.boundary(model, epoch, step, metrics, settle)
        if step and not self._in_order:
            return
        if settle is not None:
            settle()
        if step:
            self._count()
            values = {name: _value(each) for name, each in variables_of(metrics()).items()}
            self._results.append({name: value.ravel().tolist() for name, value in values.items()})
        else:
            self._begun = self._iterations()
        if step < len((BEGIN, FIRST)):
            self._note((BEGIN, FIRST)[step])

    def _epoch_ended(self, model: Any, epoch: int, results: Mapping[str, float], is_last: bool) -> None:
        self._note(LAST)
        self._arrays["seen"] = self._count()
        loop, variables, directory = self._given, self._variables(), self._given.directory
        if not loop.writes or directory is None:
            return
        document = {
            "where": loop.program.entrypoint,
            "kinds": [kind for kind, _ in variables],
            # Not by getattr(): a variable that is spread over the tasks would be added up, by this one alone.
            "names": [each.path if keras_models.is_keras_3(each) else each.name for _, each in variables],
            "replicas": loop.strategy.num_replicas_in_sync,
            "in_order": self._in_order,
            "steps": self._iterations() - self._begun,
            "examples": self._examples,
            "steps_results": self._results,
            "results": {name: float(value) for name, value in results.items()},
            "layers": self._layers,
            "drawn": self._drawn,
            "clipped": self._clipped,
            "half": layer_kinds.computes_in_half(model),
            "data": _facts(loop.program.datasets[0]),  # that of the training
        }
        path = Path(directory.root) / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.savez(file, document=np.array(json.dumps(document)), **self._arrays)

    def _iterations(self) -> int:
        return int(_value(self._model.optimizer.iterations))

    def _count(self) -> Any:
        seen = _value(self._seen.counts)
        self._examples.append(int(seen.sum()))
        return seen

    def _variables(self) -> list[tuple[str, Any]]:
        """Returns what is compared, in the model's order: what is trained, the rest of the weights, and what
        optimizers keep.
        """
        model = self._model
        trained = {id(each) for each in model.trainable_weights}
        variables = [
            ("trained" if id(each) in trained else "weight", each)
            for each in keras_models.without_tables(model.weights)
        ]
        optimizers = {
            id(each): each for each in (model.optimizer, *keras_models.optimizers_of(model).values())
        }
        for optimizer in optimizers.values():
            variables += [("optimizer", each) for each in of_optimizer(optimizer)]
        return [(kind, each) for kind, each in variables if tf.as_dtype(each.dtype).is_floating]

    def _note(self, moment: str) -> None:
        """Every task of a collective must call it, since it adds up what is spread over them."""
        for number, (_, variable) in enumerate(self._variables()):
            value = _value(variable)
            if self._given.writes:
                self._arrays[f"{moment}-{number}"] = value


def _value(variable: Any) -> Any:
    value = tf.convert_to_tensor(keras_models.tf_variable(variable))
    if value.dtype.is_floating:
        value = tf.cast(value, tf.float64 if value.dtype == tf.float64 else tf.float32)
    return value.numpy()


def _perturb(variables: Iterable[Any]) -> None:
    random = np.random.RandomState(0)
    for variable in variables:
        value = _value(variable)
        variable.assign(value * (1 + _ROUNDING * random.choice([-1, 1], value.shape)))


def _line(roots: list[Path], does: Callable[[tf.Operation], bool]) -> str:
    """Returns the user's line of the first operation, of the step that is being traced, which `does` it; ""
    where none does.
    """
    if tf.executing_eagerly():
        return ""
    for operation in tf.compat.v1.get_default_graph().get_operations():
        if does(operation):
            return place(graphs.frames_of_operation(operation), roots) or "its layers"
    return ""


def _draws(operation: tf.Operation) -> bool:
    return "Random" in operation.type


def _clips(operation: tf.Operation) -> bool:
    """By TensorFlow's function, and not by an optimizer, which gets the whole gradients."""
    if "clip_by_global_norm/" not in operation.name:
        return False
    return not any("optimizer" in each.filename for each in graphs.frames_of_operation(operation))


def _facts(dataset: Any) -> list[str]:
    """Returns what may have the tasks read other examples than one process does."""
    if not isinstance(dataset, tf.data.Dataset):
        return []
    facts = ["shard"] if "_ShardDataset" in graphs.transformations(dataset) else []
    draws = any("Random" in kind for kind in graphs.operation_types(dataset))
    return [*facts, "random"] if draws else facts
