"""The cluster's events about a run, oldest first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from typing import Final

from launcher.backends.base import RunEvent
from launcher.backends.kubernetes.api_server.client import Client, Object
from launcher.backends.kubernetes.observe.session import TICK_SECONDS
from launcher.backends.kubernetes.observe.watch import Changed, Denied, Listed, Mailbox, ObjectWatch
from launcher.backends.kubernetes.state.root_object import RootObject
from launcher.backends.kubernetes.state.run_state import RunState
from launcher.object_names import ROLE_LABEL
from launcher.plan.tensorboard import COMPONENT
from launcher.status import Phase, seconds

_OWN_KINDS: Final = (
    "ConfigMap",
    "Deployment",
    "JobSet",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "PodGroup",
    "PodMonitor",
    "Service",
    "Workload",
)
_TERMINAL: Final = (Phase.SUCCEEDED, Phase.FAILED)
_POD: Final = re.compile(r"(?P<job>.+)-(?P<index>\d+)-[a-z0-9]{5}")
"""The name of a pod of an Indexed Job. Events outlive their pods."""


_BOARD_POD: Final = re.compile(rf"{COMPONENT}-[a-z0-9]+-[a-z0-9]{{5}}")


def of_run(client: Client, namespace: str, root: RootObject, *, until_end: bool) -> Iterator[RunEvent]:
    """The events of the run, then, with `until_end`, those that come until it has ended. `time` is when an
    event was last seen.
    """
    run_state = root.run_state()
    kinds = {kind: seen for kind, seen in root.seen.items() if kind in ("Job", "JobSet")}
    if not until_end:
        for kind, seen in kinds.items():
            items, _ = client.list(kind, namespace, seen.labels)
            run_state.replace(kind, map(seen.slim, items))
        events, _ = client.list("Event", namespace)
        yield from _of_run(root, run_state, events)
        return
    client.patience.lift()
    mailbox = Mailbox()
    watches = [
        ObjectWatch(client, mailbox, kind, namespace, labels=seen.labels, slim=seen.slim)
        for kind, seen in kinds.items()
    ]
    watches.append(ObjectWatch(client, mailbox, "Event", namespace, slim=dict))
    for watch in watches:
        watch.start()
    try:
        yield from _watched(root, run_state, mailbox, set(kinds))
    finally:
        mailbox.closed.set()
        for watch in watches:
            watch.stop()


def _watched(root: RootObject, run_state: RunState, mailbox: Mailbox, needed: Set[str]) -> Iterator[RunEvent]:
    waiting: list[Object] = []
    listed: set[str] = set()
    seen: dict[str, str] = {}
    while True:
        messages = mailbox.get(TICK_SECONDS)
        for message in messages:
            if isinstance(message, Denied):
                raise message.error
            if isinstance(message, Listed):
                listed.add(message.kind)
                if message.kind in needed:
                    run_state.replace(message.kind, message.items)
                else:
                    waiting += message.items
            elif isinstance(message, Changed) and message.kind in needed:
                (run_state.drop if message.gone else run_state.put)(message.kind, message.item)
            elif isinstance(message, Changed) and not message.gone:
                waiting.append(message.item)
        if not listed >= needed:
            continue
        fresh = [item for item in waiting if seen.get(_uid(item)) != item["metadata"].get("resourceVersion")]
        seen.update((_uid(item), item["metadata"].get("resourceVersion", "")) for item in fresh)
        waiting = []
        yield from _of_run(root, run_state, fresh)
        # Events about the end come a moment after it.
        if "Event" in listed and not messages and _over(run_state):
            return


def _over(run_state: RunState) -> bool:
    return run_state.deleted or all(role.phase in _TERMINAL for role in run_state.status({}).roles)


def _uid(event: Object) -> str:
    return str(event["metadata"].get("uid"))


def _of_run(root: RootObject, run_state: RunState, event_objects: Iterable[Object]) -> list[RunEvent]:
    """Those of the run among them, oldest first."""
    roles = {job["metadata"]["name"]: job["metadata"]["labels"].get(ROLE_LABEL, "") for job in run_state.jobs}
    uids = {job["metadata"]["uid"] for job in run_state.jobs}
    since = seconds(root.created) or 0.0
    events = []
    for event in event_objects:
        about, last = event.get("involvedObject") or {}, seconds(_last_time(event)) or 0.0
        if last >= since and (name := _name(about, root.run, roles, uids)):
            events.append(_event(event, name, last))
    return sorted(events, key=lambda event: event.time)


def _name(about: Object, run: str, roles: dict[str, str], uids: set[str]) -> str:
    """The task or object that the event is about, as the user knows it; "" if it is not of this run."""
    kind, name = about.get("kind", ""), about.get("name", "")
    if kind == "Pod" and (match := _POD.fullmatch(name)) and match["job"] in roles:
        return f"{roles[match['job']]} {match['index']}"
    if kind == "Pod" and _BOARD_POD.fullmatch(name.removeprefix(f"{run}-")):
        return COMPONENT
    if kind == "Job" and about.get("uid") in uids:
        return f"{kind} {name}"
    # Kueue's name for the Workload of a JobSet begins with its kind.
    if kind in _OWN_KINDS and (name == run or name.startswith((f"{run}-", f"jobset-{run}-"))):
        return f"{kind} {name}"
    return ""


def _last_time(event: Object) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return str(next(filter(None, times), event["metadata"].get("creationTimestamp") or ""))


def _event(event: Object, about: str, time: float) -> RunEvent:
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    message = " ".join(str(event.get("message") or "").split())
    return RunEvent(
        time, about, event.get("type") == "Warning", event.get("reason") or "", message, int(count)
    )
