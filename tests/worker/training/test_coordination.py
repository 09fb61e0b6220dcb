"""Training by a loss under ParameterServer: scheduled steps are done, counted and evaluated."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worker import model_files
from tests.worker.cluster import PARAMETER_SERVER, Cluster, RunningTask
from tests.worker.conftest import MakeCluster
from tests.worker.forked_tasks import printed
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

EPOCHS = 3
WORDS = {"entrypoint": "words:Words"}
HELD_OUT, LIKED_SHARE = 700, 4 / 7


def all_done(tasks: dict[tuple[str, int], RunningTask]) -> None:
    assert {task.name: task.ended() for task in tasks.values()} == {task.name: 0 for task in tasks.values()}


def last_evaluation(chief: RunningTask) -> dict[str, float]:
    metrics: dict[str, float] = chief.records(Event.EVALUATION)[-1].fields["metrics"]
    return metrics


def counted(metrics: dict[str, float]) -> float:
    """Returns how many samples of the liked class were evaluated."""
    return metrics["hits"] + metrics["misses"]


def test_every_step_is_done_once_and_every_sample_evaluated_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**WORDS, parameters={"stepsPerEpoch": 61})
    tasks = cluster.start_all()
    all_done(tasks)
    assert model_files.iterations(cluster.model_dir, EPOCHS) == EPOCHS * 61
    chief = tasks["chief", 0]
    ends = [record.fields for record in chief.records(Event.PROGRESS) if record.fields["epoch_end"]]
    assert [(end["epoch"], end["step"]) for end in ends] == [(1, 61), (2, 61), (3, 61)]
    assert ends[-1]["loss"] < ends[0]["loss"]
    evaluations = [record.fields for record in chief.records(Event.EVALUATION)]
    assert [evaluation["checkpoint"] for evaluation in evaluations] == ["ckpt-1", "ckpt-2", "ckpt-3"]
    for evaluation in evaluations:
        assert counted(evaluation["metrics"]) == HELD_OUT * LIKED_SHARE
    assert evaluations[-1]["metrics"]["accuracy"] == 1.0
    assert list((cluster.model_dir / "logs" / "train").glob("events*"))
    assert exported_answers(cluster.model_dir / "export" / "1") == [True, False]


@pytest.mark.thorough
@pytest.mark.parametrize("program", ["Counted", "Keras3"])
def test_a_callback_saves_the_weights_of_just_so_many_steps(
    make_cluster: MakeCluster, tmp_path: Path, program: str
) -> None:
    parameters = {"epochs": 2, "stepsPerEpoch": 40, "folder": str(tmp_path), "saveFreq": 14}
    all_done(make_cluster(entrypoint=f"saved_often:{program}", parameters=parameters).start_all())
    files = {path.name.partition(".")[0]: path for path in tmp_path.glob("*.weights.h5")}
    assert sorted(files) == ["1-14", "1-28", "2-16", "2-2", "2-30"]
    for name, path in files.items():
        epoch, step = map(int, name.split("-"))
        assert int(printed(_WEIGHT, str(path))) == (epoch - 1) * 40 + step


_WEIGHT = (
    "import sys, h5py; found = [];"
    "h5py.File(sys.argv[1]).visititems(lambda name, item: getattr(item, 'shape', 0) == (1, 1)"
    " and found.append(item[0, 0]) or None);"
    "print(round(max(found)))"
)


@pytest.mark.nightly
@pytest.mark.thorough
def test_the_data_service_hands_out_every_sample_once(make_cluster: MakeCluster) -> None:
    """This holds when a worker is lost too: the data that it had received is sent again."""
    parameters = {"epochs": 8, "stepsPerEpoch": 10}
    cluster = make_cluster(entrypoint="words:Numbers", parameters=parameters, evaluation={"exact": True})
    tasks = cluster.start_all()
    tasks["chief", 0].until(Event.EVALUATION, epoch=2)
    tasks["worker", 1].kill()
    tasks["worker", 1] = cluster.start("worker", 1)
    all_done(tasks)
    chief = tasks["chief", 0]
    evaluations = [record.fields["metrics"] for record in chief.records(Event.EVALUATION)]
    assert [counted(metrics) for metrics in evaluations] == [HELD_OUT * LIKED_SHARE] * 8
    assert not [record for record in chief.records(Event.NOTICE) if "tf.data" in record.fields["message"]]


def exported_answers(path: Path) -> list[bool]:
    """Of the exported model, which takes strings: whether two sets of words are liked."""
    code = (
        "import sys, json, tensorflow as tf\n"
        "serve = tf.saved_model.load(sys.argv[1]).signatures['serving_default']\n"
        "words = [['avenger', 'ironman', 'batman'], ['wonder_woman', 'avenger', 'ironman']]\n"
        "(name,) = serve.structured_input_signature[1]\n"
        "(answers,) = serve(**{name: tf.constant(words)}).values()\n"
        "print(json.dumps([bool(answer > 0.5) for answer in answers.numpy()[:, 0]]))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    answers: list[bool] = json.loads(ran.stdout.splitlines()[-1])
    return answers


@pytest.mark.nightly
@pytest.mark.thorough
def test_a_killed_worker_gets_its_lookup_tables_back(make_cluster: MakeCluster) -> None:
    parameters = {"stepsPerEpoch": 300, "stepMilliseconds": 2}
    cluster = make_cluster(**WORDS, parameters=parameters, evaluation={"exact": True})
    tasks = cluster.start_all()
    tasks["chief", 0].until(Event.PROGRESS, epoch=1)
    tasks["worker", 1].kill()
    tasks["worker", 1] = cluster.start("worker", 1)
    all_done(tasks)
    assert "reading" in tasks["worker", 1].output, "it worked again"
    assert model_files.iterations(cluster.model_dir, EPOCHS) >= EPOCHS * 300
    assert counted(last_evaluation(tasks["chief", 0])) == HELD_OUT * LIKED_SHARE


@pytest.mark.nightly
@pytest.mark.thorough
def test_a_killed_ps_ends_the_chief_and_a_new_one_goes_on(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        entrypoint="scheduled:Scheduled", parameters={"stepsPerEpoch": 200, "stepMilliseconds": 2}
    )
    tasks = cluster.start_all()
    tasks["chief", 0].until(Event.PROGRESS, epoch=2)
    tasks["ps", 0].kill()
    assert tasks["chief", 0].ended() == ExitCode.RETRYABLE
    (failure,) = tasks["chief", 0].records(Event.FAILED)
    assert re.match(r"a task was lost while [a-z0-9 ]+: ps 0: ", failure.fields["message"])
    assert tasks["worker", 0].process.poll() is None
    tasks["ps", 0] = cluster.start("ps")
    tasks["chief", 0] = cluster.start("chief")
    assert tasks["chief", 0].until(Event.TRAINING).fields["initial_epoch"] == 1
    all_done(tasks)
    assert model_files.iterations(cluster.model_dir, EPOCHS) >= EPOCHS * 200


@pytest.mark.thorough
@pytest.mark.parametrize("lost", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_what_a_killed_ps_breaks_off_is_no_error_of_the_program(
    make_cluster: MakeCluster, tmp_path: Path, lost: bool
) -> None:
    """The ps is there again before the error arrives, and knows nothing of the run."""
    killed = tmp_path / "killed"
    cluster = make_cluster(entrypoint="scheduled:Scheduled", parameters={"killed": str(killed)})
    tasks = cluster.start_all()
    tasks["chief", 0].printed("waits for the file")
    if lost:
        tasks["ps", 0].kill()
        cluster.start("ps").until(Event.READY)
    killed.touch()
    assert tasks["chief", 0].ended() == (ExitCode.RETRYABLE if lost else ExitCode.PROGRAM_ERROR)
    (failure,) = tasks["chief", 0].records(Event.FAILED)
    assert "OutOfRangeError: End of sequence" in failure.fields["message"]
    assert ("a task was lost" in failure.fields["message"]) == lost


@pytest.mark.thorough
@pytest.mark.parametrize(("fail", "frame"), [("step", "in loss"), ("nan", "")])
def test_a_wrong_step_is_told_once_and_ends_all_tasks(
    make_cluster: MakeCluster, fail: str, frame: str
) -> None:
    cluster = make_cluster(entrypoint="scheduled:Scheduled", parameters={"fail": fail})
    tasks = cluster.start_all()
    chief = tasks.pop(("chief", 0))
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    all_done(tasks)
    (failure,) = chief.records(Event.FAILED)
    expected = {"step": "a label is out of range", "nan": "the loss became nan in epoch 1"}
    assert expected[fail] in failure.fields["message"]
    assert frame in failure.fields["traceback"]


@pytest.mark.thorough
def test_one_worker_learns_what_one_device_learns(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """The data has one order, and steps are compared. Sums of floats are in another order: 0.1%."""
    parameters = {"ordered": True, "stepsPerEpoch": 50, "stepsPerExecution": 7}
    losses = []
    for strategy, replicas in {
        "ParameterServer": {**PARAMETER_SERVER, "worker": 1},
        "OneDevice": {"chief": 1},
    }.items():
        cluster = Cluster(
            tmp_path / strategy,
            replicas=replicas,
            strategy=strategy,
            entrypoint="scheduled:Scheduled",
            parameters=parameters,
        )
        try:
            tasks = cluster.start_all()
            all_done(tasks)
            assert model_files.iterations(cluster.model_dir, EPOCHS) == EPOCHS * 50
            losses.append(epoch_losses(tasks["chief", 0]))
        finally:
            cluster.stop()
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def epoch_losses(chief: RunningTask) -> list[Any]:
    return [record.fields["loss"] for record in chief.records(Event.PROGRESS) if record.fields["epoch_end"]]


@pytest.mark.thorough
def test_fit_takes_a_dataset_creator_and_cuts_variables_up(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        replicas={"chief": 1, "worker": 1, "ps": 2},
        entrypoint="scheduled:Created",
        strategy_options={"minShardBytes": 256},
    )
    tasks = cluster.start_all()
    all_done(tasks)
    chief = tasks["chief", 0]
    assert model_files.iterations(cluster.model_dir, EPOCHS) == EPOCHS * 20
    assert len(chief.records(Event.EVALUATION)) == EPOCHS
    parts = re.findall(r"variable dense/kernel/part_(\d):0 (\d+) /job:ps/replica:0/task:(\d)", chief.output)
    assert [(part, size) for part, size, _ in parts] == [("0", "2"), ("1", "2")]
    assert {task for _, _, task in parts} == {"0", "1"}, "one on each ps"


@pytest.mark.thorough
def test_a_dataset_creator_needs_the_number_of_steps(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(entrypoint="scheduled:Created", parameters={"stepsPerEpoch": None})
    tasks = cluster.start_all()
    chief = tasks.pop(("chief", 0))
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    message = chief.until(Event.FAILED).fields["message"]
    assert message.startswith("spec.program.parameters.stepsPerEpoch: needed")
    all_done(tasks)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "advice"),
    [
        ("Iterated", "only the chief has: give the step tensors"),
        ("NoFile", "must be at this path in every worker"),
    ],
)
def test_what_a_worker_does_not_have_is_told(make_cluster: MakeCluster, program: str, advice: str) -> None:
    cluster = make_cluster(entrypoint=f"absent:{program}", parameters={"globalBatchSize": 4})
    chief = cluster.start_all()["chief", 0]
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    assert advice in chief.records(Event.FAILED)[-1].fields["message"]
