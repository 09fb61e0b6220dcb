"""What callbacks know by themselves, such as the patience that EarlyStopping has left: an attempt makes them
anew, and their `on_train_begin` resets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from worker.tf_compat import keras_models

_OF_KERAS = ("best", "best_epoch", "cooldown_counter", "stopped_epoch", "wait")
"""What Keras' own callbacks know. Others of their attributes belong to what JSON does not have: EarlyStopping
turns the sign of `min_delta` when it finds its comparison.
"""
_SET_BY_KERAS = ("model", "params", "validation_data")


class CallbackStates:
    """The states of `callbacks`, which must be as the script has made them. The best weights of EarlyStopping
    are in `file`, None where nothing is kept, and only one task `writes` it.
    """

    def __init__(self, callbacks: Sequence[Any], file: Path | None, writes: bool) -> None:
        self._callbacks = list(callbacks)
        self._made = [_values(each) for each in callbacks]
        self._file = file
        self._writes = writes
        self._saved: int | None = None

    def values(self) -> list[dict[str, Any]]:
        """Returns of each callback the attributes that have changed and that JSON has, and saves the best
        weights.
        """
        for each in self._callbacks:
            weights, epoch = getattr(each, "best_weights", None), getattr(each, "best_epoch", 0)
            if weights is not None and epoch != self._saved and self._file is not None and self._writes:
                _save(self._file, epoch, weights)
                self._saved = epoch
        return [
            {name: value for name, value in _values(each).items() if name not in made or made[name] != value}
            for each, made in zip(self._callbacks, self._made)
        ]

    def restore(self, states: Sequence[dict[str, Any]]) -> None:
        """Gives the callbacks what `values` has returned. EarlyStopping begins anew where its best weights
        are of another epoch.
        """
        for each, made, state in zip(self._callbacks, self._made, states):
            if getattr(each, "restore_best_weights", False) and "best_epoch" in state:
                weights = self._weights(state["best_epoch"])
                if weights is None:
                    continue
                each.best_weights, self._saved = weights, state["best_epoch"]
            # What `values` has left out has the value that it was made with, and may have another by now.
            for name, value in {**made, **state}.items():
                vars(each)[name] = list(value) if isinstance(value, list) else value

    def go_on(self) -> None:
        """Has CSVLogger keep the rows of an earlier attempt."""
        for each in self._callbacks:
            if isinstance(each, keras_models.keras_of(each).callbacks.CSVLogger):
                each.append = True

    def _weights(self, epoch: int) -> list[Any] | None:
        if self._file is None or not self._file.is_file():
            return None
        with np.load(self._file) as archive:
            same = int(archive["epoch"]) == epoch
            return [archive[str(number)] for number in range(len(archive.files) - 1)] if same else None


def _save(file: Path, epoch: int, weights: Sequence[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new.npz")
    np.savez(new, epoch=epoch, **{str(number): value for number, value in enumerate(weights)})
    new.replace(file)


def _values(callback: Any) -> dict[str, Any]:
    base = keras_models.keras_of(callback).callbacks.Callback
    is_own = not any(issubclass(kind, base) and kind is not base for kind in _of_keras(callback))
    attributes = {}
    for name, value in vars(callback).items():
        value = value.item() if isinstance(value, np.generic) else value
        is_state = not name.startswith("_") and name not in _SET_BY_KERAS if is_own else name in _OF_KERAS
        if is_state and _is_plain(value):
            attributes[name] = list(value) if isinstance(value, list) else value
    return attributes


def _of_keras(callback: Any) -> list[type]:
    packages = ("keras", "tf_keras")
    return [kind for kind in type(callback).__mro__ if kind.__module__.partition(".")[0] in packages]


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))
