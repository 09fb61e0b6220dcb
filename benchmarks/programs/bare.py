"""The least that a task must do before its first step, without the worker runtime: bare.py STRATEGY.

TensorFlow and Keras are imported, the server is started or the strategy connected, once the ports of those
that it needs are open; then model, optimizer and dataset are made, and steps are taken until somebody ends
it. No checkpoint is read and nothing is written. An evaluator makes the model and its dataset and evaluates.
The loops are those of the tutorials in `tutorial`; it says `training at SECONDS` before its first step.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from typing import Any

os.environ["GRPC_FAIL_FAST"] = "use_caller"

import tensorflow as tf
from marked import Evaluated
from small import GLOBAL_BATCH_SIZE

PROGRAM = Evaluated({})
BATCH = 20
"""Steps that are scheduled before they are waited for."""


def main(kind: str) -> None:
    """What the task in TF_CONFIG does."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "evaluator":
        evaluate()
    elif kind == "ParameterServer" and resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
            start=True,
        )
        server.join()
    elif kind == "ParameterServer":
        cluster = resolver.cluster_spec()
        await_ports(address for role in ("worker", "ps") for address in cluster.job_tasks(role))
        coordinate(tf.distribute.ParameterServerStrategy(resolver))
    elif kind == "MultiWorkerMirrored":
        together(tf.distribute.MultiWorkerMirroredStrategy())
    elif kind == "Mirrored":
        (cpu, *_) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        together(tf.distribute.MirroredStrategy(["/device:CPU:0", "/device:CPU:1"]))
    else:
        together(tf.distribute.OneDeviceStrategy("/cpu:0"))


def await_ports(addresses: Any) -> None:
    """TensorFlow would try again only after a second or more."""
    for address in addresses:
        host, _, port = address.rpartition(":")
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection((host, int(port)), 2).close()
                break
            time.sleep(0.05)


def dataset() -> Any:
    """Endless."""
    return PROGRAM.train_dataset(GLOBAL_BATCH_SIZE).repeat().prefetch(tf.data.AUTOTUNE)


def step_function(strategy: Any) -> Any:
    """A step of a new model; takes an iterator."""
    with strategy.scope():
        model = PROGRAM.model()
        model.optimizer.build(model.trainable_variables)

    def on_replica(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = PROGRAM.loss(labels, model(features, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH_SIZE)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tf.function
    def step(iterator: Any) -> None:
        strategy.run(on_replica, args=next(iterator))

    return step


def said(what: str) -> None:
    """As the steps do."""
    print(f"{what} at {time.time():.3f}", flush=True)


def coordinate(strategy: Any) -> None:
    """The coordinator's loop."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    step = step_function(strategy)
    iterator = iter(coordinator.create_per_worker_dataset(dataset))
    said("training")
    while True:
        for _ in range(BATCH):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()


def together(strategy: Any) -> None:
    """The loop of the strategies whose replicas take every step together."""
    step = step_function(strategy)
    iterator = iter(strategy.experimental_distribute_dataset(dataset()))
    said("training")
    while True:
        step(iterator)


def evaluate() -> None:
    """Again and again."""
    model = PROGRAM.model()
    batches = PROGRAM.evaluation_dataset(GLOBAL_BATCH_SIZE)

    @tf.function
    def visit() -> Any:
        total = tf.constant(0.0)
        for features, labels in batches:
            total += tf.reduce_sum(tf.square(labels - model(features)))
        return total

    while True:
        float(visit())
        said("evaluated")
        time.sleep(1.0)


if __name__ == "__main__":
    main(sys.argv[1])
