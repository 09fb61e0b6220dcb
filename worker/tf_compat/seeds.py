"""TensorFlow's seed for all random operations."""

from __future__ import annotations

import contextlib
import random
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
