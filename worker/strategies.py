"""The strategy of a run, built by its name."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.failures import program_error
from worker.task import Task

_MIN_SHARD_BYTES = 256 << 10
"""As TensorFlow's parameter-server tutorial: smaller pieces cost more messages than they save."""


def build(task: Task) -> tf.distribute.Strategy:
    """The strategy `task.config.strategy`, for the task that runs the training loop.

    ParameterServer: every worker and ps must answer already, or this blocks without a bound.
    MultiWorkerMirrored: blocks until all tasks call it; nothing of TensorFlow may run before.
    Raises Failure for a strategy that cannot be had here.
    """
    builders = {
        "OneDevice": _one_device,
        "Mirrored": lambda task: tf.distribute.MirroredStrategy(),
        "CentralStorage": lambda task: tf.distribute.experimental.CentralStorageStrategy(),
        "MultiWorkerMirrored": _multi_worker_mirrored,
        "ParameterServer": _parameter_server,
        "TPU": _tpu,
    }
    name = task.config.strategy
    if name not in builders:
        raise program_error(f"spec.strategy: this image knows {', '.join(builders)}, not {name!r}")
    return builders[name](task)


def _one_device(task: Task) -> tf.distribute.Strategy:
    device = "/gpu:0" if tf.config.list_physical_devices("GPU") else "/cpu:0"
    return tf.distribute.OneDeviceStrategy(device)


def _multi_worker_mirrored(task: Task) -> tf.distribute.Strategy:
    return tf.distribute.MultiWorkerMirroredStrategy(
        cluster_resolver=tf.distribute.cluster_resolver.TFConfigClusterResolver()
    )


def _parameter_server(task: Task) -> tf.distribute.Strategy:
    options: Any = task.config.strategy_options
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
        min_shard_bytes=int(options.get("minShardBytes", _MIN_SHARD_BYTES)),
        max_shards=max(1, len(task.cluster.get("ps", {}))),
    )
    return tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver(), variable_partitioner=partitioner
    )


def _tpu(task: Task) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:
        reason = str(error).partition("\n")[0].partition(". ")[0] or type(error).__name__
        raise program_error(
            f"spec.strategy: TPU: no TPU was found in this pod ({reason}); "
            "ask for one in resources.limits (google.com/tpu) and use an image with TPU support"
        ) from error
    return tf.distribute.TPUStrategy(resolver)
