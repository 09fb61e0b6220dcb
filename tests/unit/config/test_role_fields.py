"""The declaration of a role's fields, and that everyone goes by it."""

from __future__ import annotations

from typing import Any

import pytest

from launcher import api
from launcher.backends.local import preflight
from launcher.config.role_fields import Holder, rules
from launcher.config.spec import RoleTemplate
from launcher.pod_spec.pod_fields import types
from launcher.tfjob import templates
from launcher.validation import loader

IN_KUBERNETES: list[tuple[Holder, str]] = [("pod", "PodSpec"), ("container", "Container")]


def test_every_field_is_declared_and_in_kubernetes() -> None:
    assert {field.name for field in rules(RoleTemplate)} == RoleTemplate.model_fields.keys()
    for at, kind in IN_KUBERNETES:
        assert {field.alias for field in rules(RoleTemplate, at)} <= types()[kind].keys()


def test_a_tfjobs_pod_template_gives_every_field() -> None:
    pod: dict[str, Any] = {
        "runtimeClassName": "nvidia",
        "serviceAccountName": "trainer",
        "containers": [{"name": "tensorflow", "image": "a:1"}],
    }
    lifted = templates.lift({"spec": pod}, {})
    fields = {name: lifted.fields[name] for name in ("image", "serviceAccountName", "runtimeClassName")}
    assert fields == {"image": "a:1", "serviceAccountName": "trainer", "runtimeClassName": "nvidia"}
    assert lifted.origins["runtimeClassName",] == ("spec", "runtimeClassName")


def test_this_machine_names_what_it_ignores() -> None:
    pod, container = preflight.ignored("pod"), preflight.ignored("container")
    assert {"runtimeClassName", "priorityClassName", "schedulerName", "hostNetwork"} <= {*pod}
    assert container[:2] == ["image", "resources"]
    assert not {"env", "volumes", "command"} & {*pod, *container}
    assert len({*pod}) == len(pod)


@pytest.mark.parametrize(
    ("template", "role", "merged"),
    [
        ({}, {"runtimeClassName": "gvisor"}, "gvisor"),
        ({"runtimeClassName": "nvidia"}, {}, "nvidia"),
        ({"runtimeClassName": "nvidia"}, {"runtimeClassName": "gvisor"}, "gvisor"),
    ],
)
def test_a_runtime_class(template: dict[str, Any], role: dict[str, Any], merged: str) -> None:
    file = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "mnist"},
        "spec": {
            "strategy": "Mirrored",
            "program": {"entrypoint": "mnist:Mnist"},
            "modelDir": "/model",
            "template": template,
            "chief": role,
            "tensorboard": {},
        },
    }
    pods = {
        item["kind"]: item["spec"]["template"]["spec"]
        for item in api.render(loader.check(file).cluster)
        if item["kind"] in ("Job", "Deployment")
    }
    assert pods["Job"]["runtimeClassName"] == merged
    assert "runtimeClassName" not in pods["Deployment"]  # TensorBoard computes nothing
