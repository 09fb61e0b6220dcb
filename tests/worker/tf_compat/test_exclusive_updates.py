"""Every step of a ParameterServer run counts once, whichever worker takes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.worker import model_files
from tests.worker.cluster import running
from tests.worker.conftest import MakeCluster
from tests.worker.forked_tasks import computed

STEPS = 1000
ROW_0, ROW_2 = 2.0, 1.0
"""Their gradients."""

_TABLE = """
import sys, tensorflow as tf
table = tf.train.load_variable(sys.argv[1], "layer_with_weights-0/embeddings/.ATTRIBUTES/VARIABLE_VALUE")
print([float(row[0]) for row in table])
"""


def sgd(momentum: float = 0.0, nesterov: bool = False) -> Callable[[float], float]:
    def moved(gradient: float) -> float:
        velocity = way = 0.0
        for _ in range(STEPS):
            velocity = momentum * velocity - 0.5 * gradient
            way += momentum * velocity - 0.5 * gradient if nesterov else velocity
        return way

    return moved


def rmsprop(gradient: float) -> float:
    square = velocity = way = 0.0
    for _ in range(STEPS):
        square = 0.9 * square + 0.1 * gradient**2
        velocity = 0.5 * velocity + 0.5 * gradient / (square + 1e-7) ** 0.5
        way -= velocity
    return way


PLAIN = ("SGD", {"learning_rate": 0.5}, sgd())
MOMENTUM = ("SGD", {"learning_rate": 0.5, "momentum": 0.5}, sgd(0.5))
NESTEROV = ("SGD", {"learning_rate": 0.5, "momentum": 0.5, "nesterov": True}, sgd(0.5, True))
RMSPROP = ("RMSprop", {"learning_rate": 0.5, "momentum": 0.5}, rmsprop)


@pytest.mark.by_day(runtime=("Stepped-optimizer2", "Counted-optimizer0"))
@pytest.mark.parametrize(
    ("style", "optimizer"),
    [
        pytest.param("Counted", PLAIN, marks=pytest.mark.thorough),
        pytest.param("Looped", PLAIN, marks=pytest.mark.thorough),
        pytest.param("Stepped", PLAIN, marks=pytest.mark.thorough),
        pytest.param("Second", PLAIN, marks=pytest.mark.thorough),
        pytest.param("Counted", NESTEROV, marks=pytest.mark.thorough),
        pytest.param("Looped", MOMENTUM, marks=pytest.mark.thorough),
        pytest.param("Stepped", NESTEROV, marks=pytest.mark.thorough),
        pytest.param("Counted", RMSPROP, marks=pytest.mark.thorough),
    ],
)
def test_known_gradients_move_a_row_by_their_sum(
    make_cluster: MakeCluster, style: str, optimizer: tuple[str, dict[str, Any], Callable[[float], float]]
) -> None:
    name, arguments, moved = optimizer
    parameters = {
        "epochs": 2,
        "stepsPerEpoch": STEPS // 2,
        "globalBatchSize": 8,
        "optimizer": [name, arguments],
    }
    cluster = make_cluster(entrypoint=f"counted:{style}", parameters=parameters)
    tasks = cluster.start_all()
    assert [task.ended() for task in tasks.values()] == [0] * len(tasks)
    assert model_files.iterations(cluster.model_dir, 2) == STEPS
    rows = computed(_TABLE, cluster.model_dir / "checkpoints" / "ckpt-2")
    expected = [1.0] * len(rows)
    expected[0] += moved(ROW_0)
    expected[2] += moved(ROW_2)
    assert rows == pytest.approx(expected, rel=0 if optimizer is PLAIN else 1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("workers", "servers", "keras"),
    [
        pytest.param(2, 1, 2, marks=pytest.mark.thorough),
        pytest.param(2, 1, 3, marks=pytest.mark.thorough),
        pytest.param(4, 2, 2, marks=pytest.mark.thorough),
        pytest.param(4, 2, 3, marks=pytest.mark.thorough),
    ],
)
def test_workers_move_no_weight_farther_than_one_process_does(
    tmp_path: Path, keras: int, workers: int, servers: int
) -> None:
    # Keras 2 splits the larger tables over two servers.
    wanted = {"keras": keras, "rows": 3000 if servers == 1 else 20_000}
    alone = farthest(tmp_path / "alone", wanted, strategy="OneDevice", replicas={"chief": 1})
    replicas = {"chief": 1, "worker": workers, "ps": servers}
    together = farthest(tmp_path / "together", wanted, replicas=replicas)
    assert len(together) == 2 * 15
    dense = {name: moved for name, moved in together.items() if name.endswith("_dense")}
    # A worker may count other steps than those that it has seen.
    assert dense == pytest.approx({name: alone[name] for name in dense}, rel=0.02)
    # Which rows are looked up most often is chance: 6 times in place of 4, say.
    far = {name: (moved, alone[name]) for name, moved in together.items() if moved > 2 * alone[name]}
    assert not far


def farthest(directory: Path, wanted: dict[str, int], **options: Any) -> dict[str, float]:
    parameters = {"epochs": 1, "stepsPerEpoch": 120, "globalBatchSize": 4, **wanted}
    options |= {"entrypoint": "moved:Moved", "parameters": parameters, "keras": wanted["keras"]}
    with running(directory, **options) as cluster:
        tasks = cluster.start_all()
        assert tasks["chief", 0].ended() == 0, tasks["chief", 0].output
        (line,) = (line for line in tasks["chief", 0].lines if line.startswith('{"adadelta'))
    largest_weights: dict[str, float] = json.loads(line)
    return largest_weights


_ALIKE = """
import json, sys
import numpy as np
import tensorflow as tf
from worker.tf_compat import keras_2_optimizers
from worker.tf_compat.exclusive_updates import make_exclusive

if sys.argv[1] == "3":
    import keras
else:
    keras = tf.keras
kinds = keras.optimizers


class Own(kinds.SGD):
    def update_step(self, gradient, variable, *rate):
        variable.assign_sub(0.1 * tf.convert_to_tensor(gradient))


locks = {}
for name, make in {
    "SGD": lambda: kinds.SGD(0.1),
    "momentum": lambda: kinds.SGD(0.1, momentum=0.8, nesterov=True),
    "schedule": lambda: kinds.Adam(kinds.schedules.ExponentialDecay(0.1, 10, 0.5)),
    "decay": lambda: kinds.AdamW(0.1, clipnorm=0.5, use_ema=True),
    "nadam": lambda: kinds.Nadam(0.1),
    "rmsprop": lambda: kinds.RMSprop(0.01, momentum=0.8, centered=True),
    "own": lambda: Own(0.1),
}.items():
    values = []
    for is_alone in (False, True):
        strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
        if is_alone:
            make_exclusive(strategy)
        with strategy.scope():
            variables = [tf.Variable(tf.ones((6, 3))), tf.Variable(tf.ones((6, 3)))]
            optimizer = make()
            optimizer.build(variables)
        if is_alone and sys.argv[1] == "2":
            keras_2_optimizers.mend(optimizer)

        @tf.function
        def step(times, rows):
            def once(count):
                slices = tf.IndexedSlices(rows, tf.constant([1, 4, 0]), tf.constant([6, 3]))
                gradients = [tf.convert_to_tensor(slices), slices]
                strategy.run(lambda: optimizer.apply_gradients(list(zip(gradients, variables))))
                return [count + 1]

            tf.while_loop(lambda count: count < times, once, [tf.constant(0)])

        random = np.random.RandomState(4)
        for _ in range(10):
            step(tf.constant(2), tf.constant(random.normal(size=(3, 3)), tf.float32))
        assert int(optimizer.iterations.numpy()) == 20
        values.append([variable.numpy() for variable in variables])
        graph = step.get_concrete_function(tf.constant(2), tf.zeros((3, 3))).graph.as_graph_def()
        nodes = [node for function in graph.library.function for node in function.node_def]
        locks[name, is_alone] = sum(node.op == "MutexLock" for node in nodes)
    # A graph with locks is rewritten otherwise, which may change a last bit.
    np.testing.assert_allclose(*values, rtol=1e-6, err_msg=name)
    assert not np.allclose(values[0], 1.0)
print(json.dumps({name: count for (name, is_alone), count in locks.items() if is_alone}))
"""


@pytest.mark.by_day("2")
@pytest.mark.parametrize("keras", [2, 3])
def test_updates_that_run_alone_are_those_of_keras(keras: int) -> None:
    locks = computed(_ALIKE, keras)
    # Of two variables. Weight decay is an update of its own; the moving averages of Keras 2 are, too.
    assert locks.pop("decay") == (6 if keras == 2 else 4)
    assert set(locks.values()) == {2}
