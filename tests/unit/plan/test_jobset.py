"""`render --as jobset`: one JobSet with the roles as its replicatedJobs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from launcher import plan_of_file, render
from launcher.cli import parser
from launcher.config.spec import Scheduling
from launcher.errors import SpecError
from launcher.object_names import ELASTIC_ANNOTATION
from launcher.plan import serialization, topology
from launcher.validation import loader
from tests.paths import TESTS
from tests.unit.golden import text as golden_text

VALID = sorted((TESTS / "specs" / "valid").glob("*.yaml"))
Object = dict[str, Any]


def objects(name: str, *overrides: str) -> list[Any]:
    (loaded,) = loader.load(str(TESTS / "specs" / "valid" / f"{name}.yaml"), overrides)
    return list(plan_of_file.plan(loaded, as_jobset=True).objects)


def jobset(name: str, *overrides: str) -> Object:
    (jobset_object,) = (item for item in objects(name, *overrides) if item["kind"] == "JobSet")
    return dict(jobset_object)


def jobs(name: str, *overrides: str) -> dict[str, Object]:
    """Returns the Jobs' specs by role."""
    spec = jobset(name, *overrides)["spec"]
    return {each["name"]: each["template"]["spec"] for each in spec["replicatedJobs"]}


def tf_config(job: Object, index: int) -> Object:
    """Returns TF_CONFIG as Kubernetes completes it in a pod."""
    env = {each["name"]: each.get("value", "") for each in job["template"]["spec"]["containers"][0]["env"]}
    config: Object = json.loads(env["TF_CONFIG"].replace("$(TASK_INDEX)", str(index)))
    return config


@pytest.mark.parametrize("name", ["parameter-server", "multi-worker-without-chief"])
def test_golden(name: str, renew: bool) -> None:
    text = serialization.as_yaml(objects(name))
    assert text == serialization.as_yaml(render(TESTS / "specs" / "valid" / f"{name}.yaml", form="jobset"))
    golden = TESTS / "golden" / f"{name}.jobset.yaml"
    shown = golden_text(objects(name))
    if renew:
        golden.write_text(shown)
    assert shown == golden.read_text()


@pytest.mark.parametrize(
    "path", [path for path in VALID if "minReplicas" not in path.read_text()], ids=lambda path: path.stem
)
def test_all_that_the_jobs_say_is_in_it(path: Path) -> None:
    """Containers, volumes and labels are the same; only names, retries and addresses differ."""
    (loaded,) = loader.load(str(path))
    # A JobSet has the queue in another place.
    spec = loaded.cluster.spec.model_copy(update={"scheduling": Scheduling()})
    loaded = dataclasses.replace(loaded, cluster=loaded.cluster.model_copy(update={"spec": spec}))
    plain = [item for item in plan_of_file.plan(loaded).objects if item["kind"] == "Job"]
    whole = plan_of_file.plan(loaded, as_jobset=True).objects
    for job, inside in zip(plain, whole[0]["spec"]["replicatedJobs"], strict=True):
        role = job["metadata"]["labels"]["tf-launcher.dev/role"]
        assert (inside["name"], inside["replicas"]) == (role.replace("-", ""), 1)
        assert inside["template"]["metadata"]["labels"] == job["metadata"]["labels"]
        annotations = job["metadata"].get("annotations", {})
        annotations.pop(ELASTIC_ANNOTATION, None)  # a JobSet's Jobs keep their numbers of data workers
        assert inside["template"]["metadata"]["annotations"] == annotations
        ours, theirs = job["spec"], inside["template"]["spec"]
        assert ours["completions"] == theirs["completions"]
        assert "ttlSecondsAfterFinished" not in theirs
        assert "suspend" not in theirs
        for pod in (ours["template"], theirs["template"]):
            for variable in pod["spec"]["containers"][0]["env"]:
                if variable["name"] in ("TF_CONFIG", "TF_LAUNCHER_METRICS"):
                    variable["value"] = ""
        assert ours["template"] == theirs["template"]
    names = [(item["kind"], item["metadata"]["name"]) for item in whole]
    assert ("Service", loaded.cluster.metadata.name) not in names  # the JobSet's controller creates it
    assert "Job" not in [kind for kind, _ in names]


def test_addresses_are_those_that_the_controller_gives() -> None:
    """<jobset>-<replicatedJob>-<job index>-<pod index>.<subdomain>."""
    jobs_by_role = jobs("parameter-server")
    chief = tf_config(jobs_by_role["chief"], 0)
    assert chief["cluster"] == {
        "chief": ["mnist-chief-0-0.mnist:2222"],
        "worker": ["mnist-worker-0-0.mnist:2222", "mnist-worker-0-1.mnist:2222"],
        "ps": ["mnist-ps-0-0.mnist:2222"],
    }
    worker = tf_config(jobs_by_role["worker"], 1)
    assert worker["cluster"] == {"worker": {"1": "mnist-worker-0-1.mnist:2222"}}
    assert worker["task"] == {"type": "worker", "index": 1}
    assert tf_config(jobs_by_role["evaluator"], 0)["cluster"] == {
        "evaluator": ["mnist-evaluator-0-0.mnist:2222"]
    }
    assert {job["template"]["spec"]["subdomain"] for job in jobs_by_role.values()} == {"mnist"}
    assert jobset("parameter-server")["spec"]["network"]["subdomain"] == "mnist"
    config = next(item for item in objects("parameter-server") if item["metadata"]["name"] == "mnist-config")
    assert json.loads(config["data"]["run.json"])["chief_address"] == "mnist-chief-0-0.mnist:2222"


def test_the_primary_decides_and_the_run_s_policy_says_how_often() -> None:
    spec = jobset("parameter-server", "spec.runPolicy.backoffLimit=5")["spec"]
    assert spec["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["chief"]}
    assert (spec["failurePolicy"]["maxRestarts"], spec["ttlSecondsAfterFinished"]) == (5, 3600)
    rules = {rule["name"]: rule for rule in spec["failurePolicy"]["rules"]}
    assert rules["programErrorOrDeadline"]["onJobFailureReasons"] == ["PodFailurePolicy", "DeadlineExceeded"]
    assert rules["noWorkerIsLeft"]["targetReplicatedJobs"] == ["worker"]
    workers = jobset("multi-worker-without-chief")["spec"]
    assert workers["successPolicy"]["targetReplicatedJobs"] == ["worker"]
    assert [rule["name"] for rule in workers["failurePolicy"]["rules"]] == ["programErrorOrDeadline"]


def test_who_is_tried_again_alone() -> None:
    """They are the tasks that the training can do without; for any other, all tasks restart."""
    jobs_by_role = jobs("parameter-server", "spec.runPolicy.backoffLimit=5")
    assert (jobs_by_role["chief"]["backoffLimit"], jobs_by_role["ps"]["backoffLimit"]) == (0, 0)
    assert jobs_by_role["worker"]["backoffLimitPerIndex"] == 5
    assert jobs_by_role["worker"]["successPolicy"] == {"rules": [{"succeededCount": 1}]}
    assert jobs_by_role["evaluator"]["backoffLimit"] == 2**31 - 1
    assert [rule["action"] for rule in jobs_by_role["evaluator"]["podFailurePolicy"]["rules"]] == ["Ignore"]
    one = jobs("parameter-server", "spec.worker.replicas=1", "spec.runPolicy.backoffLimit=5")["worker"]
    assert (one["backoffLimit"], "successPolicy" in one) == (5, False)
    assert jobs("multi-worker-without-chief")["worker"]["backoffLimit"] == 0


def test_kueue_finds_its_queue_on_the_jobset_and_nowhere_else() -> None:
    label = "kueue.x-k8s.io/queue-name"
    first, *others = objects("parameter-server")
    assert (first["metadata"]["labels"][label], first["spec"]["suspend"]) == ("team-a", True)
    assert label not in json.dumps(first["spec"])
    assert label not in json.dumps(others)
    plain = jobset("gpus")
    assert (label in plain["metadata"]["labels"], plain["spec"]["suspend"]) == (False, False)


def test_annotations_of_a_role_s_job_are_those_of_its_replicated_job() -> None:
    exclusive = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    jobset_object = jobset(
        "parameter-server",
        f"spec.worker.jobMetadata.annotations={{{exclusive}: rack}}",
        "spec.worker.jobMetadata.labels={tf-launcher.dev/role: x}",
        "spec.template.jobMetadata={annotations: {note: all}}",
    )
    metadata = {
        each["name"]: each["template"]["metadata"] for each in jobset_object["spec"]["replicatedJobs"]
    }
    assert metadata["worker"]["annotations"] == {exclusive: "rack", "note": "all"}
    assert metadata["worker"]["labels"]["tf-launcher.dev/role"] == "worker"
    assert exclusive not in metadata["ps"]["annotations"]
    whole = jobset("parameter-server", f"metadata.annotations={{{exclusive}: rack}}")
    assert whole["metadata"]["annotations"][exclusive] == "rack"


def test_a_name_that_fits_jobs_and_no_jobset(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a" * 50
    (loaded,) = loader.load(
        str(TESTS / "specs" / "valid" / "one-task-mirrored.yaml"), [f"metadata.name={name}"]
    )
    assert plan_of_file.plan(loaded).run == name
    with pytest.raises(SpecError) as error:
        plan_of_file.plan(loaded, as_jobset=True)
    (problem,) = error.value.problems
    longest = max(task.pod_name for task in topology.build(loaded.cluster, jobset=True).tasks) + "-abcde"
    assert (problem.path, len(longest) - 63) == ("metadata.name", int(problem.message.rsplit(" ", 1)[1]))
    assert parser.main(["render", loaded.source, "--as", "jobset", "--set", f"metadata.name={name}"]) == 2
    assert "in a JobSet the pod" in capsys.readouterr().err
