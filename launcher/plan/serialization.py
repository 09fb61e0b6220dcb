"""Kubernetes objects -> text for people and for kubectl."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from launcher.config import yaml_parser
from launcher.config.yaml_parser import FieldPath

# Text that every YAML reader, 1.1 or 1.2, reads as text if it is not quoted. PyYAML alone would leave 1e3 and
# 0o10 bare, which Kubernetes' reader takes for numbers.
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Readable(_Dumper):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, text: str) -> Any:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        style = None
    elif "\n" in text and _block(text):
        style = "|"
    else:
        style = "'" if '"' in text and "'" not in text and text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _block(text: str) -> bool:
    """Whether the text can be a literal block, in which a program is easier to read."""
    lines = text.split("\n")
    return lines[0][:1] not in ("", " ") and all(
        line.isprintable() and not line.endswith(" ") for line in lines
    )


_Readable.add_representer(str, _text)


def as_yaml(objects: Sequence[Mapping[str, Any]]) -> str:
    """Documents for `kubectl apply -f -`."""
    text: str = yaml.dump_all(
        objects,
        Dumper=_Readable,
        sort_keys=False,
        allow_unicode=True,
        width=1 << 30,
        explicit_start=True,
        default_flow_style=False,
    )
    return text


def as_yaml_with_comments(value: Mapping[str, Any], comments: Mapping[FieldPath, str]) -> str:
    """One document, with each comment above the field that it is about; the one about `()` comes first."""
    text = as_yaml([value])
    (document,) = yaml_parser.parse(text, "")
    lines = text.splitlines()
    for path, comment in sorted(comments.items(), key=lambda item: -document.place(item[0])[0]):
        line, column = document.place(path)
        indent = " " * (column - 1 if path else 0)
        lines[line - 1 : line - 1] = [f"{indent}# {words}" for words in comment.splitlines()]
    return "\n".join(lines) + "\n"


def as_json(objects: Sequence[Mapping[str, Any]]) -> str:
    """One List, indented."""
    document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
