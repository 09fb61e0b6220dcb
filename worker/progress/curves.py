"""Curves for TensorBoard, where the image has the package of that name: TensorFlow writes them with it, and
does not bring it along since 2.21.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Final

import tensorflow as tf

MISSING: Final = (
    "the image has no TensorBoard, so no curves are written to modelDir's logs: to have them, install "
    "tensorboard there"
)


def can_be_written() -> bool:
    """Whether the image has TensorBoard."""
    return importlib.util.find_spec("tensorboard") is not None


def write(metrics: Mapping[str, float], epoch: int) -> None:
    """The metrics of an epoch (from 1), by the default writer; nothing where there is no TensorBoard."""
    if not can_be_written():
        return
    for name, value in metrics.items():
        # The names and the step of Keras' TensorBoard callback: one chart for all curves.
        tf.summary.scalar(f"epoch_{name}", value, step=epoch - 1)
