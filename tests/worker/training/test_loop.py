"""Model.fit: steps are packed, counted and saved; its limits are reported at once. Keras 2 and 3 alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worker import model_files
from tests.worker.cluster import RunningTask
from tests.worker.conftest import MakeCluster
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

pytestmark = pytest.mark.thorough

ONE = {"strategy": "OneDevice", "replicas": {"chief": 1}, "entrypoint": "fitted:Fitted"}
TWO_CPUS = {"strategy_options": {"logicalCpus": 2}, "replicas": {"chief": 1}, "entrypoint": "fitted:Fitted"}
PARAMETER_SERVER = {"strategy": "ParameterServer", "entrypoint": "fitted:Fitted"}


def losses(task: RunningTask) -> list[float]:
    """Of the epochs."""
    ends = [record.fields for record in task.records(Event.PROGRESS) if record.fields["epoch_end"]]
    return [end["loss"] for end in ends]


def test_a_checkpoint_after_every_so_many_epochs_and_after_the_last(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**ONE, parameters={"epochs": 5, "checkpointEpochs": 2, "stepsPerExecution": 7})
    assert cluster.start("chief").ended() == 0
    assert model_files.epochs(cluster.model_dir) == [2, 4, 5]
    assert model_files.iterations(cluster.model_dir, 5) == 100, "20 steps, of which the last execution has 6"


@pytest.mark.parametrize(
    "options",
    [ONE, {**PARAMETER_SERVER, "replicas": {"chief": 1, "worker": 2, "ps": 1}}],
    ids=["OneDevice", "ParameterServer"],
)
def test_the_number_of_packed_steps_is_found_and_no_step_is_lost(
    make_cluster: MakeCluster, options: dict[str, Any]
) -> None:
    parameters = {"epochs": 2, "stepsPerEpoch": 203, "stepsPerExecution": "auto"}
    cluster = make_cluster(**options, parameters=parameters)
    tasks = cluster.start_all()
    assert {task.ended() for task in tasks.values()} == {0}
    assert model_files.iterations(cluster.model_dir, 2) == 406


@pytest.mark.nightly
def test_metrics_within_an_epoch_are_not_added_up_over_the_workers(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        strategy="MultiWorkerMirrored",
        entrypoint="fitted:Fitted",
        replicas={"worker": 2},
        model_dir=None,
        parameters={"epochs": 1, "stepMilliseconds": 10},
    )
    tasks = cluster.start_all()
    assert {task.ended() for task in tasks.values()} == {0}
    records = tasks["worker", 0].records(Event.PROGRESS)
    assert [record for record in records if not record.fields["epoch_end"]], "some within the epoch"
    assert {record.fields["metrics"].get("always_one", 1.0) for record in records} == {1.0}
    assert "always_one" in records[-1].fields["metrics"]


@pytest.mark.nightly
def test_metrics_are_shown_within_an_epoch_of_one_task(make_cluster: MakeCluster) -> None:
    chief = make_cluster(**ONE, parameters={"epochs": 1, "stepMilliseconds": 100}).start("chief")
    assert chief.ended() == 0
    records = [record.fields for record in chief.records(Event.PROGRESS)]
    assert len(records) > 1
    assert {record["metrics"]["always_one"] for record in records} == {1.0}


def test_hooks_for_every_batch_keep_the_steps_apart(make_cluster: MakeCluster) -> None:
    chief = make_cluster(**ONE, parameters={"epochs": 1, "callbacks": "batch"}).start("chief")
    assert chief.ended() == 0
    assert [line for line in chief.lines if line.startswith("batch")] == [f"batch {n}" for n in range(20)]


def test_hooks_for_every_batch_keep_the_steps_of_workers_apart(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        **PARAMETER_SERVER,
        replicas={"chief": 1, "worker": 2, "ps": 1},
        parameters={"epochs": 1, "callbacks": "batch"},
    )
    chief = cluster.start_all()["chief", 0]
    assert chief.ended() == 0
    assert [line for line in chief.lines if line.startswith("batch")] == [f"batch {n}" for n in range(20)]
    chief.until_notice("fitted:Fitted: callbacks() has a EveryBatch with hooks for every batch")


def test_terminate_on_nan_is_taken_by_parameter_servers(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        **PARAMETER_SERVER,
        replicas={"chief": 1, "worker": 1, "ps": 1},
        parameters={"callbacks": "terminating"},
    )
    assert cluster.start_all()["chief", 0].ended() == 0


def test_a_callback_may_predict_under_parameter_servers(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        **PARAMETER_SERVER,
        replicas={"chief": 1, "worker": 1, "ps": 1},
        parameters={"callbacks": "predicting"},
    )
    chief = cluster.start_all()["chief", 0]
    assert chief.ended() == 0
    chief.printed("by itself (2, 1)")
    chief.printed("by Keras (2, 1)")


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({**PARAMETER_SERVER, "replicas": {"chief": 1, "worker": 1, "ps": 1}}, "under ParameterServer"),
        ({**TWO_CPUS, "strategy": "Mirrored"}, "for several replicas"),
        (ONE, ""),
    ],
    ids=["ParameterServer", "Mirrored", "OneDevice"],
)
def test_xla_where_it_can(make_cluster: MakeCluster, options: dict[str, Any], where: str) -> None:
    tasks = make_cluster(**options, parameters={"epochs": 1, "xla": True}).start_all()
    assert tasks["chief", 0].ended() == (ExitCode.PROGRAM_ERROR if where else 0)
    for failed in tasks["chief", 0].records(Event.FAILED):
        assert f"cannot compile a step by XLA {where}: leave jit_compile out" in failed.fields["message"]


_NO_BATCHES = "model() has no batch dimension: it"


@pytest.mark.parametrize(
    ("shape", "what"),
    [
        ("single", f"{_NO_BATCHES} takes [4], a single example, and train_dataset() gives [None, 4];"),
        (
            "scalar",
            f"{_NO_BATCHES} returns a scalar for a batch, not a prediction for each of its examples;",
        ),
        (
            "unbatched",
            "train_dataset() gives [4], a single example, and model() takes batches of them, [None, 4]:",
        ),
    ],
)
def test_what_has_no_batch_dimension(make_cluster: MakeCluster, shape: str, what: str) -> None:
    chief = make_cluster(**ONE, model_dir=None, parameters={"shape": shape}).start("chief")
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    (failed,) = chief.records(Event.FAILED)
    assert failed.fields["message"].startswith(f"fitted:Fitted: {what}")


def test_a_model_that_was_made_for_batches_of_another_size(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**ONE, parameters={"epochs": 1, "shape": "fixed"})
    chief = cluster.start("chief")
    assert chief.ended() == 0, [each.fields["message"] for each in chief.records(Event.FAILED)]


def test_a_checkpoint_of_another_model(make_cluster: MakeCluster, tmp_path: Path) -> None:
    first = make_cluster(**ONE, parameters={"epochs": 9, "stepMilliseconds": 10, "width": 4})
    chief = first.start("chief")
    chief.until(Event.PROGRESS, epoch=2, epoch_end=True)
    chief.signal(15)
    chief.ended()
    other = make_cluster(**ONE, run_id="2", parameters={"epochs": 9, "width": 5}).start("chief")
    assert other.ended() == ExitCode.PROGRAM_ERROR
    (failed,) = other.records(Event.FAILED)
    assert "was written by another model than this program's" in failed.fields["message"]
    assert "give the run another spec.modelDir, or empty this one" in failed.fields["message"]
