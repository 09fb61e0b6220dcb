"""A run whose batches are prepared by pods of their own, which are lost, come and go."""

from __future__ import annotations

from pathlib import Path

from tests.api.plain_requests import wait_for
from tests.kind import endless
from tests.kind.endless import RUN, SHORT_GRACE
from tests.kind.runs import Runs
from worker.contract.records import Event


def test_data_workers_are_lost_come_and_go(runs: Runs, tmp_path: Path) -> None:
    service = {"workers": 2, "resources": {"cpu": "100m", "memory": "700Mi"}, **SHORT_GRACE}
    endless.submit(runs, tmp_path, strategy="OneDevice", dataService=service)
    endless.trains_on(runs)
    lost = runs.pod("data-worker", 1)
    deleted = runs.api.request("DELETE", runs.path("Pod", lost), {"gracePeriodSeconds": 0})
    assert deleted.status == 200, deleted.body
    assert wait_for(lambda: runs.numbers("data-worker") == [0, 1] and runs.pod("data-worker", 1) != lost, 90)
    endless.trains_on(runs)
    endless.scale(runs, "data-worker", 3)
    assert wait_for(lambda: runs.records("data-worker", 2, Event.READY, run=RUN), 90)
    endless.trains_on(runs)
    endless.scale(runs, "data-worker", 1)
    assert wait_for(lambda: runs.numbers("data-worker") == [0], 60), runs.numbers("data-worker")
    endless.trains_on(runs)
    endless.end(runs)
    for role, count in {"chief": 1, "dispatcher": 1, "data-worker": 1}.items():
        assert runs.job(role, RUN)["status"]["succeeded"] == count
