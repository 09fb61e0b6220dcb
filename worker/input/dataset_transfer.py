"""Datasets of a coordinator that its workers read: each gets the graph of the dataset, with what it needs.

A dataset, a lookup table or a tensor that the coordinator has made is in its process. A worker whose
function refers to it fails ("Failed copying input tensor", "Primary device is not remote"), or asks the
coordinator for each look-up. The graph has them by value, as for tf.data service.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from worker.failures import program_error, sentence
from worker.tf_compat.graphs import COPIED

_IGNORE_STATE = 1
"""tensorflow.data.ExternalStatePolicy.POLICY_IGNORE: each worker draws random numbers of its own."""
_SHUFFLE, _GENERATOR = "ShuffleDatasetV3", 4
"""The operation of a shuffle, and the number of its input that draws the orders."""


def copied(dataset: Any) -> Any:
    """Returns a dataset of this process with the elements of `dataset`. It begins with the first order of
    what is shuffled, and uses up none of the orders of `dataset`.
    """
    serialized = tf.raw_ops.DatasetToGraphV2(
        input_dataset=tf.data.experimental.to_variant(dataset), external_state_policy=_IGNORE_STATE
    )
    variant = tf.raw_ops.DatasetFromGraph(graph_def=_with_own_orders(serialized))
    copy = tf.data.experimental.from_variant(variant, dataset.element_spec)
    setattr(copy, COPIED, (dataset,))
    return copy.with_options(dataset.options())


def _with_own_orders(serialized: Any) -> bytes:
    """Returns the graph of a dataset, in which what draws the orders of a shuffle has a name that no task
    knows: so it is made anew.
    """
    graph = _with_each_shuffle_once(tf.compat.v1.GraphDef.FromString(serialized.numpy()))
    for handle in _generators(graph).values():
        handle.name = uuid.uuid4().hex
    return bytes(graph.SerializeToString())


def _with_each_shuffle_once(graph: Any) -> Any:
    """Returns `graph`, in which each mention of a shuffle is one of its own, which draws its own orders: all
    are replaced by the first.
    """
    first: dict[str, str] = {}
    same = {name: first.setdefault(each.name, name) for name, each in _generators(graph).items()}
    if len(first) == len(same):
        return graph
    nodes = {node.name: node for node in graph.node}
    waiting = [node.name for node in graph.node if node.op == "_Retval"]
    reached: set[str] = set()
    while waiting:
        if (name := waiting.pop()) in reached:
            continue
        reached.add(name)
        inputs = nodes[name].input
        for number, each in enumerate(inputs):
            inputs[number] = same.get(each, each)
        # `name:output` is data, and `^name` one that must run before.
        waiting.extend(each.removeprefix("^").partition(":")[0] for each in inputs)
    kept = [node for node in graph.node if node.name in reached]
    del graph.node[:]
    graph.node.extend(kept)
    return graph


def _generators(graph: Any) -> dict[str, Any]:
    """Returns the handle of what draws the orders of each shuffle in `graph`, by the name of its node."""
    nodes = {node.name: node for node in graph.node}
    return {
        node.name: nodes[node.input[_GENERATOR]].attr["value"].tensor.resource_handle_val[0]
        for node in graph.node
        if node.op == _SHUFFLE
    }


def carried(dataset: Any, entrypoint: str, method: str) -> Callable[[], Any]:
    """Returns a function that gives `dataset`, in a graph of any task. `entrypoint` and `method` name what
    returned it.

    Raises Failure where the dataset refers to something that cannot be sent.
    """
    element = dataset.element_spec
    try:
        graph = tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(dataset),
            external_state_policy=_IGNORE_STATE,
            strip_device_assignment=True,
        )
    except (
        tf.errors.FailedPreconditionError,
        tf.errors.InvalidArgumentError,
        tf.errors.UnimplementedError,
    ) as error:
        raise program_error(
            f"{entrypoint}: {method}() cannot be sent to the workers, which read it "
            f"({sentence(error, kind=False)})"
        ) from error

    sent = tf.constant(_with_own_orders(graph))

    def give() -> Any:
        return tf.data.experimental.from_variant(tf.raw_ops.DatasetFromGraph(graph_def=sent), element)

    return give
