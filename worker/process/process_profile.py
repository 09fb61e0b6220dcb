"""TensorFlow's profiler in this process, of which there can be one at a time."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

STEP = "train"
"""What the executions of steps are called in a profile."""


class Profile:
    """A profile that has begun. Raises OpError where the program itself is taking one."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="profile-")
        self._step: Any = None
        try:
            tf.profiler.experimental.start(self._folder)
        except tf.errors.OpError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def step(self, number: int | None) -> None:
        """Marks the beginning of an execution, whose first step has this number, and so the end of the one
        before; None begins none.
        """
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        if number is not None:
            self._step = tf.profiler.experimental.Trace(STEP, step_num=number, _r=1)
            self._step.__enter__()

    def end(self) -> bytes:
        """Ends it. Returns the content of the file `HOST.xplane.pb`. Raises OpError, or OSError."""
        self.step(None)
        try:
            tf.profiler.experimental.stop()
            (path,) = Path(self._folder).glob("plugins/profile/*/*.xplane.pb")
            return path.read_bytes()
        except ValueError as error:
            raise OSError("TensorFlow has written no profile") from error
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
