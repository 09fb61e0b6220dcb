"""Sends the evaluation data to the workers, each batch to one: tf.data service with dynamic sharding.

https://www.tensorflow.org/api_docs/python/tf/data/experimental/service
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.process.probes import split
from worker.tf_compat.graphs import data_service_dataset


class Service:
    """A dispatcher and one data worker, in this process, which reads `dataset` once for each job.

    `address` is this task's own `host:port`; the servers use free ports of that host. The lookup tables of
    `dataset` are serialized with it. Raises OpError or ValueError where TensorFlow cannot serialize it.
    """

    def __init__(self, dataset: Any, address: str) -> None:
        host, _ = split(address)
        host = f"[{host}]" if ":" in host else host
        service = tf.data.experimental.service
        self._dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
        _, port = split(self._dispatcher.target.partition("://")[2])
        self._address = f"grpc://{host}:{port}"
        config = service.WorkerConfig(
            dispatcher_address=f"{host}:{port}", worker_address=f"{host}:%port%", port=0
        )
        self._worker = service.WorkerServer(config)
        self._element = dataset.element_spec
        self._id = service.register_dataset(self._address, dataset)

    def dataset(self, job: Any) -> Any:
        """Returns the rest of the data in `job`, a string tensor. All readers of a job share its elements."""
        policy = tf.data.experimental.service.ShardingPolicy.DYNAMIC
        return data_service_dataset(policy, self._address, self._id, self._element, job)
