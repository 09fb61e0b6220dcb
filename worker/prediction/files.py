"""The files of a prediction, `predictions/<run>/` in the model directory.

    part-00000.jsonl     a line for each example, in the data's order: {"index": 0, "prediction": [0.1, 0.9]}
    predictions.json     the run and the checkpoint that they belong to, and whether all are written
    lease.json           exists while a run writes the files

A part appears by a rename, when it is complete. A run that is started again writes the parts that are
missing. Batch and part numbers refer to the whole data, whichever task predicts them.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from worker.checkpoints.files import Files, open_files
from worker.contract.exit_codes import ExitCode
from worker.failures import Failure, writing

PREDICTING, DONE = "predicting", "done"
_PART = re.compile(r"part-(\d{5,})\.jsonl")
_LARGEST = 256
"""Number of batches in a part."""


@dataclass(frozen=True)
class PredictionState:
    """The content of `predictions.json`. `fingerprint` is a digest of everything that the predictions depend
    on. `examples` and `parts` are None until all is done.
    """

    run_id: str
    phase: str
    checkpoint: str
    fingerprint: str
    examples: int | None = None
    parts: int | None = None


def part_sizes(tasks: int) -> Iterator[int]:
    """Yields the number of batches of each part, without an end.

    The first parts have one batch, so that all tasks get a share of a small dataset too. Later parts grow
    with the number of parts before them, so that a large dataset does not make too many files.
    """
    per_size = 8 * tasks
    size = 1
    while size < _LARGEST:
        yield from itertools.repeat(size, per_size)
        size *= 2
    yield from itertools.repeat(_LARGEST)


class PredictionFiles:
    """The files in `root`, a path or URL. `task` is this task's pod."""

    def __init__(self, root: str, task: str, files: Files | None = None) -> None:
        self._files = files or open_files(root)
        self.root = self._files.root
        self._task = task

    def read_state(self) -> PredictionState | None:
        """Returns None where the file is missing or cannot be read (yet)."""
        try:
            return PredictionState(**json.loads(self._files.read("predictions.json") or ""))
        except (ValueError, TypeError):
            return None

    def write_state(self, state: PredictionState) -> None:
        """Writes the whole file or nothing. Raises Failure where the directory cannot be written."""
        self._files.write("predictions.json", json.dumps(asdict(state), indent=2) + "\n")
        self._files.settle()

    def parts(self) -> set[int]:
        """Returns the numbers of the complete parts."""
        return {int(match[1]) for name in self._files.names("") if (match := _PART.fullmatch(name))}

    def clear(self, *, whole: bool = True) -> None:
        """Removes the temporary files of tasks that were killed; with `whole`, also all parts."""
        names = self._files.names("")
        self._files.remove(
            name for name in names if name.startswith(".part-") or (whole and _PART.fullmatch(name))
        )
        self._files.settle()

    def open_part(self, number: int) -> PartFile:
        """Opens a new file, which becomes the part when it is complete."""
        name = f"part-{number:05}.jsonl"
        return PartFile(self._files, f".{name}.{self._task}", name)

    def finish_part(self, file: PartFile, state: PredictionState) -> None:
        """Renames the file to the part. Raises Failure (RETRYABLE) where the predictions no longer belong to
        `state`.
        """
        now = self.read_state()
        if now is None or (now.run_id, now.fingerprint) != (state.run_id, state.fingerprint):
            raise Failure(f"{self.root} was begun anew meanwhile", ExitCode.RETRYABLE)
        file.finish()

    def growth(self) -> object:
        """Returns a value that changes when any task writes."""
        sizes = []
        for name in self._files.names(""):
            if name.startswith(".part-"):
                with contextlib.suppress(tf.errors.NotFoundError):  # it was renamed to a part meanwhile
                    sizes.append((name, tf.io.gfile.stat(self._files.path(name)).length))
        return sorted(sizes), len(self.parts())


class PartFile:
    """A file of lines. It is written as `new` and renamed to `name` when all lines are written."""

    def __init__(self, files: Files, new: str, name: str) -> None:
        self._files = files
        self._name = name
        self._new = files.local(new)
        self._path = files.local(name)
        self._file = tf.io.gfile.GFile(self._new, "w")

    def write(self, text: str) -> None:
        """Appends `text`. Raises Failure where the directory cannot be written."""
        with writing(self._path):
            self._file.write(text)

    def finish(self) -> None:
        """Closes and renames the file."""
        with writing(self._path):
            self._file.close()
            tf.io.gfile.rename(self._new, self._path, overwrite=True)
        self._files.upload(self._name)


def lines(first: int, keys: Any, predictions: Any) -> str:
    """Returns one JSON object for each example of a batch, whose first example has the index `first`.

    `predictions` is a tensor, or lists and dicts of tensors, each `[batch_size, ...]`; `keys` has the same
    form or is None. Numbers that JSON does not have are "NaN", "Infinity" and "-Infinity"; bytes that are not
    UTF-8 are `{"b64": ...}`.
    """
    columns: dict[str, Sequence[Any]] = {"prediction": _rows(predictions)}
    if keys is not None:
        columns = {"key": _rows(keys), **columns}
    documents = [
        {"index": first + number, **dict(zip(columns, values))}
        for number, values in enumerate(zip(*columns.values()))
    ]
    return "".join(f"{_json(document)}\n" for document in documents)


def _json(document: Mapping[str, Any]) -> str:
    try:
        return json.dumps(document, ensure_ascii=False, allow_nan=False, default=_text)
    except ValueError:
        return json.dumps(_finite(document), ensure_ascii=False, default=_text)


def _rows(values: Any) -> list[Any]:
    """Returns the value of each example."""
    if isinstance(values, Mapping):
        columns = [_rows(value) for value in values.values()]
        return [dict(zip(values, row)) for row in zip(*columns)]
    if isinstance(values, (list, tuple)):
        return [list(row) for row in zip(*map(_rows, values))]
    if isinstance(values, tf.RaggedTensor):
        return list(values.to_list())
    array = np.asarray(values)
    if array.dtype.kind not in "fiubO":  # bfloat16 and the like
        array = array.astype(np.float32)
    if array.dtype in (np.float16, np.float32):
        # The shortest decimals that stand for the same float: 0.1, and not 0.10000000149011612.
        array = array.astype(str).astype(np.float64)
    return list(array.tolist())


def _text(value: Any) -> Any:
    """Returns the JSON value of a string tensor's element, for which JSON has no type of its own."""
    if not isinstance(value, bytes):
        raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value
