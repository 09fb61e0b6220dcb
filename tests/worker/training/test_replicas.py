"""Programs with a `loss` or a `train_step`: the same training under every strategy that steps together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worker import model_files
from tests.worker.cluster import PROGRAMS, RunningTask, running
from tests.worker.conftest import MakeCluster
from tests.worker.forked_tasks import computed
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event, Record
from worker.failures import Failure
from worker.parameters import TrainingParameters

ONE: dict[str, Any] = {"strategy": "OneDevice", "replicas": {"chief": 1}}
MIRRORED: dict[str, Any] = {
    "strategy": "Mirrored",
    "replicas": {"chief": 1},
    "strategy_options": {"logicalCpus": 2},
}
CENTRAL_STORAGE = {**MIRRORED, "strategy": "CentralStorage"}
TWO_WORKERS = {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}}
# 52 samples: three batches of 16 and one of 4, the replicas' shares are 8 and 2.
PARAMETERS = {"epochs": 3, "stepsPerEpoch": None, "globalBatchSize": 16}
TOLERANCE = 1e-5
"""Of losses near 0.5, relative: sums in another order."""


def trained(directory: Path, entrypoint: str, parameters: dict[str, Any], **options: Any) -> RunningTask:
    """The first task of a run that ended well."""
    options["parameters"] = {**PARAMETERS, **parameters}
    with running(directory, entrypoint=entrypoint, **options) as cluster:
        tasks = cluster.start_all()
        codes = [task.ended() for task in tasks.values()]
        first = next(iter(tasks.values()))
        assert codes == [0] * len(tasks), first.output
        return first


def curve(task: RunningTask) -> list[dict[str, float]]:
    """Of each epoch: what was measured while it ran, and on the held-out data after it."""
    ends = [record for record in task.records(Event.PROGRESS) if record.fields["epoch_end"]]
    held_out = task.records(Event.EVALUATION)
    assert [record.fields["epoch"] for record in ends] == [1, 2, 3]
    assert [record.fields["epoch"] for record in held_out] == [1, 2, 3]
    return [_numbers(*pair) for pair in zip(ends, held_out, strict=True)]


def _numbers(end: Record, held_out: Record) -> dict[str, float]:
    numbers = {"loss": end.fields["loss"], **end.fields["metrics"]}
    return numbers | {f"val_{name}": value for name, value in held_out.fields["metrics"].items()}


def assert_same(curves: list[list[dict[str, float]]]) -> None:
    for other in curves[1:]:
        for expected, numbers in zip(curves[0], other, strict=True):
            assert numbers == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.by_day(runtime=("2",))
@pytest.mark.thorough
@pytest.mark.parametrize("keras", [2, 3])
def test_every_strategy_gives_the_gradients_of_one_replica(tmp_path: Path, keras: int) -> None:
    """With unequal last batches, a regularised layer, and metrics of training and held-out data."""
    curves = []
    for index, options in enumerate((ONE, MIRRORED, CENTRAL_STORAGE, TWO_WORKERS)):
        directory = tmp_path / str(index)
        curves.append(curve(trained(directory, "curve:Looped", {}, keras=keras, **options)))
        # Keras 3 once lost steps: each must be counted, once.
        assert model_files.iterations(directory / "model", 3) == 3 * 4
    assert curves[0][0].keys() == {"loss", "mae", "val_loss", "val_mae"}
    assert curves[0][2]["loss"] < 0.6 * curves[0][0]["loss"]
    assert_same(curves)


@pytest.mark.thorough
def test_fit_and_the_loop_and_both_keras_agree(tmp_path: Path) -> None:
    """On batches of one size: with a smaller one, Model.fit divides by what is there."""
    even = {"samples": 48}
    fitted = [
        trained(tmp_path / name, "curve:Fitted", even, **options)
        for name, options in (("one", ONE), ("mirrored", MIRRORED), ("workers", TWO_WORKERS))
    ]
    looped = [
        trained(tmp_path / f"keras-{keras}", "curve:Looped", even, keras=keras, **MIRRORED)
        for keras in (2, 3)
    ]
    # Not the held-out loss: Model.evaluate has its own ways to add the penalty.
    losses = [[epoch["loss"] for epoch in curve(task)] for task in (*fitted, *looped)]
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=TOLERANCE)


@pytest.mark.nightly
@pytest.mark.thorough
def test_three_ways_to_iterate_and_a_step_of_the_programs_own_give_the_same_weights(tmp_path: Path) -> None:
    ways: list[tuple[str, dict[str, Any]]] = [
        ("curve:Looped", {"iteration": "steps"}),
        ("curve:Looped", {"iteration": "steps", "stepsPerExecution": 3}),
        ("curve:Looped", {"iteration": "batches"}),
        ("curve:Looped", {"iteration": "epoch"}),
        ("curve:Stepped", {}),
    ]
    restored = []
    for index, (entrypoint, parameters) in enumerate(ways):
        parameters = {"checkpointEpochs": 2, **parameters}
        trained(tmp_path / str(index), entrypoint, parameters, **MIRRORED)
        assert model_files.epochs(tmp_path / str(index) / "model") == [2, 3], "every second, and the last"
        restored.append(_restored(tmp_path / str(index) / "model"))
    for other in restored[1:]:
        assert other["weights"] == pytest.approx(restored[0]["weights"], rel=TOLERANCE, abs=1e-6)
    assert restored[0]["manager"] == ["ckpt-2", "ckpt-3"]
    assert restored[0]["latest"] == "ckpt-3"
    assert "epoch_loss" in restored[0]["scalars"]
    assert "epoch_mae" in restored[0]["scalars"]


_RESTORE = """
import json, sys
from pathlib import Path
import tensorflow as tf
sys.path.insert(0, sys.argv[1])
from curve import Looped
folder = Path(sys.argv[2])
managed = tf.train.Checkpoint(model=Looped({}).model())
manager = tf.train.CheckpointManager(managed, str(folder / "checkpoints"), max_to_keep=None)
assert manager.restore_or_initialize() == manager.latest_checkpoint
model = Looped({}).model()
before = model.get_weights()
tf.train.Checkpoint(model=model).restore(manager.latest_checkpoint).assert_existing_objects_matched()
weights = [float(value) for variable in model.get_weights() for value in variable.ravel()]
assert weights != [float(value) for variable in before for value in variable.ravel()]
scalars = {
    value.tag
    for file in (folder / "logs" / "train").glob("events*")
    for event in tf.compat.v1.train.summary_iterator(str(file))
    for value in event.summary.value
}
print(json.dumps({
    "weights": weights,
    "manager": [Path(path).name for path in manager.checkpoints],
    "latest": Path(tf.train.latest_checkpoint(str(folder / "checkpoints"))).name,
    "scalars": sorted(scalars),
}))
"""


def _restored(model: Path) -> dict[str, Any]:
    """What a process without a strategy finds in a model directory."""
    contents: dict[str, Any] = computed(_RESTORE, PROGRAMS, model)
    return contents


@pytest.mark.nightly
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("entrypoint", "keras", "ragged"),
    [
        ("Fitted", 2, True),
        pytest.param("Fitted", 2, False, marks=pytest.mark.nightly),
        pytest.param("Fitted", 3, True, marks=pytest.mark.nightly),
        pytest.param("Looped", 2, True, marks=pytest.mark.nightly),
        ("Looped", 3, False),
        pytest.param("Stepped", 2, True, marks=pytest.mark.nightly),
    ],
)
def test_each_step_may_look_up_as_many_rows_as_it_likes(
    tmp_path: Path, entrypoint: str, keras: int, ragged: bool
) -> None:
    """In an execution of several steps TensorFlow gathers rows of one shape only."""
    parameters = {"ragged": ragged, "stepsPerExecution": 3}
    variables = []
    for index, options in enumerate((ONE, MIRRORED, TWO_WORKERS)):
        task = trained(tmp_path / str(index), f"lengths:{entrypoint}", parameters, keras=keras, **options)
        notices = [record.fields["message"] for record in task.records(Event.NOTICE)]
        assert any("stepsPerExecution: 3" in notice for notice in notices) == (options is not ONE)
        variables.append(model_files.variables(tmp_path / str(index) / "model", 3))
    for other in variables[1:]:
        assert other.keys() == variables[0].keys()
        for name, values in other.items():
            assert values == pytest.approx(variables[0][name], rel=1e-4, abs=TOLERANCE), name


@pytest.mark.nightly
@pytest.mark.thorough
def test_the_penalty_counts_once_however_many_replicas(tmp_path: Path) -> None:
    """With no rate to learn at, the loss is that of the first weights, the penalty included."""
    still = {"rate": 0.0, "epochs": 3}
    light = curve(trained(tmp_path / "light", "curve:Looped", {**still, "penalty": 0.0}, **MIRRORED))
    heavy = [
        curve(trained(tmp_path / str(index), "curve:Looped", {**still, "penalty": 1.0}, **options))
        for index, options in enumerate((ONE, MIRRORED))
    ]
    assert heavy[0][0]["loss"] > light[0]["loss"] + 0.1
    assert_same(heavy)


@pytest.mark.nightly
@pytest.mark.thorough
def test_weighted_examples(tmp_path: Path) -> None:
    weighted = {"weighted": True}
    curves = [
        curve(trained(tmp_path / str(index), "curve:Looped", weighted, **options))
        for index, options in enumerate((ONE, MIRRORED))
    ]
    plain = curve(trained(tmp_path / "plain", "curve:Looped", {}, **ONE))
    assert_same(curves)
    assert curves[0][2]["loss"] != pytest.approx(plain[2]["loss"], rel=1e-3)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("entrypoint", "fail", "message"),
    [
        (
            "curve:Looped",
            "scalar",
            "curve:Looped: loss(labels, predictions) returned a scalar, not each example's",
        ),
        ("curve:Looped", "shape", "loss(labels, predictions) returned shape [8, 1] for 8 examples"),
        ("curve:Looped", "keras", "a Keras loss gives that with reduction='none'"),
        ("curve:Looped", "check_numerics", "of the loss : Tensor had Inf values (while training epoch 1)"),
        ("curve:Looped", "callback", "ValueError: no line could be written (while training epoch 1)"),
        (
            "curve:Stepped",
            "shape",
            "train_step(model, batch, global_batch_size) returned shape [None], not a scalar",
        ),
    ],
)
def test_a_wrong_loss_is_one_message(
    make_cluster: MakeCluster, entrypoint: str, fail: str, message: str
) -> None:
    chief = make_cluster(**MIRRORED, entrypoint=entrypoint, parameters={**PARAMETERS, "fail": fail}).start(
        "chief"
    )
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    (failed,) = chief.records(Event.FAILED)
    assert message in failed.fields["message"]
    assert "tensorflow" not in failed.fields["traceback"]


@pytest.mark.thorough
def test_a_loss_that_is_not_a_number_ends_every_task(make_cluster: MakeCluster) -> None:
    tasks = make_cluster(
        **TWO_WORKERS, entrypoint="curve:Looped", parameters={**PARAMETERS, "rate": 1e30}
    ).start_all()
    assert [task.ended() for task in tasks.values()] == [ExitCode.PROGRAM_ERROR] * 2
    (failed,) = tasks["worker", 0].records(Event.FAILED)
    assert "the loss became nan in epoch 1" in failed.fields["message"]


@pytest.mark.parametrize("iteration", ["batches", "epoch"])
def test_a_number_of_steps_has_no_meaning_there(iteration: str) -> None:
    with pytest.raises(Failure, match=r"spec\.program\.parameters\.stepsPerExecution"):
        TrainingParameters.read({"iteration": iteration, "stepsPerExecution": 5})
