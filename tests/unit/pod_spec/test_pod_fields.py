"""The fields of a pod are those of Kubernetes' OpenAPI, and values that an API server refuses are refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
from kubernetes import client

from launcher.pod_spec import pod_fields

LEAVES = {"Quantity": "quantity", "IntOrString": "intstr", "Time": "str", "FieldsV1": "object"}


def definitions() -> dict[str, Any]:
    """Returns the definitions of the newest Kubernetes, by the last part of their names."""
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    version = kubernetes_validate.latest_version()
    text = (folder / f"v{version}-local-strict" / "_definitions.json").read_text()
    whole = json.loads(text)["$defs"]
    kept = {name: value for name, value in whole.items() if re.search(r"\.(core|meta)\.v1\.\w+$", name)}
    return {name.rpartition(".")[2]: value for name, value in kept.items()}


def kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition(".")[2]
        return LEAVES.get(name, name)
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    (only,) = set(types) - {"null"}
    if only == "array":
        return f"List[{kind(schema['items'])}]"
    if only == "object":
        inner = schema.get("additionalProperties")
        return f"Dict[str, {kind(inner)}]" if isinstance(inner, dict) else "object"
    named = {"string": "str", "boolean": "bool", "number": "float", "integer": schema.get("format")}
    return str(named[only])


def expected(root: str) -> dict[str, dict[str, str]]:
    """Returns every type that the root contains."""
    every = definitions()
    types_by_name: dict[str, dict[str, str]] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name in types_by_name or name not in every:
            continue
        required = every[name].get("required", ())
        properties = every[name].get("properties", {})
        types_by_name[name] = {
            field: kind(inner) + "!" * (field in required) for field, inner in properties.items()
        }
        waiting += re.findall(r"\b[A-Z]\w+", " ".join(types_by_name[name].values()))
    return dict(sorted(types_by_name.items()))


def test_the_fields_are_those_of_kubernetes(renew: bool) -> None:
    wanted = expected("PodTemplateSpec")
    if renew:
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in wanted.items())
        pod_fields.FILE.write_text(f"{{\n{lines}\n}}\n")
    assert json.loads(pod_fields.FILE.read_text()) == wanted


def test_every_type_that_is_named_is_there() -> None:
    named = set(re.findall(r"\b[A-Z]\w+", json.dumps([*pod_fields.types().values()])))
    fields = {field for known in pod_fields.types().values() for field in known}
    assert named - fields - {"List", "Dict"} <= pod_fields.types().keys()


def test_the_client_has_the_same_fields() -> None:
    """The Python client is a second source: others generate it from the same OpenAPI."""
    for name, fields in pod_fields.types().items():
        model = getattr(client, f"V1{name}", None) or getattr(client, f"CoreV1{name}", None)
        if model is not None:
            assert set(model.attribute_map.values()) == fields.keys(), name


def test_the_tables_name_fields_that_there_are() -> None:
    types = pod_fields.types()
    for name, field in (*pod_fields.ENUMS, *pod_fields.FORMS, *pod_fields.MAY_BE_EMPTY):
        assert field in types[name], (name, field)
    for name, fields in pod_fields.ONE_OF.items():
        assert set(fields) <= types[name].keys()


def test_what_is_effectively_required_is_what_openapi_calls_so() -> None:
    type_names = {
        name
        for name, value in definitions().items()
        if name in pod_fields.types()
        and "ffectively required" in value.get("properties", {}).get("name", {}).get("description", "")
    }
    assert type_names == pod_fields.EFFECTIVELY_REQUIRED
