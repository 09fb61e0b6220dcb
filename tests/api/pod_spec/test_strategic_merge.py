"""A podTemplate is merged as a real API server merges a strategic merge patch into a pod template."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from urllib3.exceptions import HTTPError

from launcher.pod_spec.strategic_merge import MERGE_KEYS, SETS, check, strategic_merge
from tests.api.plain_requests import Api, Response

Object = dict[str, Any]
COLLECTION = "api/v1/namespaces/default/podtemplates"
SCHEMAS = "openapi/v3/api/v1"
BASE: Object = {
    "metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"note": "x"}},
    "spec": {
        "containers": [
            {
                "name": "tensorflow",
                "image": "example.com/a:1",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 2222, "name": "tensorflow"}],
                "volumeMounts": [{"mountPath": "/tmp", "name": "tmp"}],
                "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
                "securityContext": {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "data", "configMap": {"name": "data"}}],
        "securityContext": {"runAsUser": 1, "runAsGroup": 2},
        "imagePullSecrets": [{"name": "a"}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
        "topologySpreadConstraints": [
            {
                "topologyKey": "zone",
                "maxSkew": 1,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"a": "1"}},
            }
        ],
    },
}
LISTED: list[Object] = [
    {"spec": {"containers": [{"name": "logs", "image": "example.com/b:1"}]}},
    {"spec": {"containers": [{"name": "tensorflow", "env": [{"name": "A", "$patch": "delete"}]}]}},
    {"spec": {"containers": [{"name": "tensorflow", "env": [{"name": "A", "value": None}]}]}},
    {"spec": {"containers": [{"$patch": "replace"}, {"name": "x", "image": "example.com/x:1"}]}},
    {"spec": {"containers": [{"name": "tensorflow", "ports": [{"containerPort": 2222, "protocol": "UDP"}]}]}},
    {"spec": {"volumes": [{"name": "tmp", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}},
    {"spec": {"volumes": [{"name": "tmp", "hostPath": {"path": "/x"}}]}},
    {"spec": {"securityContext": {"$patch": "replace", "fsGroup": 3}}},
    {"spec": {"securityContext": None}},
    {"spec": {"tolerations": [{"key": "b", "operator": "Exists"}]}},
    {
        "spec": {
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["b"]}, {"ip": "10.0.0.2", "hostnames": ["c"]}]
        }
    },
    {
        "spec": {
            "topologySpreadConstraints": [
                {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": None},
                {"topologyKey": "host", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"},
            ]
        }
    },
    {"spec": {"initContainers": [{"name": "x", "image": "example.com/x:1", "env": [{"name": "A"}]}]}},
    {"metadata": {"finalizers": ["example.com/b", "example.com/a"], "labels": {"a": None, "c": "3"}}},
]

WORD = st.sampled_from(["a", "b", "c"])
OPTIONAL = st.none() | WORD


def plain(key: str, values: Any, other: dict[str, st.SearchStrategy[Any]]) -> Any:
    """Lists of entries, each identified by its own key."""
    entry = st.fixed_dictionaries({key: values}, optional=other)
    return st.lists(entry, max_size=3, unique_by=lambda entry: entry[key])


def entries(key: str, values: Any, other: dict[str, st.SearchStrategy[Any]]) -> Any:
    """The same, with directives to delete some entries or to replace all.

    It is only for lists that are in BASE: in a new value, the server takes a directive for a field.
    """
    entry = st.fixed_dictionaries({key: values}, optional=other)
    deleted = st.fixed_dictionaries({key: values, "$patch": st.just("delete")})
    lists = st.lists(entry | deleted, max_size=3, unique_by=lambda entry: entry[key])
    return st.builds(lambda given, replace: given + [{"$patch": "replace"}] * replace, lists, st.booleans())


def container(lists: Any) -> dict[str, st.SearchStrategy[Any]]:
    # In a new value, the server takes a null for the quantity 0.
    amount = st.just("2") if lists is plain else st.none() | st.just("2")
    limits = st.dictionaries(st.sampled_from(["cpu", "memory"]), amount)
    return {
        "image": st.sampled_from(["example.com/a:1", "example.com/c:1"]),
        "env": lists("name", st.sampled_from(["A", "B", "C"]), {"value": OPTIONAL}),
        "ports": lists(
            "containerPort", st.sampled_from([2222, 80]), {"protocol": st.sampled_from(["TCP", "UDP"])}
        ),
        "args": st.lists(WORD, max_size=2),
        "resources": st.fixed_dictionaries({}, optional={"limits": limits}),
    }


CHANGED = st.fixed_dictionaries({"name": st.just("tensorflow")}, optional=container(entries))
ADDED = st.fixed_dictionaries({"name": st.just("logs")}, optional=container(plain))
CONTAINERS = (
    st.tuples(CHANGED).map(list)
    | st.tuples(ADDED, CHANGED).map(list)
    | entries("name", st.sampled_from(["tensorflow", "logs"]), container(plain))
)
PATCHES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {}, optional={name: st.dictionaries(WORD, OPTIONAL) for name in ("labels", "annotations")}
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": CONTAINERS,
                "volumes": entries(
                    "name",
                    st.sampled_from(["tmp", "data", "new"]),
                    {"emptyDir": st.none() | st.just({}), "hostPath": st.none() | st.just({"path": "/x"})},
                ),
                "imagePullSecrets": entries("name", WORD, {}),
                "securityContext": st.none()
                | st.fixed_dictionaries(
                    {},
                    optional={
                        "runAsUser": st.none() | st.just(7),
                        "runAsNonRoot": st.booleans(),
                        "$patch": st.sampled_from(["replace", "delete"]),
                    },
                ),
                "tolerations": st.lists(
                    st.fixed_dictionaries({"key": WORD, "operator": st.just("Exists")}), max_size=2
                ),
                "nodeSelector": st.dictionaries(WORD, OPTIONAL),
            },
        ),
    },
)


@pytest.fixture(scope="module")
def stored(api: Api) -> Iterator[Object]:
    """A PodTemplate as the server stores it, with its defaults."""
    item = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "merging"}, "template": BASE}
    made = api.request("POST", COLLECTION, item)
    assert made.status == 201, made.body
    yield made.body
    api.request("DELETE", f"{COLLECTION}/merging")


def in_order(value: Any, name: str = "") -> Any:
    """Sorts lists of identified entries, because the place of a new entry does not matter."""
    if isinstance(value, dict):
        return {key: in_order(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        inner = [in_order(each) for each in value]
        return sorted(inner, key=json.dumps) if name in MERGE_KEYS or name in SETS else inner
    return value


def settled(send: Callable[[], Response]) -> Response:
    """Returns the server's answer to the request. A busy server may first answer that it cannot
    answer now.
    """
    for _ in range(20):
        with suppress(HTTPError):
            answer = send()
            if answer.status < 500 and answer.status != 429:
                return answer
        time.sleep(0.5)
    return send()


def same(api: Api, stored: Object, patch: Object) -> None:
    assert list(check(patch)) == []
    path = f"{COLLECTION}/merging"
    whole = {**stored, "template": strategic_merge(stored["template"], patch)}
    kind = "application/strategic-merge-patch+json"
    theirs = settled(lambda: api.patch(path, {"template": patch}, kind, dryRun="All"))
    ours = settled(lambda: api.request("PUT", path, whole, dryRun="All"))
    assert theirs.status == ours.status, (theirs.body, ours.body)
    if theirs.status == 200:
        assert in_order(ours.body["template"]) == in_order(theirs.body["template"])
    else:
        assert theirs.status == 422, theirs.body


def test_the_keys_are_those_of_the_server(api: Api) -> None:
    schemas = api.request("GET", SCHEMAS).body["components"]["schemas"]
    keys: dict[str, str | None] = {}
    seen = set()

    def visit(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        for field, schema in schemas[name].get("properties", {}).items():
            if "merge" in schema.get("x-kubernetes-patch-strategy", ""):
                keys[field] = schema.get("x-kubernetes-patch-merge-key")
            for reference in json.dumps(schema).split('"#/components/schemas/')[1:]:
                visit(reference.partition('"')[0])

    visit("io.k8s.api.core.v1.PodTemplateSpec")
    assert {name: key for name, key in keys.items() if key is not None} == MERGE_KEYS
    assert {name for name, key in keys.items() if key is None} == SETS


@pytest.mark.parametrize("patch", LISTED, ids=json.dumps)
def test_listed(api: Api, stored: Object, patch: Object) -> None:
    same(api, stored, patch)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PATCHES)
def test_any(api: Api, stored: Object, patch: Object) -> None:
    same(api, stored, patch)
