"""`Model.fit` with TensorFlow's BackupAndRestore: backed_up.py STRATEGY DIRECTORY FREQUENCY EPOCH_STEPS.

The cluster and the waiting for its ports are `bare`'s, and so is what is printed. FREQUENCY is "epoch" or a
number of steps.
"""

from __future__ import annotations

import sys
from typing import Any

import bare
import tensorflow as tf


def main(kind: str, directory: str, frequency: str, epoch_steps: int) -> None:
    """What the task in TF_CONFIG does."""

    def fit(strategy: tf.distribute.Strategy) -> None:
        with strategy.scope():
            model = bare.PROGRAM.model()
            model.compile(model.optimizer, bare.PROGRAM.loss)
        every = frequency if frequency == "epoch" else int(frequency)
        bare.said("training")
        model.fit(
            bare.dataset(),
            epochs=1000,
            steps_per_epoch=epoch_steps,
            callbacks=[tf.keras.callbacks.BackupAndRestore(directory, save_freq=every)],
            verbose=0,
        )

    trains: Any = fit
    bare.coordinate = bare.together = trains
    bare.main(kind)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
