"""Finds out, while a task waits for the others, that the number of steps of an epoch is missing.

Under MultiWorkerMirrored and ParameterServer TensorFlow can make the data only when all tasks are there. So
a fork of the process goes on as if it trained alone, makes the data, tells what is wrong, and ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from typing import Any

from worker.failures import program_error
from worker.parameters import TrainingParameters
from worker.process.watch import Watch
from worker.program import LoadedProgram


class EarlyLook:
    """`begin` forks, `check` raises what the fork has found, `end` ends it."""

    def __init__(self) -> None:
        self.is_here = False
        """Whether this is the fork, which must leave no trace."""
        self._process = 0
        self._pipe = -1

    def begin(self, watch: Watch) -> bool:
        """Returns whether this is the fork, which is to call `tell` when the program is there. It must be
        called before TensorFlow's first operation, which leaves threads.
        """
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which it does not use
            self._process = os.fork()
        if self._process:
            os.close(writing)
            os.set_blocking(reading, False)
            self._pipe = reading
            return False
        self.is_here, self._pipe = True, writing
        watch.fall_silent()
        silent = os.open(os.devnull, os.O_WRONLY)
        for output in (sys.stdout, sys.stderr):
            os.dup2(silent, output.fileno())
        _hide_gpus()
        return True

    def tell(self, program: LoadedProgram, parameters: TrainingParameters) -> None:
        """Tells what is wrong with the training data, and ends this process."""
        from worker.input.datasets import without_end

        failure = without_end(program.train_dataset(parameters.global_batch_size))
        if failure is not None:
            os.write(self._pipe, failure.message.encode())
        os._exit(0)

    def check(self) -> None:
        """Raises Failure where the fork has told something."""
        with contextlib.suppress(BlockingIOError):
            if self._process and (message := os.read(self._pipe, 1 << 16)):
                raise program_error(message.decode())

    def end(self) -> None:
        """Ends the fork, wherever it is."""
        if self._process:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
            os.close(self._pipe)
            self._process = 0


def _hide_gpus() -> None:
    """Leaves the GPUs to the process that trains: CUDA allows no fork to use them."""
    import tensorflow as tf

    nothing: list[Any] = []
    tf.config.set_visible_devices(nothing, "GPU")
