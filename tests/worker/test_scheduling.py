"""When an execution by a worker is over, by what TensorFlow keeps of it."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.distribute.coordinator.values import RemoteValueImpl

from worker.cluster.executions import is_done


def test_a_value_is_done_when_it_was_fetched() -> None:
    value = RemoteValueImpl(None, None)
    assert not is_done(value)
    value._set_values(None)
    assert not is_done(value), "a worker that is lost now does it again"
    value.get()
    assert is_done(value)


def test_what_failed_or_was_aborted_is_done() -> None:
    for end in ("_set_error", "_set_aborted"):
        value = RemoteValueImpl(None, None)
        getattr(value, end)(tf.errors.InvalidArgumentError(None, None, "no such word"))
        assert is_done(value)
