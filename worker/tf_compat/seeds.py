"""TensorFlow's seed for all random operations, and Keras 2's for initial values."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import types
from collections.abc import Iterator
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


def drawing() -> Any:
    """Returns the state of the generator from which operations without a seed of their own draw one: that of
    a `random.Random`; None until a seed was set.
    """
    from tensorflow.python.eager import context

    generator = getattr(context.context(), "_rng", None)
    return None if generator is None else generator.getstate()


def restore_drawing(state: Any) -> None:
    """Restores what `drawing` has returned, where a seed is set."""
    from tensorflow.python.eager import context

    generator = getattr(context.context(), "_rng", None)
    if generator is not None and state is not None:
        generator.setstate(state)


def share_keras_2() -> None:
    """Has Keras 2, where it is imported, draw initial values by one generator in all threads: its (2.21) is
    that of the thread that called `set_random_seed`, and replicas have threads of their own.
    """
    if "tf_keras" in sys.modules:
        from tf_keras.src import backend

        if isinstance(backend._SEED_GENERATOR, threading.local):
            backend._SEED_GENERATOR = types.SimpleNamespace(**vars(backend._SEED_GENERATOR))


def keras_2_drawing() -> Any:
    """Returns the state of that generator, a `random.Random`; None until a seed was set."""
    generator = _keras_2_generator()
    return None if generator is None else generator.getstate()


def restore_keras_2_drawing(state: Any) -> None:
    """Restores what `keras_2_drawing` has returned, where a seed is set."""
    generator = _keras_2_generator()
    if generator is not None and state is not None:
        generator.setstate(state)


def _keras_2_generator() -> Any:
    if "tf_keras" not in sys.modules:
        return None
    from tf_keras.src import backend

    return getattr(backend._SEED_GENERATOR, "generator", None)
