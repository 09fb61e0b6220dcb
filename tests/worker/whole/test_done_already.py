"""A run that is started again after its end: by `kubectl apply` of the same manifests, by an eviction."""

from __future__ import annotations

import pytest

from tests.worker.conftest import MakeCluster
from worker.contract.records import Event

pytestmark = pytest.mark.thorough


def test_every_task_of_a_collective_leaves_at_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(strategy="MultiWorkerMirrored", replicas={"worker": 2}, parameters={"epochs": 1})
    assert [task.ended() for task in cluster.start_all().values()] == [0, 0]
    # The first task is not started, because it has finished.
    again = cluster.start("worker", 1)
    assert again.ended() == 0
    assert not again.records(Event.WAITING)
    assert again.records(Event.DONE)
