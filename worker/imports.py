"""Importing TensorFlow, which is most of what a task does until its first step."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import Any


def import_tensorflow(keras: bool) -> Any:
    """The module; with `keras`, tf_keras is imported too, which TensorFlow would do when it is first used.
    Without, not even what TensorFlow itself would import of it: a server has no use for it, and starts a
    tenth sooner, with 15 MB less.

    The import makes millions of objects that stay. Looking through them for garbage again and again costs a
    tenth of its time (2.4 s against 2.9 s), so the collector rests meanwhile.
    """
    gc.disable()
    try:
        with contextlib.nullcontext() if keras else _without("keras", "tf_keras"):
            import tensorflow as tf

        if keras:
            _ = tf.keras.Model
        return tf
    finally:
        gc.enable()


@contextlib.contextmanager
def _without(*packages: str) -> Iterator[None]:
    """Those that are not there yet cannot be imported in the block. TensorFlow does without Keras."""
    hidden = [name for name in packages if name not in sys.modules]
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]
