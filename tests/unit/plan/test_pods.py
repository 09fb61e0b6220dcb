"""The content of each role's pods: the fields of the file, and those that the launcher adds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.config import yaml_parser
from launcher.config.spec import RoleTemplate, TrainingCluster
from launcher.errors import SpecError
from launcher.object_names import NODE_LABEL, ROLE_LABEL
from launcher.plan import pods, rendering, topology
from launcher.plan.program_files import ProgramFiles
from launcher.validation import loader
from launcher.validation.rules import notices
from worker.contract.run_config import RunConfig

Object = dict[str, Any]
FAIL_FAST = {"name": "GRPC_FAIL_FAST", "value": "false"}
PARAMETER_SERVER: Object = {"strategy": "ParameterServer", "worker": {"replicas": 2}, "ps": {"replicas": 2}}


def cluster(**spec: Any) -> TrainingCluster:
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "run", **spec.pop("metadata", {})},
        "spec": {"strategy": "Mirrored", "program": {"entrypoint": "a:B"}, **spec},
    }
    training_cluster, problems = loader._validate(yaml_parser.parse(json.dumps(document), "test")[0])
    if problems or training_cluster is None:
        raise SpecError(problems)
    return training_cluster


def jobs(**spec: Any) -> dict[str, Object]:
    """Returns the Jobs by role."""
    objects = rendering.render(topology.build(cluster(**spec)))
    return {item["metadata"]["labels"][ROLE_LABEL]: item for item in objects if item["kind"] == "Job"}


def template(**spec: Any) -> Object:
    """Returns the template of the chief's pods."""
    pod_template: Object = jobs(**spec)["chief"]["spec"]["template"]
    return pod_template


def pod(**spec: Any) -> Object:
    pod_spec: Object = template(**spec)["spec"]
    return pod_spec


def container(**spec: Any) -> Object:
    main_container: Object = pod(**spec)["containers"][0]
    return main_container


# ---- every field of a role

PREFERS: Object = {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
    ]
}
"""A nodeAffinity."""

FIELDS: dict[str, tuple[Any, Any]] = {
    "image": ("example.com/a:1", lambda pod: pod["containers"][0]["image"]),
    "imagePullPolicy": ("Never", lambda pod: pod["containers"][0]["imagePullPolicy"]),
    "imagePullSecrets": ([{"name": "registry"}], lambda pod: pod["imagePullSecrets"]),
    "command": (["python", "-m", "worker", "x"], lambda pod: pod["containers"][0]["command"]),
    "args": (["--x", "y"], lambda pod: pod["containers"][0]["args"]),
    "workingDir": ("/work", lambda pod: pod["containers"][0]["workingDir"]),
    "env": (
        [
            {"name": "NCCL_DEBUG", "value": "INFO"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
        lambda pod: pod["containers"][0]["env"][-2:],
    ),
    "envFrom": (
        [{"secretRef": {"name": "s"}, "prefix": "S_"}],
        lambda pod: pod["containers"][0]["envFrom"],
    ),
    "resources": (
        {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi", "example.com/fpga": "2"}},
        lambda pod: pod["containers"][0]["resources"],
    ),
    "volumes": ([{"name": "data", "nfs": {"server": "s", "path": "/p"}}], lambda pod: pod["volumes"][-1:]),
    "volumeMounts": (
        [{"name": "data", "mountPath": "/data", "readOnly": True, "subPath": "x"}],
        lambda pod: pod["containers"][0]["volumeMounts"][-1:],
    ),
    "nodeSelector": ({"disk": "ssd"}, lambda pod: pod["nodeSelector"]),
    "tolerations": ([{"key": "gpu", "operator": "Exists"}], lambda pod: pod["tolerations"]),
    "affinity": ({"nodeAffinity": PREFERS}, lambda pod: pod["affinity"]),
    "serviceAccountName": ("trainer", lambda pod: pod["serviceAccountName"]),
    "runtimeClassName": ("nvidia", lambda pod: pod["runtimeClassName"]),
    "podTemplate": (
        {"spec": {"dnsPolicy": "Default"}},
        lambda pod: {"spec": {"dnsPolicy": pod["dnsPolicy"]}},
    ),
}


CUSTOM = {"port", "restartPolicy"}
"""These are tested in features/test_custom.py."""


def test_no_field_is_forgotten() -> None:
    # test_jobset.py tests the fields of the Job; task_records/test_task_devices.py tests allowCpu.
    known = {*FIELDS, *CUSTOM, "jobMetadata", "allowCpu"}
    assert known == {field.alias for field in RoleTemplate.model_fields.values()}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("where", ["chief", "template"])
def test_every_field_reaches_the_pod(where: str, name: str) -> None:
    value, find = FIELDS[name]
    fields = {name: value}
    if name == "volumeMounts":
        fields["volumes"] = FIELDS["volumes"][0]
    own_script = {"program": None, "command": ["x"]} if name == "command" else {}
    assert find(pod(**{where: fields}, **own_script)) == value


def test_a_roles_own_wins_over_the_template() -> None:
    both = {
        "template": {
            "image": "t",
            "nodeSelector": {"a": "1", "b": "1"},
            "env": [{"name": "A", "value": "t"}],
        },
        "chief": {"image": "c", "nodeSelector": {"b": "2"}, "env": [{"name": "A", "value": "c"}]},
    }
    pod_spec = pod(**both)
    assert pod_spec["containers"][0]["image"] == "c"
    assert pod_spec["containers"][0]["env"][-1] == {"name": "A", "value": "c"}
    assert pod_spec["nodeSelector"] == {"a": "1", "b": "2"}


def test_a_roles_pod_template_takes_away_what_spec_template_and_the_launcher_gave() -> None:
    pod_spec = pod(
        template={"podTemplate": {"spec": {"runtimeClassName": "nvidia", "hostNetwork": True}}},
        chief={"podTemplate": {"spec": {"runtimeClassName": None, "enableServiceLinks": None}}},
    )
    assert pod_spec["hostNetwork"] is True
    assert "runtimeClassName" not in pod_spec
    assert "enableServiceLinks" not in pod_spec


def test_the_tasks_know_how_much_memory_the_evaluator_has() -> None:
    resources = {"chief": {"resources": {"memory": "8Gi"}}, "evaluator": {"resources": {"memory": "1500M"}}}
    with_limit = topology.build(cluster(**PARAMETER_SERVER, **resources, modelDir="/mnt/run"))
    assert pods.run_config(with_limit, "1").evaluator_memory == 1_500_000_000
    without = topology.build(cluster(**PARAMETER_SERVER, evaluator={}, modelDir="/mnt/run"))
    assert "evaluator_memory" not in pods.run_config(without, "1").to_json()


# ---- copies in memory

COPIES = {"name": "launcher-copies", "emptyDir": {"medium": "Memory"}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"chief"}),
        (PARAMETER_SERVER, {"chief", "ps"}),
        ({"strategy": "MultiWorkerMirrored", "worker": {"replicas": 2}}, {"worker"}),
        ({"evaluator": {}, "modelDir": "/model"}, {"chief"}),
        ({"program": None, "command": ["python", "train.py"]}, set()),
        ({"mode": "Predict", "modelDir": "/model"}, set()),
        ({"strategy": "Custom", "program": None, "command": ["train"], "worker": {"replicas": 2}}, set()),
    ],
)
def test_who_keeps_copies_of_the_training_in_memory(spec: Object, expected: set[str]) -> None:
    """They count towards the pod's own limit, so the volume has none."""
    keeping = set()
    for role, job in jobs(**spec).items():
        pod_spec = job["spec"]["template"]["spec"]
        (container,) = pod_spec["containers"]
        keeps_copies = {
            "name": "TF_LAUNCHER_COPIES_DIR",
            "value": "/var/run/tf-launcher-copies",
        } in container["env"]
        assert (COPIES in pod_spec["volumes"]) is keeps_copies
        keeping |= {role} if keeps_copies else set()
    assert keeping == expected


# ---- GPUs

SHM = {"name": "launcher-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}


@pytest.mark.parametrize(
    ("resources", "given"),
    [
        ({"nvidia.com/gpu": 1}, True),
        ({"nvidia.com/mig-1g.5gb": 1}, True),
        ({"amd.com/gpu": 8}, True),
        ({"gpu.intel.com/xe": 1}, True),
        ({"limits": {"nvidia.com/gpu": "2"}}, True),
        ({"nvidia.com/gpu": 0}, False),
        ({"google.com/tpu": 4}, False),
        ({"cpu": 1, "memory": "2Gi"}, False),
    ],
)
def test_shared_memory_comes_with_gpus(resources: Object, given: bool) -> None:
    pod_spec = pod(chief={"resources": resources})
    mounts = pod_spec["containers"][0]["volumeMounts"]
    assert (SHM in pod_spec["volumes"]) is given
    assert ({"name": "launcher-shm", "mountPath": "/dev/shm"} in mounts) is given


CLAIMED: Object = {
    "spec": {
        "resourceClaims": [{"name": "fast", "resourceClaimTemplateName": "two-gpus"}],
        "containers": [{"name": "tensorflow", "resources": {"claims": [{"name": "fast"}]}}],
    }
}


@pytest.mark.parametrize(
    ("template", "asked"),
    [
        (CLAIMED, "resourceClaim fast"),
        (
            {"spec": {"containers": [{"name": "tensorflow", "resources": {"limits": {"amd.com/gpu": 1}}}]}},
            "amd.com/gpu: 1",
        ),
        ({"spec": {"resourceClaims": [{"name": "of-another-container", "resourceClaimName": "a"}]}}, ""),
    ],
    ids=["claim", "limit", "claim of no container"],
)
def test_devices_of_a_pod_template_are_gpus(template: Object, asked: str) -> None:
    planned = topology.build(cluster(chief={"podTemplate": template}))
    assert planned.role("chief").gpus == asked
    assert (SHM in pod(chief={"podTemplate": template})["volumes"]) is bool(asked)


@pytest.mark.parametrize(
    ("role", "request_"),
    [
        ({"resources": {"cpu": "1500m"}}, {"chief": 1.5}),
        ({"resources": {"limits": {"cpu": 2}}}, {"chief": 2.0}),
        ({"resources": {"requests": {"cpu": 1}, "limits": {"cpu": 2}}}, {"chief": 1.0}),
        (
            {
                "podTemplate": {
                    "spec": {"containers": [{"name": "tensorflow", "resources": {"requests": {"cpu": "3"}}}]}
                }
            },
            {"chief": 3.0},
        ),
        ({"resources": {"memory": "2Gi"}}, {}),
    ],
)
def test_tasks_know_what_their_pod_requests_of_cpu(role: Object, request_: dict[str, float]) -> None:
    assert pods.run_config(topology.build(cluster(chief=role)), "id").cpu_requests == request_


@pytest.mark.parametrize("by_pod_template", [False, True])
def test_shared_memory_of_the_users_own(by_pod_template: bool) -> None:
    volumes = [{"name": "mine", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}]
    mounts = [{"name": "mine", "mountPath": "/dev/shm"}]
    chief: Object = {"resources": {"nvidia.com/gpu": 1}}
    if by_pod_template:
        containers = [{"name": "tensorflow", "volumeMounts": mounts}]
        chief["podTemplate"] = {"spec": {"volumes": volumes, "containers": containers}}
    else:
        chief |= {"volumes": volumes, "volumeMounts": mounts}
    pod_spec = pod(chief=chief)
    assert [v["name"] for v in pod_spec["volumes"]] == [
        "launcher-config",
        "launcher-task",
        "launcher-copies",
        "launcher-tmp",
        "mine",
    ]
    assert mounts[0] in pod_spec["containers"][0]["volumeMounts"]


def test_a_gpu_is_a_limit_and_nothing_stands_in_ncclss_way() -> None:
    names = ["NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NVIDIA_VISIBLE_DEVICES"]
    main_container = container(
        chief={
            "resources": {"cpu": 2, "nvidia.com/gpu": 1},
            "env": [{"name": name, "value": "x"} for name in names],
        }
    )
    assert main_container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert [each for each in main_container["env"] if each["name"] in names] == [
        {"name": name, "value": "x"} for name in names
    ]


# ---- sidecars

ISTIO, LINKERD = "sidecar.istio.io/inject", "linkerd.io/inject"


def test_no_sidecar_is_injected() -> None:
    for job in jobs(**PARAMETER_SERVER).values():
        metadata = job["spec"]["template"]["metadata"]
        assert metadata["labels"][ISTIO] == "false"
        assert metadata["annotations"] == {ISTIO: "false", LINKERD: "disabled"}
        # A Job has no pod into which a sidecar could be injected.
        assert ISTIO not in job["metadata"]["labels"]


@pytest.mark.parametrize(
    "spec",
    [
        {"metadata": {"annotations": {ISTIO: "true"}}},
        {"metadata": {"labels": {ISTIO: "true"}}},
        {"template": {"podTemplate": {"metadata": {"annotations": {ISTIO: "true"}}}}},
        {"chief": {"podTemplate": {"metadata": {"labels": {ISTIO: "true"}}}}},
    ],
)
def test_unless_the_user_wants_it(spec: Object) -> None:
    metadata = template(**spec)["metadata"]
    istio_values = [metadata[kind][ISTIO] for kind in ("labels", "annotations") if ISTIO in metadata[kind]]
    assert istio_values == ["true"]
    assert metadata["annotations"][LINKERD] == "disabled"


# ---- storage

ONE_NODE: Object = {**PARAMETER_SERVER, "modelDir": "/model", "evaluator": {}}


def terms(job: Object) -> list[Object]:
    affinity = job["spec"]["template"]["spec"].get("affinity", {}).get("podAffinity", {})
    affinity_terms: list[Object] = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    return affinity_terms


def matches(term: Object, labels: Object) -> bool:
    """Returns whether the term matches the labels, as in the scheduler, for the selectors that
    `storage.affinity` uses.
    """
    selector = term["labelSelector"]
    return all(labels.get(key) == value for key, value in selector["matchLabels"].items()) and all(
        each["operator"] == "In" and labels.get(each["key"]) in each["values"]
        for each in selector.get("matchExpressions", ())
    )


def test_a_claim_that_one_node_mounts_keeps_its_pods_together() -> None:
    made = jobs(**ONE_NODE)
    labels = {role: job["spec"]["template"]["metadata"]["labels"] for role, job in made.items()}
    for role in ("chief", "evaluator"):
        (term,) = terms(made[role])
        assert term["topologyKey"] == "kubernetes.io/hostname"
        # The term must match the pod's own labels: otherwise the first pod would wait for another for ever.
        assert {other for other in made if matches(term, labels[other])} == {"chief", "evaluator"}
        assert not matches(term, {**labels[role], NODE_LABEL: "other"})
    assert terms(made["worker"]) == terms(made["ps"]) == []


@pytest.mark.parametrize(
    "spec",
    [
        {**ONE_NODE, "storage": {"accessModes": ["ReadWriteMany"]}},
        {**ONE_NODE, "storage": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}},
        {**ONE_NODE, "modelDir": "gs://bucket/run"},
        {**ONE_NODE, "evaluator": None},
        {**ONE_NODE, "evaluator": None, "modelDir": None},
        {
            **ONE_NODE,
            "template": {
                "volumes": [{"name": "m", "persistentVolumeClaim": {"claimName": "m"}}],
                "volumeMounts": [{"name": "m", "mountPath": "/model"}],
            },
        },
    ],
    ids=["many", "both", "url", "one pod", "no directory", "own claim"],
)
def test_and_no_other_does(spec: Object) -> None:
    assert not any(terms(job) for job in jobs(**spec).values())
    assert [notice for notice in notices(cluster(**spec)) if "one node" in notice] == []


def test_a_program_without_a_model_directory_keeps_nothing_and_says_so() -> None:
    (notice,) = notices(cluster())
    assert notice.startswith("spec.modelDir: not given, so the run keeps no model")
    assert notices(cluster(), local=True) == [notice]


@pytest.mark.parametrize(
    "spec",
    [{"modelDir": "/model"}, {"program": None, "command": ["python", "x.py"]}],
    ids=["a directory", "a script, which keeps what it likes"],
)
def test_and_no_other_says_so(spec: Object) -> None:
    assert [notice for notice in notices(cluster(**spec), local=True) if "modelDir" in notice] == []


SCRIPT = {"strategy": "OneDevice", "program": None, "command": ["python", "x.py"], "worker": None, "ps": None}


def test_a_command_that_is_tried_again_after_any_error_says_so() -> None:
    (notice,) = notices(cluster(**SCRIPT), local=True)
    assert notice.startswith("chief: its command is retried after a Python error (exit code 1), too")


@pytest.mark.parametrize(
    "spec",
    [
        {**SCRIPT, "runPolicy": {"backoffLimit": 0}},
        {**SCRIPT, "command": None, "args": ["--", "x.py"]},
    ],
    ids=["tried once", "by the runtime"],
)
def test_and_others_do_not(spec: Object) -> None:
    assert notices(cluster(**spec), local=True) == []


def test_a_script_is_told_where_to_write_and_its_parameters() -> None:
    program = {"source": "x.py", "keras": 2, "parameters": {"dataDir": "/data", "rate": 0.1}}
    template = {"env": [{"name": "DATA_DIR", "value": "mine"}]}
    spec = {**SCRIPT, "program": program, "modelDir": "/model", "template": template}
    (job,) = jobs(**spec).values()
    variables = job["spec"]["template"]["spec"]["containers"][0]["env"]
    values = {variable["name"]: variable.get("value") for variable in variables}
    assert values["MODEL_DIR"] == "/model"
    assert json.loads(values["TF_LAUNCHER_PARAMETERS"]) == {"dataDir": "/data", "rate": 0.1}
    assert values["TF_USE_LEGACY_KERAS"] == "1"
    assert [each["value"] for each in variables if each["name"] == "DATA_DIR"] == ["mine"]


def test_a_program_is_told_where_to_write_and_its_evaluators_script_the_parameters_too() -> None:
    evaluator = {"args": ["--", "judge.py"]}
    given = jobs(modelDir="/model", evaluator=evaluator)
    variables_by_role = {
        role: {
            each["name"]: each.get("value")
            for each in job["spec"]["template"]["spec"]["containers"][0]["env"]
        }
        for role, job in given.items()
    }
    assert {role for role, values in variables_by_role.items() if values.get("MODEL_DIR") == "/model"} == {
        "chief",
        "evaluator",
    }
    assert "TF_LAUNCHER_PARAMETERS" in variables_by_role["evaluator"]
    assert "TF_LAUNCHER_PARAMETERS" not in variables_by_role["chief"]


def test_a_collectives_workers_all_restore_for_themselves() -> None:
    spec = {"strategy": "MultiWorkerMirrored", "worker": {"replicas": 4}, "modelDir": "/model"}
    assert terms(jobs(**spec)["worker"])
    (notice,) = notices(cluster(**spec))
    assert "the 4 pods of worker are placed on one node" in notice
    assert notices(cluster(**spec), local=True) == []


def test_the_users_own_affinity_stays() -> None:
    user_affinity = {
        "nodeAffinity": PREFERS,
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "rack"}}
            ],
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}],
        },
    }
    made = jobs(**ONE_NODE, template={"affinity": user_affinity})
    assert made["worker"]["spec"]["template"]["spec"]["affinity"] == user_affinity
    affinity = made["chief"]["spec"]["template"]["spec"]["affinity"]
    assert affinity["nodeAffinity"] == user_affinity["nodeAffinity"]
    assert [term["topologyKey"] for term in terms(made["chief"])] == ["zone", "kubernetes.io/hostname"]


def test_a_claim_of_the_users_takes_the_place_of_the_one_made() -> None:
    """It may be mounted in any role, and at any path above modelDir."""
    volume = {"name": "m", "persistentVolumeClaim": {"claimName": "team-models"}}
    mounts = [{"name": "m", "mountPath": "/models"}]
    whole = {"volumes": [volume], "volumeMounts": mounts}
    patch = {"spec": {"volumes": [volume], "containers": [{"name": "tensorflow", "volumeMounts": mounts}]}}
    for fields in (whole, {"podTemplate": patch}):
        built = topology.build(cluster(**{**ONE_NODE, "modelDir": "/models/run"}, template=fields))
        objects = rendering.render(built)
        assert "PersistentVolumeClaim" not in {item["kind"] for item in objects}
        chief = objects[0]["spec"]["template"]["spec"]
        assert "launcher-model" not in {volume["name"] for volume in chief["volumes"]}
        assert mounts[0] in chief["containers"][0]["volumeMounts"]


def test_one_directory_by_two_ways_is_one() -> None:
    volumes = [{"name": "m", "persistentVolumeClaim": {"claimName": "m"}}]
    above = {"volumes": volumes, "volumeMounts": [{"name": "m", "mountPath": "/models"}]}
    deep = {"volumes": volumes, "volumeMounts": [{"name": "m", "mountPath": "/models/a", "subPath": "a"}]}
    other = {"volumes": volumes, "volumeMounts": [{"name": "m", "mountPath": "/models/a", "subPath": "b"}]}
    cluster(chief=above, evaluator=deep, modelDir="/models/a/run")
    with pytest.raises(SpecError, match="not the same volume"):
        cluster(chief=above, evaluator=other, modelDir="/models/a/run")


def test_an_image_of_the_users_may_open_what_ours_cannot() -> None:
    (notice,) = notices(cluster(image="example.com/hdfs:1", modelDir="hdfs://host/run"))
    assert "hdfs:// needs a library in the image of the chief" in notice
    assert notices(cluster(image="example.com/any:1", modelDir="s3://bucket/run")) == []
    assert notices(cluster(modelDir="gs://bucket/run")) == []


# ---- ends


def test_who_takes_the_run_along() -> None:
    made = jobs(**PARAMETER_SERVER, runPolicy={"backoffLimit": 2})
    # By index, roles of one task too: only so does Kubernetes count the pods that were deleted.
    assert {role: job["spec"]["backoffLimitPerIndex"] for role, job in made.items()} == dict.fromkeys(made, 2)
    assert not any("backoffLimit" in job["spec"] for job in made.values())
    limits = {role: job["spec"].get("maxFailedIndexes") for role, job in made.items()}
    assert limits == {"chief": 0, "worker": None, "ps": 0}
    workers = jobs(strategy="MultiWorkerMirrored", worker={"replicas": 3})["worker"]
    assert workers["spec"]["maxFailedIndexes"] == 0


@pytest.mark.parametrize(
    ("spec", "role", "action"),
    [
        (PARAMETER_SERVER, "chief", "FailJob"),
        (PARAMETER_SERVER, "ps", "FailJob"),
        # The other workers train on.
        (PARAMETER_SERVER, "worker", "FailIndex"),
        ({"strategy": "MultiWorkerMirrored", "worker": {"replicas": 3}}, "worker", "FailJob"),
    ],
)
def test_a_wrong_program_ends_its_job_or_its_index(spec: Object, role: str, action: str) -> None:
    disruption, termination, wrong = jobs(**spec)[role]["spec"]["podFailurePolicy"]["rules"]
    assert (disruption["action"], disruption["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert (termination["action"], termination["onExitCodes"]["values"]) == ("Ignore", [143])
    assert (wrong["action"], wrong["onExitCodes"]["values"]) == (action, [70])


def test_only_the_primary_has_a_deadline_and_a_time_to_live() -> None:
    policy = {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 5}
    for role, job in jobs(**PARAMETER_SERVER, runPolicy=policy).items():
        job_policy = {name: value for name, value in job["spec"].items() if name in policy}
        assert job_policy == (policy if role == "chief" else {})
        assert job["spec"]["podReplacementPolicy"] == "Failed"


# ---- which run it is


def run_id(source: ProgramFiles | None = None, given: str = "", **spec: Any) -> str:
    objects = rendering.render(topology.build(cluster(**spec)), source, given)
    config = next(item for item in objects if item["metadata"]["name"] == "run-config")
    return RunConfig.from_json(config["data"]["run.json"]).run_id


def test_the_tasks_know_how_long_their_pods_may_take_to_leave() -> None:
    longer = {"podTemplate": {"spec": {"terminationGracePeriodSeconds": 120}}}
    made = topology.build(cluster(**PARAMETER_SERVER, chief=longer))
    objects = rendering.render(made)
    (config,) = (item for item in objects if "run.json" in item.get("data", {}))
    assert RunConfig.from_json(config["data"]["run.json"]).grace_seconds == {"chief": 120}


def test_the_same_file_is_the_same_run_and_a_change_another() -> None:
    source = ProgramFiles({"a.py": b"x", "b.py": b"y"})
    first = run_id(source)
    assert first
    assert first == run_id(source)
    assert first == run_id(source, runPolicy={"suspend": True})
    others = {
        run_id(ProgramFiles({"a.py": b"xb.py", "": b"y"})),
        run_id(ProgramFiles({"a.py": b"x", "b.py": b"z"})),
        run_id(),
        run_id(source, program={"entrypoint": "a:B", "parameters": {"epochs": 2}}),
        run_id(source, image="example.com/a:2"),
        run_id(source, metadata={"annotations": {"example.com/again": "1"}}),
    }
    assert len(others | {first}) == 7
    assert run_id(source, "given") == "given"


@pytest.mark.parametrize(
    ("spec", "chief", "worker"),
    [
        ({"program": {"entrypoint": "a:B"}}, [], []),
        ({"chief": {"command": ["python", "a.py"]}}, ["use_caller"], []),
        ({"command": ["python", "a.py"]}, ["use_caller"], ["use_caller"]),
        ({"command": ["python", "-m", "worker", "--", "a.py"]}, [], []),
        ({"command": ["./a"], "template": {"env": [FAIL_FAST]}}, ["false"], ["false"]),
        (
            {
                "command": ["./a"],
                "chief": {
                    "podTemplate": {"spec": {"containers": [{"name": "tensorflow", "env": [FAIL_FAST]}]}}
                },
            },
            ["false"],
            ["use_caller"],
        ),
        ({"strategy": "Custom", "ps": None, "chief": {}, "command": ["./a"]}, [], []),
    ],
)
def test_a_command_has_the_runtimes_grpc_settings_unless_it_says_otherwise(
    spec: Object, chief: list[str], worker: list[str]
) -> None:
    """The runtime sets them itself. An image with its own command may have no TensorFlow."""
    made = jobs(**{**PARAMETER_SERVER, "program": None, **spec})
    for role, expected in {"chief": chief, "worker": worker}.items():
        (container,) = made[role]["spec"]["template"]["spec"]["containers"]
        assert [
            entry["value"] for entry in container["env"] if entry["name"] == FAIL_FAST["name"]
        ] == expected


def test_large_blocks_lie_in_huge_pages_unless_the_file_sets_the_variable() -> None:
    theirs = {"name": "GLIBC_TUNABLES", "value": "glibc.malloc.arena_max=2"}
    spec = {**PARAMETER_SERVER, "chief": {"env": [theirs]}}
    custom = jobs(strategy="Custom", program=None, chief={"command": ["./a"]})
    made = jobs(**spec) | {"custom": custom["chief"]}
    values = {}
    for role, job in made.items():
        (container,) = job["spec"]["template"]["spec"]["containers"]
        values[role] = [each["value"] for each in container["env"] if each["name"] == theirs["name"]]
    huge = ["glibc.malloc.hugetlb=1"]
    assert values == {"chief": [theirs["value"]], "worker": huge, "ps": huge, "custom": []}
