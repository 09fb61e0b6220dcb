"""The members of the gang, and how many of each role the run needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher import plan_of_file
from launcher.backends.local import preflight
from launcher.backends.local.store import Submission
from launcher.plan import gang_scheduling, rendering, roles, topology
from launcher.validation import loader
from tests.paths import TESTS


def built(name: str, *overrides: str) -> topology.Topology:
    (loaded,) = loader.load(str(TESTS / "specs" / "valid" / f"{name}.yaml"), overrides)
    return topology.build(loaded.cluster)


def pods(planned: topology.Topology) -> dict[str, dict[str, Any]]:
    """The pod templates by role."""
    jobs = [item for item in rendering.render(planned) if item["kind"] == "Job"]
    return {job["metadata"]["labels"]["tf-launcher.dev/role"]: job["spec"]["template"] for job in jobs}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("parameter-server", {"chief": 1, "worker": 1, "ps": 1}),
        ("gang-of-volcano", {"chief": 1, "worker": 1, "ps": 2}),
        ("gang-of-coscheduling", {"worker": 4}),
        ("multi-worker-with-chief", {"chief": 1, "worker": 2}),
        ("one-task-with-evaluator", {"worker": 1}),
    ],
)
def test_what_makes_progress(name: str, expected: dict[str, int]) -> None:
    assert gang_scheduling.members(built(name)) == expected


def test_volcano_counts_by_role_and_takes_queue_and_priority() -> None:
    planned = built("gang-of-volcano")
    assert gang_scheduling.pod_group(planned) == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "spec": {
            "minMember": 4,
            "minTaskMember": {"chief": 1, "worker": 1, "ps": 2},
            "queue": "team-a",
            "priorityClassName": "high",
        },
    }
    for role, pod in pods(planned).items():
        annotations = pod["metadata"].get("annotations", {})
        assert (annotations.get("scheduling.k8s.io/group-name") == "mnist") == (role != "evaluator")
        assert annotations.get("volcano.sh/task-spec", role) == role
        assert (pod["spec"]["schedulerName"], pod["spec"]["priorityClassName"]) == ("volcano", "high")


def test_coscheduling_counts_all_of_a_collective_and_not_the_evaluator() -> None:
    planned = built("gang-of-coscheduling")
    group = gang_scheduling.pod_group(planned)
    assert group == {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "spec": {"minMember": 4}}
    pods_by_role = pods(planned)
    labels = {role: pod["metadata"]["labels"] for role, pod in pods_by_role.items()}
    assert labels["worker"]["scheduling.x-k8s.io/pod-group"] == "mnist"
    assert "scheduling.x-k8s.io/pod-group" not in labels["evaluator"]
    # The file's scheduler has another label for the gang than the default one.
    assert {pod["spec"]["schedulerName"] for pod in pods_by_role.values()} == {"gangs"}
    pods_by_role = pods(built("gang-of-coscheduling", "spec.scheduling.schedulerName=null"))
    assert {pod["spec"]["schedulerName"] for pod in pods_by_role.values()} == {"scheduler-plugins-scheduler"}


def test_without_a_gang_there_is_no_group() -> None:
    planned = built("gpus")
    assert (roles.gang(planned.cluster.spec), gang_scheduling.pod_group(planned)) == (None, None)
    assert all("schedulerName" not in pod["spec"] for pod in pods(planned).values())


def test_a_queue_alone_is_kueue_s() -> None:
    assert roles.gang(built("gpus", "spec.scheduling={queue: team-a}").cluster.spec) == "Kueue"


def test_the_laptop_says_once_what_it_leaves_out(tmp_path: Path) -> None:
    (loaded,) = loader.load(str(TESTS / "specs" / "valid" / "parameter-server.yaml"))
    message = preflight.left_out(
        Submission("mnist", "default", "1", 0.0, plan_of_file.plan(loaded).objects, {})
    )
    assert message.count("scheduling.queue") == message.count("scheduling.gang") == 1
    assert message.count("priorityClassName") == 1


def test_what_kueue_admits_it_starts() -> None:
    """A TFJob for Kueue is often written as suspended, and its Jobs would stay suspended for ever."""
    planned = built("parameter-server", "spec.runPolicy.suspend=true")
    jobs = [item for item in rendering.render(planned) if item["kind"] == "Job"]
    assert [job["spec"]["suspend"] for job in jobs] == [False] * 4
    planned = built("gpus", "spec.runPolicy.suspend=true")
    assert all(job["spec"]["suspend"] for job in rendering.render(planned) if job["kind"] == "Job")
