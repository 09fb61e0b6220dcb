"""`python -m worker.check` runs a program up to its first step, with one batch, in one process.

It finds in seconds what a run would find in a minute: a missing package, a wrong entrypoint, a model that
does not build, data that does not fit the model, what the strategy cannot do with them. The program is
imported as the run does it, and trained by the run's loop and strategy: by a few replicas where the run has
several, which are logical CPUs, and under ParameterServer by a worker and parameter servers in this process.
It uses the CPU only and keeps nothing: there is no model directory, and the program's callbacks are made but
not called. It prints records, the last of which is `done` or `failed`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from worker.buckets import prefetch
from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.contract.parameters import DATA_DIRECTORY
from worker.contract.records import Content, Done, Notice
from worker.contract.strategies import STRATEGIES
from worker.failures import Failure, advice_of_workers, classify, program_error
from worker.imports import import_tensorflow
from worker.parameters import TrainingParameters
from worker.process.activity import Activity
from worker.process.watch import Watch
from worker.program import LoadedProgram, load, user_roots
from worker.reporting import Reporter
from worker.runtime import prepare_environment, prepare_program
from worker.task import Task, from_environment

_NO_DEVICE = "-1"
_FEW = (2, 3, 5)
_MOST_SERVERS = 2
"""Enough for variables to be cut up."""


def main() -> int:
    """Returns the exit code, `ExitCode.PROGRAM_ERROR` if any fault was found."""
    reporter = Reporter("check")
    activity = Activity(Watch(), reporter, 0.0, 0.0)
    program: LoadedProgram | None = None
    task: Task | None = None
    try:
        task = from_environment()
        prepare_program(task, reporter)
        prepare_environment(task.config.keras)
        os.environ["CUDA_VISIBLE_DEVICES"] = _NO_DEVICE
        if (data := prefetch.bucket_of(task.config.parameters)) is not None:
            raise program_error(
                f"spec.program.parameters.{DATA_DIRECTORY}: {data} is not copied for a first step: give "
                f"--set spec.program.parameters.{DATA_DIRECTORY}=FOLDER, with a part of it on this machine"
            )
        activity.enter("importing TensorFlow")
        import_tensorflow(keras=True)
        from worker.tf_compat.first_operation import before_first_operation
        from worker.training.modes import check_mode

        strategy = _Strategy(task)
        activity.enter(f"importing {task.config.entrypoint}")
        with before_first_operation(strategy.build):
            program = load(task.config.entrypoint, task.source, task.config.parameters)
        for notice in program.notices:
            reporter.notice(notice)
        check_mode(program, task.config)
        strategy.build()
        _try(task, program, strategy.built, reporter, activity)
    except BaseException as error:  # noqa: BLE001 - whatever a program raises must be told
        roots = program.roots if program else user_roots(task.source if task else None)
        datasets = program.datasets if program else []
        failure = classify(error, activity.doing, roots, datasets, alone=True)
        advice = advice_of_workers(error) if task is not None and task.config.is_coordinated else ""
        message = f"{failure.message}; {advice}" if advice else failure.message
        reporter.failed(Failure(message, ExitCode.PROGRAM_ERROR, failure.frames))
        return ExitCode.PROGRAM_ERROR
    reporter.emit(Done())
    return ExitCode.DONE


class _Strategy:
    """The strategy of the run, as one process can have it: `built` once `build` was called."""

    def __init__(self, task: Task) -> None:
        """Divides the CPU, which must be done before the program is imported."""
        from worker import devices

        self._task = small(task)
        self.built: Any = None
        self._servers: list[Any] = []
        devices.prepare(self._task)

    def build(self) -> None:
        """Builds it, if it is not there yet."""
        import tensorflow as tf

        from worker import strategies

        if self.built is not None:
            return
        if self._task.config.is_collective or self._task.config.is_coordinated:
            self._task = _connected(self._task)
        if self._task.config.is_coordinated:
            cluster = tf.train.ClusterSpec(json.loads(os.environ[Env.TF_CONFIG])["cluster"])
            self._servers = [
                tf.distribute.Server(cluster, job_name=role, task_index=index, protocol="grpc")
                for role in STRATEGIES[self._task.config.strategy].servers
                for index in self._task.cluster[role]
            ]
        self.built = strategies.build(self._task)


def small(task: Task) -> Task:
    """Returns `task` as that of a run with a few replicas, on logical CPUs, and a few parameter servers."""
    config, options = task.config, {}
    strategy = "Mirrored" if STRATEGIES[config.strategy].on_slice else config.strategy
    replicas = {"chief": 1}
    if "logical_cpus" in STRATEGIES[strategy].options:
        options = {"logicalCpus": few_replicas(task)}
    elif strategy == "ParameterServer":
        options = dict(config.strategy_options)
        replicas |= {"worker": 1, "ps": min(_MOST_SERVERS, config.replicas.get("ps", 1))}
    if config.mode == "Predict" and config.is_collective:
        strategy = "Mirrored"  # as the run does
    smaller = dataclasses.replace(config, strategy=strategy, strategy_options=options, replicas=replicas)
    return dataclasses.replace(task, config=smaller)


def few_replicas(task: Task) -> int:
    """Returns a small number of replicas that can share a batch which the run's replicas can share: 1 where
    the run has one, or where there is none.
    """
    config, options = task.config, task.config.strategy_options
    parameters = TrainingParameters.read(config.parameters)
    tasks = _training_tasks(config.replicas)
    several = bool(config.gpus) or STRATEGIES[config.strategy].on_slice
    devices = len(options.get("devices", ())) or int(options.get("logicalCpus", 1))
    if tasks * devices == 1 and not several:
        return 1
    for count in _FEW:
        fits = several or tasks * devices % count == 0
        if fits and (parameters.batch_size_per_replica or parameters.global_batch_size % count == 0):
            return count
    return 1


def _training_tasks(replicas: Mapping[str, int]) -> int:
    return max(1, replicas.get("chief", 0) + replicas.get("worker", 0))


def _connected(task: Task) -> Task:
    """Returns `task` as the first of a cluster with the tasks that its configuration counts, and sets
    TF_CONFIG.
    """
    places: dict[str, list[str]] = {}
    with contextlib.ExitStack() as opened:
        for role, count in task.config.replicas.items():
            ports = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
            places[role] = [f"127.0.0.1:{port.getsockname()[1]}" for port in ports]
    document = {"cluster": places, "task": {"type": "chief", "index": 0}}
    os.environ[Env.TF_CONFIG] = json.dumps(document)
    cluster = {role: dict(enumerate(addresses)) for role, addresses in places.items()}
    return dataclasses.replace(task, role="chief", index=0, cluster=cluster)


def _try(task: Task, program: LoadedProgram, strategy: Any, reporter: Reporter, activity: Activity) -> None:
    from worker.training.loop import train

    parameters = TrainingParameters.read(task.config.parameters)
    if task.config.mode == "Evaluate":
        _apply(program, program.evaluation_dataset, parameters, strategy, activity)
    elif task.config.mode == "Predict":
        _apply(program, program.predict_dataset, parameters, strategy, activity)
    else:
        loop = _loop(task, program, parameters, strategy, reporter, activity)
        train(loop)
        if task.config.scores_program:
            program.element = loop.program.element
            _apply(program, program.evaluation_dataset, parameters, None, activity)


def _apply(
    program: LoadedProgram, make: Any, parameters: TrainingParameters, strategy: Any, activity: Activity
) -> None:
    """Calls the model with the features of one batch. `strategy` is None for an evaluator. Its model has
    the variables that were trained.
    """
    from worker.steps.model_build import build

    activity.enter("running model()")
    with strategy.scope() if strategy is not None else contextlib.nullcontext():
        model = program.model()
        activity.enter("reading the data")
        dataset = make(parameters.with_replicas(1).global_batch_size)
        build(model, program.element or dataset.element_spec, program.entrypoint)
    for batch in dataset.take(1):
        activity.enter("calling the model with a batch")
        model(batch[0] if isinstance(batch, tuple) else batch, training=False)


def _loop(
    task: Task,
    program: LoadedProgram,
    parameters: TrainingParameters,
    strategy: Any,
    reporter: Reporter,
    activity: Activity,
) -> Any:
    """Trains in the loop that a run would use, for one epoch of one step."""
    from worker.context import Hooks, Loop

    config = task.config
    given = parameters.with_replicas(strategy.num_replicas_in_sync)
    sampled = _Sampled(program)
    loop = Loop(
        program=sampled,
        parameters=given,
        strategy=strategy,
        directory=None,
        writes=True,
        count_workers=lambda: _training_tasks(config.replicas) if config.is_collective else 1,
        validates=not config.scores_program,
        hooks=Hooks(_Notices(reporter.task), enter=activity.enter),
        strategy_options=config.strategy_options,
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
        self._given = program

    def train_dataset(self, batch_size: int) -> Any:
        """Returns the first batch. Raises Failure for a dataset whose epoch size is needed and not given."""
        import tensorflow as tf

        from worker.input import datasets

        dataset = super().train_dataset(batch_size)
        if not isinstance(dataset, tf.data.Dataset):
            return dataset  # a DatasetCreator
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
        """Makes the callbacks, which finds their errors and those that the strategy cannot call, and returns
        none of them.
        """
        from worker.training import callbacks

        callbacks.of_program(dataclasses.replace(self.whole, program=self._given), model)
        return []


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # TensorFlow's threads may outlive the work
