"""Makes docs/reference.md from the code; `make docs` runs it, and a test compares."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from launcher import cli, schema
from worker.contract import Env, ExitCode

REFERENCE = Path(__file__).parent / "reference.md"
ORDER = (
    "TrainingCluster",
    "Metadata",
    "Spec",
    "Program",
    "Role",
    "RoleTemplate",
    "EnvVar",
    "VolumeMount",
    "Requirements",
    "Storage",
    "RunPolicy",
    "StrategyOptions",
    "Scheduling",
    "TensorBoard",
)


def reference() -> str:
    """The whole text."""
    parts = [
        "# Reference",
        "Made from the code by `make docs`. Field names are Kubernetes' own wherever it has one.",
        "## The file",
        *_models(),
        "## Commands",
        *_commands(cli.parser()),
        "## Exit codes",
        "Of a task, which the manifests' podFailurePolicy reads. Of the launcher: `--help` has them.",
        _table(
            ["code", "name", "meaning"],
            [[str(int(code)), code.name, _attribute_text(ExitCode, code.name)] for code in ExitCode],
        ),
        "## Environment of a task",
        _table(
            ["variable", "meaning"],
            [
                [f"`{value}`", _attribute_text(Env, name)]
                for name, value in vars(Env).items()
                if name.isupper() and isinstance(value, str)
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _models() -> list[str]:
    document = json.loads(schema.as_json())
    models = {**document["$defs"], "TrainingCluster": document}
    parts = []
    for name in ORDER:
        model = models[name]
        required = model.get("required", [])
        shared = models["RoleTemplate"]["properties"] if name == "Role" else {}
        rows = [
            [f"`{field}`", _type(value), _default(field, value, required), value.get("description", "")]
            for field, value in model.get("properties", {}).items()
            if field not in shared
        ]
        if shared:
            rows.append(["...", "", "", "and all of [RoleTemplate](#roletemplate)"])
        parts.append(f"### {name}")
        parts.append(model["description"])
        if rows:
            parts.append(_table(["field", "type", "default", "meaning"], rows))
    return parts


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    for union in ("anyOf", "oneOf"):
        if union in value:
            return " or ".join(_type(choice) for choice in value[union] if choice.get("type") != "null")
    kind = value.get("type")
    if kind == "array":
        return f"list of {_type(value['items'])}"
    if kind == "object":
        inner = value.get("additionalProperties")
        return f"map of {_type(inner)}" if isinstance(inner, dict) and inner else "mapping"
    names = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    return names.get(str(kind), str(kind or "any"))


def _default(field: str, value: dict[str, Any], required: list[str]) -> str:
    if field in required:
        return "must be given"
    default = value.get("default")
    return "" if default in (None, {}, []) else f"`{json.dumps(default)}`"


def _commands(parser: argparse.ArgumentParser) -> list[str]:
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    parts = []
    for name, command in commands.choices.items():
        parts.append(f"### {name}")
        parts.append(str(command.description))
        rows = [
            ["`" + ", ".join(action.option_strings or [str(action.metavar)]) + "`", _help(action)]
            for action in command._actions
            if action.dest != "help"
        ]
        if rows:
            parts.append(_table(["argument", "meaning"], rows))
    return parts


def _help(action: argparse.Action) -> str:
    return str(action.help or "") % {"default": action.default}


def _attribute_text(owner: type, name: str) -> str:
    """The string below an attribute, in the contract's source."""
    source = Path(__file__).parent.parent.joinpath("worker", "contract.py").read_text()
    body = source.split(f"class {owner.__name__}")[1]
    found = re.search(rf'    {name}\b[^\n]*\n    """(.*?)"""', body, re.DOTALL)
    if found is None:
        raise SystemExit(f"worker/contract.py: {owner.__name__}.{name} has no text below it")
    return " ".join(found[1].split())


def _table(head: list[str], rows: list[list[str]]) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)])


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")
