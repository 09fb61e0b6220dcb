"""Importing TensorFlow, which is most of what a task does until its first step."""

from __future__ import annotations

import gc
from typing import Any


def import_tensorflow(keras: bool) -> Any:
    """The module; with `keras`, tf_keras is imported too, which TensorFlow would do when it is first used.

    The import makes millions of objects that stay. Looking through them for garbage again and again costs a
    tenth of its time (2.4 s against 2.9 s), so the collector rests meanwhile.
    """
    gc.disable()
    try:
        import tensorflow as tf

        if keras:
            _ = tf.keras.Model
        return tf
    finally:
        gc.enable()
