"""Two JSON values -> their differences, one line each: `spec.worker.replicas: 2 -> 4`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from launcher.quantities import quantity

_MAX_LINES: Final = 10
_MAX_VALUE: Final = 60
"""Characters of a value."""

_ABSENT: Final = object()


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """The differences from `before` to `after`. Lists of named entries are compared by name."""
    if before is _ABSENT and isinstance(after, Mapping) and after:
        before = {}
    if after is _ABSENT and isinstance(before, Mapping) and before:
        after = {}
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            inside = f"{path}.{key}" if path else str(key)
            yield from differences(before.get(key, _ABSENT), after.get(key, _ABSENT), inside)
    elif isinstance(before, list) and isinstance(after, list):
        old, new = _entries(before), _entries(after)
        for key in [*old, *(key for key in new if key not in old)]:
            yield from differences(old.get(key, _ABSENT), new.get(key, _ABSENT), f"{path}[{key}]")
    elif before is _ABSENT or after is _ABSENT or before != after:
        yield f"{path}: {_text(before)} -> {_text(after)}"


def altered(sent: Any, kept: Any) -> Iterator[str]:
    """What the server has dropped or changed of the object that was sent. Ignored are defaults that it adds,
    values that Go's JSON omits (false, 0, empty), and another form of the same quantity.
    """
    for path, one, other in _alterations(sent, kept, ""):
        yield f"{path}: {_text(one)} -> {_text(other)}"


def wanted(live: Any, planned: Any) -> Iterator[str]:
    """What the existing object lacks of the planned one, or has otherwise. Other fields are the server's
    defaults.
    """
    for path, one, other in _alterations(planned, live, ""):
        yield f"{path}: {_text(other)} -> {_text(one)}"


def _alterations(sent: Any, kept: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(sent, Mapping) and isinstance(kept, Mapping):
        for key, value in sent.items():
            yield from _alterations(value, kept.get(key, _ABSENT), f"{path}.{key}" if path else str(key))
    elif isinstance(sent, list) and isinstance(kept, list):
        ours, theirs = _entries(sent), _entries(kept)
        for key, value in ours.items():
            yield from _alterations(value, theirs.get(key, _ABSENT), f"{path}[{key}]")
    elif sent != kept and (sent or kept is not _ABSENT) and not _same_quantity(sent, kept, path):
        yield path, sent, kept


def indented(lines: Sequence[str]) -> str:
    """Some of the lines, indented, and how many more there are."""
    shown = [f"  {line}" for line in lines[:_MAX_LINES]]
    if len(lines) > _MAX_LINES:
        shown.append(f"  and {len(lines) - _MAX_LINES} more")
    return "\n".join(shown)


def _entries(values: Sequence[Any]) -> dict[object, Any]:
    """The entries by name, if each has a name of its own, else by number."""
    names = [value.get("name") for value in values if isinstance(value, Mapping)]
    if len(names) == len(values) and all(names) and len(set(names)) == len(names):
        return dict(zip(names, values, strict=True))
    return dict(enumerate(values))


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 4]} ..."


def _same_quantity(sent: Any, kept: Any, path: str) -> bool:
    """Whether both are the same amount, as 0.5 and 500m are of a CPU."""
    if "resources" not in path and "sizeLimit" not in path:
        return False
    try:
        return quantity(str(sent)) == quantity(str(kept))
    except ValueError:
        return False
