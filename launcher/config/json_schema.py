"""The JSON Schema of the file, for editors. It is generated from the models; the string below a field is the
field's description.
"""

from __future__ import annotations

import ast
import inspect
import json
from typing import Any

from launcher.config import spec


def as_json() -> str:
    """Returns the schema, indented (draft 2020-12)."""
    schema = spec.TrainingCluster.model_json_schema(by_alias=True)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    described = descriptions()
    for name, definition in {**schema["$defs"], "TrainingCluster": schema}.items():
        model: Any = getattr(spec, name)
        if model.__doc__:
            definition["description"] = _joined(model.__doc__)
        for owner in reversed(model.__mro__):
            for field, text in described.get(owner.__name__, {}).items():
                alias = model.model_fields[field].alias
                definition["properties"][alias]["description"] = text
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def descriptions() -> dict[str, dict[str, str]]:
    """Returns `{model: {field: text}}`: the string that follows each field in `launcher/config/spec.py`.

    Pydantic can read the strings itself (use_attribute_docstrings), but that would slow every start of the
    launcher.
    """
    texts: dict[str, dict[str, str]] = {}
    for model in ast.parse(inspect.getsource(spec)).body:
        if not isinstance(model, ast.ClassDef):
            continue
        fields = texts.setdefault(model.name, {})
        for field, text in zip(model.body, model.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                fields[field.target.id] = _joined(str(text.value.value))
    return texts


def _joined(text: str) -> str:
    return " ".join(text.split())
