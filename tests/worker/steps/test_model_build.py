"""Models whose variables the runtime makes by their own steps, or cannot make."""

from __future__ import annotations

import pytest

from tests.worker.forked_tasks import computed

UNBUILT = """\
import json

import tensorflow as tf

from worker.failures import Failure
from worker.steps.model_build import build


class Model(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.part = tf.keras.Sequential([tf.keras.layers.Dense(2)])

    def train_step(self, data):
        return {"loss": tf.reduce_sum(self.part(data["wanted"]))}


model = Model()
try:
    build(model, {"given": tf.TensorSpec([None, 3])}, "mine:Program")
except Failure as failure:
    said = failure.message
build(model, {"wanted": tf.TensorSpec([None, 3])}, "mine:Program")
print(json.dumps([said, len(model.trainable_variables)]))
"""


@pytest.mark.by_day("2", runtime=())
@pytest.mark.parametrize("keras", [2, 3])
def test_parts_of_a_model_without_call_that_have_no_variables_are_told(keras: int) -> None:
    message, variables = computed(UNBUILT, keras=keras)
    assert message.startswith(
        "mine:Program: model() returned a Model without call(), with parts that have no "
    )
    assert "wanted" in message  # the step's own error
    assert message.endswith("make them there, by an Input for each part or by calling it once")
    assert variables == 2


NESTED = """\
import json

import tensorflow as tf

from worker.steps.model_build import build

parts = [tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(units)]) for units in (2, 3)]
model = tf.keras.Sequential(parts)
build(model, (tf.TensorSpec([32, 5, 2]), tf.TensorSpec([32, 3])), "mine:Program")
print(json.dumps([model.inputs[0].shape[0], model(tf.ones([16, 5, 2])).shape[0], len(model.variables)]))
"""


@pytest.mark.by_day("2", runtime=())
@pytest.mark.parametrize("keras", [2, 3])
def test_a_model_is_not_made_for_batches_of_one_size(keras: int) -> None:
    assert computed(NESTED, keras=keras) == [None, 16, 4]
