"""Pods that are deleted during training are replaced, and the run continues."""

from __future__ import annotations

import pytest

from tests.api.plain_requests import wait_for
from tests.kind.runs import Runs, accuracy
from worker.contract.records import Event

EPOCHS = 8
SOON = "spec.worker.podTemplate={spec: {terminationGracePeriodSeconds: 5}}"
"""A worker works until its grace period ends, and on a fast machine the run might end before."""
KILL = {"gracePeriodSeconds": 0}
"""The pod is deleted without a grace period, as on a lost node: its processes get SIGKILL."""


@pytest.mark.parametrize(
    ("role", "index", "how"),
    [("worker", 1, {}), ("ps", 0, KILL), ("chief", 0, KILL)],
    ids=["a worker deleted", "the ps killed", "the chief killed"],
)
def test_a_pod_deleted(runs: Runs, role: str, index: int, how: dict[str, int]) -> None:
    runs.submit(f"spec.program.parameters.epochs={EPOCHS}", SOON)
    runs.trains()
    lost = runs.pod(role, index)
    deleted = runs.api.request("DELETE", runs.path("Pod", lost), how)
    assert deleted.status == 200, deleted.body
    output = runs.succeeds()
    assert accuracy(output) >= 0.80
    assert runs.pod(role, index) != lost
    last = runs.records("chief", event=Event.PROGRESS)[-1]
    assert (last.fields["epoch"], last.fields["step"]) == (EPOCHS, 94)


def test_nobody_waits_for_a_worker_whose_pod_is_gone(runs: Runs) -> None:
    """TensorFlow would, for 20 s, when it closes the connection: the chief would have stalled."""
    runs.submit("spec.program.parameters.epochs=60", "spec.runPolicy.stallSeconds=15", SOON)
    runs.trains()
    lost = runs.pod("worker", 1)
    assert runs.api.request("DELETE", runs.path("Pod", lost)).status == 200
    runs.succeeds()
    assert not runs.job("chief")["status"].get("failed")
    assert not runs.records("chief", event=Event.RESTARTED)
    assert runs.pod("worker", 1) != lost
    assert runs.records("worker", 1, event=Event.RELEASED), "it was taken in again"


def test_an_evicted_worker_is_not_counted(runs: Runs) -> None:
    """A drained node must not count against a run that may not fail once."""
    runs.submit(f"spec.program.parameters.epochs={EPOCHS}", "spec.runPolicy.backoffLimit=0", SOON)
    runs.trains()
    evicted = runs.pod("worker", 1)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": evicted}}
    answer = runs.api.request("POST", f"{runs.path('Pod', evicted)}/eviction", eviction)
    assert answer.status == 201, answer.body
    runs.succeeds()
    assert runs.pod("worker", 1) != evicted
    assert runs.job("worker")["status"]["succeeded"] == 2


def test_a_suspended_run_goes_on_from_its_backup(runs: Runs) -> None:
    runs.submit(f"spec.program.parameters.epochs={EPOCHS}")
    runs.trains(epoch=2)
    assert runs.of("suspend").returncode == 0
    assert wait_for(lambda: not runs.pods(), 90), [pod["metadata"]["name"] for pod in runs.pods()]
    assert "uspended" in runs.of("status").stdout
    assert runs.of("resume").returncode == 0
    runs.succeeds()
    began = runs.records("chief", event=Event.TRAINING)
    assert began[0].fields["initial_epoch"] >= 2


def test_a_run_whose_pods_are_all_taken_away_goes_on_from_its_backup(runs: Runs) -> None:
    """A queue does the same to a run whose place another run gets; the pods keep their own grace period."""
    runs.submit(f"spec.program.parameters.epochs={EPOCHS}", "spec.runPolicy.backoffLimit=0")
    runs.trains(epoch=2)
    taken = {pod["metadata"]["name"] for pod in runs.pods()}
    for name in taken:
        assert runs.api.request("DELETE", runs.path("Pod", name)).status == 200
    runs.succeeds()
    assert runs.pod("chief") not in taken
    began = runs.records("chief", event=Event.TRAINING)
    assert began[0].fields["initial_epoch"] >= 2
