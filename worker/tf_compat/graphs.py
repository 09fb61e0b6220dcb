"""What a dataset's graphs tell: the user's lines behind an error in it, and where it calls Python.

TensorFlow gives no stack for such an error: the transformations run far from Python, maybe on another
machine. But the graphs that were sent there remember where each operation came from.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from typing import Any

_READERS = (
    "ArrayRecordDataset",
    "FixedLengthRecordDataset",
    "RecordIODataset",
    "SSTableDataset",
    "TextLineDataset",
    "TFRecordDataset",
)
_KEEP_BATCHES = (
    "_AssertCardinalityDataset",
    "_FilterDataset",
    "_IgnoreErrorsDataset",
    "_OptionsDataset",
    "_PrefetchDataset",
    "_RepeatDataset",
    "_ShardDataset",
    "_ShuffleDataset",
    "_SkipDataset",
    "_TakeDataset",
    "CacheDataset",
)
"""What passes its input's elements on as they are, by TensorFlow 2.21's names."""
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")


def dataset_frames(error: BaseException, datasets: list[Any]) -> list[traceback.FrameSummary]:
    """All frames, outermost first, of the first operation named in `error` that `datasets` know."""
    names = _NODE.findall(str(error))
    for dataset in datasets:
        for graph in _graphs(dataset):
            for name in names:
                try:
                    operation = graph.get_operation_by_name(name)
                except (KeyError, ValueError):
                    continue
                return [
                    traceback.FrameSummary(frame.filename, frame.lineno, frame.name)
                    for frame in operation.traceback or []
                ]
    return []


def file_count(dataset: Any) -> int | None:
    """How many files `dataset` reads at least, where it reads several the least of them; None for no files.

    Of those that TensorFlow can share out by files: tensorflow/core/grappler/optimizers/data/auto_shard.cc.
    Files in a number that is not known beforehand count as very many.
    """
    return min(_file_counts(dataset), default=None)


def file_names(dataset: Any, most: int) -> list[str] | None:
    """The files that `dataset` reads, in the order in which TensorFlow shares them out: before a shuffle.

    None where they are more than `most`, are not known beforehand, or are read at several places.
    """
    sources = list(_file_sources(dataset))
    if len(sources) != 1:
        return None
    (source,) = sources
    while type(source).__name__ == "_ShuffleDataset":
        (source,) = source._inputs()
    spec = source.element_spec
    is_text = getattr(spec, "dtype", None) == "string" and spec.shape.rank == 0
    if not is_text or not 0 <= int(source.cardinality()) <= most:
        return None
    return [name.numpy().decode() for name in source]


def data_service_dataset(policy: Any, address: str, identifier: Any, element: Any, job: Any) -> Any:
    """tf.data.experimental.service.from_dataset_id, whose `job`, a string tensor, need not be traced anew.

    The public function takes a Python string only.
    """
    from tensorflow.python.data.experimental.ops.data_service_ops import _from_dataset_id

    return _from_dataset_id(policy, address, identifier, element, job_name=job)


def _file_counts(dataset: Any) -> Iterator[int]:
    for source in _file_sources(dataset):
        count = int(source.cardinality())
        yield count if count >= 0 else sys.maxsize


def _file_sources(dataset: Any) -> Iterator[Any]:
    """The datasets of files' names that `dataset` reads from."""
    dataset = getattr(dataset, "_impl", dataset)
    inputs = list(dataset._inputs())
    operations = (operation for graph in _own_graphs(dataset) for operation in graph.get_operations())
    if inputs and any(operation.type.startswith(_READERS) for operation in operations):
        yield inputs[0]
    for source in inputs:
        yield from _file_sources(source)


def batch_size(dataset: Any) -> int | None:
    """Of every whole batch of `dataset`; None where its transformations do not tell."""
    dataset = getattr(dataset, "_impl", dataset)
    while type(dataset).__name__ in _KEEP_BATCHES:
        (dataset,) = dataset._inputs()
        dataset = getattr(dataset, "_impl", dataset)
    if not type(dataset).__name__.endswith("BatchDataset"):
        return None
    import tensorflow as tf

    # One of another kind, such as a ragged batch, need not have it.
    value = tf.get_static_value(getattr(dataset, "_batch_size", None))
    return None if value is None else int(value)


def shuffles(dataset: Any) -> bool:
    """Whether `dataset` gives its elements in another order each time."""
    dataset = getattr(dataset, "_impl", dataset)
    return type(dataset).__name__ == "_ShuffleDataset" or any(map(shuffles, dataset._inputs()))


def operation_types(dataset: Any) -> set[str]:
    """Of all operations in the functions that `dataset` applies."""
    return {operation.type for graph in _graphs(dataset) for operation in graph.get_operations()}


def graph_operation_types(graph: Any) -> set[str]:
    """Of all operations of `graph` and in the functions that it calls."""
    return {operation.type for each in _nested(graph, set()) for operation in each.get_operations()}


def _graphs(dataset: Any) -> Iterator[Any]:
    yield from _own_graphs(dataset)
    for source in dataset._inputs():
        yield from _graphs(source)


def _own_graphs(dataset: Any) -> Iterator[Any]:
    for function in dataset._functions():
        graph = getattr(getattr(function, "function", function), "graph", None)
        if graph is not None:
            yield from _nested(graph, set())


def _nested(graph: Any, seen: set[int]) -> Iterator[Any]:
    if id(graph) in seen:
        return
    seen.add(id(graph))
    yield graph
    for function in getattr(graph, "_functions", {}).values():
        inner = getattr(function, "graph", None)
        if inner is not None:
            yield from _nested(inner, seen)
