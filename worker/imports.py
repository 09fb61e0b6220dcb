"""Imports TensorFlow, which takes most of a task's time until its first step."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from typing import Any

from worker.contract.environment import Env
from worker.failures import program_error


def import_tensorflow(keras: bool) -> Any:
    """Returns the module. With `keras`, tf_keras is imported too, which TensorFlow would do at its first use.
    Without, even the part of it that TensorFlow imports is left out: a server does not need it, starts in
    nine tenths of the time, and uses 15 MB less.

    The import makes millions of objects that stay. The garbage collector would search them again and again,
    which costs a tenth of the time (2.4 s against 2.9 s); so it is off during the import.

    Raises Failure where the image lacks either package.
    """
    _check(keras)
    gc.disable()
    try:
        with contextlib.nullcontext() if keras else _without("keras", "tf_keras"):
            import tensorflow as tf

        if keras:
            _ = tf.keras.Model
            from worker.tf_compat import autograph

            autograph.spare_keras()
        return tf
    finally:
        gc.enable()


def _check(keras: bool) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        if Env.LOCAL in os.environ:
            raise program_error(
                f"{sys.executable} of this machine (Python {platform.python_version()}) has no TensorFlow: "
                "install tf-launcher[worker] in place of tf-launcher, or name a Python that has it in "
                "TF_LAUNCHER_PYTHON"
            )
        raise program_error(
            f"{sys.executable} of the image (Python {platform.python_version()}) has no TensorFlow: use an "
            "image that has it (spec.image, or the role's own), such as tensorflow/tensorflow:2.21.0"
        )
    is_legacy = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
    if keras and is_legacy and importlib.util.find_spec("tf_keras") is None:
        raise program_error(
            "tf.keras is Keras 2 in this run, as spec.program.keras says, and the image has no tf_keras: "
            "install it there, of TensorFlow's version (pip install --no-deps tf_keras), or leave "
            "program.keras out"
        )


@contextlib.contextmanager
def _without(*packages: str) -> Iterator[None]:
    """Prevents the import of `packages` in the block, unless they are imported already. TensorFlow works
    without Keras.
    """
    hidden = [name for name in packages if name not in sys.modules]
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]
