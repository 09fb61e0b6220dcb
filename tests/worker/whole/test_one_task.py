"""Runs of one training task: what is wrong with a program, and whose checkpoints are whose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker import model_files
from tests.worker.cluster import ROOT
from tests.worker.conftest import MakeCluster
from tests.worker.whole.test_parameter_server import may_unshare
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

ONE = {"strategy": "OneDevice", "replicas": {"chief": 1}}
WITH_EVALUATOR = {"strategy": "OneDevice", "replicas": {"chief": 1, "evaluator": 1}}


def contents(folder: Path) -> dict[str, bytes]:
    """Of each file below it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.by_day(
    "step 57-sample 57 is damaged-in _checked",
    "model-RuntimeError: this model needs a tokenizer (while running model())-in model",
)
@pytest.mark.parametrize(
    ("fail", "message", "frame"),
    [
        ("model", "RuntimeError: this model needs a tokenizer (while running model())", "in model"),
        ("step 57", "sample 57 is damaged", "in _checked"),
        ("nan", "the loss became nan in epoch 1", ""),
    ],
)
def test_a_program_error_is_one_record_with_the_users_lines(
    make_cluster: MakeCluster, fail: str, message: str, frame: str
) -> None:
    chief = make_cluster(**ONE, parameters={"fail": fail}).start("chief")
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    (failed,) = chief.records(Event.FAILED)
    assert message in failed.fields["message"]
    assert "\n" not in failed.fields["message"]
    assert failed.fields["exit_code"] == ExitCode.PROGRAM_ERROR
    shown = failed.fields["traceback"]
    assert frame in shown
    assert "tensorflow" not in shown
    assert not [line for line in chief.lines if line.startswith("Traceback")], "told twice"


@pytest.mark.thorough
def test_a_finished_run_trains_anew_and_its_evaluator_passes_over_what_was_there(
    make_cluster: MakeCluster,
) -> None:
    first = make_cluster(**ONE, parameters={"epochs": 4})
    assert first.start("chief").ended() == 0

    # The same submission, its pod restarted after the end: nothing is trained.
    again = first.start("chief")
    assert again.ended() == 0
    assert not again.records(Event.TRAINING)
    assert again.records(Event.DONE)

    export = first.model_dir / "export"
    before = contents(export / "1")
    assert "saved_model.pb" in before

    second = make_cluster(**WITH_EVALUATOR, run_id="2", parameters={"epochs": 2})
    evaluator = second.start("evaluator")
    chief = second.start("chief")
    assert chief.ended() == 0
    assert chief.until(Event.EXPORTED).fields["path"] == str(export / "2")
    assert (export / "2" / "saved_model.pb").is_file()
    assert contents(export / "1") == before
    (notice,) = [each for each in chief.records(Event.NOTICE) if "begins anew" in each.fields["message"]]
    assert "its export/1 stays, and the new one will be export/2" in notice.fields["message"]
    assert notice.time < chief.until(Event.TRAINING).time
    assert chief.until(Event.TRAINING).fields["initial_epoch"] == 0
    assert evaluator.ended() == 0
    assert [record.fields["epoch"] for record in evaluator.records(Event.EVALUATION)] == [1, 2]
    assert model_files.epochs(second.model_dir) == [1, 2]


@pytest.mark.thorough
def test_as_many_checkpoints_stay_as_the_parameters_say_and_records_have_the_rate(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(**ONE, parameters={"epochs": 4, "keepCheckpoints": 2})
    chief = cluster.start("chief")
    assert chief.ended() == 0
    rates = [
        each.fields.get("learning_rate") for each in chief.records(Event.PROGRESS) if each.fields["epoch_end"]
    ]
    assert rates == [pytest.approx(0.01)] * 4
    assert model_files.epochs(cluster.model_dir) == [3, 4]


@pytest.mark.thorough
def test_an_epoch_whose_checkpoint_cannot_be_written_ends_no_training(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**ONE, parameters={"epochs": 3})
    taken = cluster.model_dir / "checkpoints" / "ckpt-2.data-00000-of-00001"
    taken.mkdir(parents=True)
    chief = cluster.start("chief")
    assert chief.ended() == 0
    checkpoints = [record.fields for record in chief.records(Event.CHECKPOINT) if not record.fields["steps"]]
    assert [(fields["epochs"], "problem" in fields) for fields in checkpoints] == [
        (1, False),
        (1, True),
        (3, False),
    ]
    assert checkpoints[1]["problem"].startswith(f"cannot write {cluster.model_dir}/checkpoints/ckpt-2: ")
    assert model_files.epochs(cluster.model_dir) == [1, 3]
    assert [record.fields["epoch"] for record in chief.records(Event.EVALUATION)] == [1, 2, 3]
    assert model_files.iterations(cluster.model_dir, 3) == 3 * model_files.iterations(cluster.model_dir, 1)


@pytest.mark.thorough
def test_a_run_that_did_not_finish_goes_on_under_the_next_submission(make_cluster: MakeCluster) -> None:
    first = make_cluster(**ONE, parameters={"epochs": 1000})
    chief = first.start("chief")
    chief.until(Event.PROGRESS, epoch=3, epoch_end=True)
    chief.kill()  # SIGTERM would leave a backup that is newer
    done = model_files.epochs(first.model_dir)[-1]
    damaged = first.model_dir / "checkpoints" / f"ckpt-{done}.index"
    damaged.write_bytes(damaged.read_bytes()[:50])

    second = make_cluster(**ONE, run_id="2", parameters={"epochs": done + 1})
    chief = second.start("chief")
    assert chief.ended() == 0
    assert chief.until(Event.TRAINING).fields["initial_epoch"] == done - 1
    notices = [notice.fields["message"] for notice in chief.records(Event.NOTICE)]
    assert any(f"ckpt-{done} cannot be read" in notice for notice in notices)
    assert model_files.iterations(second.model_dir, done + 1) == (done + 1) * 20


@pytest.mark.thorough
@pytest.mark.skipif(not may_unshare(), reason="needs root and mount namespaces")
def test_a_full_model_directory_is_said_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**ONE, stall_seconds=10, parameters={"width": 200_000})
    cluster.model_dir.mkdir(parents=True)
    script = f'mount -t tmpfs -o size=1m none {cluster.model_dir} && exec "$@"'
    chief = cluster.start("chief", prefix=("unshare", "-m", "sh", "-c", script, "sh"))
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    (failed,) = chief.records(Event.FAILED)
    assert str(cluster.model_dir) in failed.fields["message"]
    assert "make room on the volume behind spec.modelDir" in failed.fields["message"]


@pytest.mark.thorough
@pytest.mark.skipif(not may_unshare(), reason="needs root and mount namespaces")
def test_what_a_killed_export_has_left_does_not_fill_the_volume(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**ONE)
    left = cluster.model_dir / ".export-0123abcd"
    cluster.model_dir.mkdir(parents=True)
    fill = (
        f"mkdir {left}; head -c 9m /dev/zero > {left}/variables; ! echo full > {cluster.model_dir}/lease.json"
    )
    script = f'mount -t tmpfs -o size=8m none {cluster.model_dir} && {fill} && "$@"'
    chief = cluster.start("chief", prefix=("unshare", "-m", "sh", "-c", script, "sh"))
    assert chief.ended() == 0
    assert chief.records(Event.EXPORTED)


def test_a_model_directory_that_is_none(make_cluster: MakeCluster, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    chief = make_cluster(**ONE, model_dir=str(tmp_path / "file")).start("chief")
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    assert "spec.modelDir must be a path" in chief.until(Event.FAILED).fields["message"]


@pytest.mark.thorough
def test_python_code_in_a_dataset_is_found(tmp_path: Path) -> None:
    """Workers of a ParameterServer run crash or hang on it."""
    code = (
        "import tensorflow as tf\n"
        "from worker.tf_compat.graphs import operation_types\n"
        "numbers = tf.data.Dataset.range(3)\n"
        "called = numbers.map(lambda x: tf.py_function(lambda y: y, [x], tf.int64)).batch(2)\n"
        "spec = tf.TensorSpec((), tf.int64)\n"
        "made = tf.data.Dataset.from_generator(lambda: range(3), output_signature=spec)\n"
        "python = {'EagerPyFunc', 'PyFunc', 'PyFuncStateless'}\n"
        "print([sorted(operation_types(x) & python) for x in (numbers.map(tf.abs), called, made.repeat())])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[], ['EagerPyFunc'], ['PyFunc']]"


@pytest.mark.thorough
def test_nothing_is_kept_without_a_model_directory(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**ONE, model_dir=None)
    chief = cluster.start("chief")
    assert chief.ended() == 0
    assert not cluster.model_dir.exists()
