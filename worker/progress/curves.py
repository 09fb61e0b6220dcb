"""Writes curves for TensorBoard if the image has the `tensorboard` package. TensorFlow needs it to write
them, and does not install it since 2.21.
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
    """Returns whether the image has TensorBoard."""
    return importlib.util.find_spec("tensorboard") is not None


def write(metrics: Mapping[str, float], epoch: int) -> None:
    """Writes an epoch's metrics (epochs count from 1) with the default writer; does nothing without
    TensorBoard.
    """
    if not can_be_written():
        return
    for name, value in metrics.items():
        # The names and steps of Keras' TensorBoard callback, so that all curves are in one chart.
        tf.summary.scalar(f"epoch_{name}", value, step=epoch - 1)
