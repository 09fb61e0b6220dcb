"""The format of a run's objects in a golden file."""

from __future__ import annotations

import copy
from typing import Any

from launcher.plan import runtime_archive, serialization

RUNTIME = "(the runtime's archive, in base64)"


def text(objects: list[dict[str, Any]]) -> str:
    """Returns YAML without the runtime's archive, which differs with every change of the runtime."""
    shown = copy.deepcopy(objects)
    for item in shown:
        if runtime_archive.KEY in (item.get("binaryData") or {}):
            item["binaryData"][runtime_archive.KEY] = RUNTIME
    return serialization.as_yaml(shown)
