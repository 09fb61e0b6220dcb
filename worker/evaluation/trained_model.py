"""Reads a trained model from the model directory: chooses the checkpoint and loads its values. Writes
nothing.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.checkpoints.model_directory import ModelDirectory, mismatch
from worker.context import Loop
from worker.contract.records import Loaded
from worker.failures import classify, is_lost_peer, program_error


def epoch_of(name: str) -> int:
    """Returns the epoch in a checkpoint's name, such as `ckpt-3`."""
    return int(name.removeprefix("ckpt-"))


def choose(directory: ModelDirectory, name: str | None) -> int:
    """Returns the epoch of the checkpoint `name`, or of the newest. Raises Failure where there is none."""
    epochs, folder = directory.epochs(), directory.path("checkpoints")
    if not epochs:
        raise program_error(
            f"spec.modelDir: there is no checkpoint in {folder}: give the modelDir of a training that has "
            "finished an epoch (an exported model is none: it has lost what the program says)"
        )
    if name is None:
        return epochs[-1]
    epoch = epoch_of(name)
    if epoch not in epochs:
        known = ", ".join(f"ckpt-{number}" for number in epochs)
        raise program_error(f"spec.checkpoint: there is no {name} in {folder}, only {known}")
    return epoch


def load(loop: Loop, directory: ModelDirectory, model: Any, epoch: int) -> None:
    """Loads the checkpoint into `model`, which must have all its variables, and reports it.

    Raises Failure where the checkpoint is another model's, or cannot be read.
    """
    path = directory.checkpoint(epoch)
    loop.hooks.enter(f"reading {path}")
    try:
        directory.load(model, epoch)
    except (AssertionError, ValueError) as error:
        raise program_error(
            f"{path} was written by another model than this program's: {mismatch(error)}; give the program "
            "that was trained, or another spec.modelDir"
        ) from error
    except tf.errors.OpError as error:
        if is_lost_peer(error):
            raise
        reason = classify(error, "reading it").message
        raise program_error(f"{path} cannot be read: {reason}; name another in spec.checkpoint") from error
    if loop.writes:
        loop.hooks.reporter.emit(Loaded(f"ckpt-{epoch}", directory.path("checkpoints")))
