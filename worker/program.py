"""The user's program: the methods that it may define, how it is loaded, and how it is checked."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from worker.contract.program_methods import OPTIONAL, REQUIRED, SIGNATURES, argument_count
from worker.failures import Failure, program_error


class Program(Protocol):
    """What `spec.program.entrypoint` makes when it is called with `spec.program.parameters`.

    `model` and `train_dataset` are required, the rest is optional. The model is of Keras 2 (tf_keras) or of
    Keras 3 (keras): the runtime sees which. `tf.keras` is tf_keras, or Keras 3 where `spec.program.keras`
    says so.
    """

    def model(self) -> Any:
        """A compiled `tf.keras.Model` or `keras.Model`. Called under the strategy's scope before the data,
        and again for evaluation and export, so it must give the same architecture every time.
        """

    def train_dataset(self, batch_size: int) -> Any:
        """A `tf.data.Dataset` of `(features, labels)` or `(features, labels, sample_weights)`, batched:
        each tensor is `[batch_size, ...]`, the GLOBAL size, which the runtime shares out over the replicas.
        It may be infinite; one that ends is repeated. With ParameterServer every worker runs its own copy of
        the pipeline, which is sent to it: shuffle it without a seed. With a compiled model of Keras 2
        it may be a `tf.keras.utils.experimental.DatasetCreator`. It may be what Keras' fit takes, too:
        arrays, or a tuple (features, labels) or (features, labels, sample_weights) of them, which are
        batched, and shuffled in each pass; a PyDataset or Sequence, whose batches are shuffled; a generator.
        """

    def evaluation_dataset(self, batch_size: int) -> Any:
        """A finite `tf.data.Dataset` with the structure of the training one: tensors are
        `[batch_size, ...]`, the last batch may be smaller. Needed where there is an evaluator.
        """

    def predict_dataset(self, batch_size: int) -> Any:
        """For `spec.mode: Predict`: a finite `tf.data.Dataset` of features, or of `(features, key)`, batched.

        The same examples in the same order whenever it is called, so not shuffled: each task reads it, and
        predicts some of the batches. A key, `[batch_size, ...]`, is written beside the prediction.
        """

    def loss(self, labels: Any, predictions: Any) -> Any:
        """Gives each example's loss, `[batch_size]`, not reduced, in place of the model's compiled one.

        The runtime weighs it, divides its sum by the GLOBAL batch size, adds the model's
        regularisation losses, and applies the gradients with the optimizer and the metrics that the model was
        compiled with.
        """

    def train_step(self, model: Any, batch: Any, global_batch_size: int) -> Any:
        """A whole step of one replica, in place of `loss`: makes predictions for `batch` (its share of an
        element of the dataset), applies gradients, updates metrics. Runs inside `tf.distribute.Strategy.run`.

        Returns the replica's share of the loss, a scalar: the runtime adds those of all replicas. Evaluation
        uses the program's `loss` where it has one too, otherwise the loss that `model` was compiled with.
        """

    def test_step(self, model: Any, batch: Any) -> Any:
        """A whole step of the evaluation, for one replica, in place of `loss` and the compiled metrics: makes
        predictions for `batch` (its share of an element of `evaluation_dataset`), updates metrics of `model`.
        Runs inside `tf.distribute.Strategy.run`.

        Returns a dict of scalars or metrics' results by their names, which the evaluation reports: a value
        that is in no metric counts as a mean over the replica's examples, so that each example counts once.
        None stands for the metrics that it has updated.
        """

    def callbacks(self) -> Sequence[Any]:
        """Further callbacks, of the Keras that the model is of, for every style of training. Under
        ParameterServer hooks for every batch, but for ModelCheckpoint(save_freq=n), cost the speed of several
        workers: each step waits for the one before.
        """

    def export(self, model: Any, path: str) -> None:
        """Writes the trained `model` (an ordinary one on this task's own devices, built by `model()`)
        into the directory `path`. The default is a SavedModel with a serving signature.
        """


class LoadedProgram:
    """A Program whose methods exist and return what they should.

    `roots` are the file or folders of the user's own code, `notices` are sentences for the user. `datasets`
    are what its methods have returned. `element` is the `element_spec` of its training data, None before
    `train_dataset` was called. `is_keras_3` says which Keras its model is of, once `model` was called.
    """

    is_of_one_process = False
    """Whether it is written for one process: its own steps know of no replicas, and a global batch need not
    be divisible by their number.
    """
    orders: Any = None
    """The `fit_iterations.Orders` of its data, where a script's call tells."""

    def __init__(self, instance: Any, entrypoint: str, roots: Sequence[Path]) -> None:
        self.entrypoint = entrypoint
        self.roots = list(roots)
        self.notices = _check_methods(instance, entrypoint)
        self.datasets: list[Any] = []
        self.element: Any = None
        self._instance = instance
        self.is_keras_3 = False

    def worded(self, sentence: str) -> str:
        """Returns a notice in the words of what the user wrote."""
        return sentence

    def data_ended(self, *, first: bool) -> None:
        """Is called at the end of each epoch that is a pass through the data; `first`: of the first one."""

    def has(self, method: str) -> bool:
        """Returns whether the program defines the optional `method`."""
        return callable(getattr(self._instance, method, None))

    def model(self) -> Any:
        """Returns the model, built and compiled. Raises Failure where it is not a compiled model."""
        import tensorflow as tf

        from worker.tf_compat import keras_models

        model = self._instance.model()
        if not (keras_models.is_keras_3(model) or isinstance(model, tf.keras.Model)):
            kind = f"{type(model).__module__}.{type(model).__qualname__}"
            hint = (
                ": use tf.keras, which is Keras 3 because spec.program.keras is 3"
                if kind.startswith("tf_keras.")
                else ""
            )
            raise self._wrong("model()", f"a {kind}, not a tf.keras.Model or keras.Model{hint}")
        if not keras_models.is_compiled(model):
            raise self._wrong("model()", "a model that is not compiled: call model.compile(...) in it")
        self.is_keras_3 = keras_models.is_keras_3(model)
        return model

    def optimizers(self) -> dict[str, Any]:
        """Returns the optimizers that are attributes of the program, by their names."""
        from worker.tf_compat import keras_models

        return keras_models.optimizers_of(self._instance) if hasattr(self._instance, "__dict__") else {}

    def train_dataset(self, batch_size: int) -> Any:
        """See `Program`. Raises Failure where the result is no batched dataset."""
        return self._dataset("train_dataset", batch_size)

    def evaluation_dataset(self, batch_size: int) -> Any:
        """See `Program`. Raises Failure where the result is no batched dataset."""
        return self._dataset("evaluation_dataset", batch_size)

    def loss(self, labels: Any, predictions: Any) -> Any:
        """See `Program`."""
        return self._instance.loss(labels, predictions)

    def train_step(self, model: Any, batch: Any, global_batch_size: int) -> Any:
        """See `Program`."""
        return self._instance.train_step(model, batch, global_batch_size)

    def test_step(self, model: Any, batch: Any) -> Any:
        """See `Program`."""
        return self._instance.test_step(model, batch)

    def predict_dataset(self, batch_size: int) -> Any:
        """See `Program`. Raises Failure where the result is no batched dataset."""
        return self._dataset("predict_dataset", batch_size)

    def callbacks(self, model: Any) -> list[Any]:
        """See `Program`; returns an empty list where the program defines none. Raises Failure where one is
        not of the Keras that `model` is of.
        """
        from worker.tf_compat import keras_models

        callbacks = self._instance.callbacks() if self.has("callbacks") else []
        kind = keras_models.keras_of(model).callbacks.Callback
        if not isinstance(callbacks, (list, tuple)) or not all(isinstance(each, kind) for each in callbacks):
            name = "keras" if keras_models.is_keras_3(model) else "tf.keras"
            raise self._wrong(
                "callbacks()",
                f"something else than a list of {name}.callbacks.Callback, as model() is of {name}",
            )
        return list(callbacks)

    def can_export(self, model: Any) -> bool:
        """Returns whether `export` writes anything."""
        from worker.tf_compat import keras_models

        can = self.has("export") or keras_models.has_own(model, "call")
        return can or bool(keras_models.parts_of(model))

    def export(self, model: Any, path: str) -> None:
        """See `Program`; writes a SavedModel where the program does not define it. A model without `call` is
        written by its parts, each in a folder of its name.
        """
        from worker.tf_compat import keras_models

        if self.has("export"):
            self._instance.export(model, path)
        elif keras_models.has_own(model, "call"):
            keras_models.export(model, path)
        else:
            for name, part in keras_models.parts_of(model).items():
                keras_models.export(part, f"{path}/{name}")

    def _dataset(self, method: str, batch_size: int) -> Any:
        import tensorflow as tf

        from worker.data_adapters import fit_data

        call = f"{method}({batch_size})"
        given = dataset = fit_data.of_program(
            getattr(self._instance, method)(batch_size),
            method,
            batch_size,
            keras_3=self.is_keras_3,
            call=f"{self.entrypoint}: {call}",
        )
        if method == "train_dataset" and _is_creator(given):
            dataset = given.dataset_fn(tf.distribute.InputContext())
            call = f"the dataset_fn of {call}"
            # The model is built for this spec; Keras' class does not have it.
            given.element_spec = getattr(dataset, "element_spec", None)
        if not isinstance(dataset, tf.data.Dataset):
            kind = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
            distributed = isinstance(dataset, tf.distribute.DistributedDataset)
            hint = ": return the dataset as it is, which the runtime shares out" if distributed else ""
            raise self._wrong(call, f"a {kind}, not a tf.data.Dataset{hint}")
        self.datasets.append(dataset)
        if method == "train_dataset":
            self.element = dataset.element_spec
        for spec in tf.nest.flatten(dataset.element_spec):
            shape = getattr(spec, "shape", None)
            if shape is None or shape.rank is None:
                continue
            if shape.rank == 0:
                raise self._wrong(call, "a dataset that is not batched: end it with .batch(batch_size)")
            if shape[0] is not None and shape[0] > batch_size:
                raise self._wrong(call, f"batches of {shape[0]}, not of {batch_size}")
        return given

    def _wrong(self, call: str, what: str) -> Failure:
        return program_error(f"{self.entrypoint}: {call} returned {what}")


def load(entrypoint: str | None, source: Path | None, parameters: Mapping[str, Any]) -> LoadedProgram:
    """Imports `module:object` (`source` first on the module path) and calls it with `parameters`.

    Raises Failure for a wrong entrypoint. Exceptions of the user's own code pass through.
    """
    if not entrypoint:
        raise program_error("the run has no spec.program.entrypoint (module:object)")
    module_name, colon, attribute = entrypoint.partition(":")
    if not (module_name and colon and attribute):
        raise program_error(f"spec.program.entrypoint: expected module:object, got {entrypoint!r}")
    if source is not None and str(source) not in sys.path:
        sys.path.insert(0, str(source))
    module = _import(module_name, source)
    roots = [source] if source is not None else [_package_root(module)]
    factory: Any = module
    for part in attribute.split("."):
        if not hasattr(factory, part):
            defined = [name for name in vars(module) if not name.startswith("_")]
            raise program_error(
                f"spec.program.entrypoint: module {module_name} has no {attribute!r}"
                f"{_did_you_mean(part, defined)}"
            )
        factory = getattr(factory, part)
    if not callable(factory):
        raise program_error(
            f"spec.program.entrypoint: {entrypoint} is {type(factory).__name__}, not a class or a function"
        )
    if not _accepts(factory, 1):
        raise program_error(f"{entrypoint} must take one argument, the mapping spec.program.parameters")
    return LoadedProgram(factory(dict(parameters)), entrypoint, roots)


def user_roots(source: Path | None) -> list[Path]:
    """Returns the paths of the user's files while the program is not loaded yet."""
    return [source] if source is not None else []


def _import(name: str, source: Path | None) -> ModuleType:
    top = name.partition(".")[0]
    if source is not None:
        files = [path for path in (source / f"{top}.py", source / top) if path.exists()]
        taken = sys.modules.get(top)
        if files and taken is not None and not _is_from(taken, source):
            raise program_error(
                f"spec.program.entrypoint: {files[0].name} has the name of a module that is loaded already "
                f"({getattr(taken, '__file__', 'built in')}); rename it"
            )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise
        where = f"spec.program.source has {_listing(source)}" if source else "the image has no such module"
        raise program_error(f"spec.program.entrypoint: no module named {name!r}; {where}") from error


def _is_from(module: ModuleType, source: Path) -> bool:
    path = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), "")
    return source in Path(path).resolve().parents


def _is_creator(dataset: Any) -> bool:
    """Returns whether it is a `tf.keras.utils.experimental.DatasetCreator`, which Keras 3 does not have."""
    return type(dataset).__name__ == "DatasetCreator" and hasattr(dataset, "dataset_fn")


def _listing(source: Path) -> str:
    names = sorted(path.name for path in source.iterdir() if not path.name.startswith("."))
    return ", ".join(names[:10]) or "no files"


def _package_root(module: ModuleType) -> Path:
    top = sys.modules[module.__name__.partition(".")[0]]
    file = Path(top.__file__ or module.__file__ or ".").resolve()
    return file.parent if file.name == "__init__.py" else file


def _check_methods(instance: Any, entrypoint: str) -> list[str]:
    kind = type(instance).__qualname__
    public = [name for name in dir(instance) if not name.startswith("_")]
    for name in REQUIRED:
        if not callable(getattr(instance, name, None)):
            raise program_error(
                f"{entrypoint}: {kind} has no method {SIGNATURES[name]}{_did_you_mean(name, public)}; "
                "a program needs model() and train_dataset(batch_size)"
            )
    for name in SIGNATURES:
        method = getattr(instance, name, None)
        if callable(method) and not _accepts(method, argument_count(name)):
            raise program_error(f"{entrypoint}: {kind}.{name} must be callable as {SIGNATURES[name]}")
    notices = []
    unknown = [name for name in public if name not in SIGNATURES]
    for name in OPTIONAL:
        if not hasattr(instance, name):
            close = difflib.get_close_matches(name, unknown, 1, 0.75)
            if close:
                notices.append(
                    f"{entrypoint}: {kind}.{close[0]} is not used; is it meant to be {SIGNATURES[name]}?"
                )
    return notices


def _accepts(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def _did_you_mean(name: str, candidates: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, candidates, 1, 0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""
