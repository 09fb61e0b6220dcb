"""A TFJob has the meaning that it has for the training-operator, and `convert` reports the differences."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.cli import parser
from launcher.json_in_yaml import quoted
from launcher.plan import rendering, serialization, topology
from launcher.tfjob import HEADER, conversion
from launcher.validation import loader
from launcher.validation.loader import Loaded
from tests.paths import SPECS

Object = dict[str, Any]

VALID = SPECS / "valid"
TFJOBS = sorted(VALID.glob("tfjob-*.yaml"))
PUBLISHED = "LAUNCHER_TEST_TFJOBS"


def template(**container: Any) -> Object:
    return {"spec": {"containers": [{"name": "tensorflow", "image": "example.com/a:1", **container}]}}


def tfjob(replicas: dict[str, Object], **spec: Any) -> Object:
    specs = {key: {"template": template(), **replica} for key, replica in replicas.items()}
    metadata = {"name": "job", "namespace": "team"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": metadata,
        "spec": {"tfReplicaSpecs": specs, **spec},
    }


def load(document: Object, directory: Path) -> Loaded:
    path = directory / "tfjob.yaml"
    path.write_text(yaml.safe_dump(document))
    (loaded,) = loader.load(str(path))
    return loaded


def jobs(loaded: Loaded) -> dict[str, Object]:
    """The Kubernetes Jobs by role."""
    objects = rendering.render(topology.build(loaded.cluster))
    job_objects = [item for item in objects if item["kind"] == "Job"]
    return {item["metadata"]["labels"]["tf-launcher.dev/role"]: item for item in job_objects}


def pod(job: Object) -> Object:
    pod_spec: Object = job["spec"]["template"]["spec"]
    return pod_spec


def container(job: Object, name: str = "tensorflow") -> Object:
    (named_container,) = (each for each in pod(job)["containers"] if each["name"] == name)
    assert isinstance(named_container, dict)
    return named_container


def told(job: Object, index: int) -> Any:
    """Returns TF_CONFIG of the pod with this index; None where it has none."""
    values = {variable["name"]: variable.get("value") for variable in container(job)["env"]}
    text = values.get("TF_CONFIG")
    return None if text is None else json.loads(text.replace("$(TASK_INDEX)", str(index)))


# ---- TF_CONFIG, against the operator's own rules


def operators(document: Object, key: str, index: int) -> Any:
    """Returns the results of the operator's genTFConfigJSONStr and isDistributed, with the launcher's
    addresses and without the evaluator.
    """
    specs = document["spec"]["tfReplicaSpecs"]
    counts = {other: spec.get("replicas", 1) for other, spec in specs.items()}
    if sum(counts.values()) == 1:
        return None
    pods = {"Chief": "chief", "Master": "chief", "Worker": "worker", "PS": "ps", "Evaluator": "evaluator"}

    def address(other: str, number: int) -> str:
        ports = specs[other]["template"]["spec"]["containers"][0].get("ports", [])
        named = [port["containerPort"] for port in ports if port["name"] == "tfjob-port"]
        return f"job-{pods[other]}-{number}.job:{[*named, 2222][0]}"

    apart = key == "Evaluator"
    cluster = {
        other.lower(): [address(other, number) for number in range(count)]
        for other, count in counts.items()
        if count and apart == (other == "Evaluator")
    }
    return {
        "cluster": cluster,
        "task": {"type": key.lower(), "index": index},
        "environment": "cloud",
    }


PORTS = st.sampled_from(
    [
        {},
        {"ports": [{"name": "tfjob-port", "containerPort": 3333}]},
        {"ports": [{"name": "http", "containerPort": 80}, {"name": "tfjob-port", "containerPort": 2222}]},
        {"ports": [{"name": "tfjob-port", "containerPort": 4444, "hostPort": 4444}]},
    ]
)


@st.composite
def shapes(draw: st.DrawFn) -> Object:
    leader = draw(st.sampled_from(["Chief", "Master", None]))
    replicas: dict[str, Object] = {}
    if leader is not None:
        replicas[leader] = {}
    workers = draw(st.integers(0 if leader else 1, 4))
    if workers or draw(st.booleans()):
        replicas["Worker"] = {"replicas": workers}
    if servers := draw(st.integers(0, 3)):
        replicas["PS"] = {"replicas": servers}
    if draw(st.booleans()):
        replicas["Evaluator"] = {}
    for replica in replicas.values():
        replica["template"] = template(**draw(PORTS))
    return tfjob(replicas)


@settings(max_examples=60)
@given(document=shapes())
def test_tf_config_is_the_operators(tmp_path_factory: pytest.TempPathFactory, document: Object) -> None:
    jobs_by_role = jobs(load(document, tmp_path_factory.mktemp("job")))
    for key, spec in document["spec"]["tfReplicaSpecs"].items():
        role = "chief" if key == "Master" else key.lower()
        count = spec.get("replicas", 1)
        assert (role in jobs_by_role) == (count > 0)
        for index in range(count):
            assert told(jobs_by_role[role], index) == operators(document, key, index)


@pytest.mark.parametrize(
    ("replicas", "distributed"),
    [
        ({"Worker": {}}, False),
        ({"Chief": {}}, False),
        ({"Chief": {}, "Worker": {"replicas": 0}}, False),
        ({"Chief": {}, "Worker": {}}, True),
        ({"Worker": {}, "PS": {}}, True),
        ({"Worker": {"replicas": 2}}, True),
        ({"Worker": {}, "Evaluator": {}}, True),
    ],
)
def test_a_job_of_one_task_is_told_nothing(
    tmp_path: Path, replicas: dict[str, Object], distributed: bool
) -> None:
    assert all(
        (told(job, 0) is not None) == distributed for job in jobs(load(tfjob(replicas), tmp_path)).values()
    )


def test_dynamic_workers_see_themselves_and_the_parameter_servers(tmp_path: Path) -> None:
    replicas: dict[str, Object] = {"Chief": {}, "Worker": {"replicas": 2}, "PS": {"replicas": 2}}
    jobs_by_role = jobs(load(tfjob(replicas, enableDynamicWorker=True), tmp_path))
    servers = ["job-ps-0.job:2222", "job-ps-1.job:2222"]
    # As convertClusterSpecToSparseClusterSpec has it.
    assert told(jobs_by_role["worker"], 1) == {
        "cluster": {"worker": {"1": "job-worker-1.job:2222"}, "ps": servers},
        "task": {"type": "worker", "index": 1},
    }
    # A parameter server is listed as the first, whatever its index, and the chief is left out.
    assert told(jobs_by_role["ps"], 1)["cluster"] == {"ps": {"1": servers[1]}}
    assert told(jobs_by_role["chief"], 0)["cluster"].keys() == {"chief", "worker", "ps"}


# ---- defaults and policies


def test_defaults_are_the_operators(tmp_path: Path) -> None:
    (job,) = jobs(load(tfjob({"Worker": {}}), tmp_path)).values()
    assert job["spec"]["completions"] == 1
    assert job["spec"]["backoffLimit"] == 0
    assert not job["spec"].keys() & {"ttlSecondsAfterFinished", "activeDeadlineSeconds", "successPolicy"}
    assert job["spec"]["suspend"] is False
    assert container(job)["ports"] == [{"name": "tfjob-port", "containerPort": 2222, "protocol": "TCP"}]
    policy = load(tfjob({"Worker": {}}), tmp_path).cluster.spec.run_policy
    assert (policy.clean_policy, policy.backoff_limit) == ("None", None)


@pytest.mark.parametrize(
    ("policy", "limit", "rules"), [("Never", 0, 1), ("OnFailure", 6, 1), ("Always", 6, 1), ("ExitCode", 6, 2)]
)
def test_restart_policies(tmp_path: Path, policy: str, limit: int, rules: int) -> None:
    replicas = {"Worker": {"replicas": 2, "restartPolicy": policy}}
    (job,) = jobs(load(tfjob(replicas, runPolicy={"backoffLimit": 6}), tmp_path)).values()
    assert job["spec"]["backoffLimit"] == limit
    assert len(job["spec"]["podFailurePolicy"]["rules"]) == rules
    assert pod(job)["restartPolicy"] == "Never"


@pytest.mark.parametrize("clean", ["None", "Running", "All"])
def test_the_run_policy(tmp_path: Path, clean: str) -> None:
    policy = {
        "cleanPodPolicy": clean,
        "ttlSecondsAfterFinished": 0,
        "activeDeadlineSeconds": 60,
        "suspend": True,
    }
    loaded = load(tfjob({"Chief": {}, "PS": {}}, runPolicy=policy), tmp_path)
    assert loaded.cluster.spec.run_policy.clean_policy == clean
    chief, servers = jobs(loaded).values()
    assert [job["spec"]["suspend"] for job in (chief, servers)] == [True, True]
    assert [job["spec"]["activeDeadlineSeconds"] for job in (chief, servers)] == [60, 60]
    assert chief["spec"]["ttlSecondsAfterFinished"] == 0


def test_who_decides(tmp_path: Path) -> None:
    def policies(replicas: dict[str, Object], success: str | None) -> dict[str, Any]:
        jobs_by_role = jobs(load(tfjob(replicas, successPolicy=success), tmp_path))
        return {role: job["spec"].get("successPolicy") for role, job in jobs_by_role.items()}

    first = {"rules": [{"succeededIndexes": "0"}]}
    workers: dict[str, Object] = {"Worker": {"replicas": 3}}
    assert policies(workers, None) == policies(workers, "") == {"worker": first}
    assert policies(workers, "AllWorkers") == {"worker": None}
    assert policies({"Chief": {}, **workers}, "AllWorkers") == {"chief": None, "worker": None}


def pod_group(loaded: Loaded) -> Any:
    objects = rendering.render(topology.build(loaded.cluster))
    return next((item for item in objects if item["kind"] == "PodGroup"), {"spec": None})["spec"]


def test_a_gang_is_volcanos_or_that_of_the_pods_scheduler(tmp_path: Path) -> None:
    policy = {"queue": "research", "priorityClass": "high", "scheduleTimeoutSeconds": 9}
    replicas: dict[str, Object] = {"Worker": {"replicas": 2}, "Evaluator": {}}
    document = tfjob(replicas, runPolicy={"schedulingPolicy": policy})
    fields = {
        "minMember": 2,
        "minTaskMember": {"worker": 2},
        "queue": "research",
        "priorityClassName": "high",
    }
    assert pod_group(load(document, tmp_path)) == fields
    for spec in document["spec"]["tfReplicaSpecs"].values():
        spec["template"]["spec"]["schedulerName"] = "scheduler-plugins-scheduler"
    del policy["queue"]
    assert pod_group(load(document, tmp_path)) == {"minMember": 2, "scheduleTimeoutSeconds": 9}
    for spec in document["spec"]["tfReplicaSpecs"].values():
        spec["template"]["spec"]["schedulerName"] = "default-scheduler"
    assert load(document, tmp_path).cluster.spec.scheduling.gang == "Kubernetes"


def test_replica_types_are_spelt_as_by_the_operator() -> None:
    names = {"master": "Master", "worker": "Worker", "Ps": "PS", "EVALUATOR": "Evaluator"}
    assert list(conversion.roles(names).values()) == list(names.values())


@pytest.mark.parametrize(("wanted", "members"), [(2, 2), (4, 4), (5, 4)])
def test_a_gang_is_as_large_as_wanted(tmp_path: Path, wanted: int, members: int) -> None:
    """The operator counts five tasks, which are four here: the evaluator is no member."""
    policy = {"minAvailable": wanted, "minResources": {"cpu": 3}}
    replicas: dict[str, Object] = {"Chief": {}, "Worker": {"replicas": 2}, "PS": {}, "Evaluator": {}}
    loaded = load(tfjob(replicas, runPolicy={"schedulingPolicy": policy}), tmp_path)
    assert pod_group(loaded) == {"minMember": members, "minResources": {"cpu": "3"}}


def test_a_queue_of_kueues(tmp_path: Path) -> None:
    document = tfjob({"Worker": {}})
    document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-a", "team": "a"}
    cluster = load(document, tmp_path).cluster
    assert (cluster.spec.scheduling.gang, cluster.spec.scheduling.queue) == ("Kueue", "team-a")
    assert cluster.metadata.labels == {"team": "a"}


# ---- pod templates


def test_a_pod_template_passes_through(tmp_path: Path) -> None:
    path = VALID / "tfjob-pod-template-as-it-is.yaml"
    document = yaml.safe_load(path.read_text())
    (loaded,) = loader.load(str(path))
    (job,) = jobs(loaded).values()
    given = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    pod_spec = pod(job)
    # These fields belong to the Job or to the launcher.
    expected = {
        name: value for name, value in given["spec"].items() if name not in ("restartPolicy", "containers")
    }
    expected["automountServiceAccountToken"] = True
    assert {name: pod_spec[name] for name in expected if name != "volumes"} == {
        name: value for name, value in expected.items() if name != "volumes"
    }
    assert pod_spec["volumes"][-1] == given["spec"]["volumes"][0]
    metrics, program = given["spec"]["containers"]
    assert container(job, "metrics") == metrics
    ours = container(job)
    for name in ("image", "imagePullPolicy", "args", "resources", "securityContext"):
        assert ours[name] == program[name]
    assert ours["env"][-2:] == program["env"]
    assert ours["volumeMounts"][-1] == program["volumeMounts"][0]
    assert {(port["name"], port["containerPort"]) for port in ours["ports"]} == {
        ("tensorboard", 6006),
        ("tfjob-port", 3333),
    }
    assert "command" not in ours
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels["app"] == "legacy"
    assert labels["training.kubeflow.org/job-name"] == "legacy"
    assert labels["training.kubeflow.org/replica-type"] == "worker"


@pytest.mark.parametrize("holder", ["pod", "container"])
def test_a_security_context_of_its_own_is_taken_whole(tmp_path: Path, holder: str) -> None:
    document = tfjob({"Worker": {}})
    spec = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    (spec if holder == "pod" else spec["containers"][0])["securityContext"] = {"runAsUser": 0}
    (job,) = jobs(load(document, tmp_path)).values()
    contexts = {"pod": pod(job).get("securityContext"), "container": container(job).get("securityContext")}
    assert contexts == {"pod": None, "container": None} | {holder: {"runAsUser": 0}}


def test_without_one_a_pod_is_locked_down(tmp_path: Path) -> None:
    (job,) = jobs(load(tfjob({"Worker": {}}), tmp_path)).values()
    assert pod(job)["securityContext"]["runAsNonRoot"] is True
    assert pod(job)["automountServiceAccountToken"] is False
    assert container(job)["securityContext"]["capabilities"] == {"drop": ["ALL"]}


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
WORDS = st.one_of(
    TEXTS, st.sampled_from(["$(HOME)", "$$", "$", "$$(A)", "a$b", "$(", "on", "1e3", "{{ x }}"])
)


@settings(max_examples=80)
@given(command=st.lists(WORDS, max_size=3), value=WORDS)
def test_what_kubernetes_is_told_is_what_the_template_says(
    tmp_path_factory: pytest.TempPathFactory, command: list[str], value: str
) -> None:
    """They may differ by an escape that Kubernetes removes."""
    document = tfjob({"Worker": {}})
    given_container = template(command=command, env=[{"name": "A", "value": value}])
    document["spec"]["tfReplicaSpecs"]["Worker"]["template"] = given_container
    path = tmp_path_factory.mktemp("job") / "tfjob.yaml"
    path.write_text(quoted(document))
    (loaded,) = loader.load(str(path))
    (job,) = jobs(loaded).values()
    words = [*container(job).get("command", []), container(job)["env"][-1].get("value", "")]
    assert [expanded(word) for word in words] == [expanded(word) for word in [*command, value]]


def expanded(text: str) -> str:
    """Returns Kubernetes' expansion without known references."""
    out, position = "", 0
    while position < len(text):
        pair = text[position : position + 2]
        if pair == "$$":
            out += "$"
            position += 2
        else:
            out += text[position]
            position += 1
    return out


# ---- convert


def converted(loaded: Loaded) -> str:
    assert loaded.conversion is not None
    remarks = {(): HEADER, **loaded.conversion.remarks}
    return serialization.as_yaml_with_comments(loaded.conversion.value, remarks)


def same_when_read_again(loaded: Loaded, directory: Path) -> None:
    path = directory / "cluster.yaml"
    path.write_text(converted(loaded))
    (again,) = loader.load(str(path))
    assert again.conversion is None
    assert again.cluster == loaded.cluster


@pytest.mark.parametrize("path", TFJOBS, ids=lambda path: path.stem)
def test_what_convert_prints_is_the_same_run(path: Path, tmp_path: Path) -> None:
    (loaded,) = loader.load(str(path))
    same_when_read_again(loaded, tmp_path)


@settings(max_examples=30)
@given(document=shapes())
def test_any_shape_is_the_same_run(tmp_path_factory: pytest.TempPathFactory, document: Object) -> None:
    directory = tmp_path_factory.mktemp("job")
    same_when_read_again(load(document, directory), directory)


def test_every_remark_has_its_place(tmp_path: Path) -> None:
    """A comment is directly above its field."""
    replicas: dict[str, Object] = {
        "Master": {"restartPolicy": "Always"},
        "Worker": {"replicas": 2},
        "Evaluator": {"restartPolicy": "OnFailure"},
    }
    document = tfjob(
        replicas,
        successPolicy="AllWorkers",
        enableDynamicWorker=True,
        runPolicy={"backoffLimit": 1, "schedulingPolicy": {"queue": "q"}},
    )
    loaded = load(document, tmp_path)
    assert loaded.conversion is not None
    lines = converted(loaded).splitlines()
    for path, remark in loaded.conversion.remarks.items():
        told_lines = [f"# {line}" for line in remark.splitlines()]
        at = next(number for number, line in enumerate(lines) if line.strip() == told_lines[0])
        assert [line.strip() for line in lines[at : at + len(told_lines)]] == told_lines
        following = next(line for line in lines[at:] if not line.strip().startswith("#"))
        assert following.strip().startswith(f"{path[-1]}:")
    assert {path[1:] for path in loaded.conversion.remarks} == {
        ("sparseClusterSpec",),
        ("chief",),
        ("chief", "restartPolicy"),
        ("evaluator",),
        ("evaluator", "restartPolicy"),
        ("runPolicy", "backoffLimit"),
        ("runPolicy", "cleanPolicy"),
        ("scheduling", "gang"),
    }


def test_the_commands_take_a_tfjob(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(VALID / "tfjob-chief-workers-ps-evaluator.yaml")
    assert parser.main(["convert", path]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("---\n# A TFJob, as a cluster.yaml.")
    assert captured.err == ""
    assert parser.main(["validate", path, "--set", "spec.tfReplicaSpecs.Worker.replicas=5"]) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith("click-rate: valid: Custom with 1 chief, 5 worker, 2 ps, 1 evaluator\n")
    assert "a TFJob; `python -m launcher convert`" in captured.err


def test_convert_takes_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    path = VALID / "parameter-server.yaml"
    assert parser.main(["convert", str(path)]) == 2
    expected = f"{path}: kind: expected a TFJob: this is a TrainingCluster already\n"
    assert expected in capsys.readouterr().err


def test_an_override_of_a_tfjob_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(VALID / "tfjob-one-worker.yaml")
    assert parser.main(["validate", path, "--set", "spec.tfReplicaSpecs.Worker.replicas=-1"]) == 2
    expected = "spec.tfReplicaSpecs.Worker.replicas: expected at least 0, not -1"
    assert expected in capsys.readouterr().err


# ---- the operator's own examples


def published() -> list[Path]:
    folder = os.environ.get(PUBLISHED)
    return sorted(Path(folder).rglob("*.yaml")) if folder else []


def test_the_published_examples_convert(tmp_path: Path) -> None:
    if not published():
        pytest.skip(f"{PUBLISHED} names no folder with TFJobs, such as the operator's examples/tensorflow")
    for path in published():
        documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
        if all(document.get("kind") == "TFJob" for document in documents):
            for loaded in loader.load(str(path)):
                assert jobs(loaded)
                same_when_read_again(loaded, tmp_path)


@pytest.mark.parametrize("chief", ["Chief", "Master"])
def test_pods_have_the_labels_by_which_the_operators_tools_find_them(chief: str, tmp_path: Path) -> None:
    # The objects are those of release 1.9. There, a run without a chief labels worker 0's pod with job-role;
    # here no pod has it.
    loaded = load(tfjob({chief: {}, "WORKER": {"replicas": 2}}), tmp_path)
    prefix = "training.kubeflow.org/"
    labels_by_role = {}
    for role, job in jobs(loaded).items():
        labels = job["spec"]["template"]["metadata"]["labels"]
        labels_by_role[role] = {
            key.removeprefix(prefix): labels[key] for key in labels if key.startswith(prefix)
        }
    assert labels_by_role == {
        "chief": {"job-name": "job", "replica-type": chief.lower(), "job-role": "master"},
        "worker": {"job-name": "job", "replica-type": "worker"},
    }


def test_a_list_of_documents_keeps_its_names(tmp_path: Path) -> None:
    first = tfjob({"Worker": {}})
    second = copy.deepcopy(first)
    second["metadata"]["name"] = "other"
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump_all([first, second]))
    assert [loaded.cluster.metadata.name for loaded in loader.load(str(path))] == ["job", "other"]


def test_python_takes_one_as_a_mapping() -> None:
    import launcher

    document = tfjob({"Worker": {"replicas": 2}})
    objects = launcher.render(document, overrides=["spec.tfReplicaSpecs.Worker.replicas=3"])
    assert objects[0]["spec"]["completions"] == 3
