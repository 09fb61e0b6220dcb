"""The matrix: strategies by styles by shapes, and the expected refusals."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

START_SECONDS: Final = 600.0
"""Limit until the first cell begins: most of it is the import of TensorFlow, by several processes at once."""
CELL_SECONDS: Final = 420.0
"""Limit of a cell: a longer one hangs, so its process prints its stacks and ends. On a busy machine one took
226 s.
"""
SLOW: Final = 0.2
"""Factor of a shape's learning rate, where its steps differ from those of one process. With a rate this small
its loss falls whichever batches it takes (checked by training on each batch alone).
"""
FOLDER: Final = Path(__file__).parents[1] / "programs" / "shapes"


@dataclass(frozen=True)
class Strategy:
    """A column: `replicas` are its tasks, `options` are spec.strategyOptions."""

    title: str
    strategy: str
    replicas: Mapping[str, int]
    options: Mapping[str, Any]

    @property
    def exact(self) -> bool:
        """Returns whether it takes the steps of one process. Two workers of ParameterServer may take any
        batches.
        """
        return self.strategy != "ParameterServer" or self.replicas["worker"] == 1

    @property
    def main(self) -> str:
        """Returns the role whose first task writes the outcomes."""
        return "chief" if "chief" in self.replicas else "worker"


class Cell(NamedTuple):
    strategy: str
    style: str
    shape: str

    def __str__(self) -> str:
        return "/".join(self)


ONE: Final = {"chief": 1}
SERVERS: Final = {"chief": 1, "worker": 2, "ps": 1}
SCORED: Final = {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}
STRATEGIES: Final = {
    "OneDevice": Strategy("OneDevice", "OneDevice", ONE, {}),
    "Mirrored-2": Strategy("Mirrored, 2 devices", "Mirrored", ONE, {"logicalCpus": 2}),
    "Mirrored-4": Strategy("Mirrored, 4 devices", "Mirrored", ONE, {"logicalCpus": 4}),
    "CentralStorage": Strategy("CentralStorage", "CentralStorage", ONE, {"logicalCpus": 2}),
    "MultiWorkerMirrored": Strategy("MultiWorkerMirrored", "MultiWorkerMirrored", {"worker": 2}, {}),
    "ParameterServer": Strategy("ParameterServer", "ParameterServer", SERVERS, {}),
    "ParameterServer-evaluator": Strategy(
        "ParameterServer, 1 worker and an evaluator", "ParameterServer", SCORED, {}
    ),
}

STYLES: Final = {
    "fit": "Model.fit",
    "loss": "`loss()`",
    "step": "`train_step()`",
    "keras-3": "Model.fit of Keras 3",
    "script": "script",
    "function": "function",
}
KERAS_3: Final = "keras-3"
PROGRAMS: Final = {
    "fit": "styles:Fitted",
    "loss": "styles:Looped",
    "step": "styles:Stepped",
    KERAS_3: "styles_of_keras_3:Fitted",
}
"""The entrypoints of programs. The other two styles build their strategy themselves: a script by `args`,
which uses Model.fit, and a function, which has a loop.
"""

SHAPES: Final = {
    "sequential": "Sequential model, a dataset that ends",
    "functional": "functional model",
    "subclassed": "subclassed model, without an input shape until it is called",
    "subclassed-training": "subclassed model with a model within, and a `training` argument",
    "inputs-outputs": "several inputs and outputs",
    "dict-inputs": "a dict of inputs",
    "subclassed-dict": "subclassed model with a dict of inputs",
    "lookup": "lookup table made in `model()`, used by the datasets",
    "preprocessing": "layer with weights made in `model()`, used by the datasets",
    "lookup-inside": "lookup table in the model, strings as features",
    "add-loss": "`add_loss`",
    "regularizers": "regularisers",
    "recurrent": "RNN",
    "masked": "RNN with masked sequences",
    "embedding-sparse": "embedding with sparse gradients",
    "embedding-adam": "embedding with sparse gradients, an optimizer with slots",
    "embedding-dense": "embedding with dense gradients",
    "batch-normalization": "batch normalisation",
    "batch-normalization-synchronized": "batch normalisation with `synchronized=True`",
    "mixed-precision": "mixed precision",
    "classes": "integer labels without a last dimension",
    "labels-nd": "labels of several dimensions",
    "labels-nd-unreduced": "labels of several dimensions, a loss for each of their rows",
    "sample-weights": "sample weights",
    "class-weights": "class weights",
    "infinite": "dataset without an end",
    "unknown-size": "dataset of unknown size",
    "unequal-last": "unequal last batch",
    "one-in-last": "one example in the last batch",
    "smaller-than-batch": "dataset smaller than one global batch",
    "smaller-than-replicas": "dataset smaller than the replicas",
    "small-evaluation": "evaluation smaller than its shards",
    "creator": "DatasetCreator",
    "distributed": "dataset that is distributed already",
    "file-sharding": "dataset from files, `autoShard: FILE`",
    "data-sharding": "dataset from files, `autoShard: DATA`",
}
"""Title of each row. The programs have the same names."""


def reference_style(cell: Cell) -> str:
    """Returns how the plain training is written that the cell is compared with."""
    return {"fit": "fit", "script": "fit", KERAS_3: KERAS_3}.get(cell.style, "loop")


def resumes(cell: Cell) -> bool:
    """Returns whether a second attempt is tested: by one style of each strategy and shape, since
    it is slow.
    """
    # An evaluator scores the checkpoints at the end.
    return "evaluator" not in STRATEGIES[cell.strategy].replicas and _turn(cell) == 0


def exports(cell: Cell) -> bool:
    """Returns whether the model is exported and loaded again: by another style, since it is as slow."""
    return _turn(cell) == 1


def represents(cell: Cell) -> bool:
    """Returns whether it is the one cell of its shape that CI runs in any case, strategies and styles in
    turn.
    """
    return cell == _representatives()[cell.shape]


@functools.cache
def _representatives() -> dict[str, Cell]:
    rows: dict[str, list[Cell]] = {shape: [] for shape in SHAPES}
    for strategy in STRATEGIES:
        for cell in cells(strategy):
            rows[cell.shape].append(cell)
    return {shape: row[7 * place % len(row)] for place, (shape, row) in enumerate(rows.items())}


def is_nightly(cell: Cell) -> bool:
    """Returns whether `make runtime` leaves it out: five of six. It still tries each shape in every style,
    and by every strategy that has all styles.
    """
    all_styles = styles(cell.strategy) == list(STYLES)
    return not (_place(cell) % 6 == 0 and all_styles) and not represents(cell)


def _turn(cell: Cell) -> int:
    return _place(cell) % 3


def _place(cell: Cell) -> int:
    return sum(
        (
            list(STRATEGIES).index(cell.strategy),
            list(STYLES).index(cell.style),
            list(SHAPES).index(cell.shape),
        )
    )


def cells(strategy: str) -> list[Cell]:
    """Returns all cells of a column."""
    return [Cell(strategy, style, shape) for shape in SHAPES for style in styles(strategy)]


def styles(strategy: str) -> list[str]:
    """Returns the styles of a column. An evaluator scores what programs save, and not what a
    script writes.
    """
    return list(PROGRAMS if "evaluator" in STRATEGIES[strategy].replicas else STYLES)


@dataclass(frozen=True)
class Refusal:
    """An expected refusal. `text`, a regular expression, matches the one message of `styles` of `shape` under
    `strategies` (all, if empty). `shown` is the table's text where the message differs each time. The refusal
    precedes the training, unless `late`: then only the data shows the error. Where TensorFlow's kernels for
    some processors train the cell, `by_kernels` is set.
    """

    shape: str
    styles: tuple[str, ...]
    text: str
    strategies: tuple[str, ...] = ()
    shown: str | None = None
    late: bool = False
    by_kernels: bool = False

    def of(self, cell: Cell, message: str, begun: bool) -> bool:
        """Returns whether `message` is expected of `cell`; `begun` says whether training had begun."""
        if begun and not self.late:
            return False
        return self.covers(cell) and re.search(self.text, message) is not None

    def covers(self, cell: Cell) -> bool:
        """Returns whether `cell` may be refused so."""
        here = not self.strategies or cell.strategy in self.strategies
        return cell.shape == self.shape and cell.style in self.styles and here


_SERVERS = ("ParameterServer", "ParameterServer-evaluator")
_SCRIPTS = ("script", "function")
_EMPTY_SHARES = ("unequal-last", "one-in-last", "smaller-than-batch", "smaller-than-replicas")
REFUSALS: Final = (
    Refusal(
        "mixed-precision",
        ("fit", "loss", "step", "script", "function"),
        "Mixed precision is not supported with the .* Either stop using",
    ),
    Refusal("mixed-precision", (KERAS_3,), "mixed precision's LossScaleOptimizer", ("CentralStorage",)),
    Refusal("distributed", tuple(PROGRAMS), "not a tf.data.Dataset"),
    Refusal("distributed", ("script",), "you must specify the number of steps to run"),
    Refusal("distributed", ("function",), "ClusterCoordinator.create_per_worker_dataset", _SERVERS),
    Refusal(
        "creator",
        ("loss", "step", KERAS_3),
        r"which is for Model.fit; with loss\(\) or train_step\(\) return the",
    ),
    Refusal("labels-nd-unreduced", ("loss",), r"not each example's loss, \[batch_size\]"),
    *(
        Refusal(shape, ("step",), "end train_dataset.. with .batch", ("CentralStorage",), late=True)
        for shape in ("one-in-last", "smaller-than-replicas")
    ),
    # The message is that of the replica without an example, where its data ends or in its step, or that of a
    # task which has lost it.
    *(
        Refusal(
            shape,
            _SCRIPTS,
            "Conv2DBackpropFilter|OutOfRangeError: End of sequence|a task was lost",
            ("Mirrored-2", "Mirrored-4", "CentralStorage", "MultiWorkerMirrored"),
            "Where TensorFlow uses oneDNN (processors with AVX-512 VNNI), it fails at a replica that gets no "
            "example, here in a convolution's gradient; on others it trains.",
            by_kernels=True,
        )
        for shape in _EMPTY_SHARES
    ),
)
