"""The Deployment of a run's TensorBoard, and who reaches it. The golden files have all of it."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.object_names import NODE_LABEL, ROLE_LABEL, RUN_LABEL
from launcher.plan import rendering, topology
from launcher.plan.tensorboard import selector
from launcher.validation import loader

Object = dict[str, Any]
SPEC: Object = {
    "strategy": "Mirrored",
    "program": {"entrypoint": "a:B"},
    "modelDir": "/model",
    "tensorboard": {},
}


def objects(metadata: Object | None = None, **spec: Any) -> dict[tuple[str, str], Object]:
    """Returns the objects by kind and name."""
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "run", **(metadata or {})},
        "spec": {**SPEC, **spec},
    }
    rendered = rendering.render(topology.build(loader.check(document).cluster))
    return {(item["kind"], item["metadata"]["name"]): item for item in rendered}


def board(**spec: Any) -> Any:
    """Returns the spec of the pod template."""
    return objects(**spec)["Deployment", "run-tensorboard"]["spec"]["template"]["spec"]


def test_there_is_none_unless_it_is_asked_for() -> None:
    assert {kind for kind, _ in objects(tensorboard=None)}.isdisjoint({"Deployment"})
    names = [name for kind, name in objects() if name.endswith("tensorboard")]
    assert names == ["run-tensorboard"] * 3


def test_its_pod_is_none_of_the_runs_own() -> None:
    """The run's own pods reach each other's TensorFlow servers; no label of the user's makes TensorBoard's
    pod one.
    """
    made = objects(metadata={"labels": {RUN_LABEL: "run", ROLE_LABEL: "chief", "team": "vision"}})
    labels = made["Deployment", "run-tensorboard"]["spec"]["template"]["metadata"]["labels"]
    assert not {RUN_LABEL, ROLE_LABEL} & labels.keys()
    assert labels["team"] == "vision"
    admits = made["NetworkPolicy", "run"]["spec"]
    assert admits["ingress"] == [{"from": [{"podSelector": {"matchLabels": {RUN_LABEL: "run"}}}]}]
    assert made["Service", "run"]["spec"]["selector"] == {RUN_LABEL: "run"}


def test_nobody_in_the_cluster_reaches_it() -> None:
    made = objects()
    policy = made["NetworkPolicy", "run-tensorboard"]["spec"]
    labels = made["Deployment", "run-tensorboard"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert (policy["policyTypes"], policy["ingress"]) == (["Ingress"], [])
    assert made["Service", "run-tensorboard"]["spec"]["selector"].items() <= labels.items()
    for job in (item for (kind, _), item in made.items() if kind == "Job"):
        assert not selector("run").items() <= job["spec"]["template"]["metadata"]["labels"].items()


def test_it_reads_the_model_directory_and_nothing_else() -> None:
    secret = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}}
    chief_fields = {
        "env": [secret],
        "serviceAccountName": "trainer",
        "volumes": [
            {"name": "m", "hostPath": {"path": "/srv"}},
            {"name": "d", "hostPath": {"path": "/data"}},
        ],
        "volumeMounts": [{"name": "m", "mountPath": "/model"}, {"name": "d", "mountPath": "/data"}],
    }
    pod = board(chief=chief_fields)
    (container,) = pod["containers"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/model", "/tmp"]
    assert container["volumeMounts"][0]["readOnly"] is True
    assert [volume["name"] for volume in pod["volumes"]] == ["m", "launcher-tmp"]
    assert "env" not in container
    assert "serviceAccountName" not in pod


def test_what_opens_a_url_is_its_too() -> None:
    chief_fields = {"env": [{"name": "TOKEN", "value": "a$b"}], "serviceAccountName": "trainer"}
    pod = board(modelDir="gs://bucket/$(x)", chief=chief_fields)
    (container,) = pod["containers"]
    assert container["env"] == [{"name": "TOKEN", "value": "a$$b"}]
    assert pod["serviceAccountName"] == "trainer"
    assert "--logdir=gs://bucket/$$(x)" in container["command"]


def test_it_takes_no_gpu_of_the_roles() -> None:
    claims = {
        "resourceClaims": [{"name": "fast", "resourceClaimTemplateName": "two-gpus"}],
        "containers": [{"name": "tensorflow", "resources": {"claims": [{"name": "fast"}]}}],
    }
    gpus = {
        "resources": {"nvidia.com/gpu": 8},
        "nodeSelector": {"pool": "gpus"},
        "podTemplate": {"spec": claims},
    }
    pod = board(chief=gpus, template=gpus, storage={"accessModes": ["ReadWriteMany"]})
    (container,) = pod["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "100m", "memory": "1Gi"},
        "limits": {"memory": "1Gi"},
    }
    assert "nodeSelector" not in pod
    assert "affinity" not in pod


def test_it_shares_the_node_of_a_claim_and_is_not_the_first_there() -> None:
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    made = objects(chief={"tolerations": tolerations}, tensorboard={"tolerations": [{"key": "x"}]})
    template = made["Deployment", "run-tensorboard"]["spec"]["template"]
    labels = template["metadata"]["labels"]
    (its,) = terms(template)
    (chiefs,) = terms(made["Job", "run-chief"]["spec"]["template"])
    assert its["matchLabels"] == {RUN_LABEL: "run"}
    assert not its["matchLabels"].items() <= labels.items()
    assert chiefs["matchLabels"] == {NODE_LABEL: "run"}
    assert chiefs["matchLabels"].items() <= labels.items()
    assert template["spec"]["tolerations"] == [*tolerations, {"key": "x"}]


def terms(template: Object) -> list[Object]:
    affinity = template["spec"]["affinity"]["podAffinity"]
    return [term["labelSelector"] for term in affinity["requiredDuringSchedulingIgnoredDuringExecution"]]


@pytest.mark.parametrize(
    ("spec", "image"),
    [
        ({}, "tf-launcher-worker:dev"),
        ({"image": "a:1"}, "a:1"),
        ({"image": "a:1", "chief": {"image": "b:1"}}, "b:1"),
        ({"image": "a:1", "tensorboard": {"image": "c:1"}}, "c:1"),
    ],
)
def test_its_image(spec: Object, image: str) -> None:
    assert board(**spec)["containers"][0]["image"] == image


def test_a_command_is_not_its() -> None:
    command = {"command": ["python", "x.py"], "args": ["-v"], "program": None}
    (container,) = board(**command)["containers"]
    assert container["command"][:3] == ["python3", "-m", "tensorboard.main"]
    assert "args" not in container
