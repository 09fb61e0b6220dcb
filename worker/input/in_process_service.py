"""A tf.data service in this process, which hands out its dataset to other tasks. Evaluation sends each batch
to one worker, and training under `spec.dataService` each task its parts of every batch.

https://www.tensorflow.org/api_docs/python/tf/data/experimental/service
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from worker.peers.probes import split
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
        self.address = f"grpc://{host}:{port}"
        config = service.WorkerConfig(
            dispatcher_address=f"{host}:{port}", worker_address=f"{host}:%port%", port=0
        )
        self._worker = service.WorkerServer(config)
        self._element = dataset.element_spec
        self._id = service.register_dataset(self.address, dataset)

    @property
    def id(self) -> str:
        """Returns the identifier of the dataset."""
        return str(self._id.numpy().decode())

    def dataset(self, job: Any) -> Any:
        """Returns the rest of the data in `job`, a string tensor. All readers of a job share its elements."""
        policy = tf.data.experimental.service.ShardingPolicy.DYNAMIC
        return data_service_dataset(policy, self.address, self._id, self._element, job)


def coordinated(address: str, identifier: str, element: Any, job: str, consumer: int, consumers: int) -> Any:
    """Returns the elements of a `Service`'s endless dataset for one of `consumers`: of each round, in which
    every consumer gets one, that of `consumer`.
    """
    service = tf.data.experimental.service
    return service.from_dataset_id(
        service.ShardingPolicy.OFF, address, identifier, element, job, consumer, consumers
    )
