"""Models of Keras 3 whose variables are split over the parameter servers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker import model_files
from tests.worker.cluster import eventually
from tests.worker.conftest import MakeCluster
from tests.worker.forked_tasks import computed
from tests.worker.whole.test_keras_3 import ONE, evaluated, variables
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

PARAMETERS = {"epochs": 2, "globalBatchSize": 24, "stepsPerEpoch": 10}


def same(one: dict[str, Any], other: dict[str, Any], far: float = 1e-6) -> None:
    """Asserts that two checkpoints have the same names, shapes and values."""
    assert sorted(one) == sorted(other)
    for name, value in one.items():
        if name == "save_counter":
            continue
        assert np.shape(value) == np.shape(other[name]), name
        if not name.startswith("random_state/"):  # a program without a seed
            assert np.allclose(value, other[name], rtol=0.0, atol=far), name


def split(number: int, **replicas: int) -> dict[str, Any]:
    """Options of a cluster that splits every variable of as many rows over as many ps."""
    return {
        "replicas": {"chief": 1, "worker": 1, "ps": number, **replicas},
        "strategy_options": {"partitioner": "FixedShards", "numShards": number},
    }


@pytest.mark.by_day(runtime=("Tables",))
@pytest.mark.thorough
@pytest.mark.parametrize("program", ["Tables", "Own"])
def test_tables_in_pieces_are_trained_saved_and_read_as_whole_ones(
    make_cluster: MakeCluster, program: str
) -> None:
    """By 3 ps until the chief is killed, then by 2, with an evaluator that has the tables whole."""
    entrypoint = f"tables:{program}"
    slow = make_cluster(**split(3), entrypoint=entrypoint, parameters={**PARAMETERS, "epochs": 900})
    chief = slow.start_all()["chief", 0]
    chief.until(Event.CHECKPOINT)
    eventually(lambda: bool(model_files.epochs(slow.model_dir)), "the checkpoint of an epoch")
    slow.stop()
    done = model_files.epochs(slow.model_dir)[-1]
    parameters = {**PARAMETERS, "epochs": done + 1}
    again = make_cluster(**split(2, evaluator=1), entrypoint=entrypoint, parameters=parameters)
    tasks = again.start_all()
    failed = [task.output for task in tasks.values() if task.ended()]
    assert not failed, failed[0]
    assert tasks["chief", 0].until(Event.TRAINING).fields["initial_epoch"] == done
    split_variables, scores = variables(again.model_dir, done + 1), evaluated(tasks["evaluator", 0])[-1]
    exported = computed(_EXPORTED, again.model_dir / "export" / "1")
    assert sorted(exported) == [[8, 4], [20, 4], [300, 4]]
    shutil.rmtree(again.model_dir)

    whole = make_cluster(**ONE, entrypoint=entrypoint, parameters=parameters)
    chief = whole.start("chief")
    assert chief.ended() == 0
    same(split_variables, variables(whole.model_dir, done + 1))
    assert scores == pytest.approx(evaluated(chief)[-1], rel=1e-5)


_EXPORTED = """
import json, sys, tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
print(json.dumps([list(value.shape) for value in model.variables if value.shape.rank == 2]))
"""


@pytest.mark.nightly
@pytest.mark.thorough
def test_a_model_in_pieces_is_evaluated_and_predicted_with(make_cluster: MakeCluster) -> None:
    program = {"entrypoint": "tables:Tables", "parameters": PARAMETERS}
    trained = make_cluster(**split(2), **program)
    chief = trained.start_all()["chief", 0]
    assert chief.ended() == 0
    scores = evaluated(chief)[-1]
    assert sorted(scores) == ["accuracy", "loss"]
    guesses = []
    for number, options in enumerate([ONE, split(3)]):
        scored = make_cluster(**options, **program, mode="Evaluate", run_id=f"scored-{number}")
        chief = scored.start_all()["chief", 0]
        assert chief.ended() == 0, chief.output
        assert chief.until(Event.EVALUATION).fields["metrics"] == pytest.approx(scores, rel=1e-5)
        predicting = make_cluster(
            **options, **program, mode="Predict", run=f"guess-{number}", run_id=f"p-{number}"
        )
        chief = predicting.start_all()["chief", 0]
        assert chief.ended() == 0, chief.output
        guesses.append(lines(predicting.model_dir / "predictions" / f"guess-{number}"))
    assert [key for key, _ in guesses[0]] == [key for key, _ in guesses[1]]
    assert len(guesses[0]) == 40
    here, there = ([values for _, values in each] for each in guesses)
    assert np.allclose(here, there, rtol=0.0, atol=1e-6)


def lines(folder: Path) -> list[tuple[Any, Any]]:
    """The keys and values of a prediction."""
    text = "".join(path.read_text() for path in sorted(folder.glob("*.jsonl")))
    rows = [json.loads(line) for line in text.splitlines()]
    return [(line["key"], line["prediction"]) for line in rows]


@pytest.mark.thorough
def test_what_a_model_in_pieces_cannot_do_is_told(make_cluster: MakeCluster) -> None:
    parameters = {**PARAMETERS, "optimizer": ["Lamb", {}]}
    cluster = make_cluster(**split(2), entrypoint="crowded:Tables", parameters=parameters)
    chief = cluster.start_all()["chief", 0]
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    chief.until_notice("of memory to resume, and may use 64 MiB: raise the memory in resources of the chief")
    message = chief.until(Event.FAILED).fields["message"]
    assert "Lamb may look at all of of_words/embeddings for the update of a row, and its rows" in message
    assert "spec.strategyOptions {partitioner: FixedShards, numShards: 1}" in message
