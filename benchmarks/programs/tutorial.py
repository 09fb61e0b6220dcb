"""The loops of TensorFlow's tutorials, by hand: tutorial.py STRATEGY LOOP PACKED EPOCHS STEPS.

STRATEGY is ParameterServer, MultiWorkerMirrored or Mirrored; LOOP is "loop" or "fit"; PACKED steps go into
one call. Prints `epoch N at SECONDS` at the end of each epoch.

https://www.tensorflow.org/tutorials/distribute/parameter_server_training
https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl
https://www.tensorflow.org/tutorials/distribute/custom_training
https://www.tensorflow.org/tutorials/distribute/keras
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

os.environ["GRPC_FAIL_FAST"] = "use_caller"

import tensorflow as tf
from small import GLOBAL_BATCH_SIZE, build_model, samples


def main(kind: str, loop: str, packed: int, epochs: int, steps: int) -> None:
    """What the task in TF_CONFIG does."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if kind == "ParameterServer" and resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
            start=True,
        )
        server.join()
    if kind == "ParameterServer":
        partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
            min_shard_bytes=256 << 10, max_shards=1
        )
        strategy: Any = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    elif kind == "MultiWorkerMirrored":
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        (cpu, *_) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        strategy = tf.distribute.MirroredStrategy(["/device:CPU:0", "/device:CPU:1"])
    if loop == "fit":
        fit(strategy, packed, epochs, steps)
    elif kind == "ParameterServer":
        schedule(strategy, packed, epochs, steps)
    else:
        together(strategy, packed, epochs, steps)


def dataset() -> Any:
    """Endless."""
    batches = samples().batch(GLOBAL_BATCH_SIZE, drop_remainder=True)
    return batches.repeat().prefetch(tf.data.AUTOTUNE)


def ended(epoch: int) -> None:
    """Says so."""
    print(f"epoch {epoch + 1} at {time.time():.6f}", flush=True)


def fit(strategy: Any, packed: int, epochs: int, steps: int) -> None:
    """Model.fit."""
    with strategy.scope():
        model = build_model()
        model.compile(model.optimizer, "mse", metrics=["mae"], steps_per_execution=packed)
    says = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ended(epoch))
    model.fit(dataset(), epochs=epochs, steps_per_epoch=steps, callbacks=[says], verbose=0)


def replica_step(model: Any, metric: Any) -> Any:
    """What each replica does in a step."""
    loss_object = tf.keras.losses.MeanSquaredError(reduction="none")

    def step(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            predictions = model(features, training=True)
            loss = tf.nn.compute_average_loss(
                loss_object(labels, predictions), global_batch_size=GLOBAL_BATCH_SIZE
            )
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        metric.update_state(labels, predictions)
        return loss

    return step


def schedule(strategy: Any, packed: int, epochs: int, steps: int) -> None:
    """The coordinator's loop."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = build_model()
        model.optimizer.build(model.trainable_variables)
        metric = tf.keras.metrics.MeanAbsoluteError()
    on_replica = replica_step(model, metric)

    @tf.function
    def step_fn(iterator: Any) -> Any:
        losses = strategy.run(on_replica, args=next(iterator))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    @tf.function
    def packed_fn(iterator: Any) -> Any:
        total = 0.0
        for _ in tf.range(packed):
            total += step_fn(iterator)
        return total

    function = step_fn if packed == 1 else packed_fn
    iterator = iter(coordinator.create_per_worker_dataset(dataset))
    for epoch in range(epochs):
        metric.reset_state()
        for _ in range(steps // packed):
            coordinator.schedule(function, args=(iterator,))
        coordinator.join()
        metric.result().numpy()
        ended(epoch)


def together(strategy: Any, packed: int, epochs: int, steps: int) -> None:
    """The loop of the strategies whose replicas take every step together."""
    with strategy.scope():
        model = build_model()
        metric = tf.keras.metrics.MeanAbsoluteError()
    on_replica = replica_step(model, metric)

    @tf.function
    def step_fn(iterator: Any) -> Any:
        losses = strategy.run(on_replica, args=next(iterator))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    @tf.function
    def packed_fn(iterator: Any) -> Any:
        total = 0.0
        for _ in tf.range(packed):
            total += step_fn(iterator)
        return total

    function = step_fn if packed == 1 else packed_fn
    iterator = iter(strategy.experimental_distribute_dataset(dataset()))
    for epoch in range(epochs):
        metric.reset_state()
        total_loss = 0.0
        for _ in range(steps // packed):
            total_loss += function(iterator)
        metric.result().numpy()
        ended(epoch)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(argument) for argument in sys.argv[3:]))
