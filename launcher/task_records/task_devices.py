"""The devices of a run's tasks, as the tasks report them. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from launcher.status import RunStatus, latest_with_time
from worker.contract.records import Device, Devices, Event, MembershipRecord, Record

COUNT: Final = "Number of devices: "
"""As TensorFlow's tutorials print it."""


def is_news(devices: Devices, role: str, index: int, status: RunStatus) -> bool:
    """Returns whether a task's devices are shown: those of the first task that trains, which knows all
    replicas, and those of a task that lacks the GPUs that it asked for.
    """
    return bool(devices.lacking) or (index == 0 and role == status.primary.role)


def lacks(record: Record) -> bool:
    """Returns whether the record says that the task asked for GPUs, sees none, and continues."""
    return isinstance(record.content, Devices) and bool(record.content.lacking)


def describe(devices: Devices) -> str:
    """Returns `Number of devices: 4 in 2 tasks (here 2 GPU, NVIDIA A100), TensorFlow 2.21.0, runtime 0.1.0 of
    the image`. The records of an earlier version do not have the runtime.
    """
    own_devices = _described(devices.devices)
    text = f"TensorFlow {devices.tensorflow}"
    if devices.replicas:
        several = f" in {devices.tasks} tasks" if devices.tasks > 1 else ""
        here = f"here {own_devices}" if several else own_devices
        text = f"{COUNT}{devices.replicas}{several} ({here}), {text}"
    else:
        text = f"{text} on {own_devices}"
    if devices.runtime:
        text += f", runtime {devices.runtime}"
    return text + (f"; no GPU is seen, {devices.lacking} was asked for" if devices.lacking else "")


def _described(devices: Sequence[Device]) -> str:
    """Leaves the CPU out where there is a faster device."""
    faster = [device for device in devices if device.type != "CPU"]
    return "; ".join(f"{device.count} {device.type}, {device.name}" for device in faster or devices)


def _of_now(devices: Devices, record_time: float, status: RunStatus) -> Devices:
    """Returns what the first task that trains would say now, of what it said at that time. A coordinator says
    it once, and workers come and go after that.
    """
    members, since = latest_with_time(status.records, MembershipRecord) or (None, 0.0)
    if members is None or members.generation is not None or since < record_time or not devices.tasks:
        return devices
    workers = len(members.workers)
    return devices._replace(replicas=devices.replicas // devices.tasks * workers, tasks=workers)


def of_run(status: RunStatus) -> list[tuple[str, str, bool]]:
    """Returns rows: a heading, a text, and whether it is bad. There is one for the first task that trains,
    and one for each role whose tasks lack the GPUs that they asked for, with the first of them.
    """
    rows: list[tuple[str, str, bool]] = []
    lacking: dict[str, list[str]] = {}
    for task in status.tasks:
        record = status.records.get(task.name, {}).get(Event.DEVICES)
        if record is None or not isinstance(record.content, Devices):
            continue
        if task.index == 0 and task.role == status.primary.role:
            rows.append(("devices", describe(_of_now(record.content, record.time, status)), lacks(record)))
        elif lacks(record):
            lacking.setdefault(task.role, []).append(describe(record.content))
    for role, descriptions in lacking.items():
        others = f" (and {len(descriptions) - 1} tasks more)" if len(descriptions) > 1 else ""
        rows.append((f"devices, {role}", descriptions[0] + others, True))
    return rows
