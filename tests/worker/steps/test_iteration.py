"""How long an execution waits for its input, with steps and data that take a known time and no processor."""

from __future__ import annotations

import time
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

from worker.input.batch_division import Distributed
from worker.steps.iteration import Iteration

STEPS = 20
HALF = 0.5 * STEPS * 0.03
"""Seconds. A busy machine makes steps longer and waits shorter; none and a full one stay apart."""
STRATEGY = tf.distribute.OneDeviceStrategy("CPU:0")


def iteration(step_seconds: float, batch_seconds: float, *, by_batch: bool) -> Iteration:
    """Returns steps that take so long, of batches each of which takes so long, while the steps go on."""

    def wait(value: Any) -> Any:
        time.sleep(step_seconds)
        return value

    def step(batch: Any, share: Any) -> Any:
        # As an update of a variable, nothing of the next step waits for its result.
        loss = tf.numpy_function(wait, [batch], tf.float32)
        loss.set_shape([])
        return loss

    batches = tf.data.Dataset.from_tensors(1.0).repeat().apply(sleep(round(1e6 * batch_seconds)))
    distributed = STRATEGY.experimental_distribute_dataset(batches.prefetch(1))
    made = Iteration(STRATEGY, step, Distributed(distributed, has_shares=False), by_batch=by_batch)
    made.run(1)
    return made


@pytest.mark.parametrize("by_batch", [False, True])
def test_data_that_come_in_time_are_not_waited_for(by_batch: bool) -> None:
    loss, steps, (for_input, for_peers) = iteration(0.03, 0.01, by_batch=by_batch).run(STEPS)
    assert (float(loss), steps, for_peers) == (1.0, STEPS, 0.0)
    assert for_input < HALF


@pytest.mark.parametrize("by_batch", [False, True])
def test_data_that_come_late_are_waited_for(by_batch: bool) -> None:
    """The next batch is made while a step is taken, so the wait is the difference."""
    late = iteration(0.01, 0.04, by_batch=by_batch)
    begun = time.monotonic()
    for_input, _ = late.run(STEPS).waits
    assert HALF < for_input < time.monotonic() - begun
