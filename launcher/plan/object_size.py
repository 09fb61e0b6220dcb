"""How large an object is for an API server, checked before it is sent to one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from launcher.json_in_yaml import quoted

SENT_BYTES: Final = 3 << 20
"""Of a request's body; the API server's own limit. Text that JSON escapes counts as escaped."""
STORED_BYTES: Final = 1_400_000
"""Of an object in etcd, which takes 1.5 MiB with what the server adds."""
APPLIED_BYTES: Final = 256 << 10
"""Of all annotations of an object. A plain `kubectl apply` copies the object into one of them."""
_FIELD_BYTES: Final = 12
"""Of a field's name beside the name itself, in the object and in its managedFields: `"f:":{},`, and tags."""


def too_large(objects: Iterable[Mapping[str, Any]]) -> str | None:
    """A message about the first object that is too large; None if there is none."""
    for item in objects:
        name = f"the {item['kind']} {item['metadata']['name']}"
        if (size := len(quoted(item).encode())) > SENT_BYTES:
            return f"{name} would be sent as {size:,} bytes, and an API server takes {SENT_BYTES:,}"
        if (size := _stored(item)) > STORED_BYTES:
            return f"{name} would be stored as {size:,} bytes, and a cluster holds about {STORED_BYTES:,}"
    return None


def too_large_for_apply(item: Mapping[str, Any]) -> bool:
    """Whether a `kubectl apply` without --server-side is refused."""
    given = item["metadata"].get("annotations") or {}
    taken = sum(len(f"{name}{value}".encode()) for name, value in given.items())
    return taken + len(quoted(item).encode()) > APPLIED_BYTES


def _stored(value: Any) -> int:
    """Bytes, or a little more."""
    if isinstance(value, str):
        return len(value.encode()) + 4
    if isinstance(value, Mapping):
        return sum(
            2 * len(str(name).encode()) + _FIELD_BYTES + _stored(inner) for name, inner in value.items()
        )
    if isinstance(value, list | tuple):
        return sum(_stored(inner) + 4 for inner in value)
    return 8
