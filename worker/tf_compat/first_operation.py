"""What must be done before TensorFlow runs its first operation.

TensorFlow (2.21) makes its context, in which a task's devices and connections are, for the first operation.
A collective cannot be set up after that, and a coordinator that connects then renames the devices, so that
the tensors which are there already belong to none: "Failed copying input tensor".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


@contextlib.contextmanager
def before_first_operation(set_up: Callable[[], None]) -> Iterator[None]:
    """Calls `set_up` once before TensorFlow's first operation, if there is one in the block. What `tf.config`
    allows only before it, such as the number of threads, is no operation.

    An exception of `set_up` is raised where the operation was called.
    """
    from tensorflow.python.eager import context

    original = context.Context.ensure_initialized
    begun = False

    def ensure_initialized(eager_context: Any) -> None:
        nonlocal begun
        if not (begun or eager_context._initialized):
            begun = True  # `set_up` runs operations, in threads of its own, too
            with tf.init_scope():  # the operation may be one of a graph
                set_up()
        original(eager_context)

    context.Context.ensure_initialized = ensure_initialized
    try:
        yield
    finally:
        context.Context.ensure_initialized = original
