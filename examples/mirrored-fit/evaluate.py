"""What the tutorial does after training: scores the latest checkpoint and the SavedModel.

    python examples/mirrored-fit/evaluate.py MODEL_DIR

MODEL_DIR is what spec.modelDir became; the summary of a local run says where that is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # as in the run
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from mirrored_fit import MirroredFit

BATCH_SIZE = 128


def main(model_dir: str) -> None:
    """Prints three accuracies on the held-out images, which are the same."""
    weights = f"{model_dir}/weights"
    program = MirroredFit({"checkpointDir": weights})
    images = program.evaluation_dataset(BATCH_SIZE)

    model = program.model()
    latest = tf.train.latest_checkpoint(weights)
    if latest is None:
        sys.exit(f"there is no checkpoint in {weights}")
    # Unlike tf.train.Checkpoint(model=model).restore(...).expect_partial(), it fails where nothing fits.
    model.load_weights(latest).assert_existing_objects_matched().expect_partial()
    report(f"checkpoint {Path(latest).name}", model, images)

    newest = max((path.name for path in Path(model_dir, "export").iterdir()), key=int)
    export = f"{model_dir}/export/{newest}"
    report("SavedModel without a strategy", compiled(export), images)

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        replicated = compiled(export)
    report(f"SavedModel on {strategy.num_replicas_in_sync} replicas", replicated, images)


def compiled(path: str) -> tf.keras.Model:
    """The exported model, with a loss and a metric, which are not in the export."""
    model = tf.keras.models.load_model(path, compile=False)
    model.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def report(what: str, model: tf.keras.Model, images: tf.data.Dataset) -> None:
    """A line."""
    accuracy = model.evaluate(images, verbose=0, return_dict=True)["accuracy"]
    print(f"{what}: accuracy {accuracy:.4f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python evaluate.py MODEL_DIR")
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    main(sys.argv[1])
