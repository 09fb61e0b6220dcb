"""Programs that `import keras`, Keras 3, under every strategy: what test_shapes.py does not look at."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.paths import TESTS
from tests.worker import model_files
from tests.worker.cluster import PROGRAMS, RunningTask, eventually
from tests.worker.conftest import MakeCluster
from tests.worker.forked_tasks import computed
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

TWO_CPUS = {"strategy": "Mirrored", "replicas": {"chief": 1}, "strategy_options": {"logicalCpus": 2}}
ONE = {"strategy": "OneDevice", "replicas": {"chief": 1}}
OPTIONS = [
    pytest.param(ONE, id="OneDevice", marks=pytest.mark.thorough),
    pytest.param(TWO_CPUS, id="Mirrored"),
]
STEPS = 400
PARAMETERS = {"epochs": 2, "stepsPerEpoch": 4, "globalBatchSize": 8}
"""All of the data, of which the last batch is smaller."""

_VARIABLES = """
import json, sys, tensorflow as tf
reader = tf.train.load_checkpoint(sys.argv[1])
end = "/.ATTRIBUTES/VARIABLE_VALUE"
names = [name for name in reader.get_variable_to_shape_map() if name.endswith(end)]
print(json.dumps({name[:-len(end)]: reader.get_tensor(name).tolist() for name in names}))
"""


def variables(model_dir: Path, epoch: int) -> dict[str, Any]:
    """Of a checkpoint, by their names."""
    values: dict[str, Any] = computed(_VARIABLES, model_dir / "checkpoints" / f"ckpt-{epoch}")
    return values


def kernel(model_dir: Path, epoch: int) -> list[float]:
    """Of the one matrix of weights."""
    tables = [
        value
        for name, value in variables(model_dir, epoch).items()
        if np.ndim(value) == 2 and (not name.startswith("optimizer/") or "_trainable_variables" in name)
    ]
    assert len({json.dumps(table) for table in tables}) == 1
    return [float(value) for row in tables[0] for value in row]


def ends(task: RunningTask) -> list[dict[str, Any]]:
    """What was told at the end of each epoch."""
    records = [record.fields for record in task.records(Event.PROGRESS)]
    return [{"loss": record["loss"], **record["metrics"]} for record in records if record["epoch_end"]]


def evaluated(task: RunningTask) -> list[dict[str, Any]]:
    """The results of each evaluation."""
    return [record.fields["metrics"] for record in task.records(Event.EVALUATION)]


@pytest.mark.by_day(runtime=("Sums-3",))
@pytest.mark.parametrize(
    ("program", "shards"),
    [
        ("Sums", 3),
        pytest.param("Sums", 1, marks=pytest.mark.thorough),
        pytest.param("SumsByStep", 1, marks=pytest.mark.thorough),
        pytest.param("SumsByStep", 3, marks=pytest.mark.thorough),
    ],
)
def test_parameter_servers_lose_no_update_and_no_count(
    make_cluster: MakeCluster, program: str, shards: int
) -> None:
    cluster = make_cluster(
        entrypoint=f"three:{program}",
        replicas={"chief": 1, "worker": 2, "ps": 2},
        strategy_options={"partitioner": "FixedShards", "numShards": shards},
        parameters={"epochs": 2, "stepsPerEpoch": STEPS // 2, "globalBatchSize": 4},
    )
    tasks = cluster.start_all()
    assert {task.ended() for task in tasks.values()} == {0}
    values = variables(cluster.model_dir, 2)
    moved = -0.5 * STEPS
    assert values["optimizer/_iterations"] == STEPS
    assert values["taken"] == STEPS, "the model's own assign_add"
    assert values["dense/_kernel"] == [[moved]] * 3
    assert values["table/_embeddings"] == [[moved if row in (0, 3) else 0.0] * 2 for row in range(6)]
    counts = [{name: end[name] for name in ("missed", "right")} for end in ends(tasks["chief", 0])]
    assert counts == [{"missed": STEPS, "right": STEPS}] * 2, "two of the four examples of each step"


@pytest.mark.nightly
@pytest.mark.thorough
@pytest.mark.timeout(1000)
def test_every_optimizer_moves_two_replicas_as_one_process() -> None:
    differences = computed(TESTS / "worker" / "keras_3_numbers.py")
    # One is in float32, because a loss scale is.
    far = {
        name: value for name, value in differences.items() if value > (1e-6 if name == "overflow" else 1e-12)
    }
    assert len(differences) > 12
    assert not far


def assert_heard(chief: RunningTask, model_dir: Path) -> None:
    """Callbacks hear of the batches, the evaluations and the epochs of `three:Fitted` with `told`."""
    batches = [f"batch {batch} ['accuracy', 'loss']" for batch in range(4)]
    hooks = [*batches, "test ['accuracy', 'loss']"]
    chief.printed(f"told {hooks} ['accuracy', 'loss', 'val_accuracy', 'val_loss']")
    assert (model_dir / "export" / "1" / "saved_model.pb").exists()
    assert list((model_dir / "logs" / "train").iterdir())


@pytest.mark.thorough
@pytest.mark.parametrize("options", OPTIONS)
def test_a_models_own_steps(make_cluster: MakeCluster, options: dict[str, Any]) -> None:
    fitted = make_cluster(**options, entrypoint="three:Fitted", parameters={**PARAMETERS, "told": True})
    chief = fitted.start("chief")
    assert chief.ended() == 0
    assert_heard(chief, fitted.model_dir)
    wanted, loss = kernel(fitted.model_dir, 2), ends(chief)[-1]["loss"]
    shutil.rmtree(fitted.model_dir)
    stepping = make_cluster(**options, entrypoint="three:Stepping", parameters=PARAMETERS)
    chief = stepping.start("chief")
    assert chief.ended() == 0
    batches = 8.0 if options is TWO_CPUS else 4.0
    known = {"mean_loss": 2.0, "two": 2.0, "taken": batches}
    assert ends(chief)[-1] == {"loss": pytest.approx(loss, rel=1e-5), **known}
    assert evaluated(chief) == [{"three": 3.0, "seen": batches}] * 2
    assert kernel(stepping.model_dir, 2) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("program", ["Stepping", "Measuring"])
def test_a_models_own_results_under_parameter_servers(make_cluster: MakeCluster, program: str) -> None:
    replicas = {"chief": 1, "worker": 2, "ps": 1}
    cluster = make_cluster(entrypoint=f"three:{program}", replicas=replicas, parameters=PARAMETERS)
    chief = cluster.start_all()["chief", 0]
    assert chief.ended() == 0
    trained, scored = ends(chief)[-1], evaluated(chief)[-1]
    if program == "Stepping":
        assert {**trained, "loss": 0.0} == {"loss": 0.0, "mean_loss": 2.0, "two": 2.0, "taken": 4.0}
        assert scored == {"three": 3.0, "seen": 4.0}
    else:
        assert sorted(trained) == sorted(scored) == ["accuracy", "batches", "loss", "two"]
        assert [trained["batches"], trained["two"], scored["batches"], scored["two"]] == [4.0, 2.0] * 2
        assert 0.0 < scored["loss"] < 2.0


@pytest.mark.thorough
@pytest.mark.parametrize("options", OPTIONS)
def test_a_models_own_compute_metrics(make_cluster: MakeCluster, options: dict[str, Any]) -> None:
    cluster = make_cluster(**options, entrypoint="three:Measuring", parameters=PARAMETERS)
    chief = cluster.start("chief")
    assert chief.ended() == 0
    batches = 8.0 if options is TWO_CPUS else 4.0
    for metrics in (*ends(chief), *evaluated(chief)):
        assert sorted(metrics) == ["accuracy", "batches", "loss", "two"]
        assert (metrics["batches"], metrics["two"]) == (batches, 2.0)


@pytest.mark.nightly
@pytest.mark.thorough
def test_a_second_optimizer_moves_two_replicas_as_one_and_is_resumed(make_cluster: MakeCluster) -> None:
    parameters = {"globalBatchSize": 8, "stepsPerEpoch": 4, "checkpointEpochs": 1}
    program = {"entrypoint": "three:TwoOptimizers"}
    slow = make_cluster(**TWO_CPUS, **program, parameters={**parameters, "epochs": 900})
    chief = slow.start("chief")
    eventually(lambda: len(model_files.epochs(slow.model_dir)) > 1, "the checkpoints of two epochs")
    chief.kill()
    epochs = model_files.epochs(slow.model_dir)[-1] + 1
    chief = make_cluster(**TWO_CPUS, **program, parameters={**parameters, "epochs": epochs}).start("chief")
    assert chief.ended() == 0
    assert chief.until(Event.TRAINING).fields["initial_epoch"] == epochs - 1
    resumed, accuracy = variables(slow.model_dir, epochs), ends(chief)[-1]["accuracy"]
    shutil.rmtree(slow.model_dir)
    chief = make_cluster(**ONE, **program, parameters={**parameters, "epochs": epochs}).start("chief")
    assert chief.ended() == 0
    assert ends(chief)[-1]["accuracy"] == accuracy
    whole = variables(slow.model_dir, epochs)
    assert {name for name in whole if name.startswith("second/")}
    for name, value in whole.items():
        if name != "save_counter" and not name.startswith("random_state/"):  # which begins anywhere
            assert np.allclose(resumed[name], value, atol=1e-6), name


@pytest.mark.thorough
def test_a_step_that_makes_its_loss_by_itself_is_told_what_replicas_do(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**TWO_CPUS, entrypoint="three:ByHand", parameters=PARAMETERS)
    chief = cluster.start("chief")
    assert chief.ended() == 0
    chief.until_notice("takes the gradient of a mean over a replica's examples")


@pytest.mark.thorough
def test_a_step_that_updates_no_metric_is_told_so(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(**TWO_CPUS, entrypoint="three:Unmeasured", parameters=PARAMETERS)
    chief = cluster.start("chief")
    assert chief.ended() == 0
    chief.until_notice("does not update the metrics that the model was compiled with, so the training shows")
    assert [list(end) for end in ends(chief)] == [["loss"]] * 2
    assert [sorted(metrics) for metrics in evaluated(chief)] == [["accuracy", "loss"]] * 2


@pytest.mark.thorough
def test_dropout_differs_between_replicas_and_steps(make_cluster: MakeCluster) -> None:
    parameters = {"epochs": 2, "stepsPerEpoch": 1, "globalBatchSize": 2}
    cluster = make_cluster(**TWO_CPUS, entrypoint="three:Dropped", parameters=parameters)
    assert cluster.start("chief").ended() == 0
    first, both = (kernel(cluster.model_dir, epoch) for epoch in (1, 2))
    # An input that one of the two replicas dropped has moved by 1, one that both kept by 2.
    assert set(first) == {0.0, -1.0, -2.0}
    assert [after - before for before, after in zip(first, both, strict=True)] != first


@pytest.mark.thorough
def test_a_killed_run_goes_on_from_its_checkpoint(make_cluster: MakeCluster) -> None:
    parameters = {"globalBatchSize": 8, "stepsPerEpoch": 20}
    slow = make_cluster(**TWO_CPUS, entrypoint="three:Fitted", parameters={**parameters, "epochs": 900})
    chief = slow.start("chief")
    chief.until(Event.PROGRESS, epoch=2, epoch_end=True)
    chief.kill()
    done = model_files.epochs(slow.model_dir)[-1]
    again = make_cluster(**TWO_CPUS, entrypoint="three:Fitted", parameters={**parameters, "epochs": done + 1})
    chief = again.start("chief")
    assert chief.ended() == 0
    assert chief.until(Event.TRAINING).fields["initial_epoch"] == done
    assert model_files.iterations(again.model_dir, done + 1) == 20 * (done + 1)


def test_a_training_is_heard_of_scored_predicted_with_and_refused_by_an_old_keras_3(
    make_cluster: MakeCluster,
) -> None:
    trained = make_cluster(**ONE, entrypoint="three:Fitted", parameters={**PARAMETERS, "told": True})
    chief = trained.start("chief")
    assert chief.ended() == 0
    assert_heard(chief, trained.model_dir)
    scores = chief.records(Event.EVALUATION)[-1].fields["metrics"]
    scored = make_cluster(**TWO_CPUS, entrypoint="three:Fitted", parameters=PARAMETERS, mode="Evaluate")
    chief = scored.start("chief")
    assert chief.ended() == 0
    assert chief.until(Event.EVALUATION).fields["metrics"] == pytest.approx(scores, rel=1e-5)
    predicted = make_cluster(**TWO_CPUS, entrypoint="three:Fitted", parameters=PARAMETERS, mode="Predict")
    chief = predicted.start("chief")
    assert chief.ended() == 0
    assert list(predicted.model_dir.glob("predictions/**/*"))
    for mode in ("Evaluate", "Train"):
        options = {"entrypoint": "old_keras:Fitted", "parameters": {**PARAMETERS, "epochs": 3}, "mode": mode}
        chief = make_cluster(**TWO_CPUS, **options, run_id=mode).start("chief")
        assert chief.ended() == ExitCode.PROGRAM_ERROR
        assert "Keras 3.7.0 is older than 3.8" in chief.until(Event.FAILED).fields["message"]


_EXPORTED = """
import json, sys, tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
print(json.dumps([value.numpy().tolist() for value in model.variables if value.shape.rank == 2]))
"""


@pytest.mark.thorough
def test_moving_averages_are_what_is_seen_at_the_end_and_exported(
    make_cluster: MakeCluster,
) -> None:
    parameters = {**PARAMETERS, "told": True, "optimizer": {"use_ema": True, "ema_momentum": 0.5}}
    cluster = make_cluster(**TWO_CPUS, entrypoint="three:Fitted", parameters=parameters)
    chief = cluster.start("chief")
    assert chief.ended() == 0
    exported = np.ravel(computed(_EXPORTED, cluster.model_dir / "export" / "1")[0])

    def is_an_average(weights: Any, epoch: int) -> bool:
        slots = variables(cluster.model_dir, epoch).items()
        return any(
            name.startswith("optimizer/_variables/")
            and np.size(value) == 16
            and np.allclose(weights, np.ravel(value))
            for name, value in slots
        )

    assert not is_an_average(kernel(cluster.model_dir, 1), 1), "the training goes on with its own weights"
    assert is_an_average(exported, 2)
    assert np.allclose(exported, kernel(cluster.model_dir, 2)), "the last checkpoint is what fit leaves"
    (end_line,) = (line for line in chief.lines if line.startswith("ended with"))
    assert float(end_line.split()[-1]) == pytest.approx(np.sum(exported), rel=1e-4), "on_train_end"


@pytest.mark.parametrize(
    ("optimizer", "text"),
    [
        ({"gradient_accumulation_steps": 2}, "SGD(gradient_accumulation_steps=2)"),
        pytest.param(
            {"use_ema": True, "ema_overwrite_frequency": 2},
            "SGD(ema_overwrite_frequency=2)",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_what_keras_3_cannot_do_is_refused_by_name(
    make_cluster: MakeCluster, optimizer: dict[str, Any], text: str
) -> None:
    parameters = {**PARAMETERS, "optimizer": optimizer}
    options = {"strategy": "ParameterServer", "replicas": {"chief": 1, "worker": 1, "ps": 1}}
    cluster = make_cluster(**options, entrypoint="three:Fitted", parameters=parameters)
    chief = cluster.start_all()["chief", 0]
    assert chief.ended() == ExitCode.PROGRAM_ERROR
    assert f"Keras 3 cannot do what {text} asks for" in chief.until(Event.FAILED).fields["message"]


@pytest.mark.thorough
def test_two_tasks_do_not_save_to_one_file(make_cluster: MakeCluster, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    options = {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}, "entrypoint": "three:Fitted"}
    cluster = make_cluster(**options, parameters={**PARAMETERS, "kept": str(folder)})
    tasks = cluster.start_all()
    assert [task.ended() for task in tasks.values()] == [0, 0]
    assert sorted(path.name for path in folder.iterdir()) == ["1.weights.h5", "2.weights.h5"]
    tasks["worker", 0].until_notice("callbacks() has a BackupAndRestore, which is left out")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            {"strategy": "MultiWorkerMirrored", "replicas": {"worker": 2}}, id="MultiWorkerMirrored"
        ),
        pytest.param(
            {"strategy": "ParameterServer", "replicas": {"chief": 1, "worker": 1, "ps": 1}},
            id="ParameterServer",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_script_that_calls_fit_is_told_what_to_write(
    make_cluster: MakeCluster, options: dict[str, Any]
) -> None:
    cluster = make_cluster(**options, entrypoint=None, keras=3)
    serves = ("worker", "ps") if "ps" in options["replicas"] else ()
    script = ("-m", "worker", "--", str(PROGRAMS / "fits_keras_3.py"))
    tasks = [
        cluster.start(role, index, python=("-m", "worker") if role in serves else script)
        for role, index in cluster.addresses
    ]
    first = next(task for task in tasks if not any(role in task.name for role in serves))
    assert first.ended() == ExitCode.PROGRAM_ERROR
    message = first.until(Event.FAILED).fields["message"]
    assert message.startswith("Model.fit of Keras 3 cannot train under")
    assert "give the script as program.script" in message
