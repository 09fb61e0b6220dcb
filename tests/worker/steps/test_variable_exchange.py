"""Small variables of a parameter server travel together, as do their gradients."""

from __future__ import annotations

from tests.worker.forked_tasks import computed

_BLURRED = """
import json
import tensorflow as tf
from worker.steps.variable_exchange import Together

@tf.custom_gradient
def blurred(value):
    # The trace does not know the shape of this gradient.
    return value * 3.0, lambda upstream: tf.raw_ops.PlaceholderWithDefault(input=upstream * 3.0, shape=None)

variables = [tf.Variable(tf.zeros([2, 3])), tf.Variable(tf.zeros([4]))]
optimizer, exchange = tf.keras.optimizers.SGD(0.5), Together(None)
optimizer.build(variables)

def step():
    with tf.GradientTape() as tape, exchange.reading(tape, variables) as sources:
        loss = tf.reduce_sum(blurred(tf.convert_to_tensor(variables[0]))) + tf.reduce_sum(variables[1] * 1.0)
    exchange.apply(optimizer, tape.gradient(loss, sources), variables)

for _ in range(2):  # the first trace finds the groups
    tf.function(step)()
print(json.dumps([variable.numpy().ravel().tolist() for variable in variables]))
"""


def test_gradients_of_unknown_shape_travel_together() -> None:
    assert computed(_BLURRED) == [[-3.0] * 6, [-1.0] * 4]


_CHANGED = """
import json
import tensorflow as tf
from worker.steps.variable_exchange import Together

variables = [tf.Variable(tf.ones([2])) for _ in range(4)]
optimizer, exchange = tf.keras.optimizers.SGD(0.5), Together(None)
optimizer.build(variables)

def step():
    with tf.GradientTape() as tape, exchange.reading(tape, variables) as sources:
        variables[0].assign(variables[0] * 4.0)
        grown = lambda: tf.identity(variables[1].assign_add([1.0, 1.0]))
        tf.cond(tf.reduce_sum(variables[0]) < 9.0, grown, lambda: tf.identity(variables[1]))
        losses = [tf.reduce_sum(tf.square(variable)) for variable in variables]
        loss = tf.add_n(losses)
    exchange.apply(optimizer, tape.gradient(loss, sources), variables)
    return losses

before = []
for _ in range(3):  # the first trace finds the groups
    before.append([float(loss) for loss in tf.function(step)()])
print(json.dumps(before))
"""


def test_a_variable_that_the_forward_pass_changes_is_read_after_that() -> None:
    # Of the square, half the gradient takes a variable to 0.
    assert computed(_CHANGED) == [[32.0, 8.0, 2.0, 2.0], [0.0, 2.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]]
