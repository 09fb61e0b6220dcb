"""Strategy Custom: any image with its own command, by the rules that a TFJob has."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.backends.run_end_rule import FAILED_SECONDS, Role, decide
from launcher.config.spec import TrainingCluster
from launcher.plan import rendering, topology
from launcher.plan.topology import Topology
from launcher.status import RunStatus, fold
from launcher.validation import rules

Object = dict[str, Any]


def planned(**spec: Any) -> Topology:
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "job", "namespace": "team"},
        "spec": {"strategy": "Custom", "image": "example.com/any:1", **spec},
    }
    cluster = TrainingCluster.model_validate_json(json.dumps(document))
    assert rules.broken(cluster) == []
    return topology.build(cluster)


def jobs(**spec: Any) -> dict[str, Object]:
    """Returns the Jobs by role."""
    objects = rendering.render(planned(**spec))
    return {
        item["metadata"]["labels"]["tf-launcher.dev/role"]: item for item in objects if item["kind"] == "Job"
    }


def told(job: Object, index: int) -> Any:
    """Returns TF_CONFIG of the pod with this index; None where it has none."""
    (container, *_) = job["spec"]["template"]["spec"]["containers"]
    values = {variable["name"]: variable.get("value") for variable in container["env"]}
    text = values.get("TF_CONFIG")
    return None if text is None else json.loads(text.replace("$(TASK_INDEX)", str(index)))


def at(role: str, index: int, port: int = 2222) -> str:
    return f"job-{role}-{index}.job:{port}"


# ---- TF_CONFIG


def test_every_task_has_the_full_list_and_the_evaluator_is_apart() -> None:
    jobs_by_role = jobs(chief={}, worker={"replicas": 2, "port": 3333}, ps={"replicas": 2}, evaluator={})
    cluster = {
        "chief": [at("chief", 0)],
        "worker": [at("worker", 0, 3333), at("worker", 1, 3333)],
        "ps": [at("ps", 0), at("ps", 1)],
    }
    for role, index in (("chief", 0), ("worker", 1), ("ps", 1)):
        assert told(jobs_by_role[role], index) == {
            "cluster": cluster,
            "task": {"type": role, "index": index},
            "environment": "cloud",
        }
    assert told(jobs_by_role["evaluator"], 0) == {
        "cluster": {"evaluator": [at("evaluator", 0)]},
        "task": {"type": "evaluator", "index": 0},
        "environment": "cloud",
    }


def test_a_sparse_list_is_one_that_tensorflow_takes() -> None:
    jobs_by_role = jobs(
        chief={}, worker={"replicas": 2}, ps={"replicas": 2}, evaluator={}, sparseClusterSpec=True
    )
    assert told(jobs_by_role["worker"], 1) == {
        "cluster": {"worker": {"1": at("worker", 1)}, "ps": [at("ps", 0), at("ps", 1)]},
        "task": {"type": "worker", "index": 1},
    }
    assert told(jobs_by_role["ps"], 1) == {
        "cluster": {"ps": {"1": at("ps", 1)}},
        "task": {"type": "ps", "index": 1},
    }
    assert told(jobs_by_role["chief"], 0)["cluster"].keys() == {"chief", "worker", "ps"}


def test_a_master_is_called_so() -> None:
    jobs_by_role = jobs(chief={}, worker={}, strategyOptions={"chiefTaskType": "master"})
    assert told(jobs_by_role["chief"], 0)["task"] == {"type": "master", "index": 0}
    assert told(jobs_by_role["worker"], 0)["cluster"]["master"] == [at("chief", 0)]


@given(
    chief=st.integers(0, 1),
    worker=st.integers(0, 3),
    ps=st.integers(0, 3),
    evaluator=st.integers(0, 1),
    sparse=st.booleans(),
)
def test_whoever_is_not_alone_finds_itself(
    chief: int, worker: int, ps: int, evaluator: int, sparse: bool
) -> None:
    counts = {"chief": chief, "worker": worker, "ps": ps, "evaluator": evaluator}
    if chief + worker == 0:
        return
    jobs_by_role = jobs(
        sparseClusterSpec=sparse, **{role: {"replicas": count} for role, count in counts.items()}
    )
    assert jobs_by_role.keys() == {role for role, count in counts.items() if count}
    for role, job in jobs_by_role.items():
        for index in range(counts[role]):
            config = told(job, index)
            if sum(counts.values()) == 1:
                assert config is None
                continue
            assert config["task"] == {"type": role, "index": index}
            members = config["cluster"][role]
            mine = members[str(index)] if isinstance(members, dict) else members[index]
            assert mine == at(role, index)
            assert (role == "evaluator") == ("evaluator" in config["cluster"])


# ---- what the Jobs do when tasks end

DISRUPTION = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize(
    ("policy", "limit", "expected"),
    [
        ("Never", 3, 0),
        ("OnFailure", 3, 3),
        ("OnFailure", None, 2**31 - 1),
        ("ExitCode", 0, 0),
        ("ExitCode", None, 2**31 - 1),
        (None, 7, 7),
    ],
)
def test_who_is_tried_again(policy: str | None, limit: int | None, expected: int, replicas: int) -> None:
    role = {"replicas": replicas} | ({"restartPolicy": policy} if policy else {})
    job = jobs(worker=role, runPolicy={"backoffLimit": limit})["worker"]["spec"]
    assert job["backoffLimit"] == expected
    assert "backoffLimitPerIndex" not in job
    rules = job["podFailurePolicy"]["rules"]
    assert rules[0] == DISRUPTION
    assert len(rules) == (2 if policy == "ExitCode" else 1)


def test_exit_codes_up_to_127_are_permanent() -> None:
    rule = jobs(chief={"restartPolicy": "ExitCode"})["chief"]["spec"]["podFailurePolicy"]["rules"][1]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"] == {
        "containerName": "tensorflow",
        "operator": "In",
        "values": [*range(1, 128)],
    }


def test_the_first_worker_decides_where_there_is_no_chief() -> None:
    first = {"rules": [{"succeededIndexes": "0"}]}
    assert jobs(worker={"replicas": 3})["worker"]["spec"]["successPolicy"] == first
    everyone = jobs(worker={"replicas": 3}, strategyOptions={"successPolicy": "AllWorkers"})
    assert "successPolicy" not in everyone["worker"]["spec"]
    assert "successPolicy" not in jobs(worker={"replicas": 1})["worker"]["spec"]
    led = jobs(chief={}, worker={"replicas": 3})
    assert all("successPolicy" not in job["spec"] for job in led.values())


def test_the_deadline_is_everybodys() -> None:
    jobs_by_role = jobs(
        chief={}, ps={}, runPolicy={"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 5}
    )
    assert [job["spec"]["activeDeadlineSeconds"] for job in jobs_by_role.values()] == [60, 60]
    assert [job["spec"].get("ttlSecondsAfterFinished") for job in jobs_by_role.values()] == [5, None]


def test_workers_that_come_and_go_are_not_needed() -> None:
    def needed(**spec: Any) -> set[str]:
        return {
            role
            for role, job in jobs(chief={}, ps={}, evaluator={}, **spec).items()
            if (job["metadata"].get("annotations") or {}).get("tf-launcher.dev/needed") == "true"
        }

    assert needed(worker={"restartPolicy": "Never"}) == {"worker", "ps", "evaluator"}
    assert needed(worker={"restartPolicy": "Never"}, sparseClusterSpec=True) == {"ps", "evaluator"}
    assert needed(worker={}, sparseClusterSpec=True) == {"worker", "ps", "evaluator"}
    lost = jobs(worker={"replicas": 2, "restartPolicy": "Never"}, sparseClusterSpec=True)["worker"]["spec"]
    assert lost["backoffLimitPerIndex"] == 0
    assert "maxFailedIndexes" not in lost


# ---- the image runs as it is


def test_an_image_without_a_command_runs_its_own() -> None:
    jobs_by_role = jobs(chief={}, worker={"args": ["--rate=1"]})
    for role, fields in (("chief", set()), ("worker", {"args"})):
        (container,) = jobs_by_role[role]["spec"]["template"]["spec"]["containers"]
        assert container.keys() & {"command", "args"} == fields
        assert container["securityContext"]["readOnlyRootFilesystem"] is False
        assert all(mount["mountPath"] != "/tmp" for mount in container["volumeMounts"])
        assert container["ports"] == [{"name": "tfjob-port", "containerPort": 2222, "protocol": "TCP"}]


# ---- the run's status


def status_of(role: str, needed: bool | None, succeeded: int = 0) -> RunStatus:
    """Returns the status of a run whose chief runs, and whose other role has failed."""

    def job(name: str, annotations: dict[str, str], **status: Any) -> Object:
        metadata = {"name": f"job-{name}", "labels": {"tf-launcher.dev/role": name}}
        return {"metadata": {**metadata, "annotations": annotations}, "spec": {}, "status": status}

    failed = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]
    mark = {} if needed is None else {"tf-launcher.dev/needed": str(needed).lower()}
    chief = job("chief", {"tf-launcher.dev/primary": "true"}, active=1)
    return fold([chief, job(role, mark, conditions=failed, succeeded=succeeded)], [])


@pytest.mark.parametrize(
    ("role", "needed", "succeeded", "doomed"),
    [
        ("evaluator", True, 0, True),
        ("evaluator", None, 0, False),
        ("worker", True, 1, True),
        ("worker", None, 1, False),
        ("worker", None, 0, True),
        ("worker", False, 0, False),
        ("ps", None, 0, True),
    ],
)
def test_a_needed_role_takes_the_run_along(
    role: str, needed: bool | None, succeeded: int, doomed: bool
) -> None:
    chief, other = (
        Role(seen.role, seen.job, seen.phase, served=bool(seen.succeeded), needed=seen.needed)
        for seen in status_of(role, needed, succeeded).roles
    )
    decision = decide(chief, [replace(other, ended_at=0.0)], "Running", FAILED_SECONDS)
    assert bool(decision.stops) == doomed
