"""Tasks that take every step together, and have no coordinator to release them."""

from __future__ import annotations

import pytest

from tests.worker import model_files
from tests.worker.cluster import eventually
from tests.worker.conftest import MakeCluster
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event


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


@pytest.mark.nightly
@pytest.mark.thorough
def test_nobody_leaves_as_done_before_the_first_has_finished(make_cluster: MakeCluster) -> None:
    """A task that had left would not come back for a retry, and the first task would wait for it for ever."""
    cluster = make_cluster(
        strategy="MultiWorkerMirrored", replicas={"worker": 2}, entrypoint="tiny:SlowExport"
    )
    tasks = cluster.start_all()
    eventually(lambda: "exporting" in tasks["worker", 0].output, "the export begins")
    tasks["worker", 0].kill()
    assert tasks["worker", 1].ended() == ExitCode.RETRYABLE
    assert "the first task was lost" in tasks["worker", 1].until(Event.FAILED).fields["message"]

    (cluster.directory / "go-on").touch()
    tasks = cluster.start_all()
    assert [task.ended() for task in tasks.values()] == [0, 0]
    assert model_files.iterations(cluster.model_dir, 3) == 60
