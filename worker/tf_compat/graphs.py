"""Reads the graphs of a dataset: the user's lines behind an error in it, and where it calls Python.

TensorFlow gives no stack for such an error, because the transformations run outside of Python, maybe on
another machine. But the graphs that were sent there keep the place in the code where each operation was made.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

_READERS = (
    "ArrayRecordDataset",
    "FixedLengthRecordDataset",
    "RecordIODataset",
    "SSTableDataset",
    "TextLineDataset",
    "TFRecordDataset",
)
"""Operations of files that TensorFlow shards."""
_OPENERS = (*_READERS, "CSVDataset", "ReadFile")
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
"""Transformations that return the elements of their input unchanged, by TensorFlow 2.21's names."""
SHUFFLE, CACHE, _TAKE = "_ShuffleDataset", "CacheDataset", "_TakeDataset"
_REPEATED, _CONCATENATED = "_RepeatDataset", "_ConcatenateDataset"
COPIED = "copied_of"
"""The attribute of a copied dataset that names, as a tuple, what it was copied of."""
_FILTER = "FilterDataset"
_RANDOM = ("Multinomial", "ParameterizedTruncatedNormal", "Random", "Stateful", "TruncatedNormal")
"""How TensorFlow's names of operations begin that draw other numbers each time."""
_MAPS = ("_MapDataset", "_ParallelMapDataset")
_KEEP_COUNT = (*_MAPS, "_OptionsDataset", "_PrefetchDataset")
"""Transformations that return an element for each of their input, in its order."""
_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape")
_REFRESH_MS = 100
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")


def dataset_frames(error: BaseException, datasets: list[Any]) -> list[traceback.FrameSummary]:
    """Returns all frames, outermost first, of the first operation named in `error` that is in one of
    `datasets`.
    """
    return _frames(error, (graph for dataset in datasets for graph in _graphs(dataset)))


def function_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Returns all frames, outermost first, of the first operation named in `error` that is in the traced
    function which raised it. Returns [] where no trace was called, as a coordinator does.

    The text of an error that comes from another task may lack them ("stack traces unavailable").
    """
    import tensorflow as tf

    for frame, _ in traceback.walk_tb(error.__traceback__):
        function = frame.f_locals.get("self")
        if isinstance(function, tf.types.experimental.ConcreteFunction):
            return _frames(error, _nested(function.graph, set()))
    return []


def may_change(variable: Any) -> bool:
    """Returns whether an operation of the function that is being traced, or a branch or a loop in it, may
    change `variable`.
    """
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    handle = graph.capture(variable.handle)
    return any(operation.type not in _READS for operation in handle.consumers())


def only_grows(variable: Any) -> bool:
    """Returns whether the function that is being traced adds to `variable` and changes it in no other way:
    then what several replicas have added to variables of their own adds up. Branches and loops are not looked
    into.
    """
    import tensorflow as tf

    handle = tf.compat.v1.get_default_graph().capture(variable.handle)
    values = (each.inputs[1] for each in handle.consumers() if each.type == "AssignVariableOp")
    return all(_adds_to(handle, value) for value in values)


def _adds_to(handle: Any, value: Any) -> bool:
    """Returns whether `value` is that of the variable of `handle`, and something else that does not depend on
    it.
    """
    left, reads = [value], 0
    while left:
        operation = left.pop().op
        if operation.type in ("AddV2", "Add", "AddN", "Identity", "Cast", "Reshape", "EnsureShape"):
            left.extend(operation.inputs)
        elif operation.type == "Sub":
            left.append(operation.inputs[0])
            if _depends(operation.inputs[1], handle):
                return False
        elif operation.type == "ReadVariableOp" and operation.inputs[0] is handle:
            reads += 1
        elif any(_depends(each, handle) for each in operation.inputs):
            return False
    return reads == 1


def _depends(tensor: Any, on: Any) -> bool:
    left, known = [tensor], {tensor.name}
    while left:
        each = left.pop()
        if each is on:
            return True
        new = [source for source in each.op.inputs if source.name not in known]
        known.update(source.name for source in new)
        left.extend(new)
    return False


def is_of_variables(value: Any) -> bool:
    """Returns whether `value`, of a function that is being traced, is computed from variables and constants
    alone, as a penalty on weights is, and by no random operation: replicas compute it alike.
    """
    seen, ahead = set(), [value.op]
    while ahead:
        operation = ahead.pop()
        if operation.name in seen or operation.type in ("Const", "ReadVariableOp"):
            continue
        seen.add(operation.name)
        if not operation.inputs or "Random" in operation.type:
            return False
        ahead.extend(each.op for each in operation.inputs)
    return True


def computed_from(tensor: Any, sources: Sequence[Any]) -> Callable[[Sequence[Any]], Any] | None:
    """Returns a function that computes `tensor`, of a function that was traced, from other values of its
    tensors `sources`; None where it depends on something else, such as the function's arguments, a variable
    or a random number, on none of them, or on a function that it calls.
    """
    import tensorflow as tf

    if not tf.is_tensor(tensor) or not hasattr(tensor, "op"):
        return None
    constants = {inner.name: outer for outer, inner in tensor.graph.captures if outer.dtype != tf.resource}
    constants = {name: value for name, value in constants.items() if hasattr(value, "numpy")}
    given = {source.name for source in sources if source.graph is tensor.graph}
    used: set[str] = set()
    operations: dict[str, Any] = {}
    left = [tensor]
    while left:
        each = left.pop()
        if each.name in given | constants.keys():
            used.add(each.name)
        elif each.op.name not in operations:
            operation = operations[each.op.name] = each.op
            calls = any(each.type in ("func", "list(func)") for each in operation.op_def.attr)
            if calls or operation.op_def.is_stateful or not (operation.inputs or operation.type == "Const"):
                return None
            left.extend(operation.inputs)
    if not used & given:
        return None
    definition = tf.compat.v1.GraphDef(versions=tensor.graph.graph_def_versions)
    for operation in operations.values():
        node = definition.node.add()
        node.CopyFrom(operation.node_def)
        node.ClearField("device")
        node.attr.pop("_class", None)
        data = [name for name in node.input if not name.startswith("^")]
        del node.input[:]
        node.input.extend(data)

    def compute(values: Sequence[Any]) -> Any:
        known = {source.name: value for source, value in zip(sources, values) if source.name in used}
        known |= {name: constants[name] for name in used & constants.keys()}
        if not operations:
            return known[tensor.name]
        return tf.graph_util.import_graph_def(definition, known, [tensor.name], name="computed")[0]

    return compute


def _frames(error: BaseException, graphs: Iterable[Any]) -> list[traceback.FrameSummary]:
    searched = list(graphs)
    for name in _NODE.findall(str(error)):
        parts = name.split("/")
        # A branch of tf.cond is inlined as the name of the conditional and that of its own operation.
        for length in range(len(parts), 0, -1):
            for graph in searched:
                try:
                    operation = graph.get_operation_by_name("/".join(parts[:length]))
                except (KeyError, ValueError):
                    continue
                return frames_of_operation(operation)
    return []


def frames_of(dataset: Any, types: Collection[str]) -> list[traceback.FrameSummary]:
    """Returns all frames, outermost first, of the first operation of one of the `types` in `dataset`."""
    for graph in _graphs(dataset):
        for operation in graph.get_operations():
            if operation.type in types:
                return frames_of_operation(operation)
    return []


def frames_of_operation(operation: Any) -> list[traceback.FrameSummary]:
    """Returns all frames, outermost first, of where `operation` was made."""
    return [
        traceback.FrameSummary(frame.filename, frame.lineno, frame.name)
        for frame in operation.traceback or []
    ]


def file_count(dataset: Any) -> int | None:
    """Returns how many files `dataset` reads at least; None where it reads none. Where it reads from several
    lists of files, the shortest counts.

    It counts files that TensorFlow can shard: tensorflow/core/grappler/optimizers/data/auto_shard.cc. An
    unknown number of files counts as very many.
    """
    return min(_file_counts(dataset), default=None)


def file_names(dataset: Any, most: int) -> list[str] | None:
    """Returns the files that `dataset` reads, in the order in which TensorFlow shards them: before a shuffle.

    Returns None where there are more than `most`, where they are unknown, or where it reads several lists of
    files.
    """
    sources = list(_file_sources(dataset))
    if len(sources) != 1:
        return None
    (source,) = sources
    spec = source.element_spec
    is_text = getattr(spec, "dtype", None) == "string" and spec.shape.rank == 0
    if not is_text or not 0 <= int(source.cardinality()) <= most:
        return None
    return [name.numpy().decode() for name in source]


def first_files(dataset: Any) -> list[str]:
    """Returns the first file of each list of files that `dataset` reads, as far as they can be told."""
    import tensorflow as tf

    tensors = []
    for source in _file_sources(dataset, _OPENERS):
        if SHUFFLE not in transformations(source):  # reading would use up an order
            tensors += [value for element in source.take(1) for value in tf.nest.flatten(element)]
    for each in _all(dataset):
        if (names := getattr(each, "_filenames", None)) is not None:
            tensors += list(tf.reshape(names, [-1])[:1])
    return [value.numpy().decode() for value in tensors if value.dtype == tf.string and not value.shape.rank]


def data_service_dataset(
    policy: Any, address: str, identifier: Any, element: Any, job: Any, most: int | None = None
) -> Any:
    """tf.data.experimental.service.from_dataset_id with a string tensor as `job`, so that a new job needs no
    new trace, and with a shorter interval in which the reader asks for news. The reader asks for at most
    `most` elements ahead; None leaves the number to TensorFlow.

    The public function takes a Python string only. With its interval of a second each pass through the data
    takes a second more, in which nothing is read: until its end is known, and until the next has begun.
    """
    from tensorflow.python.data.experimental.ops.data_service_ops import _from_dataset_id

    return _from_dataset_id(
        policy,
        address,
        identifier,
        element,
        job_name=job,
        max_outstanding_requests=most,
        task_refresh_interval_hint_ms=_REFRESH_MS,
    )


def _file_counts(dataset: Any) -> Iterator[int]:
    for source in _file_sources(dataset):
        count = int(source.cardinality())
        yield count if count >= 0 else sys.maxsize


def _file_sources(dataset: Any, readers: tuple[str, ...] = _READERS) -> Iterator[Any]:
    """Yields the datasets of file names from which `dataset` reads by operations of `readers`, as they are
    before a shuffle.
    """
    dataset = getattr(dataset, "_impl", dataset)
    inputs = list(dataset._inputs())
    operations = (operation for graph in _own_graphs(dataset) for operation in graph.get_operations())
    if inputs and any(operation.type.startswith(readers) for operation in operations):
        names = inputs[0]
        while type(names).__name__ == SHUFFLE:
            (names,) = names._inputs()
        yield names
    for source in inputs:
        yield from _file_sources(source, readers)


def batch_size(dataset: Any) -> int | None:
    """Returns the size of every full batch of `dataset`; None where its transformations do not tell."""
    import tensorflow as tf

    maps = []
    dataset = getattr(dataset, "_impl", dataset)
    while (name := type(dataset).__name__) in _KEEP_BATCHES or name in _MAPS:
        maps += [dataset] if name in _MAPS else []
        (dataset,) = dataset._inputs()
        dataset = getattr(dataset, "_impl", dataset)
    if not name.endswith("BatchDataset"):
        return None
    # Batches of another kind, such as ragged ones, may lack the attribute.
    value = tf.get_static_value(getattr(dataset, "_batch_size", None))
    keeps = value is not None and all(_keeps_size(each, int(value)) for each in maps)
    return int(value) if keeps else None


def _keeps_size(dataset: Any, size: int) -> bool:
    """Returns whether the function of `dataset`, a map of batches, makes as many examples of `size` examples,
    as far as the shapes in its graph tell. The function itself is not traced again: it may draw seeds.
    """
    import tensorflow as tf
    from tensorflow.python.data.util import structure
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

    (source,) = dataset._inputs()
    function = dataset._map_func.function
    definition = type(function.function_def)()
    definition.CopyFrom(function.function_def)
    definition.ClearField("arg_attr")  # it has the shapes of the trace
    shapes = [
        tf.TensorShape([size, *shape[1:]]) if shape.rank and shape[0] is None else shape
        for shape in structure.get_flat_tensor_shapes(source.element_spec)
    ]
    shapes += [each.shape for each in function.captured_inputs]
    graph = function_def_to_graph(definition, input_shapes=shapes)
    first = graph.outputs[0].shape
    return bool(first.rank) and first[0] == size


class Packed(NamedTuple):
    """Which dataset's elements another one packs: `size` of them into one of its own. `drops` says whether
    it leaves out the last ones, where they are fewer.
    """

    source: Any
    size: int
    drops: bool


def packed(dataset: Any, through: Collection[str] = ()) -> Packed:
    """Returns the first dataset that `dataset` makes its elements of, as far as each has a fixed number of
    its elements. `through` are further transformations that do not change the number.
    """
    dataset, size, drops = getattr(dataset, "_impl", dataset), 1, False
    while True:
        name = type(dataset).__name__
        if name.endswith("BatchDataset") and not name.startswith("_Dense"):
            own_size = batch_size(dataset)
            dropping = getattr(dataset, "_drop_remainder", None)
            if own_size is None or dropping is None or size > 1:
                break
            import tensorflow as tf

            size, drops = own_size, bool(tf.get_static_value(dropping))
        elif name not in _KEEP_COUNT and name not in through:
            break
        (dataset,) = dataset._inputs()
        dataset = getattr(dataset, "_impl", dataset)
    return Packed(dataset, size, drops)


def repeated(dataset: Any) -> tuple[Any, int] | None:
    """Returns the dataset that `dataset` repeats without an end, and how many of its elements make one of
    `dataset`; None where it is made in another way.
    """
    import tensorflow as tf

    source, size, _ = packed(dataset)
    if type(source).__name__ != _REPEATED:
        return None
    count = tf.get_static_value(source._count)
    (source,) = source._inputs()
    return (source, size) if count is not None and int(count) < 0 else None


def of_own_files(dataset: Any, tasks: int, task: int) -> Any:
    """Returns what `task` of `tasks` reads of `dataset`, by the policy that its options give."""
    from tensorflow.python.data.experimental.ops import distribute

    return distribute._AutoShardDataset(dataset, tasks, task)


def shuffles(dataset: Any) -> bool:
    """Returns whether `dataset` has another order of elements in each iteration."""
    return SHUFFLE in transformations(dataset)


def keeps_an_order(dataset: Any) -> bool:
    """Returns whether a cache in `dataset` keeps the first order of what is shuffled."""
    return any(type(each).__name__ == CACHE and shuffles(each) for each in _all(dataset))


def reads_alike(dataset: Any) -> bool:
    """Returns whether each iteration of `dataset` surely gives the same elements in the same order."""
    operations = operation_types(dataset)
    if shuffles(dataset) or any(operation.startswith("ShuffleDataset") for operation in operations):
        return False
    names = [*transformations(dataset), *operations]
    filters = any(_FILTER in name for name in names)
    return not (filters and any(operation.startswith(_RANDOM) for operation in operations))


def has_random_order(dataset: Any) -> bool:
    """Returns whether `dataset` is shuffled without a seed."""
    import tensorflow as tf

    seeds = ([tf.get_static_value(seed) for seed in (each._seed, each._seed2)] for each in _shuffles(dataset))
    return any(all(seed == 0 for seed in pair) for pair in seeds)


def shuffles_of(dataset: Any) -> list[Any]:
    """Returns the shuffles that `dataset` is made of and whose orders it has: not those before a cache, which
    keeps the first. Each is there once; what is no dataset has none.
    """
    if not hasattr(dataset, "_inputs"):
        return []
    return _behind_caches(dataset, SHUFFLE)


def caches_of(dataset: Any) -> list[Any]:
    """Returns the caches that `dataset` is made of, but for those before another one. Each is there once."""
    return _behind_caches(dataset, CACHE)


def takes_a_part(dataset: Any) -> bool:
    """Returns whether `dataset` may leave its caches before their end."""
    return bool(_behind_caches(dataset, _TAKE))


def _behind_caches(dataset: Any, name: str) -> list[Any]:
    return list(
        {id(each): each for each in _all(dataset, beyond=CACHE) if type(each).__name__ == name}.values()
    )


def source_of(cache: Any) -> Any:
    """Returns what a cache keeps."""
    return cache._input_dataset


def drawn(dataset: Any, *, reads: bool, to_the_end: bool = False) -> Counter[int]:
    """Returns how many orders of each of `shuffles_of(dataset)`, by its id, an iteration draws: when it is
    begun, or when it `reads` all elements, or asks for one more, `to_the_end`.
    """
    dataset = getattr(dataset, "_impl", dataset)
    name, inputs = type(dataset).__name__, _inputs(dataset)
    if name == SHUFFLE:  # begins its input when the first element is asked of it
        read = drawn(inputs[0], reads=True, to_the_end=True) if reads else Counter[int]()
        return Counter([id(dataset)]) + read
    if name == CACHE:
        return Counter()
    if name == _CONCATENATED and not reads:
        inputs = inputs[:1]
    total = sum((drawn(each, reads=reads, to_the_end=to_the_end) for each in inputs), Counter[int]())
    if name == _REPEATED and reads:
        times = max(1, int(dataset._count))
        total = Counter({shuffle: times * count for shuffle, count in total.items()})
        if to_the_end and type(inputs[0]).__name__ != SHUFFLE:  # with which TensorFlow fuses it
            total += drawn(inputs[0], reads=False)
    return total


def transformations(dataset: Any) -> list[str]:
    """Returns TensorFlow's names of the transformations that `dataset` is made of, such as SHUFFLE."""
    return [type(each).__name__ for each in _all(dataset)]


def operation_types(dataset: Any) -> set[str]:
    """Returns the types of all operations in the functions that `dataset` applies."""
    return {operation.type for graph in _graphs(dataset) for operation in graph.get_operations()}


def lookup_shapes(graph: Any) -> list[Any]:
    """Returns the shapes of the indices by which `graph` and the functions that it calls look up rows."""
    return [
        operation.inputs[1].shape
        for each in _nested(graph, set())
        for operation in each.get_operations()
        if operation.type in ("GatherV2", "ResourceGather")
    ]


def nested(graph: Any) -> Iterator[Any]:
    """Yields `graph`, and those of the functions that it calls."""
    yield from _nested(graph, set())


def is_constant(tensor: Any) -> bool:
    """Returns whether `tensor`, of a graph, has the same value whatever the graph is given."""
    seen, waiting = set[Any](), [tensor]
    while waiting:
        operation = getattr(waiting.pop(), "op", None)
        if operation is None or (not operation.inputs and operation.type != "Const"):
            return False
        if operation not in seen:
            seen.add(operation)
            waiting.extend(operation.inputs)
    return True


def _shuffles(dataset: Any) -> Iterator[Any]:
    """Yields the shuffles that `dataset` is made of, the outermost first."""
    return (each for each in _all(dataset) if type(each).__name__ == SHUFFLE)


def _all(dataset: Any, beyond: str = "") -> Iterator[Any]:
    """Yields `dataset` and those that it is made of, but for what stands before one of the name `beyond`."""
    dataset = getattr(dataset, "_impl", dataset)
    yield dataset
    for source in _inputs(dataset) if type(dataset).__name__ != beyond else ():
        yield from _all(source, beyond)


def _inputs(dataset: Any) -> list[Any]:
    """Of a copy: what it was made of, as nothing else shows its transformations."""
    return [*dataset._inputs(), *getattr(dataset, COPIED, ())]


def _graphs(dataset: Any) -> Iterator[Any]:
    yield from _own_graphs(dataset)
    for source in _inputs(dataset):
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
