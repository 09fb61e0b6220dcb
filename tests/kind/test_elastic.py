"""The workers of an elastic run come and go on a cluster with nodes, and some go for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.plain_requests import wait_for
from tests.kind import endless
from tests.kind.endless import RUN, SHORT_GRACE
from tests.kind.runs import SECONDS, Runs


def trained_by(runs: Runs, *workers: int) -> None:
    """Waits until exactly these workers take part, and for what they do then."""

    def members() -> bool:
        membership = endless.status(runs)["membership"]
        return membership is not None and membership["workers"] == list(workers)

    assert wait_for(members, SECONDS), runs.of("describe", run=RUN).stdout
    endless.trains_on(runs)


@pytest.mark.parametrize(
    "spec",
    [{"strategy": "ParameterServer", "ps": {}}, {"strategy": "MultiWorkerMirrored", "modelDir": "/model"}],
    ids=lambda spec: spec["strategy"],
)
def test_workers_come_and_go_for_good(runs: Runs, tmp_path: Path, spec: dict[str, Any]) -> None:
    worker = {"replicas": 2, "minReplicas": 1, "maxReplicas": 3, **SHORT_GRACE}
    endless.submit(runs, tmp_path, **spec, worker=worker)
    trained_by(runs, 0, 1)
    endless.scale(runs, "worker", 3)
    trained_by(runs, 0, 1, 2)
    endless.scale(runs, "worker", 1)
    trained_by(runs, 0)
    assert wait_for(lambda: runs.numbers("worker") == [0], 60), runs.numbers("worker")
    endless.end(runs)
    assert runs.job("worker", RUN)["status"]["succeeded"] == 1
    assert runs.job("chief", RUN)["status"].get("failed", 0) == 0
