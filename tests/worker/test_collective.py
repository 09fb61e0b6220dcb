"""Tasks that take every step together, and have no coordinator to release them."""

from __future__ import annotations

from tests.worker import model_files
from tests.worker.conftest import MakeCluster
from worker.contract import Event


def test_workers_train_together_and_leave_by_themselves(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(strategy="MultiWorkerMirrored", replicas={"worker": 2})
    tasks = cluster.start_all()
    assert [task.ended() for task in tasks.values()] == [0, 0]

    first, second = tasks["worker", 0], tasks["worker", 1]
    assert first.until(Event.DONE).time >= second.until(Event.DONE).time, "the first hosts the others"
    assert model_files.epochs(cluster.model_dir) == [1, 2, 3]
    assert model_files.iterations(cluster.model_dir, 3) == 60
    assert [record.fields["epoch"] for record in first.records(Event.EVALUATION)] == [1, 2, 3]
    assert not second.records(Event.PROGRESS), "one speaks for all"
