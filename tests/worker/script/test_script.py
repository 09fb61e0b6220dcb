"""Scripts as people write them train on every strategy with the numbers of one process."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.cluster import Cluster, RunningTask
from tests.worker.conftest import MakeCluster
from tests.worker.forked_tasks import computed
from tests.worker.supervisor.test_supervisor import kill_in_its_pod
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event
from worker.contract.task_names import pod_name

SCRIPTS = Path(__file__).parent / "scripts"
ONE = {"strategy": "OneDevice", "replicas": {"chief": 1}}
KINDS: dict[str, dict[str, Any]] = {
    "Mirrored": {
        "strategy": "Mirrored",
        "replicas": {"chief": 1},
        "strategy_options": {"logicalCpus": 2},
    },
    "3 of Mirrored": {
        "strategy": "Mirrored",
        "replicas": {"chief": 1},
        "strategy_options": {"logicalCpus": 3},
    },
    "MultiWorkerMirrored": {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}},
    "3 of MultiWorkerMirrored": {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 3}},
}
SERVED = {"strategy": "ParameterServer", "replicas": {"chief": 1, "worker": 1, "ps": 1}}
TRAINED = (
    "functional",
    "subclassed",
    "vae",
    "k_fold",
    "fine_tune",
    "words",
    "outputs",
    "keras_2",
    "everyday",
    "gan_by_batch",
    "py_dataset",
    "csv_files",
    "stops_early",
    "more_steps",
    "lr_finder",
    "not_finite",
    "batch_hooks",
    "own_clock",
    "of_batches",
    "take_and_skip",
    "kept_orders",
    "own_loss",
)
_SERVED_OFTEN = ("csv_files", "of_batches", "keras_2", "not_finite", "batch_hooks")
_OFTEN = {("functional", "MultiWorkerMirrored")}
"""What is seen with every commit."""
_LATER = {True: [pytest.mark.thorough], False: [pytest.mark.thorough, pytest.mark.nightly]}


DEVICES = """
import json
import sys
import tensorflow as tf

with tf.compat.v1.Session(graph=tf.Graph()) as session:  # as a server does it, without the cluster
    graph = tf.compat.v1.saved_model.load(session, ["serve"], sys.argv[1]).graph_def
nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
print(json.dumps(sorted({node.device for node in nodes} - {""})))
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Returns a function that gives the results of `python SCRIPT`, in one process."""

    @functools.cache
    def results(name: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp(name)
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, str(SCRIPTS / f"{name}.py")]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return dict(np.load(folder / "results.npz"))

    return results


@pytest.fixture
def started(make_cluster: MakeCluster) -> Any:
    """Returns a function that starts the tasks of a script, and returns the run and the first task."""

    def start(name: str, **options: Any) -> tuple[Cluster, RunningTask]:
        made = make_cluster(
            entrypoint=None,
            script=f"{name}.py",
            source=SCRIPTS,
            stall_seconds=300,
            keras=3,
            **{"restarts_in_place": 0, **options},
        )
        return made, next(iter(made.start_all().values()))

    return start


def ended(cluster: Cluster) -> dict[str, Any]:
    """Returns what the script has saved, when all tasks have ended well."""
    for task in cluster.tasks:
        assert task.ended() == 0, task.output
        assert "StartAbort" not in task.output, "tasks that leave in good order are not lost"
    return dict(np.load(cluster.model_dir / "files" / "results.npz"))


def assert_same(results: dict[str, Any], expected: dict[str, Any]) -> None:
    assert results.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(results[name], values, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.by_day(
    "functional-MultiWorkerMirrored",
    runtime=("csv_files-Mirrored", "gan_by_batch-Mirrored"),
)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(
            name,
            kind,
            marks=[] if (name, kind) in _OFTEN else _LATER[kind == "Mirrored"],
            id=f"{name}-{kind}",
        )
        for name in TRAINED
        for kind in KINDS
    ],
)
def test_the_numbers_of_one_process(started: Any, plain: Any, name: str, kind: str) -> None:
    cluster, _ = started(name, **KINDS[kind])
    assert_same(ended(cluster), plain(name))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["Mirrored", pytest.param("MultiWorkerMirrored", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", ["eagerly", "accumulates"])
def test_what_parameter_server_does_not_have(started: Any, plain: Any, name: str, kind: str) -> None:
    """Its workers run graphs, and add to the same gradients."""
    cluster, _ = started(name, **KINDS[kind])
    assert_same(ended(cluster), plain(name))


def test_the_training_goes_on_where_its_record_cannot_be_written(started: Any, plain: Any) -> None:
    cluster, first = started("unrecorded", **KINDS["Mirrored"])
    assert_same(ended(cluster), plain("unrecorded"))
    notices = [record.fields["message"] for record in first.records(Event.NOTICE)]
    assert sum("this epoch of fit() is not recorded: cannot write" in notice for notice in notices) == 2
    assert sum("curves of TensorBoard are missing" in notice for notice in notices) == 1
    record = json.loads((cluster.model_dir / "fits" / "1.json").read_text())
    assert [epoch for epoch, _ in record["logs"]] == [0, 1, 2]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in _SERVED_OFTEN else pytest.mark.nightly) for name in TRAINED],
)
def test_one_worker_of_a_coordinator_takes_the_steps_of_one_process(
    started: Any, plain: Any, name: str
) -> None:
    cluster, _ = started(name, **SERVED)
    results, expected = ended(cluster), dict(plain(name))
    if "last" in expected:  # what a step returns is a mean there: see docs/keras-scripts.md
        del results["last"], expected["last"]
    assert_same(results, expected)
    for export in (cluster.model_dir / "files").glob("*/saved_model.pb"):
        assert computed(DEVICES, str(export.parent)) == []


def ended_after_a_kill(cluster: Cluster, first: RunningTask, epochs: int) -> RunningTask:
    """Kills all tasks when so many epochs are scored. Returns the first task of the second attempt."""
    first.eventually(lambda: len(first.records(Event.EVALUATION)) >= epochs, f"{epochs} epochs are scored")
    for task in cluster.tasks:
        if task.process.poll() is None:
            task.kill()
    again = list(cluster.start_all().values())
    for task in again:
        assert task.ended() == 0, task.output
    return again[0]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["Mirrored", pytest.param("MultiWorkerMirrored", marks=pytest.mark.nightly)])
def test_callbacks_go_on_after_a_kill(started: Any, plain: Any, kind: str) -> None:
    cluster, first = started("patient", **KINDS[kind])
    ended_after_a_kill(cluster, first, 3)
    results = dict(np.load(cluster.model_dir / "files" / "results.npz"))
    assert_same(results, plain("patient"))
    assert results["stopped"] > 3


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind",
    [
        "MultiWorkerMirrored",
        *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("Mirrored", "one ps")),
    ],
)
@pytest.mark.parametrize("name", ["fine_tune", pytest.param("py_dataset", marks=pytest.mark.nightly)])
def test_killed_in_the_second_fit(started: Any, plain: Any, name: str, kind: str) -> None:
    cluster, first = started(name, **(SERVED if kind == "one ps" else KINDS[kind]))
    again = ended_after_a_kill(cluster, first, 3)
    assert len(again.records(Event.TRAINING)) == 1
    again.until_notice("fit() number 1 was done before the interruption")
    results = dict(np.load(cluster.model_dir / "files" / "results.npz"))
    assert_same(results, plain(name))


@pytest.mark.parametrize(
    ("kind", "victim", "whole"),
    [
        ("MultiWorkerMirrored", ("worker", 1), False),
        pytest.param(
            "MultiWorkerMirrored", ("worker", 0), True, marks=[pytest.mark.thorough, pytest.mark.nightly]
        ),
        pytest.param("one ps", ("chief", 0), True, marks=pytest.mark.thorough),
        pytest.param("Mirrored", ("chief", 0), False, marks=[pytest.mark.thorough, pytest.mark.nightly]),
    ],
)
def test_a_kill_in_the_second_fit_costs_seconds(
    started: Any, plain: Any, tmp_path: Path, kind: str, victim: tuple[str, int], whole: bool
) -> None:
    """The first one had copies at the same steps, which are of other numbers."""
    options = SERVED if kind == "one ps" else KINDS[kind]
    cluster, first = started("slow_steps", copies=tmp_path / "copies", restarts_in_place=3, **options)
    keeps = ("ps", 0) if kind == "one ps" else victim
    copied = cluster.copies_dir(*keeps) / "backup"

    def copies() -> set[tuple[str, int]]:
        found = set()
        for path in copied.glob("ckpt-0-*.index"):
            with contextlib.suppress(FileNotFoundError):  # a newer one has come
                found.add((path.name, path.stat().st_mtime_ns))
        return found

    first.eventually(lambda: len(first.records(Event.TRAINING)) == 2, "the second fit trains")
    earlier = copies()
    first.eventually(lambda: copies() - earlier, "there is a copy of it")
    killed = next(task for task in cluster.tasks if task.name == pod_name("tiny", *victim))
    tasks = list(cluster.tasks)
    if whole:
        killed.kill()
        shutil.rmtree(cluster.copies_dir(*victim))
        tasks[tasks.index(killed)] = cluster.start(*victim)
    else:
        kill_in_its_pod(killed)
    for task in tasks:
        assert task.ended() == 0, task.output
    assert_same(dict(np.load(cluster.model_dir / "files" / "results.npz")), plain("slow_steps"))
    notices = [record.fields["message"] for task in tasks for record in task.records(Event.NOTICE)]
    assert any(re.search(r"goes on at step \d+ of epoch 1, from a copy in memory", each) for each in notices)


@pytest.mark.parametrize(
    "kind",
    [
        "Mirrored",
        *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("MultiWorkerMirrored", "one ps")),
    ],
)
def test_what_is_set_before_the_first_operation_is_passed_over(started: Any, plain: Any, kind: str) -> None:
    cluster, first = started("early_settings", **(SERVED if kind == "one ps" else KINDS[kind]))
    assert_same(ended(cluster), plain("early_settings"))
    first.until_notice(
        "set_inter_op_parallelism_threads() has no effect in a script: env: [{name: TF_NUM_INTEROP"
    )


@pytest.mark.thorough
def test_an_evaluator_scores_each_checkpoint(started: Any, plain: Any) -> None:
    kind = KINDS["Mirrored"]
    replicas = {**kind["replicas"], "evaluator": 1}
    cluster, first = started("fine_tune", **{**kind, "replicas": replicas})
    assert_same(ended(cluster), plain("fine_tune"))
    (evaluator,) = (task for task in cluster.tasks if task is not first)
    scored = [record.fields for record in evaluator.records(Event.EVALUATION)]
    trained = [record.fields for record in first.records(Event.EVALUATION)]
    assert [each["epoch"] for each in scored] == [1, 2, 3, 4, 5, 6]
    for one, other in zip(scored, trained, strict=True):
        assert one["metrics"] == pytest.approx(other["metrics"], abs=1e-5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_loop", "own_loop.py:16: the script has a loop of its own"),
        ("own_strategy", "own_strategy.py:6: the script builds a strategy"),
        ("own_batch_size", "each of the 2 replicas has 8 of 16 examples, and the program has a batch size"),
    ],
)
def test_a_script_that_cannot_train_so_is_told(started: Any, name: str, message: str) -> None:
    _, first = started(name, **KINDS["Mirrored"])
    assert first.ended() == ExitCode.PROGRAM_ERROR
    assert message in first.until(Event.FAILED).fields["message"]


def test_a_script_that_takes_another_way_is_refused(started: Any, tmp_path: Path) -> None:
    record = {
        "call": {"where": "own_loop.py:1", "variables": "", "epochs": 9, "steps": None, "batch_size": 32}
    }
    (tmp_path / "model" / "fits").mkdir(parents=True)
    (tmp_path / "model" / "fits" / "1.json").write_text(json.dumps({**record, "done": True}))
    _, first = started("functional", **ONE)
    assert first.ended() == ExitCode.PROGRAM_ERROR
    assert "epochs 3 for 9, a model of other variables" in first.until(Event.FAILED).fields["message"]
