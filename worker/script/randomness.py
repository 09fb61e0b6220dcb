"""The random generators of a script: alike in all tasks, and after a `fit` that is not repeated."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from worker.tf_compat import seeds


def state() -> Any:
    """Returns the states of the generators, as values of JSON."""
    kind, keys, *rest = np.random.get_state()
    of_numpy = [kind, [int(key) for key in keys], *rest]
    return [random.getstate(), of_numpy, seeds.drawing(), seeds.keras_2_drawing()]


def restore(value: Any) -> None:
    """Restores what `state` has returned."""
    of_python, (kind, keys, *rest), of_tensorflow, *of_keras_2 = value
    random.setstate(_state(of_python))
    np.random.set_state((kind, np.array(keys, np.uint32), *rest))
    seeds.restore_drawing(_state(of_tensorflow))
    for generator in of_keras_2:  # earlier versions leave it out
        seeds.restore_keras_2_drawing(_state(generator))


def _state(value: Any) -> Any:
    if value is None:
        return None
    version, numbers, gauss = value
    return version, tuple(numbers), gauss
