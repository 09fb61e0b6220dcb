"""Reads the graphs of datasets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from worker.tf_compat import graphs

DRAWN: dict[str, Callable[[Any], Any]] = {
    "batched": lambda shuffled: shuffled.batch(4).prefetch(2),
    "repeated": lambda shuffled: shuffled.repeat(3).batch(4),
    "repeated behind another": lambda shuffled: shuffled.take(8).repeat(2).shuffle(4, seed=2),
    "one after the other": lambda shuffled: shuffled.take(3).concatenate(shuffled.skip(3)),
    "side by side": lambda shuffled: tf.data.Dataset.zip(shuffled.take(3), shuffled.skip(3)),
    "behind another": lambda shuffled: shuffled.take(8).shuffle(4, seed=2),
    "interleaved": lambda shuffled: shuffled.interleave(tf.data.Dataset.range, num_parallel_calls=2),
}


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("reads", [False, True])
def test_the_orders_that_an_iteration_draws(name: str, reads: bool) -> None:
    def values(dataset: Any) -> list[int]:
        return [int(number) for number in dataset]

    shuffled, again = (tf.data.Dataset.range(12).shuffle(12, seed=5) for _ in range(2))
    dataset = DRAWN[name](shuffled)
    assert shuffled in graphs.shuffles_of(dataset)
    iterator = iter(dataset)
    if reads:
        list(iterator)
    following = values(shuffled)
    drawn = next(number for number in range(9) if values(again) == following)
    assert graphs.drawn(dataset, reads=reads)[id(shuffled)] == drawn


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        pytest.param(lambda first, second, _: 2 * first * second / (first + second), 0.48, id="of both"),
        pytest.param(lambda first, second, _: tf.sqrt(first), 0.8, id="of one"),
        pytest.param(lambda first, second, _: second, 0.384, id="one of them"),
        pytest.param(
            lambda first, second, batch: first + tf.reduce_sum(batch), None, id="of the arguments, too"
        ),
        pytest.param(lambda first, second, _: first + tf.random.uniform([]), None, id="drawn"),
        pytest.param(lambda first, second, _: tf.constant(2.0), None, id="of none"),
        pytest.param(lambda first, second, _: 2.0, None, id="a number"),
    ],
)
def test_what_is_computed_from_other_values_alone(
    compute: Callable[..., Any], expected: float | None
) -> None:
    variables = [tf.Variable(1.0), tf.Variable(1.0)]
    traced: list[Any] = []

    def step(batch: Any) -> None:
        values = [tf.identity(variable) for variable in variables]
        traced[:] = [compute(*values, batch), values]

    tf.function(step).get_concrete_function(tf.TensorSpec([2]))
    function = graphs.computed_from(*traced)
    result = None if function is None else float(tf.function(function)([0.64, 0.384]))
    assert result == (expected if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("change", "grows"),
    [
        pytest.param(lambda total, batch: total.assign_add(tf.reduce_sum(batch)), True, id="adds"),
        pytest.param(lambda total, batch: total.assign(total + tf.reduce_sum(batch)), True, id="a sum"),
        pytest.param(lambda total, batch: total.assign(1.0 + total - batch[0]), True, id="a difference"),
        pytest.param(lambda total, batch: total.assign(tf.maximum(total, batch[0])), False, id="the largest"),
        pytest.param(lambda total, batch: total.assign(batch[0]), False, id="the last"),
        pytest.param(lambda total, batch: total.assign(0.9 * total + batch[0]), False, id="a moving mean"),
        pytest.param(lambda total, batch: total.assign(total + total), False, id="doubled"),
    ],
)
def test_a_variable_that_is_only_added_to(change: Callable[..., Any], grows: bool) -> None:
    total = tf.Variable(1.0)
    found: list[bool] = []

    def step(batch: Any) -> None:
        change(total, batch)
        found.append(graphs.only_grows(total))

    tf.function(step).get_concrete_function(tf.TensorSpec([2]))
    assert found == [grows]
