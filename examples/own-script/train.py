"""A script that does everything itself: the loop of TensorFlow's parameter-server tutorial, by hand.

https://www.tensorflow.org/tutorials/distribute/parameter_server_training#training_with_a_custom_training_loop

It holds the chief's part only. The workers and the parameter server run `python -m worker`, as always.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

# As in the tutorial: a lost parameter server is an error at once, a task that is not up yet is waited for.
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")

import tensorflow as tf
import tf_keras as keras  # Keras 2: Keras 3 loses steps under ParameterServerStrategy

import worker
from worker.data import fashion_mnist


def build_model() -> keras.Model:
    """From pixels in 0 to 1, `float32[batch, 28, 28, 1]`, to logits, `float32[batch, 10]`."""
    return keras.Sequential(
        [
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main() -> None:
    """Trains, and prints the accuracy on the held-out images."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=94, help="in an epoch")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--release", action="store_true", help="tell the other tasks to leave")
    arguments = parser.parse_args()

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()  # reads TF_CONFIG
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = build_model()
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        accuracy = keras.metrics.SparseCategoricalAccuracy()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def dataset() -> tf.data.Dataset:
        images = fashion_mnist("train").cache().shuffle(10_000).repeat()
        return images.batch(arguments.batch_size).prefetch(tf.data.AUTOTUNE)

    @tf.function  # type: ignore[untyped-decorator]
    def step(iterator: Any) -> None:
        def on_replica(images: tf.Tensor, labels: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                logits = model(images, training=True)
                loss = tf.nn.compute_average_loss(loss_of(labels, logits))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            accuracy.update_state(labels, logits)

        strategy.run(on_replica, args=next(iterator))

    batches = iter(coordinator.create_per_worker_dataset(dataset))
    for epoch in range(1, arguments.epochs + 1):
        accuracy.reset_state()
        for _ in range(arguments.steps):
            coordinator.schedule(step, args=(batches,))
            worker.alive()  # so that a worker that hangs is noticed
        coordinator.join()
        worker.alive()
        print(f"epoch {epoch}: accuracy {accuracy.result().numpy():.3f}", flush=True)

    trained = build_model()
    trained.set_weights(model.get_weights())
    held_out = keras.metrics.SparseCategoricalAccuracy()
    for images, labels in fashion_mnist("t10k").batch(500):
        held_out.update_state(labels, trained(images))
    steps = int(optimizer.iterations.numpy())
    print(f"held-out accuracy {held_out.result().numpy():.3f} after {steps} steps", flush=True)
    if arguments.release:
        worker.release()


if __name__ == "__main__":
    main()
