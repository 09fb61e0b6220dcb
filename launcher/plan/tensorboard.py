"""Works out what the Deployment of a run's TensorBoard holds, as plain values that the templates print.

It can read the model directory, and nothing else: the volume with the directory, read-only; for a URL the
primary role's environment, volumes and service account, which may be its credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from launcher import object_names
from launcher.config.role_fields import Beside, Holder, rules
from launcher.config.spec import RoleTemplate, TensorBoard
from launcher.plan import pods, storage
from launcher.plan.pods import Object
from launcher.plan.roles import TMP_PATH, ResolvedRole
from launcher.plan.topology import Topology

COMPONENT: Final = "tensorboard"
MODULE: Final = "tensorboard.main"
PORT: Final = 6006
"""TensorBoard's own default."""


@dataclass(frozen=True)
class BoardPlan:
    """The Deployment, ready to be printed."""

    name: str
    labels: Mapping[str, str]
    selector: Mapping[str, str]
    pod_labels: Mapping[str, str]
    pod_annotations: Mapping[str, str]
    pod_fields: Mapping[str, Any]
    container_fields: Mapping[str, Any]
    image: str
    command: tuple[str, ...]
    port: int
    env: list[Object]
    volume_mounts: list[Object]
    volumes: list[Object]


def name(run: str) -> str:
    """Of the Deployment, the Service and the NetworkPolicy."""
    return f"{run}-{COMPONENT}"


def selector(run: str) -> dict[str, str]:
    """The labels of its pod alone."""
    return {object_names.TENSORBOARD_LABEL: run}


def arguments(directory: str, run: str, port: int) -> tuple[str, ...]:
    """TensorBoard's arguments, without the address that it listens on."""
    return (f"--logdir={directory}", f"--port={port}", f"--window_title={run}")


def board_plan(topology: Topology, board: TensorBoard) -> BoardPlan:
    """The plan of the Deployment. The run must have a model directory."""
    run, primary = topology.run, topology.role(topology.primary)
    directory = topology.cluster.spec.model_dir or ""
    is_path = directory.startswith("/")
    mounts, volumes = _directory(topology) if is_path else _everything(primary)
    if not any(mount["mountPath"].rstrip("/") == TMP_PATH for mount in mounts):
        mounts.append({"name": "launcher-tmp", "mountPath": TMP_PATH})
        volumes.append({"name": "launcher-tmp", "emptyDir": {}})
    ours = {**pods.labels(topology), "app.kubernetes.io/component": COMPONENT}
    given = topology.cluster.metadata
    # Not the labels of the run's pods: with those, this pod could reach the tasks' ports.
    theirs = (object_names.RUN_LABEL, object_names.ROLE_LABEL)
    pod_labels = {key: value for key, value in ours.items() if key not in theirs}
    metadata = {"labels": pod_labels | selector(run), "annotations": dict(given.annotations)}
    if storage.place(topology).on_one_node:
        metadata["labels"][object_names.NODE_LABEL] = run
    pods.without_sidecars(metadata, {*given.labels, *given.annotations})
    return BoardPlan(
        name=name(run),
        labels=ours,
        selector=selector(run),
        pod_labels=metadata["labels"],
        pod_annotations=metadata["annotations"],
        pod_fields=pods.others(
            BoardPlan,
            {
                **_fields(topology, board, primary, "pod", is_path=is_path),
                "affinity": storage.tensorboard_affinity(topology, board.affinity),
            },
        ),
        container_fields=pods.others(
            BoardPlan, _fields(topology, board, primary, "container", is_path=is_path)
        ),
        image=board.image or primary.image,
        # On all its addresses: the kubelet's readiness probe and the Service use them.
        command=("python3", "-m", MODULE, *map(pods.escaped, arguments(directory, run, PORT)), "--bind_all"),
        port=PORT,
        env=[] if is_path else [pods.entry(each) for each in primary.env],
        volume_mounts=mounts,
        volumes=volumes,
    )


def _fields(
    topology: Topology, board: TensorBoard, primary: ResolvedRole, at: Holder, *, is_path: bool
) -> Object:
    """What its pod or container has of the primary role's, and the file's own fields over that."""
    reasons: list[Beside] = ["image"]
    if not is_path:
        reasons.append("credentials")
    if storage.place(topology).on_one_node:
        reasons.append("node")
    shared = primary.fields(at)
    fields = {field.alias: shared[field.alias] for field in rules(RoleTemplate, at, reasons)}
    for field in rules(TensorBoard, at):
        board_value = field.rule.form(getattr(board, field.name))
        fields[field.alias] = (
            field.rule.merge(fields[field.alias], board_value) if field.alias in fields else board_value
        )
    return fields


def _directory(topology: Topology) -> tuple[list[Object], list[Object]]:
    """The mount with the model directory, and its volume."""
    if (claim := storage.place(topology).claim) is not None:
        mount: Object = {"name": "launcher-model", "mountPath": topology.cluster.spec.model_dir}
        volume: Object = {"name": "launcher-model", "persistentVolumeClaim": {"claimName": claim}}
    else:
        held = next(held for held in storage.holdings(topology) if held.role == topology.primary)
        mount, volume = dict(held.mount or {}), dict(held.volume or {})
        mount.pop("mountPropagation", None)
    return [{**mount, "readOnly": True}], [volume]


def _everything(primary: ResolvedRole) -> tuple[list[Object], list[Object]]:
    """All of the user's mounts and volumes."""
    mounts = [{**mount, "readOnly": True} for mount in primary.pod_mounts]
    return mounts, list(primary.pod_volumes.values())
