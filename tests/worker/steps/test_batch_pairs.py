"""What compares the examples of a batch with each other is told from what only has a shape like that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.worker.conftest import MakeCluster
from worker.contract.records import Event
from worker.steps.batch_pairs import comparing, may_compare

SIZE = 8
"""Of the batch, and of a sequence."""


def similarity(x: Any) -> Any:
    vectors = tf.math.l2_normalize(tf.reshape(x, [-1, SIZE * 3]), axis=1)
    return tf.reduce_mean(tf.matmul(vectors, vectors, transpose_b=True))


def distances(x: Any) -> Any:
    means = tf.reduce_mean(x, axis=[1, 2])
    return tf.reduce_mean((means[:, None] - means[None, :]) ** 2)


def of_both_towers(x: Any) -> Any:
    return tf.reduce_logsumexp(tf.einsum("ad,bd->ab", x[:, 0], x[:, 1]))


def attention(x: Any) -> Any:
    weights = tf.nn.softmax(tf.matmul(x, x, transpose_b=True))  # [batch, sequence, sequence]
    return tf.reduce_mean(tf.matmul(weights, x))


def wide(x: Any) -> Any:
    return tf.reduce_mean(tf.matmul(tf.reshape(x, [-1, SIZE * 3]), tf.ones([SIZE * 3, SIZE])))


def of_features(x: Any) -> Any:
    flat = tf.reshape(x, [-1, 3])
    return tf.reduce_sum(tf.matmul(flat, flat, transpose_a=True))


def traced(step: Callable[[Any], Any]) -> Callable[[int | None], Any]:
    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = step(x)
        return tape.gradient(loss, x)

    def graph(size: int | None) -> Any:
        inner = tf.function(gradient)
        spec = tf.TensorSpec([size, SIZE, 3])
        return tf.function(lambda x: inner(x)).get_concrete_function(spec).graph

    return graph


@pytest.mark.parametrize("step", [similarity, distances, of_both_towers])
def test_comparisons_are_found_with_their_line(step: Callable[[Any], Any]) -> None:
    graph = traced(step)
    assert may_compare(graph(None), None)
    assert may_compare(graph(SIZE), SIZE)
    operation = comparing(graph, SIZE)
    assert any(frame.name == step.__name__ for frame in operation.traceback)


@pytest.mark.parametrize("step", [attention, wide, of_features])
def test_a_shape_like_that_is_no_comparison(step: Callable[[Any], Any]) -> None:
    assert not may_compare(traced(step)(None), None)
    assert comparing(traced(step), SIZE) is None


def trained(
    make_cluster: MakeCluster, program: str, strategy: str, **options: Any
) -> tuple[float, list[str]]:
    """Returns the loss of the last epoch, and the notices about what is compared."""
    cluster = make_cluster(
        entrypoint=f"pairs:{program}",
        strategy=strategy,
        replicas={"chief": 1},
        model_dir=None,
        parameters={"epochs": 3, "stepsPerEpoch": None, "globalBatchSize": 16},
        **options,
    )
    chief = cluster.start("chief")
    assert chief.ended() == 0
    notices = [record.fields["message"] for record in chief.records(Event.NOTICE)]
    ends = [record.fields for record in chief.records(Event.PROGRESS) if record.fields["epoch_end"]]
    return ends[-1]["loss"], [notice for notice in notices if "compares" in notice]


@pytest.mark.thorough
def test_a_loss_over_pairs_is_told_once_and_gathered_is_that_of_one_process(
    make_cluster: MakeCluster,
) -> None:
    two = {"strategy_options": {"logicalCpus": 2}}
    alone, notices = trained(make_cluster, "Pairs", "OneDevice")
    assert not notices
    apart, notices = trained(make_cluster, "Pairs", "Mirrored", **two)
    assert apart != pytest.approx(alone, rel=0.01)
    (notice,) = notices
    assert "pairs.py:36 compares the examples of a batch with each other" in notice
    assert "each of the 2 replicas has the pairs of its own 8 examples" in notice
    for program in ("Gathered", "Gathered3"):
        together, notices = trained(make_cluster, program, "Mirrored", **two)
        assert together == pytest.approx(alone, rel=1e-5)
        assert not notices
