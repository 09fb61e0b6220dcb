"""`python -m worker.check` runs a program up to its first step, with one batch, in one process.

It finds in seconds what a run would find in a minute: a missing package, a wrong entrypoint, a model that
does not build, data that does not fit the model. It uses the CPU only and keeps nothing: there is no model
directory, and the program's callbacks are made but not called. It prints records, the last of which is `done`
or `failed`.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

from worker.buckets import prefetch
from worker.contract import DATA_DIRECTORY, Content, Done, ExitCode, Notice
from worker.failures import Failure, classify, program_error
from worker.imports import import_tensorflow
from worker.parameters import TrainingParameters
from worker.process.activity import Activity
from worker.process.supervisor import Watch
from worker.program import LoadedProgram, load, user_roots
from worker.reporting import Reporter
from worker.runtime import prepare_environment
from worker.task import Task, from_environment

_NO_DEVICE = "-1"


def main() -> int:
    """Returns the exit code, `ExitCode.PROGRAM_ERROR` if any fault was found."""
    reporter = Reporter("check")
    activity = Activity(Watch(), reporter, 0.0, 0.0)
    program: LoadedProgram | None = None
    task: Task | None = None
    try:
        task = from_environment()
        prepare_environment(task.config.keras)
        os.environ["CUDA_VISIBLE_DEVICES"] = _NO_DEVICE
        if (data := prefetch.bucket_of(task.config.parameters)) is not None:
            raise program_error(
                f"spec.program.parameters.{DATA_DIRECTORY}: {data} is not copied for a first step: give "
                f"--set spec.program.parameters.{DATA_DIRECTORY}=FOLDER, with a part of it on this machine"
            )
        activity.enter("importing TensorFlow")
        import_tensorflow(keras=True)
        activity.enter(f"importing {task.config.entrypoint}")
        program = load(task.config.entrypoint, task.source, task.config.parameters)
        for notice in program.notices:
            reporter.notice(notice)
        _try(task, program, reporter, activity)
    except BaseException as error:  # noqa: BLE001 - whatever a program raises must be told
        roots = program.roots if program else user_roots(task.source if task else None)
        datasets = program.datasets if program else []
        failure = classify(error, activity.doing, roots, datasets, alone=True)
        reporter.failed(Failure(failure.message, ExitCode.PROGRAM_ERROR, failure.frames))
        return ExitCode.PROGRAM_ERROR
    reporter.emit(Done())
    return ExitCode.DONE


def _try(task: Task, program: LoadedProgram, reporter: Reporter, activity: Activity) -> None:
    from worker.evaluation import sidecar, standalone
    from worker.prediction import predict
    from worker.training import loop

    parameters = TrainingParameters.read(task.config.parameters)
    if task.config.mode == "Evaluate":
        standalone.check_program(program)
        _apply(program, program.evaluation_dataset, parameters, activity)
    elif task.config.mode == "Predict":
        predict.check_program(program)
        _apply(program, program.predict_dataset, parameters, activity)
    else:
        if task.config.scores_program:
            sidecar.check_program(program)
        loop.train(_loop(task, program, parameters, reporter, activity))


def _apply(program: LoadedProgram, make: Any, parameters: TrainingParameters, activity: Activity) -> None:
    """Calls the model with the features of one batch."""
    from worker.models.model_build import build

    activity.enter("running model()")
    model = program.model()
    activity.enter("reading the data")
    dataset = make(parameters.global_batch_size)
    build(model, dataset.element_spec, program.entrypoint)
    for batch in dataset.take(1):
        activity.enter("calling the model with a batch")
        model(batch[0] if isinstance(batch, tuple) else batch, training=False)


def _loop(
    task: Task, program: LoadedProgram, parameters: TrainingParameters, reporter: Reporter, activity: Activity
) -> Any:
    """Trains in the loop that a run would use, in one process, for one epoch of one step."""
    import tensorflow as tf

    from worker.context import Hooks, Loop

    given = parameters.with_replicas(1)
    sampled = _Sampled(program)
    loop = Loop(
        program=sampled,
        parameters=given,
        strategy=tf.distribute.OneDeviceStrategy("/cpu:0"),
        directory=None,
        writes=True,
        count_workers=lambda: 1,
        validates=True,
        hooks=Hooks(_Notices(reporter.task), enter=activity.enter),
    )
    sampled.whole = loop
    return dataclasses.replace(loop, parameters=_one_step(given))


def _one_step(given: TrainingParameters) -> TrainingParameters:
    return dataclasses.replace(given, epochs=1, steps_per_epoch=1, steps_per_execution=1)


class _Notices(Reporter):
    """Passes on only those of a training's records that the user should read."""

    def emit(self, content: Content) -> None:
        if isinstance(content, Notice):
            super().emit(content)


class _Sampled(LoadedProgram):
    """A program with only the first batch of its data, and without its callbacks. `whole` is the loop that
    the program would get with its callbacks.
    """

    whole: Any

    def __init__(self, program: LoadedProgram) -> None:
        self.__dict__.update(program.__dict__)

    def train_dataset(self, batch_size: int) -> Any:
        """Returns the first batch. Raises Failure for a dataset without an end whose epoch size
        is not given.
        """
        import tensorflow as tf

        from worker.input import datasets

        dataset = super().train_dataset(batch_size)
        if not isinstance(dataset, tf.data.Dataset):
            return dataset  # a DatasetCreator
        if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            datasets.steps_per_epoch(self.whole, dataset)
        return dataset.take(1)

    def evaluation_dataset(self, batch_size: int) -> Any:
        """Returns the first batch. A dataset without an end is returned whole, because the loop
        refuses it.
        """
        import tensorflow as tf

        dataset = super().evaluation_dataset(batch_size)
        infinite = int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY
        return dataset if infinite else dataset.take(1)

    def callbacks(self, model: Any) -> list[Any]:
        """Makes the callbacks, which finds their errors, and returns none of them."""
        super().callbacks(model)
        return []


if __name__ == "__main__":
    sys.exit(main())
