"""The sidecar evaluator: both ways, what it scores, and when it ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worker import model_files
from tests.worker.cluster import PATIENCE_SECONDS, ROOT, Cluster, RunningTask, eventually
from tests.worker.conftest import MakeCluster
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event, Record

pytestmark = pytest.mark.thorough

WITH_EVALUATOR = {"strategy": "OneDevice", "replicas": {"chief": 1, "evaluator": 1}}
STOCK = {"method": "SidecarEvaluator"}
EPOCHS = 3


def scored(task: RunningTask) -> dict[int, dict[str, float]]:
    """Epoch to metrics, in the order of the reports."""
    scores = {}
    for record in task.records(Event.EVALUATION):
        assert record.fields["checkpoint"] == f"ckpt-{record.fields['epoch']}"
        scores[record.fields["epoch"]] = record.fields["metrics"]
    return scores


def evaluate(make_cluster: MakeCluster, **options: Any) -> RunningTask:
    """An evaluator beside what is in the model directory already, to its end."""
    evaluator = make_cluster(**WITH_EVALUATOR, parameters={"epochs": EPOCHS}, **options).start("evaluator")
    assert evaluator.ended() == 0, evaluator.output
    return evaluator


@pytest.mark.nightly
def test_both_ways_give_the_same_for_every_kind_of_program(make_cluster: MakeCluster) -> None:
    trained: Cluster = make_cluster(**WITH_EVALUATOR, parameters={"epochs": EPOCHS})
    assert trained.start("chief").ended() == 0
    notes = trained.model_dir / "logs" / "evaluation"

    every = scored(evaluate(make_cluster))
    assert list(every) == [1, 2, 3]
    assert every[3]["loss"] < every[1]["loss"]
    assert every[3].keys() == {"loss", "mae"}
    assert json.loads((notes / "evaluated.json").read_text())["epoch"] == EPOCHS

    # Started once more, it finds everything scored.
    assert scored(evaluate(make_cluster)) == {}

    def alone(**options: Any) -> dict[str, float]:
        shutil.rmtree(notes)
        scores = scored(evaluate(make_cluster, **options))
        assert list(scores) == [EPOCHS]
        return scores[EPOCHS]

    expected = pytest.approx(every[EPOCHS], rel=1e-5)
    latest = {"checkpoints": "Latest"}
    assert alone(evaluation=latest) == expected
    assert alone(evaluation=STOCK) == expected
    assert alone(evaluation=latest, entrypoint="evaluated:ByLoss") == expected
    assert alone(evaluation=STOCK, entrypoint="evaluated:ByLoss") == expected
    # A step of its own and no compiled loss: there is no loss to tell.
    metrics = {"mae": expected.expected["mae"]}
    assert alone(evaluation=latest, entrypoint="evaluated:ByStep") == pytest.approx(metrics, rel=1e-5)
    assert alone(evaluation=STOCK, entrypoint="evaluated:ByStep") == pytest.approx(metrics, rel=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("evaluation", [{}, STOCK], ids=["Loop", "SidecarEvaluator"])
def test_one_that_was_killed_goes_on_and_ends_with_the_run(
    make_cluster: MakeCluster, evaluation: dict[str, str]
) -> None:
    parameters = {"epochs": 7, "checkpointEpochs": 2, "stepMilliseconds": 10}
    cluster = make_cluster(**WITH_EVALUATOR, parameters=parameters, evaluation=evaluation)
    first = cluster.start("evaluator")
    chief = cluster.start("chief")
    first.until(Event.EVALUATION)
    # Killed before the note, it would score that one again.
    eventually((cluster.model_dir / "logs" / "evaluation" / "evaluated.json").exists, "the note")
    first.kill()
    second = cluster.start("evaluator")
    assert chief.ended() == 0
    assert second.ended() == 0, second.output
    before, after = list(scored(first)), list(scored(second))
    assert after[-1] == 7
    assert before[-1] < after[0]
    assert before + after == sorted(set(before + after))
    assert set(before + after) <= {2, 4, 6, 7}
    if not evaluation:
        assert before + after == [2, 4, 6, 7]


@pytest.mark.parametrize("evaluation", [{}, STOCK], ids=["Loop", "SidecarEvaluator"])
def test_it_ends_when_the_run_has_failed(make_cluster: MakeCluster, evaluation: dict[str, str]) -> None:
    cluster = make_cluster(**WITH_EVALUATOR, parameters={"fail": "step 57"}, evaluation=evaluation)
    evaluator = cluster.start("evaluator")
    assert cluster.start("chief").ended() == ExitCode.PROGRAM_ERROR
    assert evaluator.ended() == 0, evaluator.output
    assert model_files.state(cluster.model_dir)["phase"] == "failed"
    assert list(scored(evaluator))[-1:] == model_files.epochs(cluster.model_dir)[-1:]
    assert evaluator.records(Event.DONE)


@pytest.mark.by_day(runtime=("Loop",))
@pytest.mark.parametrize("evaluation", [{}, STOCK], ids=["Loop", "SidecarEvaluator"])
def test_it_is_retried_when_the_chief_has_gone(make_cluster: MakeCluster, evaluation: dict[str, str]) -> None:
    cluster = make_cluster(
        **WITH_EVALUATOR,
        parameters={"epochs": 1000},
        evaluation=evaluation,
        starting_deadline_seconds=1,
        chief_lost_seconds=5,
    )
    chief = cluster.start("chief")
    chief.until(Event.PROGRESS, epoch=3, epoch_end=True)
    chief.kill()
    evaluator = cluster.start("evaluator")
    # Not 0: the chief may have waited for a node, and the evaluator is needed when it is back.
    assert evaluator.ended() == ExitCode.RETRYABLE, evaluator.output
    assert list(scored(evaluator))[-1] == model_files.epochs(cluster.model_dir)[-1]
    assert not evaluator.records(Event.DONE)


def test_nobody_ever_came(make_cluster: MakeCluster) -> None:
    limits = {"starting_deadline_seconds": 1, "chief_lost_seconds": 5, "restarts_in_place": 3}
    evaluator = make_cluster(**WITH_EVALUATOR, **limits).start("evaluator")
    assert evaluator.ended() == ExitCode.RETRYABLE
    assert not evaluator.records(Event.RESTARTED)
    assert not evaluator.records(Event.EVALUATION)
    message = evaluator.until(Event.FAILED).fields["message"]
    assert message == "the chief has not been there for 5 s (chiefLostSeconds)"


_REMOVED = """
import sys
from worker import runtime
from worker.checkpoints import model_directory

load = model_directory.ModelDirectory.load

def removed_meanwhile(self, model, epoch):
    if epoch == 2 or "all" in sys.argv:
        self._remove(f"checkpoints/ckpt-{epoch}")
    return load(self, model, epoch)

model_directory.ModelDirectory.load = removed_meanwhile
runtime.main([])
"""


@pytest.mark.nightly
def test_a_checkpoint_that_is_deleted_under_it_is_passed_over(make_cluster: MakeCluster) -> None:
    trained = make_cluster(**WITH_EVALUATOR, parameters={"epochs": EPOCHS})
    assert trained.start("chief").ended() == 0
    evaluator = trained.start("evaluator", python=("-c", _REMOVED))
    assert evaluator.ended() == 0, evaluator.output
    assert list(scored(evaluator)) == [1, 3]


@pytest.mark.nightly
def test_one_that_could_score_nothing_is_no_success(make_cluster: MakeCluster) -> None:
    trained = make_cluster(**WITH_EVALUATOR, parameters={"epochs": EPOCHS})
    assert trained.start("chief").ended() == 0
    evaluator = trained.start("evaluator", python=("-c", _REMOVED, "all"))
    assert evaluator.ended() == ExitCode.PROGRAM_ERROR, evaluator.output
    assert "no checkpoint of it was scored" in evaluator.until(Event.FAILED).fields["message"]
    assert not evaluator.records(Event.DONE)


def test_keras_3_has_no_stock_evaluator(make_cluster: MakeCluster) -> None:
    evaluator = make_cluster(**WITH_EVALUATOR, evaluation=STOCK, keras=3).start("evaluator")
    assert evaluator.ended() == ExitCode.PROGRAM_ERROR
    assert "of Keras 3, which has no SidecarEvaluator" in evaluator.until(Event.FAILED).fields["message"]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["cluster-sidecar", "cluster-sidecar-stock"])
def test_the_example(tmp_path: Path, name: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path)}
    launcher = [sys.executable, "-m", "launcher"]
    file = str(ROOT / "examples" / "strategies" / f"{name}.yaml")
    done = subprocess.run(
        [*launcher, "submit", file, "--backend", "local", "--set", "spec.program.parameters.epochs=2"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = {"cluster-sidecar": "sidecar-loop", "cluster-sidecar-stock": "sidecar-stock"}[name]
    logs = subprocess.run(
        [*launcher, "logs", run, "--role", "evaluator", "--raw"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    records = [record for line in logs.stdout.splitlines() if (record := Record.parse(line))]
    last = [record.fields for record in records if record.event == Event.EVALUATION][-1]
    assert last["epoch"] == 2
    assert last["metrics"]["accuracy"] > 0.6
    assert subprocess.run([*launcher, "delete", run], env=environment, capture_output=True).returncode == 0
