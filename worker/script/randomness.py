"""The random generators of a script: alike in all tasks, and after a `fit` that is not repeated."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from worker.tf_compat import seeds


def state() -> Any:
    """Returns the states of the generators, as values of JSON."""
    kind, keys, *rest = np.random.get_state()
    return [random.getstate(), [kind, [int(key) for key in keys], *rest], seeds.drawing()]


def restore(value: Any) -> None:
    """Restores what `state` has returned."""
    of_python, (kind, keys, *rest), of_tensorflow = value
    random.setstate(_state(of_python))
    np.random.set_state((kind, np.array(keys, np.uint32), *rest))
    seeds.restore_drawing(None if of_tensorflow is None else _state(of_tensorflow))


def _state(value: Any) -> Any:
    version, numbers, gauss = value
    return version, tuple(numbers), gauss
