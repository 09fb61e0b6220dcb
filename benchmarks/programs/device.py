"""The small training, with steps that each wait for their data, and take next to nothing of the processor.

As if a device of its own were at work on each worker: so that more workers than cores can be measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from small import ByLoss, samples
from tensorflow.python.data.experimental.ops.testing import sleep


class Program(ByLoss):
    """Trained by a loop of the runtime's."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self._microseconds = int(parameters["stepMicroseconds"])

    def train_dataset(self, batch_size: int) -> Any:
        """Without an end; a batch every `stepMicroseconds`."""
        return samples().repeat().batch(batch_size, drop_remainder=True).apply(sleep(self._microseconds))
