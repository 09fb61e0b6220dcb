"""What a run's tasks compute with, as they have reported it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from launcher.status import RunStatus
from worker.contract import Event, Record

COUNT: Final = "Number of devices: "
"""As TensorFlow's tutorials print it."""


def is_news(record: Record, role: str, index: int, status: RunStatus) -> bool:
    """Whether a record of devices is shown: the first trainer's, which knows all replicas, and that
    of a task which lacks what it asked for.
    """
    return lacks(record) or (index == 0 and role == status.primary.role)


def lacks(record: Record) -> bool:
    """Whether the task asked for GPUs, sees none, and goes on."""
    return record.event == Event.DEVICES and bool(record.fields.get("lacking"))


def describe(fields: Mapping[str, Any]) -> str:
    """`Number of devices: 4 in 2 tasks (here 2 GPU, NVIDIA A100), TensorFlow 2.21.0`."""
    own = _own(fields["devices"])
    text = f"TensorFlow {fields['tensorflow']}"
    if fields["replicas"]:
        several = f" in {fields['tasks']} tasks" if fields["tasks"] > 1 else ""
        here = f"here {own}" if several else own
        text = f"{COUNT}{fields['replicas']}{several} ({here}), {text}"
    else:
        text = f"{text} on {own}"
    return text + (f"; no GPU is seen, {fields['lacking']} was asked for" if fields.get("lacking") else "")


def _own(devices: Sequence[Mapping[str, Any]]) -> str:
    """The CPU is beside the point where there is something faster."""
    faster = [device for device in devices if device["type"] != "CPU"]
    kinds = (f"{device['count']} {device['type']}, {device['name']}" for device in faster or devices)
    return "; ".join(kinds)


def of_run(status: RunStatus) -> list[tuple[str, str, bool]]:
    """Rows for the reader: a heading, what is said, and whether it is bad. That of the first trainer, and one
    for each role in which tasks lack the GPUs that they asked for, by the first of them.
    """
    rows: list[tuple[str, str, bool]] = []
    lacking: dict[str, list[str]] = {}
    for task in status.tasks:
        record = status.records.get(task.name, {}).get(Event.DEVICES)
        if record is None:
            continue
        if task.index == 0 and task.role == status.primary.role:
            rows.append(("devices", words(record), lacks(record)))
        elif lacks(record):
            lacking.setdefault(task.role, []).append(words(record))
    for role, said in lacking.items():
        others = f" (and {len(said) - 1} tasks more)" if len(said) > 1 else ""
        rows.append((f"devices, {role}", said[0] + others, True))
    return rows


def words(record: Record) -> str:
    """`describe`, whatever a program prints that looks like a record."""
    try:
        return describe(record.fields)
    except (LookupError, TypeError, ValueError, AttributeError):
        return ", ".join(f"{name} {value}" for name, value in record.fields.items())
