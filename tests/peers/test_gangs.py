"""Gangs by their real schedulers: where one pod of a run does not fit, none starts; where all fit, all do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.api.plain_requests import wait_for
from tests.kind import endless
from tests.kind.runs import Object, Runs
from tests.peers.places import Places

PATIENCE = 20
"""Seconds in which a scheduler that starts pods one by one would have started some. Coscheduling keeps the
place of a pod that fits for 10 s.
"""


def told(pod: Object) -> bool:
    """Whether the scheduler has said that it does not start the pod."""
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


def on_nodes(runs: Runs) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in runs.pods() if "nodeName" in pod["spec"])


def nothing_starts(runs: Runs, tasks: int) -> None:
    """Waits until the scheduler has seen all tasks, and some time more. Fails if one is started."""
    assert wait_for(lambda: len([pod for pod in runs.pods() if told(pod)]) == tasks, 90), runs.pods()
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        assert on_nodes(runs) == []
        time.sleep(0.5)
    status = endless.status(runs)
    assert status["phase"] == "Pending"
    # The scheduler's own words.
    assert status["message"], status


@pytest.mark.parametrize("gang", ["Volcano", "Coscheduling"])
def test_nothing_starts_until_all_fit(
    runs: Runs, needs: Callable[[str], None], places: Places, tmp_path: Path, gang: str
) -> None:
    needs(gang)
    places.are(2)
    endless.submit(
        runs,
        tmp_path,
        strategy="MultiWorkerMirrored",
        modelDir="/model",
        worker={"replicas": 2},
        template={"resources": places.one},
        scheduling={"gang": gang},
    )
    nothing_starts(runs, 3)
    places.are(3)
    endless.trains_on(runs)
    assert len(on_nodes(runs)) == 3
    endless.end(runs)


@pytest.mark.parametrize("gang", ["Volcano", "Coscheduling"])
def test_a_task_that_is_lost_comes_back(
    runs: Runs, needs: Callable[[str], None], tmp_path: Path, gang: str
) -> None:
    needs(gang)
    scheduling = {"gang": gang}
    run: dict[str, Any] = {"strategy": "MultiWorkerMirrored", "modelDir": "/model", "worker": {"replicas": 1}}
    endless.submit(runs, tmp_path, **run, scheduling=scheduling)
    endless.trains_on(runs)
    lost = runs.pod("worker")
    assert runs.api.request("DELETE", runs.path("Pod", lost)).status == 200
    # One pod alone is fewer than must start together; the others of its group run already.
    assert wait_for(lambda: set(on_nodes(runs)) - {lost, runs.pod("chief")}, 90), runs.pods()
    endless.trains_on(runs)
    endless.end(runs)


def submit_with_placed_ps(runs: Runs, directory: Path, places: Places, **scheduling: Any) -> None:
    """A run of four tasks, of which a chief, the ps and one worker must start together. Only the ps needs a
    place: all others fit at any time.
    """
    endless.submit(
        runs,
        directory,
        strategy="ParameterServer",
        worker={"replicas": 2},
        ps={"replicas": 1, "resources": places.one},
        template={"resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "700Mi"}}},
        scheduling={"gang": "Volcano", **scheduling},
    )


def test_volcano_counts_by_role(
    runs: Runs, needs: Callable[[str], None], places: Places, tmp_path: Path
) -> None:
    needs("Volcano")
    submit_with_placed_ps(runs, tmp_path, places)
    # As many tasks as must start together would fit, but the ps is none of them.
    nothing_starts(runs, 4)
    places.are(1)
    endless.trains_on(runs)
    assert len(on_nodes(runs)) == 4
    endless.end(runs)


def test_volcano_counts_any_tasks_for_a_min_member_of_the_user(
    runs: Runs, needs: Callable[[str], None], places: Places, tmp_path: Path
) -> None:
    needs("Volcano")
    submit_with_placed_ps(runs, tmp_path, places, minMember=3)
    assert wait_for(lambda: len(on_nodes(runs)) == 3, 90), runs.pods()
    assert ["nodeName" in pod["spec"] for pod in runs.pods("ps")] == [False]
