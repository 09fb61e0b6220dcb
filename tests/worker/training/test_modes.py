"""Evaluating, and predicting with, what an earlier run has trained: by every strategy as by one process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.worker.cluster import PROGRAMS, ROOT, Cluster, RunningTask
from tests.worker.conftest import MakeCluster
from tests.worker.forked_tasks import computed
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

thorough = pytest.mark.thorough
nightly = [thorough, pytest.mark.nightly]

ONE: dict[str, Any] = {"strategy": "OneDevice", "replicas": {"chief": 1}}
TWO_CPUS = {"strategy_options": {"logicalCpus": 2}}
MIRRORED = {"strategy": "Mirrored", "replicas": {"chief": 1}, **TWO_CPUS}
CENTRAL = {"strategy": "CentralStorage", "replicas": {"chief": 1}, **TWO_CPUS}
WORKERS = {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}}
CHIEF_AND_WORKER = {"strategy": "MultiWorkerMirrored", "replicas": {"chief": 1, "worker": 1}, **TWO_CPUS}
SERVERS = {"strategy": "ParameterServer", "replicas": {"chief": 1, "worker": 2, "ps": 1}}

PARAMETERS = {"epochs": 2, "stepsPerEpoch": 3, "globalBatchSize": 8}

# What plain Keras makes of the newest checkpoint.
ALONE = """
import json, os, sys
os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3")
import tensorflow as tf
import applied
from worker.steps.model_build import build
program = getattr(applied, sys.argv[1])(json.loads(sys.argv[2]))
model = program.model()
scored, predicted = program.evaluation_dataset(8), program.predict_dataset(8)
build(model, scored.element_spec, "applied")
status = tf.train.Checkpoint(root=model).read(sys.argv[3])
status.assert_existing_objects_matched().expect_partial()
metrics = model.evaluate(scored, verbose=0, return_dict=True)
outputs = tf.nest.map_structure(lambda array: array.tolist(), model.predict(predicted, verbose=0))
keys = [key for _, key in predicted.unbatch().as_numpy_iterator()] if sys.argv[1] != "TwoOutputs" else None
keys = keys and [key.decode() if isinstance(key, bytes) else int(key) for key in keys]
print(json.dumps([metrics, outputs, keys]))
"""


class Trained:
    """A run that has trained `applied:<name>`, and what one process makes of it."""

    def __init__(self, make_cluster: MakeCluster, name: str, **parameters: Any) -> None:
        self.make_cluster = make_cluster
        self.name = name
        self.parameters = {**PARAMETERS, **parameters}
        self.cluster = self.made(ONE, "train")
        chief = self.cluster.start("chief")
        assert chief.ended() == 0, chief.output

    def made(self, strategy: Mapping[str, Any], run_id: str, **options: Any) -> Cluster:
        program = {"entrypoint": f"applied:{self.name}", "parameters": self.parameters}
        return self.make_cluster(**{**program, **strategy, "run_id": run_id, **options})

    def ran(self, strategy: Mapping[str, Any], run_id: str, **options: Any) -> list[RunningTask]:
        """All tasks of a run that has succeeded, its primary first."""
        tasks = list(self.made(strategy, run_id, **options).start_all().values())
        assert [task.ended() for task in tasks] == [0] * len(tasks), "\n".join(t.output for t in tasks)
        return tasks

    def alone(self) -> Any:
        """Metrics, outputs and keys."""
        checkpoint = str(self.cluster.model_dir / "checkpoints" / "ckpt-2")
        code = f"import sys; sys.path.append({str(PROGRAMS)!r})\n{ALONE}"
        return computed(code, self.name, json.dumps(self.parameters), checkpoint)

    @property
    def folder(self) -> Path:
        return self.cluster.model_dir / "predictions" / "tiny"

    def lines(self) -> list[Any]:
        """Of all parts, in the order of their names."""
        paths = sorted(self.folder.glob("part-*.jsonl"))
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    def predictions_are_whole(self, outputs: Any, keys: Any) -> None:
        """Each example once, in its order, as one process predicts it; and nothing is left over."""
        lines = self.lines()
        assert [line["index"] for line in lines] == list(range(self.parameters["examples"]))
        assert keys is None or [line["key"] for line in lines] == keys
        columns = outputs if isinstance(outputs, dict) else {"": outputs}
        for name, values in columns.items():
            predictions = [line["prediction"][name] if name else line["prediction"] for line in lines]
            for one, other in zip(predictions, values, strict=True):
                assert one == pytest.approx(other, rel=1e-5, abs=1e-5)
        state = json.loads((self.folder / "predictions.json").read_text())
        parts = len(list(self.folder.glob("part-*")))
        assert (state["phase"], state["examples"], state["parts"]) == ("done", len(lines), parts)
        assert not list(self.folder.glob(".part-*"))


def scored(tasks: list[RunningTask]) -> dict[str, float]:
    """The one evaluation that the tasks report."""
    (evaluation,) = [record.fields for task in tasks for record in task.records(Event.EVALUATION)]
    assert (evaluation["checkpoint"], evaluation["epoch"]) == ("ckpt-2", 2)
    return dict(evaluation["metrics"])


def contents(folder: Path) -> dict[str, str]:
    """Digests of the files in it, by their names."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


EVERY = {
    "OneDevice": ONE,
    "Mirrored": MIRRORED,
    "CentralStorage": CENTRAL,
    "MultiWorkerMirrored": WORKERS,
    "with-chief": CHIEF_AND_WORKER,
    "ParameterServer": SERVERS,
}
USUAL = ("Mirrored", "MultiWorkerMirrored", "ParameterServer")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "strategies", "examples"),
    [
        pytest.param("TwoOutputs", USUAL, 17, marks=thorough),
        pytest.param("Applied", tuple(EVERY), 17, marks=nightly),
        pytest.param("ByLoss", tuple(EVERY), 17, marks=nightly),
        pytest.param("Subclassed", tuple(EVERY), 17, marks=nightly),
        pytest.param("Words", tuple(EVERY), 17, marks=nightly),
        # Fewer than replicas.
        pytest.param("TwoOutputs", tuple(EVERY), 1, marks=nightly),
    ],
)
def test_every_strategy_is_as_one_process(
    make_cluster: MakeCluster, name: str, strategies: tuple[str, ...], examples: int
) -> None:
    """17 examples in batches of 8 leave a replica without any in the last step."""
    trained = Trained(make_cluster, name, examples=examples)
    metrics, outputs, keys = trained.alone()
    for strategy in strategies:
        options = EVERY[strategy]
        tasks = trained.ran(options, f"evaluate-{strategy}", mode="Evaluate")
        assert scored(tasks) == pytest.approx(metrics, rel=1e-5, abs=1e-5), strategy

        tasks = trained.ran(options, f"predict-{strategy}", mode="Predict")
        trained.predictions_are_whole(outputs, keys)
        (done,) = [record.fields for task in tasks for record in task.records(Event.PREDICTED)]
        assert (done["path"], done["examples"]) == (str(trained.folder), examples)
        progress = [task.records(Event.PREDICTING) for task in tasks]
        assert sum(records[-1].fields["examples"] for records in progress if records) == examples


@pytest.mark.nightly
@pytest.mark.thorough
@pytest.mark.parametrize(
    "strategy",
    [
        {**WORKERS, "replicas": {"worker": 4}},
        pytest.param({**SERVERS, "replicas": {"chief": 1, "worker": 4, "ps": 1}}, marks=thorough),
    ],
    ids=["MultiWorkerMirrored", "ParameterServer"],
)
def test_one_example_and_four_workers(make_cluster: MakeCluster, strategy: dict[str, Any]) -> None:
    trained = Trained(make_cluster, "Applied", examples=1)
    metrics, outputs, keys = trained.alone()
    assert scored(trained.ran(strategy, "2", mode="Evaluate")) == pytest.approx(metrics, rel=1e-5)
    trained.ran(strategy, "3", mode="Predict")
    trained.predictions_are_whole(outputs, keys)


@pytest.mark.nightly
@pytest.mark.thorough
def test_what_was_trained_is_left_as_it_is(make_cluster: MakeCluster) -> None:
    """A finished run that is submitted again would train anew, and begin by removing the checkpoints."""
    trained = Trained(make_cluster, "Applied", examples=17)
    before = contents(trained.cluster.model_dir)
    assert {"run-state.json", "checkpoints/ckpt-2.index", "export/1/saved_model.pb"} <= before.keys()
    for run_id in ("train", "other"):
        trained.ran(ONE, run_id, mode="Evaluate")
        trained.ran(ONE, run_id, mode="Predict", checkpoint="ckpt-1")
        after = contents(trained.cluster.model_dir)
        assert {name: after.get(name) for name in before} == before
        added = {name.rpartition("/")[0] for name in after.keys() - before.keys()}
        assert added == {"logs/evaluation", "predictions/tiny"}
    assert json.loads((trained.folder / "predictions.json").read_text())["checkpoint"] == "ckpt-1"


@pytest.mark.thorough
def test_the_same_run_again_has_nothing_to_do_and_another_predicts_anew(make_cluster: MakeCluster) -> None:
    trained = Trained(make_cluster, "Applied", examples=17)
    (first,) = trained.ran(ONE, "2", mode="Predict")
    marked = trained.folder / "part-00001.jsonl"
    marked.write_text("as it was\n")

    (again,) = trained.ran(ONE, "2", mode="Predict")
    assert not again.records(Event.PREDICTING)
    assert again.until(Event.PREDICTED).fields == first.until(Event.PREDICTED).fields
    assert marked.read_text() == "as it was\n"

    (anew,) = trained.ran(ONE, "3", mode="Predict")
    assert anew.until(Event.PREDICTED).fields["examples"] == 17
    _, outputs, keys = trained.alone()
    trained.predictions_are_whole(outputs, keys)


@thorough
def test_a_killed_worker_is_missed_by_nobody_and_goes_on(make_cluster: MakeCluster) -> None:
    trained = Trained(make_cluster, "Slow", examples=200)
    trained.parameters["milliseconds"] = 200
    cluster = trained.made(WORKERS, "2", mode="Predict")
    tasks = cluster.start_all()
    # 50 batches in 33 parts, of which every other one is worker 1's.
    tasks["worker", 1].eventually((trained.folder / "part-00001.jsonl").exists, "it has a part")
    tasks["worker", 1].kill()
    tasks["worker", 0].eventually((trained.folder / "part-00032.jsonl").exists, "it goes on to its end")
    done = {path: path.stat().st_mtime_ns for path in trained.folder.glob("part-*")}
    assert 17 < len(done) < 33
    assert tasks["worker", 0].process.poll() is None, "it waits"
    tasks["worker", 0].kill()

    tasks = cluster.start_all()
    assert [task.ended() for task in tasks.values()] == [0, 0]
    assert {path: path.stat().st_mtime_ns for path in done} == done, "these were not predicted again"
    trained.parameters["milliseconds"] = 0
    _, outputs, keys = trained.alone()
    trained.predictions_are_whole(outputs, keys)
    counts = [task.records(Event.PREDICTING)[-1].fields["examples"] for task in tasks.values()]
    assert sum(counts) == 200


@pytest.mark.thorough
def test_parameter_servers_do_without_a_worker_and_the_chief_goes_on(make_cluster: MakeCluster) -> None:
    trained = Trained(make_cluster, "Slow", examples=200)
    trained.parameters["milliseconds"] = 300
    cluster = trained.made(SERVERS, "2", mode="Predict")
    tasks = cluster.start_all()
    tasks["chief", 0].eventually((trained.folder / "part-00001.jsonl").exists, "some parts are there")
    tasks["worker", 1].kill()
    tasks["chief", 0].eventually((trained.folder / "part-00005.jsonl").exists, "it goes on")
    tasks["chief", 0].kill()
    done = {path: path.stat().st_mtime_ns for path in trained.folder.glob("part-*")}
    tasks["chief", 0] = cluster.start("chief")
    tasks["worker", 1] = cluster.start("worker", 1)
    assert [task.ended() for task in tasks.values()] == [0] * 4, tasks["chief", 0].output
    assert {path: path.stat().st_mtime_ns for path in done} == done
    trained.parameters["milliseconds"] = 0
    _, outputs, keys = trained.alone()
    trained.predictions_are_whole(outputs, keys)


@pytest.mark.nightly
@thorough
def test_an_unfinished_prediction_is_gone_on_with_only_where_nothing_has_changed(
    make_cluster: MakeCluster,
) -> None:
    trained = Trained(make_cluster, "Slow", examples=64)
    trained.parameters["milliseconds"] = 200
    chief = trained.made(ONE, "2", mode="Predict").start("chief")
    chief.eventually((trained.folder / "part-00001.jsonl").exists, "some parts are there")
    chief.kill()
    time.sleep(1)
    first = trained.folder / "part-00000.jsonl"
    written = first.stat().st_mtime_ns

    (same,) = trained.ran(ONE, "3", mode="Predict")
    same.until_notice("holds an earlier run that did not finish: resuming after its")
    assert first.stat().st_mtime_ns == written

    state = trained.folder / "predictions.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "phase": "predicting"}))
    trained.parameters["milliseconds"] = 0
    (other,) = trained.ran(ONE, "4", mode="Predict")
    assert not other.records(Event.NOTICE)
    assert first.stat().st_mtime_ns > written


@thorough
def test_what_is_wrong_is_one_message(make_cluster: MakeCluster) -> None:
    trained = Trained(make_cluster, "Applied", examples=17)
    before = contents(trained.cluster.model_dir)

    def refused(name: str, message: str, mode: str = "Predict", **options: Any) -> None:
        trained.name = name
        chief = trained.made(ONE, "2", mode=mode, **options).start("chief")
        assert chief.ended() == ExitCode.PROGRAM_ERROR, chief.output
        (failed,) = chief.records(Event.FAILED)
        assert message in failed.fields["message"], failed.fields["message"]
        assert "\n" not in failed.fields["message"]

    empty = str(trained.cluster.directory / "empty")
    refused("Applied", f"spec.modelDir: there is no checkpoint in {empty}/checkpoints", model_dir=empty)
    assert not Path(empty).exists()
    refused("Applied", "there is no ckpt-7 in", checkpoint="ckpt-7")
    refused("Nothing", "applied:Nothing has no method predict_dataset(batch_size)")
    refused("Nothing", "applied:Nothing has no method evaluation_dataset(batch_size)", mode="Evaluate")
    assert contents(trained.cluster.model_dir) == before, "nothing was begun"
    refused("TwoOutputs", "was written by another model than this program's", mode="Evaluate")
    refused("Words", "was written by another model than this program's")
    refused("Shuffled", "predict_dataset(8) is shuffled")
    refused("Endless", "predict_dataset() must be finite")
    refused("Triples", "predict_dataset(8) has tuples of 3, not features or (features, key)")
    refused("Scalar", "an output of the model is not [batch_size, ...]")
    trained.parameters["examples"] = 0
    refused("Applied", "predict_dataset(8) is empty")


FORMS = """
import json, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
from worker.prediction.files import lines
outputs = {
    "small": tf.constant([0.1, float("nan")]),
    "list": [tf.constant([[1, 2], [3, 4]], tf.int64), tf.constant([True, False])],
    "text": tf.constant(["é", b"\\xff"]),
    "ragged": tf.ragged.constant([[1.5], []]),
    "half": tf.constant([0.5, float("-inf")], tf.bfloat16),
}
print(lines(41, tf.constant(["a", "b"]), outputs), end="")
"""


@pytest.mark.thorough
def test_every_kind_of_output_can_be_read_by_any_reader_of_json() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", FORMS]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    first, second = (json.loads(line, parse_constant=pytest.fail) for line in done.stdout.splitlines())
    assert first == {
        "index": 41,
        "key": "a",
        "prediction": {"small": 0.1, "list": [[1, 2], True], "text": "é", "ragged": [1.5], "half": 0.5},
    }
    assert second["index"] == 42
    assert second["prediction"] == {
        "small": "NaN",
        "list": [[3, 4], False],
        "text": {"b64": "/w=="},
        "ragged": [],
        "half": "-Infinity",
    }
