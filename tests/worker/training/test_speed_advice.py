"""Advice on speed: a notice where it applies, and none where it does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worker.conftest import MakeCluster
from worker.contract.records import Event

SERVERS = {"chief": 1, "worker": 1, "ps": 2}
ONE = {"strategy": "OneDevice", "replicas": {"chief": 1}}
HOT = "every update on each of the 2 parameter servers reads it"


def notices(make_cluster: MakeCluster, **options: Any) -> list[str]:
    parameters = {"epochs": 1, "stepsPerEpoch": 4, **options.pop("parameters", {})}
    cluster = make_cluster(parameters=parameters, **options)
    tasks = cluster.start_all()
    assert [task.ended() for task in tasks.values()] == [0] * len(tasks)
    return [record.fields["message"] for task in tasks.values() for record in task.records(Event.NOTICE)]


@pytest.mark.thorough
def test_hot_variables_and_options_without_effect(make_cluster: MakeCluster) -> None:
    options, hot = sorted(
        notices(make_cluster, replicas=SERVERS, entrypoint="advised:Watched"), key=lambda text: HOT in text
    )
    assert options == (
        "advised:Watched: train_dataset() sets tf.data.Options' auto_shard_policy to FILE, which "
        "ParameterServer ignores: each worker reads all of the data. Shuffle it without a seed, so that they "
        "read it in different orders"
    )
    assert hot.startswith("the optimizer's learning_rate (on ps ")
    assert "and iteration (on ps " in hot
    assert "a program without train_step() and callbacks()" in hot
    assert "(SGD, Adagrad, RMSprop)" in hot


@pytest.mark.thorough
def test_most_bytes_in_one_variable(make_cluster: MakeCluster) -> None:
    messages = notices(
        make_cluster, replicas=SERVERS, entrypoint="advised:Looped", parameters={"wide": 1 << 20}
    )
    (hot,) = [text for text in messages if HOT in text]
    assert "learning_rate" not in hot, "the runtime sends it as a constant"
    (large,) = [text for text in messages if "is not partitioned" in text]
    assert large.startswith("wide/kernel, float32[1, 1048576], has 100% of the 4 MiB of the model")
    assert "by the first axis, which has 1 here: swap the axes" in large


@pytest.mark.thorough
def test_a_large_variable_that_could_be_partitioned(make_cluster: MakeCluster) -> None:
    messages = notices(
        make_cluster,
        replicas=SERVERS,
        entrypoint="tiny:Tiny",
        parameters={"width": 1 << 18},
        strategy_options={"minShardBytes": 1 << 30},
    )
    (large,) = [text for text in messages if "is not partitioned" in text]
    assert "which has 4 here" not in large
    assert "MinSize with spec.strategyOptions.minShardBytes of 2097152 or less" in large
    assert not [
        text
        for text in notices(
            make_cluster, replicas=SERVERS, entrypoint="tiny:Tiny", parameters={"width": 1 << 18}, run_id="2"
        )
        if "is not partitioned" in text
    ]


@pytest.mark.thorough
def test_of_one_task(make_cluster: MakeCluster) -> None:
    (message,) = notices(make_cluster, **ONE, entrypoint="advised:Advised")
    assert message == (
        "advised:Advised: train_dataset() sets tf.data.Options' auto_shard_policy to FILE, which has no "
        "effect in a run of one task: it reads all of the data. Leave it out"
    )


@pytest.mark.thorough
def test_an_evaluator_that_cannot_hold_the_model(make_cluster: MakeCluster) -> None:
    """The model has 6 MiB; TensorFlow alone takes some 500."""
    options = {"replicas": {"chief": 1, "worker": 1, "ps": 1}, "parameters": {"width": 1 << 18}}
    known = {"entrypoint": "tiny:Tiny", **options}
    (memory,) = notices(make_cluster, **known, evaluator_memory=100 << 20)
    assert memory.startswith("the model has 6 MiB, which the evaluator has in one piece. It takes about ")
    assert "may use 100 MiB: raise the memory in resources of the evaluator" in memory
    messages = notices(make_cluster, **known, evaluator_memory=100 << 30, run_id="2")
    assert not [text for text in messages if "the evaluator has in one piece" in text]


@pytest.mark.thorough
@pytest.mark.parametrize("options", [ONE, {"replicas": {"chief": 1, "worker": 1, "ps": 1}}])
def test_nothing_is_said_where_nothing_is_to_be_said(
    make_cluster: MakeCluster, options: dict[str, Any]
) -> None:
    assert notices(make_cluster, **options, entrypoint="tiny:Tiny") == []
