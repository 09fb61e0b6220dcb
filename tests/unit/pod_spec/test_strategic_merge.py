"""A podTemplate is merged by Kubernetes' rules. tests/api/pod_spec/test_strategic_merge.py compares with an
API server.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from launcher.pod_spec.strategic_merge import check, strategic_merge

POD: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}, "finalizers": ["example.com/a"]},
    "spec": {
        "containers": [
            {
                "name": "tensorflow",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"x": "y"}}}],
                "ports": [{"containerPort": 2222, "name": "tensorflow"}],
                "volumeMounts": [{"mountPath": "/tmp", "name": "tmp"}],
            }
        ],
        "tolerations": [{"key": "a"}],
        "securityContext": {"runAsUser": 1, "runAsGroup": 2},
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    },
}


def spec(patch: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = strategic_merge(POD, {"spec": patch})["spec"]
    return merged


def container(patch: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = spec({"containers": [{"name": "tensorflow", **patch}]})["containers"][0]
    return merged


def test_neither_is_changed() -> None:
    before = copy.deepcopy(POD)
    patch = {"spec": {"containers": [{"name": "tensorflow", "env": [{"name": "A", "value": "2"}]}]}}
    strategic_merge(POD, patch)
    assert before == POD
    assert patch == {"spec": {"containers": [{"name": "tensorflow", "env": [{"name": "A", "value": "2"}]}]}}


def test_what_is_added_to_a_list_comes_last() -> None:
    env = container({"env": [{"name": "C", "value": "$(A)"}, {"name": "A", "value": "2"}]})["env"]
    assert [(each["name"], each.get("value")) for each in env] == [("A", "2"), ("B", None), ("C", "$(A)")]
    names = [each["name"] for each in spec({"containers": [{"name": "logs", "image": "x"}]})["containers"]]
    assert names == ["tensorflow", "logs"]


def test_a_list_without_a_key_is_replaced() -> None:
    assert spec({"tolerations": [{"key": "b"}]})["tolerations"] == [{"key": "b"}]


def test_one_port_for_two_protocols_is_one_entry() -> None:
    """`kubectl patch` does the same: its key for ports is only the number."""
    ports = container({"ports": [{"containerPort": 2222, "protocol": "UDP"}]})["ports"]
    assert ports == [{"containerPort": 2222, "name": "tensorflow", "protocol": "UDP"}]


def test_null_removes() -> None:
    assert spec({"securityContext": {"runAsGroup": None}})["securityContext"] == {"runAsUser": 1}
    assert "volumes" not in spec({"volumes": None})
    assert spec({"affinity": {"nodeAffinity": None}})["affinity"] == {}


def test_directives() -> None:
    assert [each["name"] for each in container({"env": [{"name": "A", "$patch": "delete"}]})["env"]] == ["B"]
    replaced = [{"$patch": "replace"}, {"name": "C", "value": "3"}]
    assert container({"env": replaced})["env"] == [{"name": "C", "value": "3"}]
    user = {"$patch": "replace", "runAsUser": 3}
    assert spec({"securityContext": user})["securityContext"] == {"runAsUser": 3}
    kept = {"name": "tmp", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}
    assert spec({"volumes": [kept]})["volumes"] == [{"name": "tmp", "hostPath": {"path": "/x"}}]


def test_a_set_is_united() -> None:
    patch = {"metadata": {"finalizers": ["example.com/b", "example.com/a"]}}
    assert strategic_merge(POD, patch)["metadata"]["finalizers"] == ["example.com/a", "example.com/b"]


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {"env": "production", "ports": "x", "volumes": "y"}}},
        {"spec": {"nodeSelector": {"containers": "none"}}},
        {"spec": {"containers": [{"name": "tensorflow", "resources": {"limits": {"env": 1}}}]}},
    ],
)
def test_a_label_may_be_called_as_a_list_is(patch: dict[str, Any]) -> None:
    assert list(check(patch)) == []
    assert strategic_merge({}, patch) == patch


@pytest.mark.parametrize(
    ("patch", "path", "expected"),
    [
        ({"containers": {"name": "x"}}, ("containers",), "expected a list"),
        ({"containers": ["x"]}, ("containers", 0), "expected a mapping with name"),
        ({"containers": [{}]}, ("containers", 0), "by which it is known"),
        ({"containers": [{"name": "x", "env": [{}]}]}, ("containers", 0, "env", 0), "by which it is known"),
        (
            {"containers": [{"name": "x", "$patch": "merge"}]},
            ("containers", 0, "$patch"),
            "replace or delete",
        ),
        ({"affinity": {"$patch": None, "$other": 1}}, ("affinity", "$other"), "unknown directive"),
        ({"tolerations": [{"$patch": "x"}]}, ("tolerations", 0, "$patch"), "expected replace or delete"),
        ({"volumes": [{"name": "x", "$retainKeys": 1}]}, ("volumes", 0, "$retainKeys"), "expected a list"),
        ({"finalizers": [{}]}, ("finalizers", 0), "expected a string"),
    ],
)
def test_what_cannot_be_merged_is_told(
    patch: dict[str, Any], path: tuple[str | int, ...], expected: str
) -> None:
    ((where, message),) = check(patch)
    assert where == path
    assert expected in message
