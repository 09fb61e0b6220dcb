"""TensorFlow's seed for all random operations."""

from __future__ import annotations


def global_seed() -> int | None:
    """Returns what `tf.random.set_seed` was given, None where it was not called."""
    from tensorflow.python.eager import context

    seed: int | None = context.global_seed()
    return seed
