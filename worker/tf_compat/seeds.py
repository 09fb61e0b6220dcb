"""TensorFlow's seed for all random operations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


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
