"""The `fit` calls of a script: how each is known again when the script runs again from its top.

    fits/<number>.json         what the call is, and its History so far
    fits/<number>.npz          the best weights that a callback holds
    fits/<number>/checkpoints  those of the second call on; the first has the model directory's own

Calls are matched by their number and by what they train. A call that had ended is not repeated: the model
gets the values of its last checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from worker.checkpoints.files import Files
from worker.failures import program_error
from worker.tf_compat import keras_models

FOLDER = "fits"
"""A folder that only the first task writes: see `model_directory`."""


@dataclass(frozen=True)
class Call:
    """What makes a call of `fit` the same as an earlier attempt's. `where` is the script's line, which may
    change.
    """

    where: str
    variables: str
    epochs: int
    steps: int | None
    batch_size: int | None

    def differs(self, other: Call) -> str:
        """Returns what this call has in the place of the `other` one's; "" where it is the same call."""
        differences = [
            f"{name.replace('_', ' ')} {getattr(self, name)} for {getattr(other, name)}"
            for name in ("epochs", "steps", "batch_size")
            if getattr(self, name) != getattr(other, name)
        ]
        if self.variables != other.variables:
            differences.append("a model of other variables")
        return ", ".join(differences)


@dataclass(frozen=True)
class FitRecord:
    """The state of one call. `logs` has each epoch that is done, from 0, with Keras' logs of it; `stopped_at`
    is the step of the last one at which a callback has stopped it in its middle. `randomness` is that of the
    script after the call. `states` are those of the callbacks after the newest epochs.
    """

    call: Call
    logs: Sequence[tuple[int, Mapping[str, Any]]] = ()
    done: bool = False
    stopped_at: int | None = None
    randomness: Any = None
    states: Sequence[tuple[int, Sequence[dict[str, Any]]]] = ()


class FitRecords:
    """The records in a model directory, read once, before the script runs; only one task `writes`."""

    def __init__(self, files: Files | None, writes: bool) -> None:
        self._files = files
        self._writes = writes
        self._earlier: dict[int, FitRecord] = {}
        number = 1
        while files is not None and (record := _read(files, number)) is not None:
            self._earlier[number] = record
            number += 1

    def earlier(self, number: int, call: Call) -> FitRecord | None:
        """Returns the record of an earlier attempt's call of this number, from 1; None where there was none.
        Raises Failure where that was another call.
        """
        record = self._earlier.get(number)
        if record is None:
            return None
        if difference := call.differs(record.call):
            raise program_error(
                f"{call.where}: fit() number {number} is another one than before the interruption, which was "
                f"called at {record.call.where}: it has {difference}. A script must take the same way when "
                "it runs again; give the run another spec.modelDir, or empty this one, to begin anew"
            )
        return record

    def write(self, number: int, record: FitRecord) -> None:
        """Writes the record, in the task that writes."""
        if self._files is not None and self._writes:
            self._files.write(
                f"{FOLDER}/{number}.json", json.dumps(asdict(record), default=np.ndarray.tolist) + "\n"
            )

    def file(self, name: str) -> Path | None:
        """Returns the path of a file beside the records."""
        return None if self._files is None else Path(self._files.path(FOLDER), name)

    @property
    def writes(self) -> bool:
        """Returns whether this task writes the records."""
        return self._writes

    def newest(self, number: int, call: Call) -> FitRecord | None:
        """Returns what the task that trains has written of this call by now: see `earlier`."""
        record = None if self._files is None else _read(self._files, number)
        if record is not None:
            self._earlier[number] = record
        return self.earlier(number, call)


def variables_of(model: Any) -> str:
    """Returns a digest of the names and shapes of the variables of `model`, which must have them."""
    variables = [
        f"{getattr(variable, 'path', variable.name)} {list(variable.shape)}"
        for variable in keras_models.without_tables(model.variables)
    ]
    trained = [list(variable.shape) for variable in model.trainable_variables]
    text = json.dumps([variables, trained])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(files: Files, number: int) -> FitRecord | None:
    try:
        document = json.loads(files.read(f"{FOLDER}/{number}.json") or "")
        document.pop("is_whole", None)  # of an earlier version
        return FitRecord(**{**document, "call": Call(**document["call"])})
    except (ValueError, KeyError, TypeError):
        return None
