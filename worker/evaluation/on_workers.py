"""Evaluation on the workers of a ParameterServer run without an evaluator.

Each execution returns its result as a value, and the chief adds the values up. So each result counts once,
however often the execution was tried. TensorFlow's own exact evaluation in Model.evaluate works in the same
way.

The data is cut into shards, one for each execution. Each execution reads all of the data and keeps its shard.
Where each would read another order (shuffled data), or with `spec.evaluation.exact`, the chief reads the data
once and sends it to the workers that are free. What only Python can read, the chief sends batch by batch.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable
from functools import partial
from typing import Any

import tensorflow as tf

from worker.context import Loop
from worker.failures import is_lost_peer
from worker.input import chief_reader
from worker.input.dataset_transfer import carried
from worker.input.in_process_service import Service
from worker.parameter_server.executions import Executions
from worker.steps.metric_sums import Sums
from worker.steps.step import Steps
from worker.tf_compat.graphs import reads_alike

_SHARDS_PER_WORKER = 2
_TRIES = 3


class WorkersScorer:
    """Scores the model of `steps` on `dataset` by the workers, between two steps; or on `passes` of so many
    `batches`, one after the other, where each has its own order.
    """

    def __init__(
        self,
        loop: Loop,
        steps: Steps,
        dataset: Any,
        executions: Executions,
        passes: Any = None,
        batches: int = 0,
    ) -> None:
        with loop.strategy.scope():
            self._begun = tf.Variable(0, dtype=tf.int64, trainable=False, name="evaluations_begun")
        self._loop = loop
        self._executions = executions
        self._steps = steps
        self._sums = Sums(steps.unread_metrics(training=False))
        by_chief = chief_reader.why(loop, dataset, executions) is not None
        alike = reads_alike(dataset)
        self._passes = None if passes is None else iter(passes)
        self._batches = batches
        served = passes is None and (loop.evaluation.get("exact") or not (alike or by_chief))
        service = _service(loop, dataset) if served else None
        self._dataset = dataset
        self._score_job = tf.function(partial(self._of_job, service)) if service is not None else None
        self._is_sent = bool(by_chief or not alike)
        self._score_batch = tf.function(self._of_batch, input_signature=[dataset.element_spec])
        if self._is_sent:
            return
        give = carried(dataset, loop.program.entrypoint, "evaluation_dataset")
        self._datasets = executions.coordinator.create_per_worker_dataset(give).build()
        self._score_shard = tf.function(self._of_shard)

    def run(self, callbacks: Any = None) -> dict[str, Any]:
        """See `scoring.Scorer`. Resets the metrics of `steps` first, and leaves these results in them."""
        if callbacks is not None:
            return self._by_batch(callbacks)
        for value in self._by_service() or self._by_shards():
            self._sums.add(value.get())
        return self._steps.results()

    def _by_batch(self, callbacks: Any) -> dict[str, Any]:
        """Returns the metrics. The chief reads each batch, and a worker scores it before the next."""
        results: dict[str, Any] = {}
        for number, batch in enumerate(self._pass()):
            callbacks.on_test_batch_begin(number)
            (value,) = self._run(self._score_batch, [(batch,)], resets=number == 0)
            self._sums.add(value.get())
            results = self._steps.results()
            callbacks.on_test_batch_end(number, results)
        return results

    def _by_shards(self) -> list[Any]:
        if self._is_sent:
            return self._run(self._score_batch, ((batch,) for batch in self._pass()))
        count = _SHARDS_PER_WORKER * self._loop.workers
        shards = [(tf.constant(count, tf.int64), tf.constant(shard, tf.int64)) for shard in range(count)]
        return self._run(self._score_shard, [(self._datasets, *shard) for shard in shards])

    def _pass(self) -> Iterable[Any]:
        return self._dataset if self._passes is None else itertools.islice(self._passes, self._batches)

    def _by_service(self) -> list[Any]:
        """Returns nothing where a worker was lost at every try, together with the data that it
        had received.
        """
        for _ in range(_TRIES if self._score_job is not None else 0):
            job = tf.constant(uuid.uuid4().hex)
            self._begun.assign(0)
            remote_values = self._run(self._score_job, [(job,)] * self._loop.workers)
            if int(self._begun) == len(remote_values):
                return remote_values
        return []

    def _run(self, function: Any, arguments: Iterable[tuple[Any, ...]], *, resets: bool = True) -> list[Any]:
        # Metrics of the program's own classes are updated where they are.
        if resets:
            with self._loop.strategy.scope():
                self._steps.reset()
        remote_values: list[Any] = []
        for each in arguments:
            self._executions.schedule(function, each, report=remote_values.append)
        self._executions.join()
        return remote_values

    def _of_shard(self, dataset: Any, shards: Any, shard: Any) -> list[Any]:
        """Returns the sums of the metrics over the samples of one of the shards."""
        return self._over(dataset.shard(shards, shard).prefetch(tf.data.AUTOTUNE))

    def _of_job(self, service: Service, job: Any) -> list[Any]:
        """Returns the sums over the samples of a job that no other execution reads. A retry reads the job
        twice.
        """
        with tf.control_dependencies([self._begun.assign_add(1, read_value=False)]):
            job = tf.identity(job)
        return self._over(service.dataset(job))

    def _of_batch(self, batch: Any) -> list[Any]:
        """Returns the sums over the samples of one batch, which the chief has read."""
        return self._with(batch, self._sums.zeros())

    def _over(self, dataset: Any) -> list[Any]:
        totals = self._sums.zeros()
        for batch in iter(dataset):
            totals = self._with(batch, totals)
        return totals

    def _with(self, batch: Any, totals: list[Any]) -> list[Any]:
        with self._sums.collected() as added:
            self._loop.strategy.run(self._steps.evaluate, args=(batch,))
        return [total + addend for total, addend in zip(totals, added)]


def _service(loop: Loop, dataset: Any) -> Service | None:
    """Returns None, and emits a notice, where the data cannot be served. The other ways count each sample
    once, too.
    """
    try:
        return Service(dataset, loop.address or "localhost:0")
    except (tf.errors.OpError, ValueError) as error:
        if isinstance(error, tf.errors.OpError) and is_lost_peer(error):
            raise
        loop.notice(
            f"{loop.program.entrypoint}: evaluation_dataset() cannot be handed out by tf.data service "
            f"({str(error).splitlines()[0]}), and is read in another way, every sample once"
        )
        return None
