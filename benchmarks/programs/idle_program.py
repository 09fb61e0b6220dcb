"""The program of `benchmarks.idle`: that of `slow_input`, with an evaluation."""

import tensorflow as tf
from slow_input import Program as Trained


class Program(Trained):
    """See `slow_input.Program`."""

    def evaluation_dataset(self, batch_size: int) -> tf.data.Dataset:
        """One batch."""
        return self.train_dataset(batch_size).take(1)
