"""Makes what the chart has from the code: values.schema.json, the README's table, the version, and its
controller's rights and kind. `make chart` runs it, and a test compares.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

import launcher
from launcher.backends.kubernetes.preflight import needed_rights
from launcher.config import json_schema
from launcher.tfjob.conversion import VERSIONS

CHART: Final = Path(__file__).parent / "tf-launcher"
_BEGIN, _END = "<!-- values -->\n", "<!-- end of values -->\n"
_FILE: Final = ("apiVersion", "kind", "metadata", "spec")
"""What values.yaml has of the cluster.yaml."""

_TEXT: Final = {"type": "string"}
_NAME: Final = {"type": "string", "maxLength": 253, "pattern": r"^$|^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}
_TEXTS: Final = {"type": "object", "additionalProperties": _TEXT}
_MAPPING: Final = {"type": "object"}
_SWITCH: Final = {"type": "boolean"}
_COUNT: Final = {"type": "integer", "minimum": 0}

# Kubernetes' own objects (resources, affinity and so on) are for the API server to check.
OWN: Final[dict[str, Any]] = {
    "program.files": _TEXTS,
    "program.existingConfigMap": _NAME,
    "image.repository": {"type": "string", "minLength": 1},
    "image.tag": _TEXT,
    "image.digest": {"type": "string", "pattern": "^$|^sha256:[0-9a-f]{64}$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "imagePullSecrets": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"name": _TEXT},
            "required": ["name"],
            "additionalProperties": False,
        },
    },
    "nameOverride": _NAME,
    "fullnameOverride": _NAME,
    "commonLabels": _TEXTS,
    "commonAnnotations": _TEXTS,
    "serviceAccount.create": _SWITCH,
    "serviceAccount.name": _NAME,
    "serviceAccount.annotations": _TEXTS,
    "rbac.create": _SWITCH,
    "backoffLimit": _COUNT,
    "podLabels": _TEXTS,
    "podAnnotations": _TEXTS,
    "resources": _MAPPING,
    "podSecurityContext": _MAPPING,
    "securityContext": _MAPPING,
    "nodeSelector": _TEXTS,
    "tolerations": {"type": "array", "items": _MAPPING},
    "affinity": _MAPPING,
    "priorityClassName": _NAME,
    "controller.enabled": _SWITCH,
    "controller.replicas": _COUNT,
    "controller.namespaces": {
        "type": "array",
        "items": {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
        "uniqueItems": True,
    },
    "controller.crd": _SWITCH,
    "controller.resources": _MAPPING,
    "dashboard.enabled": _SWITCH,
    "dashboard.labels": _TEXTS,
    "test.timeoutSeconds": {"type": "integer", "minimum": 1},
}
"""The type of each value that is the chart's own."""


def values_schema() -> str:
    """The JSON Schema (draft 2020-12) of the values: the file's own, and the chart's."""
    document = json.loads(json_schema.as_json())
    definitions = _told_apart(document["$defs"], document["$defs"])
    # The release's name stands in for it.
    definitions["Metadata"].pop("required")
    properties: dict[str, Any] = {}
    for name in _FILE:
        properties[name] = _told_apart(document["properties"][name], document["$defs"])
    # Helm itself adds it where the chart is another's dependency.
    properties["global"] = {"type": "object"}
    for path, description, _ in described():
        if path in _FILE:
            continue
        *parents, name = path.split(".")
        here = properties
        for parent in parents:
            made = {"type": "object", "additionalProperties": False, "properties": {}}
            here = here.setdefault(parent, made)["properties"]
        here[name] = {**OWN[path], "description": description}
    ours = {name: properties.pop(name) for name in ("apiVersion", "metadata", "spec")}
    # What `kubectl get tfjob -o yaml` prints has a status, too.
    properties |= {name: {} for name in (*ours, "status")}
    properties["kind"] = {"enum": [properties["kind"]["const"], "TFJob"]}
    # What is in a TFJob, the launcher itself checks.
    theirs = {"apiVersion": {"enum": list(VERSIONS)}, "metadata": _MAPPING, "spec": _MAPPING}
    whole = {
        "$schema": document["$schema"],
        "title": "Values of the chart tf-launcher",
        "type": "object",
        "additionalProperties": False,
        # Without the spec the chart says itself what to do; so that `helm lint` can do without.
        "required": ["apiVersion", "kind", "metadata"],
        "properties": properties,
        "if": {"properties": {"kind": {"const": "TFJob"}}},
        "then": {"properties": theirs},
        "else": {"properties": {**ours, "status": False}},
        "$defs": definitions,
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _told_apart(value: Any, definitions: Mapping[str, Any]) -> Any:
    """The same, in a form of which Helm says what is wrong: by each choice of an `anyOf` or `oneOf` it would
    say another thing. Titles and defaults are not for it.
    """
    if isinstance(value, list):
        return [_told_apart(each, definitions) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {
        key: {name: _told_apart(inner, definitions) for name, inner in each.items()}
        if key == "properties"
        else _told_apart(each, definitions)
        for key, each in value.items()
        if key not in ("title", "default")
    }
    if "oneOf" in kept:
        flat, full = kept.pop("oneOf")
        named = [{"required": [name]} for name in definitions[full["$ref"].rsplit("/", 1)[1]]["properties"]]
        # Of what is no object, `required` says that it has everything.
        is_full = {"type": "object", **({"anyOf": named} if flat["type"] == "object" else {})}
        return {**kept, "if": is_full, "then": full, "else": flat}
    choices = kept.get("anyOf")
    if choices is None:
        return kept
    if all(choice.keys() == {"type"} for choice in choices):
        del kept["anyOf"]
        return {**kept, "type": [choice["type"] for choice in choices]}
    rest = [choice for choice in choices if choice != {"type": "null"}]
    other = rest[0] if len(rest) == 1 else {"anyOf": rest}
    del kept["anyOf"]
    if isinstance(other.get("type"), str) and "enum" not in other:
        return {**kept, **other, "type": [other["type"], "null"]}
    return {**kept, "if": {"not": {"type": "null"}}, "then": other}


def described() -> Iterator[tuple[str, str, str]]:
    """Of each value its path, the comment above it and its default, in the order of values.yaml.

    Raises SystemExit for one without a comment, and for one that has no type in OWN.
    """
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()
    for path, line, value in _leaves(yaml.compose(text, yaml.SafeLoader), ()):
        comment = _above(lines, line)
        if not comment:
            raise SystemExit(f"values.yaml:{line + 1}: {path} has no comment")
        if path not in _FILE and path not in OWN:
            raise SystemExit(f"values.yaml:{line + 1}: {path} has no type in charts/generate.py")
        yield path, comment, json.dumps(yaml.safe_load(value))
        if path == "metadata":
            line = lines.index("# spec:")
            yield "spec", _above(lines, line), ""


def _leaves(node: Any, above: tuple[str, ...]) -> Iterator[tuple[str, int, str]]:
    """A mapping whose every key has a comment of its own is a group of values; any other is one value."""
    for key, value in node.value:
        path = (*above, key.value)
        dotted = ".".join(path)
        if isinstance(value, yaml.MappingNode) and any(name.startswith(f"{dotted}.") for name in OWN):
            yield from _leaves(value, path)
        else:
            yield dotted, key.start_mark.line, yaml.serialize(value)


def _above(lines: list[str], line: int) -> str:
    words: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("# "):
        line -= 1
        words.insert(0, lines[line].lstrip()[2:])
    return " ".join(words)


def readme() -> str:
    """The README with its table renewed."""
    rows = [
        f"| `{path}` | {f'`{default}`' if default else 'must be given'} | {description} |".replace(
            " || ", " "
        )
        for path, description, default in described()
    ]
    table = "\n".join(["| value | default | meaning |", "| --- | --- | --- |", *rows]) + "\n"
    before, _, rest = (CHART / "README.md").read_text(encoding="utf-8").partition(_BEGIN)
    return f"{before}{_BEGIN}{table}{_END}{rest.partition(_END)[2]}"


def chart() -> str:
    """Chart.yaml with the project's version."""
    text = (CHART / "Chart.yaml").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^version: .*$", f"version: {launcher.__version__}", text)
    return re.sub(r"(?m)^appVersion: .*$", f'appVersion: "{launcher.__version__}"', text)


def tfjob_definition() -> str:
    """The spec of the definition of TFJobs."""
    text = (CHART.parent.parent / "manifests" / "controller" / "crd.yaml").read_text(encoding="utf-8")
    return textwrap.dedent(text.partition("\nspec:\n")[2])


def controller_rules() -> str:
    """The rules of the controller's role."""
    return "".join(f"- {json.dumps(rule)}\n" for rule in needed_rights.of_controller())


MADE: Final = {
    "values.schema.json": values_schema,
    "README.md": readme,
    "Chart.yaml": chart,
    "files/tfjob-definition.yaml": tfjob_definition,
    "files/controller-rules.yaml": controller_rules,
}

if __name__ == "__main__":
    for name, make in MADE.items():
        (CHART / name).write_text(make(), encoding="utf-8")
