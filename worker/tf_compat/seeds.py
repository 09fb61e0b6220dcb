"""TensorFlow's seed for all random operations, and Keras 2's for initial values."""

from __future__ import annotations

import builtins
import contextlib
import os
import random
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from typing import Any

UNSET = 87654321
"""What TensorFlow takes where a seed is needed and none is set (random_seed.py)."""


def seed_all() -> None:
    """Seeds the generators of Python, numpy and TensorFlow, from which Keras draws. A seed of the program's
    own replaces this one.
    """
    import numpy as np
    import tensorflow as tf

    random.seed(UNSET)
    np.random.seed(UNSET)
    tf.random.set_seed(UNSET)


@contextlib.contextmanager
def imports_draw() -> Iterator[None]:
    """Has the block's first import of Keras draw from Python's generator, as in a process that has not
    imported it: `rich`, which Keras 3 imports, takes 24 bits (style.py). Keras' initial values go on from
    there, where a script seeds before it imports.
    """
    drawing = {"keras", "rich"}
    if os.environ.get("TF_USE_LEGACY_KERAS") not in ("1", "true", "True"):
        drawing |= {"tensorflow", "tf_keras"}
    plain = builtins.__import__

    def importing(*given: Any, **named: Any) -> Any:
        asked = named | dict(zip(("name", "globals"), given))
        importer = (asked.get("globals") or {}).get("__name__", "")
        here, by = asked["name"].partition(".")[0], importer.partition(".")[0]
        if here in drawing and by not in {"worker", "tensorflow", *drawing}:
            builtins.__import__ = plain
            random.getrandbits(24)
        return plain(*given, **named)

    if "rich.style" in sys.modules:
        builtins.__import__ = importing
    try:
        yield
    finally:
        if builtins.__import__ is importing:
            builtins.__import__ = plain


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Has random operations that are made in the block be as after `tf.random.set_seed(seed)`, and those
    after it as if there had been none.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context

    eager_context = context.context()
    before = global_seed()
    # None until a seed was set: then the operations draw seeds of their own.
    drawing = getattr(eager_context, "_rng", None)
    tf.random.set_seed(seed)
    try:
        yield
    finally:
        tf.random.set_seed(before)
        if before is not None:
            eager_context._rng = drawing


def global_seed() -> int | None:
    """Returns what `tf.random.set_seed` was given, None where it was not called."""
    from tensorflow.python.eager import context

    seed: int | None = context.global_seed()
    return seed


def share_keras_2() -> None:
    """Has Keras 2, where it is imported, draw initial values by one generator in all threads: its (2.21) is
    that of the thread that called `set_random_seed`, and replicas have threads of their own.
    """
    if "tf_keras" in sys.modules:
        from tf_keras.src import backend

        if isinstance(backend._SEED_GENERATOR, threading.local):
            backend._SEED_GENERATOR = types.SimpleNamespace(**vars(backend._SEED_GENERATOR))


def drawings() -> list[Any]:
    """Returns the states of the generators, each a `random.Random`, from which operations without a seed of
    their own draw one, and Keras 2 its initial values; None until a seed was set.
    """
    return [None if generator is None else generator.getstate() for generator in _generators()]


def restore_drawings(states: Sequence[Any]) -> None:
    """Restores what `drawings` has returned, of all or the first, where a seed is set."""
    for generator, state in zip(_generators(), states):
        if generator is not None and state is not None:
            generator.setstate(state)


def _generators() -> list[Any]:
    from tensorflow.python.eager import context

    of_keras_2 = None
    if "tf_keras" in sys.modules:
        from tf_keras.src import backend

        of_keras_2 = getattr(backend._SEED_GENERATOR, "generator", None)
    return [getattr(context.context(), "_rng", None), of_keras_2]
