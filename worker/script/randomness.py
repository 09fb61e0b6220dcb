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
    return [random.getstate(), of_numpy, *seeds.drawings()]


def restore(value: Any) -> None:
    """Restores what `state` has returned."""
    of_python, (kind, keys, *rest), *others = value  # earlier versions leave the last one out
    random.setstate(_state(of_python))
    np.random.set_state((kind, np.array(keys, np.uint32), *rest))
    seeds.restore_drawings([_state(each) for each in others])


def _state(value: Any) -> Any:
    if value is None:
        return None
    version, numbers, gauss = value
    return version, tuple(numbers), gauss
