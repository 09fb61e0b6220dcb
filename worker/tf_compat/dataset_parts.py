"""Divides a dataset into parts that several machines read, each of a share of its source.

TensorFlow's data service hands out the elements of each source one by one (DYNAMIC), to whichever machine
asks: `zip` then pairs features with another example's label, and `take`, `skip`, windows and batches of
sequences count on each machine anew (2.21). Here a part has every n-th element behind the last
transformation that depends on what precedes an element, so all parts together have what the dataset has.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_DATASET = re.compile(r"Dataset(V\d+)?$")
_SEVERAL = re.compile(r"^(Zip|Concatenate|DirectedInterleave)Dataset")
"""All inputs of these are read; of others the first one, and a function may have captured the rest."""
_LIGHT = re.compile(r"^(AssertCardinality|Concatenate|Options|Prefetch|Repeat|Shuffle|Skip|Take|Zip)Dataset")
"""What each part may do with the whole source: it is cheap."""
_BATCH = re.compile(r"^(Parallel|Padded|MapAnd|DenseToRagged|DenseToSparse)?BatchDataset|^RebatchDataset")
_IN_ORDER = re.compile(
    r"^(DirectedInterleave|Scan|Skip|SlidingWindow|Take|TakeWhile|Unique|Window)Dataset"
    r"|^GroupBy(Reducer|Window)Dataset"
)
"""What gives something else where it gets a part of its input only. So does a batch that is batched again."""
_ONE_BY_ONE = re.compile(r"^(Map|Options|ParallelMap|Prefetch)Dataset")
_LEFT_OUT = re.compile(r"^(AssertCardinality|Cache)Dataset")
"""A cache would be filled by one part, and used by the next."""
_OWN_FILES = re.compile(r"^(Snapshot|Save|AutoShard|DataService|Generator)Dataset")
_SEEDS = {"Random": 0, "Shuffle": 2}
"""The first of the two inputs that are seeds."""
_LARGE = 4096
"""Bytes of a constant."""
_EACH_TIME = ("reshuffle_each_iteration", "rerandomize_each_iteration")
_COUNT, _NUMBER, _PASS = "tf-launcher-parts", "tf-launcher-part", "tf-launcher-pass"
_SEED, _SHARD = "tf-launcher-seed", "tf-launcher-shard"


class DatasetParts:
    """The parts of one dataset. `element_spec` is that of the dataset.

    `is_repeated` says whether the dataset repeats its examples without an end before it batches them; the
    parts are of one pass. `reshuffles` says whether each pass has an order of its own. `shares_work` is false
    where each machine must do most of the work for itself. `size` is that of the graph with its data, in
    bytes.
    """

    def __init__(self, dataset: Any) -> None:
        self.element_spec = dataset.element_spec
        serialized = dataset._as_serialized_graph().numpy()
        self.size = len(serialized)
        self._graph = _Graph(tf.compat.v1.GraphDef.FromString(serialized))
        self.is_repeated = self._graph.leave_out_repeat()
        self._graph.leave_out(_LEFT_OUT)
        self.shares_work = self._graph.divide()
        self.reshuffles = self._graph.vary_by_pass()
        self._data = self._graph.without_data()
        self._definition, self._output = self._graph.finished()

    def part(self, number: Any, count: Any, turn: Any) -> Any:
        """Returns part `number` of `count` of the pass `turn`, from 0: int64 tensors. Call it in a graph."""
        values = {**self._data, _NUMBER: number, _COUNT: count, _PASS: turn}
        (variant,) = tf.graph_util.import_graph_def(
            self._definition,
            input_map={f"{name}:0": tf.identity(value) for name, value in values.items()},
            return_elements=[f"{self._output}:0"],
            name="part",
        )
        return tf.data.experimental.from_variant(variant, self.element_spec)


def divided(dataset: Any) -> DatasetParts | None:
    """Returns the parts of `dataset`; None where it has no pass that ends, or writes files of its own."""
    parts = DatasetParts(dataset)

    def cardinality() -> Any:
        zero = tf.constant(0, tf.int64)
        return parts.part(zero, zero + 1, zero).cardinality()

    if parts._graph.has(_OWN_FILES):
        return None
    if int(dataset.cardinality()) >= 0 or int(tf.function(cardinality)()) != tf.data.INFINITE_CARDINALITY:
        return parts
    return None


class _Graph:
    """The graph of a dataset, which the methods change."""

    def __init__(self, definition: Any) -> None:
        self._definition = definition
        self._nodes = {node.name: node for node in definition.node}
        (self._end,) = (node for node in definition.node if node.op == "_Retval")

    def has(self, pattern: re.Pattern[str]) -> bool:
        return any(pattern.search(self._nodes[name].op) for name in self._datasets())

    def leave_out_repeat(self) -> bool:
        """Leaves out a repetition without an end. Returns whether batches are made behind it."""
        batched = False
        node = self._end
        while len(inputs := self._inputs(node)) == 1:
            node = self._nodes[inputs[0]]
            batched |= bool(_BATCH.search(node.op))
            if node.op == "RepeatDataset" and self._value(node.input[1], -1) < 0:
                self._bypass(node)
                return batched
        return False

    def leave_out(self, pattern: re.Pattern[str]) -> None:
        for name in self._datasets():
            if pattern.search(self._nodes[name].op):
                self._bypass(self._nodes[name])

    def divide(self) -> bool:
        """Takes every n-th element where the source's part ends. Returns whether the rest of the work can be
        shared.
        """
        light = self._light()
        whole = set(light)
        for name in self._in_order():
            whole |= {name, *self._before(name)}
        while (apart := self._unequal_zip(whole)) is not None:
            whole |= {apart, *self._before(apart)}
        for node in list(self._definition.node):
            if node.name in whole:
                continue
            for position, name in enumerate(self._inputs(node)):
                if name in whole:
                    node.input[position] = self._shard(name)
        heavy = (self._nodes[name].op for name in whole - light)
        return all(_IN_ORDER.search(op) or _BATCH.search(op) for op in heavy)

    def vary_by_pass(self) -> bool:
        """Has each pass an order of its own, as TensorFlow does, and all its parts the same one. Returns
        whether the passes differ.
        """
        varies = False
        for name in self._datasets():
            node = self._nodes[name]
            first = _SEEDS.get(node.op.partition("DatasetV")[0].removesuffix("Dataset"))
            if first is None:
                continue
            if not any(self._value(each, 1) for each in node.input[first : first + 2]):
                # TensorFlow draws one, for each part another.
                node.input[first] = self._constant(f"{name}/{_SEED}", secrets.randbits(31))
            if any(each in node.attr and node.attr[each].b for each in _EACH_TIME):
                varies = True
                added = self._added(f"{name}/{_PASS}", "AddV2", [node.input[first + 1], _PASS])
                added.attr["T"].type = tf.int64.as_datatype_enum
                node.input[first + 1] = added.name
            # In a function, later versions keep their state from call to call.
            node.op = node.op.partition("V")[0]
            del node.input[first + 2 :]
            if _EACH_TIME[1] in node.attr:
                del node.attr[_EACH_TIME[1]]
        return varies

    def without_data(self) -> dict[str, Any]:
        """Takes large constants out of the graph, and returns them by the names of their placeholders. A
        function that has data in it is copied and decoded for each of its uses.
        """
        constants = {}
        for node in self._definition.node:
            if node.op == "Const" and node.attr["value"].ByteSize() > _LARGE:
                with tf.device("/cpu:0"):
                    constants[node.name] = tf.constant(tf.make_ndarray(node.attr["value"].tensor))
                node.op = "Placeholder"
                del node.attr["value"]
        return constants

    def finished(self) -> tuple[Any, str]:
        """Returns the graph, and the name of its dataset."""
        for name in (_NUMBER, _COUNT, _PASS):
            node = self._added(name, "Placeholder", [])
            node.attr["dtype"].type = tf.int64.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(tf.TensorShape([]).as_proto())
        output = self._end.input[0]
        self._definition.node.remove(self._end)
        return self._definition, _name(output)

    def _datasets(self) -> list[str]:
        """Returns the datasets that are read, that which is returned first."""
        names: dict[str, None] = {}
        waiting = self._inputs(self._end)
        while waiting:
            name = waiting.pop(0)
            if name not in names:
                names[name] = None
                waiting += self._inputs(self._nodes[name])
        return list(names)

    def _inputs(self, node: Any) -> list[str]:
        """Returns the datasets that `node` reads: its first inputs."""
        names = [_name(each) for each in node.input]
        names = [name for name in names if name in self._nodes and _DATASET.search(self._nodes[name].op)]
        return names if _SEVERAL.search(node.op) else names[:1]

    def _before(self, name: str) -> Iterator[str]:
        for each in self._inputs(self._nodes[name]):
            yield each
            yield from self._before(each)

    def _light(self) -> set[str]:
        """Returns the sources, with what is cheap and follows them at once."""
        light: set[str] = set()
        for name in reversed(self._datasets()):
            node, inputs = self._nodes[name], self._inputs(self._nodes[name])
            if not inputs or (_LIGHT.search(node.op) and light.issuperset(inputs)):
                light.add(name)
        return light

    def _in_order(self) -> list[str]:
        """Returns the datasets that must have all of their input."""
        batches = [name for name in self._datasets() if _BATCH.search(self._nodes[name].op)]
        inner = {each for name in batches for each in self._before(name)}
        names = [name for name in batches if name in inner]
        for name in self._datasets():
            node = self._nodes[name]
            is_all = node.op == "TakeDataset" and self._value(node.input[1], 0) < 0
            if _IN_ORDER.search(node.op) and not is_all:
                names.append(name)
        return names

    def _unequal_zip(self, whole: set[str]) -> str | None:
        """Returns a zip whose inputs would not have the same elements in a part."""
        for name in self._datasets():
            if name in whole or not self._nodes[name].op.startswith("Zip"):
                continue
            for each in self._inputs(self._nodes[name]):
                while each not in whole:
                    if not _ONE_BY_ONE.search(self._nodes[each].op):
                        return name
                    (each,) = self._inputs(self._nodes[each])
        return None

    def _shard(self, name: str) -> str:
        """Returns the dataset of every n-th element of `name`."""
        shard = f"{name}/{_SHARD}"
        if shard not in self._nodes:
            source = self._nodes[name]
            node = self._added(shard, "ShardDataset", [name, _COUNT, _NUMBER])
            types = "output_types" if "output_types" in source.attr else "Toutput_types"
            node.attr["output_types"].CopyFrom(source.attr[types])
            node.attr["output_shapes"].CopyFrom(source.attr["output_shapes"])
            self._nodes[shard] = node
        return shard

    def _bypass(self, node: Any) -> None:
        for each in self._definition.node:
            for position, name in enumerate(each.input):
                if _name(name) == node.name and not name.startswith("^"):
                    each.input[position] = node.input[0]

    def _added(self, name: str, op: str, inputs: list[str]) -> Any:
        node = self._definition.node.add()
        node.name, node.op = name, op
        node.input.extend(inputs)
        return node

    def _constant(self, name: str, value: int) -> str:
        node = self._added(name, "Const", [])
        node.attr["dtype"].type = tf.int64.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int64))
        return name

    def _value(self, name: str, otherwise: int) -> int:
        """Returns the constant `name`, or `otherwise` where it is computed."""
        node = self._nodes[_name(name)]
        return int(tf.make_ndarray(node.attr["value"].tensor)) if node.op == "Const" else otherwise


def _name(reference: str) -> str:
    return reference.lstrip("^").partition(":")[0]
