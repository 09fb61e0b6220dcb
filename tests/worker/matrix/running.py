"""A task that trains cell after cell with one strategy: `python -m tests.worker.matrix.running CELLS OUTPUT`.

Each cell is a run of the runtime's own code, in its own model directory. The cells share what belongs to the
process, which is its strategy and its peers. CELLS is a JSON list, OUTPUT a folder: `outcomes.jsonl` gets a
line when a cell begins and one when it ends, `<cell>.npz` its weights.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import importlib
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.worker.matrix.cells import (
    CELL_SECONDS,
    FOLDER,
    PROGRAMS,
    SLOW,
    START_SECONDS,
    STRATEGIES,
    Cell,
    exports,
    resumes,
)
from worker import runtime
from worker import task as tasks
from worker.contract.records import EVENTS, Content, Done, Event, fields_of
from worker.failures import Failure
from worker.process.watch import Watch
from worker.reporting import Reporter

ROOT = Path(__file__).resolve().parents[3]


class Records(Reporter):
    """Keeps the records of a task."""

    def __init__(self) -> None:
        super().__init__("cell")
        self.said: list[dict[str, Any]] = []

    def emit(self, content: Content) -> None:
        self.said.append({"event": EVENTS[type(content)], **fields_of(content)})

    def of(self, event: str) -> list[dict[str, Any]]:
        return [record for record in self.said if record["event"] == event]


class Wrong(Exception):  # noqa: N818 - what a cell did, in the end
    """A cell trained with a wrong result."""


def main() -> None:
    cells = [Cell(*cell) for cell in json.loads(Path(sys.argv[1]).read_text())]
    folder = Path(sys.argv[2])
    faulthandler.enable()
    task = tasks.from_environment()
    runtime.prepare_environment(task.config.keras)
    from worker.imports import import_tensorflow

    faulthandler.dump_traceback_later(START_SECONDS, exit=True)
    import_tensorflow(keras=True)
    from worker import devices, strategies

    devices.prepare(task)
    strategy = strategies.build(task)
    running = Running(task, strategy, folder)
    for cell in cells:
        faulthandler.dump_traceback_later(CELL_SECONDS, exit=True)
        running.run(cell)
    faulthandler.cancel_dump_traceback_later()
    sys.stdout.flush()
    os._exit(0)


class Running:
    """The process that runs the cells."""

    def __init__(self, task: tasks.Task, strategy: Any, folder: Path) -> None:
        from worker import strategies
        from worker.collective import halts, kv_store
        from worker.training import loop as training_loop
        from worker.training import trainer

        self._task, self._strategy, self._folder = task, strategy, folder
        self._name = ""
        self._meetings = 0
        self._trained: list[Any] = []
        self._seconds: dict[str, float] = {}
        self._doing: Callable[[], str] = lambda: ""
        original = training_loop.train

        def train(loop: Any) -> Any:
            began = time.monotonic()
            trained = original(loop)
            self._seconds.setdefault("train", round(time.monotonic() - began, 2))
            self._trained.append(trained.model)
            return trained

        training_loop.train = train
        strategies.build = lambda task, locate=None: strategy
        # One strategy serves many runs: their keys in the coordination service must differ.
        put, get = kv_store.put, kv_store.get
        self._put, self._get = put, get
        kv_store.put = lambda key, value: put(f"{self._name}/{key}", value)
        kv_store.get = lambda key: get(f"{self._name}/{key}")
        halts.Halts.watch = halts.Halts.propose = _nothing  # type: ignore[method-assign,assignment]
        memberships: list[Any] = []

        class Training(trainer._Training):
            """A run in a process that has run others."""

            def _claim(self, directory: str, make_room: Callable[[], None] = lambda: None) -> None:
                pass

            def _wait(self, deadline: float, again: bool = False) -> None:
                pass

            def _connect(self, task: tasks.Task) -> Any:
                # One coordinator serves all runs of the process.
                self._membership = memberships[0] if memberships else None
                if self._membership is None:
                    super()._connect(task)
                    memberships.append(self._membership)
                self._connected = True
                return strategy

            def _finish(self) -> None:
                self._reporter.emit(Done())

        self._training = Training

    def run(self, cell: Cell) -> None:
        """Runs a cell. Ends the process if an error could affect later cells."""
        import tensorflow as tf

        self._seconds = {}
        began = time.monotonic()
        self._say(cell, "began")
        records = Records()
        outcome: dict[str, Any] = {}
        poisoned = False
        try:
            begin_with_float32()
            outcome = {"outcome": "trained", **self._train(cell, records)}
        except Failure as failure:
            outcome = {"outcome": "refused", "message": failure.message, "exit_code": int(failure.exit_code)}
            cause = failure.__cause__ or failure.__context__
            outcome["cause"] = "".join(traceback.format_exception(cause)) if cause else ""
            outcome["after_a_step"] = bool(records.of(Event.PROGRESS) or records.of(Event.TRAINING))
            poisoned = outcome["after_a_step"]
        except Wrong as error:
            outcome = {"outcome": "failed", "message": str(error)}
        except Exception as error:  # noqa: BLE001 - the cell fails with it, and the next is tried
            outcome = {
                "outcome": "failed",
                "message": f"{type(error).__name__}: {str(error)[:2000]}",
                "frames": [
                    f"{Path(frame.filename).relative_to(ROOT)}:{frame.lineno} {frame.name}"
                    for frame in traceback.extract_tb(error.__traceback__)
                    if Path(frame.filename).is_relative_to(ROOT / "worker")
                ],
                "traceback": "".join(traceback.format_exception(error))[-6000:],
                "doing": self._doing(),
                "told": [record["message"] for record in records.of("told")],
                "after_a_step": bool(records.of(Event.TRAINING)),
            }
            steps = bool(records.of(Event.TRAINING)) and not self._doing().startswith("exporting")
            poisoned = steps or isinstance(error, tf.errors.OpError)
        outcome["notices"] = [record["message"] for record in records.of(Event.NOTICE)]
        self._seconds["all"] = round(time.monotonic() - began, 2)
        self._say(cell, "ended", seconds=self._seconds, **outcome)
        self._trained.clear()
        if not self._task.is_primary and "traceback" in outcome:
            print(outcome["traceback"], flush=True)
        if poisoned and len(self._task.cluster) > 0:
            sys.stdout.flush()
            os._exit(3)

    def _say(self, cell: Cell, what: str, **fields: Any) -> None:
        if self._task.is_primary:
            with (self._folder / "outcomes.jsonl").open("a") as file:
                file.write(json.dumps({"cell": list(cell), "what": what, **fields}) + "\n")

    def _train(self, cell: Cell, records: Records) -> dict[str, Any]:
        from worker.checkpoints import model_directory

        directory = self._folder / "-".join(cell)
        parameters, options = parameters_of(cell, self._folder)
        config = dataclasses.replace(
            self._task.config,
            run_id="1",
            entrypoint=PROGRAMS[cell.style],
            parameters=parameters,
            model_dir=str(directory),
            strategy_options={**self._task.config.strategy_options, **options},
        )
        task = dataclasses.replace(self._task, config=config, source=FOLDER)
        if task.is_primary:
            shutil.rmtree(directory, ignore_errors=True)
            shape = shape_of(cell, self._folder)
            if hasattr(shape, "write"):
                shape.write()
        self._meet(cell, "first")
        self._once(task, records)
        trained = self._trained[-1]
        weights = trained.get_weights()
        outcome: dict[str, Any] = {}
        if task.is_primary:
            self._save(cell, weights)
            outcome = self._checked(cell, records, trained, directory)
            if not STRATEGIES[cell.strategy].exact:
                outcome |= self._scored_plainly(cell, weights)
            if exports(cell):
                outcome |= self._exported(cell, directory, weights)
        if resumes(cell):
            if task.is_primary:
                epochs = parameters["epochs"]
                for file in (directory / "checkpoints").glob(f"ckpt-{epochs}.*"):
                    file.unlink()
                kept = model_directory.ModelDirectory(str(directory))
                kept.write_state(model_directory.RunState("1", "training"))
            again = Records()
            self._meet(cell, "again")
            with self._timed("resume"):
                self._once(task, again)
            resumed = self._trained[-1].get_weights()
            if task.is_primary:
                beginnings = [record["initial_epoch"] for record in again.of(Event.TRAINING)]
                if beginnings != [1]:
                    raise Wrong(f"the second attempt began after {beginnings} epochs, not after 1")
                if task.config.strategy != "ParameterServer":
                    outcome["resume_difference"] = difference(weights, resumed)
        return outcome

    def _once(self, task: tasks.Task, records: Records) -> None:
        trainer = self._training(task, Watch())
        trainer._reporter = records
        self._doing = lambda: trainer._activity.doing
        try:
            trainer._train()
        except Failure:
            raise
        except Exception as error:
            # The message that the user would get.
            records.said.append({"event": "told", "message": trainer._classify(error).message})
            raise

    def _meet(self, cell: Cell, what: str) -> None:
        """Waits until the first task of a collective has prepared the run."""
        self._name = f"{cell}/{what}"
        if self._task.config.strategy != "MultiWorkerMirrored":
            return
        if self._task.is_primary:
            self._put(f"meet/{self._name}", "yes")
        else:
            self._get(f"meet/{self._name}")

    def _save(self, cell: Cell, weights: list[Any]) -> None:
        import numpy as np

        np.savez(self._folder / f"{'-'.join(cell)}.npz", *weights)

    def _checked(self, cell: Cell, records: Records, trained: Any, directory: Path) -> dict[str, Any]:
        from worker.tf_compat.keras_models import tf_variable

        shape = shape_of(cell, self._folder)
        epochs = list(range(1, shape.epochs + 1))
        ends = [record for record in records.of(Event.PROGRESS) if record["epoch_end"]]
        if [end["epoch"] for end in ends] != epochs:
            raise Wrong(f"epochs told: {[end['epoch'] for end in ends]}")
        evaluations = records.of(Event.EVALUATION)
        evaluated_epochs = [record["epoch"] for record in evaluations]
        if evaluated_epochs != ([] if "evaluator" in self._task.config.replicas else epochs):
            raise Wrong(f"evaluations told: {evaluated_epochs}")
        kept = sorted(path.stem for path in (directory / "checkpoints").glob("ckpt-*.index"))
        if kept != [f"ckpt-{epoch}" for epoch in epochs]:
            raise Wrong(f"checkpoints: {kept}")
        if not records.of(Event.EXPORTED):
            raise Wrong("nothing was exported")
        iterations = tf_variable(trained.optimizer.iterations)
        return {
            "iterations": int(self._strategy.experimental_local_results(iterations)[0]),
            "steps": ends[-1]["step"],
            "logs": {"loss": ends[-1]["loss"], **ends[-1]["metrics"]},
            "scores": evaluations[-1]["metrics"] if evaluations else None,
        }

    def _exported(self, cell: Cell, directory: Path, weights: list[Any]) -> dict[str, Any]:
        """Checks that the exported model predicts what the model does."""
        import tensorflow as tf

        with self._timed("export"):
            begin_with_float32()
            shape = shape_of(cell, self._folder)
            model = shape.model()
            features = next(iter(shape.evaluation_dataset(shape.batch_size)))[0]
            features = list(features) if isinstance(features, tuple) else features
            wanted = model(features)
            model.set_weights(weights)
            wanted = model(features)
            loaded = tf.saved_model.load(str(directory / "export" / "1"))
            if "serving_default" not in loaded.signatures:
                raise Wrong(f"the export has the signatures {list(loaded.signatures)}")
            serve = getattr(loaded, "serve", loaded)  # the method of Keras 3's export, or of Keras 2's
            given = list(serve(features)) if isinstance(wanted, list) else serve(features)
            far = difference(tf.nest.flatten(wanted), tf.nest.flatten(given))
        return {"export_difference": far}

    def _scored_plainly(self, cell: Cell, weights: list[Any]) -> dict[str, Any]:
        """Returns the scores of these weights in one process."""
        begin_with_float32()
        shape = shape_of(cell, self._folder)
        model = shape.model()
        held_out = shape.evaluation_dataset(shape.batch_size)
        features = next(iter(held_out))[0]
        model(list(features) if isinstance(features, tuple) else features)
        model.set_weights(weights)
        examples = shape.plain_dataset(shape.batch_size).take(shape.steps or -1)
        return {
            name: model.evaluate(data, verbose=0, return_dict=True)
            for name, data in {"plain_scores": held_out, "plain_logs": examples}.items()
        }

    @contextlib.contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[what] = round(time.monotonic() - began, 2)


def _nothing(*_: object) -> None:
    """No thread of a run may wait in the process for the next run's halts, so nothing is proposed either."""


def shape_of(cell: Cell, folder: Path) -> Any:
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    styles = importlib.import_module(PROGRAMS.get(cell.style, PROGRAMS["fit"]).partition(":")[0])
    return styles.SHAPES[cell.shape](str(folder / "data"))


def begin_with_float32() -> None:
    """Resets mixed precision, which the cell before may have set."""
    import keras
    import tensorflow as tf

    for package in (keras, tf.keras):
        package.mixed_precision.set_global_policy("float32")


def parameters_of(cell: Cell, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns spec.program.parameters and spec.strategyOptions of the cell."""
    shape = shape_of(cell, folder)
    parameters = {
        "shape": cell.shape,
        "data": str(folder / "data"),
        "pace": 1.0 if STRATEGIES[cell.strategy].exact else SLOW,
        "epochs": shape.epochs,
        "globalBatchSize": shape.batch_size,
        "stepsPerEpoch": shape.steps,
        "export": exports(cell),
    }
    return parameters, dict(shape.options)


def difference(wanted: list[Any], given: list[Any]) -> float:
    """Returns the largest difference, relative for wanted values above 1."""
    import numpy as np

    if len(wanted) != len(given):
        raise Wrong(f"{len(given)} tensors, not {len(wanted)}")
    largest = 0.0
    for one, other in zip(wanted, given, strict=True):
        one, other = np.asarray(one, "float64"), np.asarray(other, "float64")
        if one.shape != other.shape:
            raise Wrong(f"a tensor of shape {other.shape}, not {one.shape}")
        if one.size:
            largest = max(largest, float(np.max(np.abs(one - other) / np.maximum(1.0, np.abs(one)))))
    return largest


if __name__ == "__main__":
    main()
