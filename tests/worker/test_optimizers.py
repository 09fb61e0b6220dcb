"""Every step of a ParameterServer run counts once, whichever worker takes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.worker import model_files
from tests.worker.cluster import ROOT
from tests.worker.conftest import MakeCluster

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


@pytest.mark.parametrize(
    ("style", "optimizer"),
    [
        pytest.param("Counted", PLAIN, marks=pytest.mark.thorough),
        pytest.param("Looped", PLAIN, marks=pytest.mark.thorough),
        pytest.param("Stepped", PLAIN, marks=pytest.mark.thorough),
        ("Second", PLAIN),
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
    rows = json.loads(_python(_TABLE, str(cluster.model_dir / "checkpoints" / "ckpt-2")))
    expected = [1.0] * len(rows)
    expected[0] += moved(ROW_0)
    expected[2] += moved(ROW_2)
    assert rows == pytest.approx(expected, rel=0 if optimizer is PLAIN else 1e-4)


_ALIKE = """
import json, sys
import numpy as np
import tensorflow as tf
from worker.tf_compat import keras_2_optimizers
kinds = tf.keras.optimizers


class Own(kinds.SGD):
    def update_step(self, gradient, variable):
        variable.assign_sub(0.1 * tf.convert_to_tensor(gradient))


found = {}
for name, make in {
    "SGD": lambda: kinds.SGD(0.1),
    "momentum": lambda: kinds.SGD(0.1, momentum=0.8),
    "Nesterov": lambda: kinds.SGD(0.1, momentum=0.8, nesterov=True),
    "schedule": lambda: kinds.SGD(kinds.schedules.ExponentialDecay(0.1, 10, 0.5)),
    "mixed": lambda: tf.keras.mixed_precision.LossScaleOptimizer(kinds.SGD(0.1, momentum=0.8)),
    "Adadelta": lambda: kinds.Adadelta(0.5, rho=0.9),
    "RMSprop": lambda: kinds.RMSprop(0.01, momentum=0.8),
    "centered": lambda: kinds.RMSprop(0.01, centered=True),
    "centered with momentum": lambda: kinds.RMSprop(0.01, momentum=0.8, centered=True),
    "plain RMSprop": lambda: kinds.RMSprop(0.01),
    "Adam": lambda: kinds.Adam(0.01),
    "a program's own": lambda: Own(0.1),
}.items():
    for is_sparse in (False, True):
        values = []
        for is_mended in (False, True):
            optimizer, variable = make(), tf.Variable(tf.ones((6, 3)))
            optimizer.build([variable])
            if is_mended:
                keras_2_optimizers.mend(optimizer)
                inner = getattr(optimizer, "inner_optimizer", optimizer)
                found[name] = "update_step" in vars(inner)
            random = np.random.RandomState(4)
            for _ in range(30):
                rows = tf.constant(random.normal(size=(4, 3)), tf.float32)
                gradient = tf.IndexedSlices(rows, tf.constant([1, 4, 1, 0]), tf.constant([6, 3]))
                if not is_sparse:
                    gradient = tf.convert_to_tensor(gradient)
                optimizer.apply_gradients([(gradient, variable)])
            values.append(variable.numpy())
        np.testing.assert_allclose(*values, rtol=2e-5, atol=2e-6, err_msg=f"{name} {is_sparse}")
        assert not np.allclose(values[0], 1.0)
print(json.dumps(found))
"""


def test_what_is_mended_is_the_same_update_as_that_of_keras() -> None:
    """It would not be when tf_keras changed, whose formulas `worker.tf_compat.keras_2_optimizers` repeats."""
    left = {"plain RMSprop", "Adam", "a program's own"}
    assert {name for name, mended in json.loads(_python(_ALIKE)).items() if not mended} == left


def _python(code: str, *arguments: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TF_USE_LEGACY_KERAS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]
