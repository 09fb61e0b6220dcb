"""Where the model directory is: in a claim that the run makes, in a user's volume, or at a URL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from launcher import object_names
from launcher.config.spec import RoleName, Spec, Storage
from launcher.config.yaml_positions import FieldPath
from launcher.lists_and_counts import listed
from launcher.plan import roles
from launcher.plan.roles import CONFIG_PATH, RUNTIME_PATH, SOURCE_PATH, TASK_PATH, TMP_PATH, ResolvedRole
from launcher.plan.topology import Topology
from worker.contract import BUCKET_KEYS, BUCKET_SCHEME, DATA_DIRECTORY, DISPATCHER

RESERVED_PATHS: Final = (CONFIG_PATH, SOURCE_PATH, RUNTIME_PATH, TASK_PATH)
"""Where the launcher mounts what every pod gets. /tmp may be mounted over, or into."""
_NO_DIRECTORIES: Final = (*RESERVED_PATHS, "/dev", "/proc", "/sys")

BUILT_IN: Final = ("gs",)
"""The schemes that the worker image's TensorFlow opens: `tf.io.gfile.get_registered_schemes()` less `file`
and `ram`. Others need a plugin, and tensorflow-io's last release, 0.37.1, is for TensorFlow 2.16."""

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]((/[^/\s]+)*/?)")
"""A bucket's name, as AWS allows it, and a path in it."""
_OF_BUCKETS: Final = {"endpoint": "endpoint", "region": "region", "secret_name": "secretName"}
_OF_CLAIMS: Final = {
    "size": "size",
    "storage_class_name": "storageClassName",
    "access_modes": "accessModes",
    "reclaim_policy": "reclaimPolicy",
}

# What TensorFlow takes for a URL; anything else it takes for a path.
_URL: Final = re.compile(r"([a-z][a-z0-9.]*)://([^/].*)")
_LOST: Final = ("emptyDir", "ephemeral")
_READ_ONLY: Final = ("configMap", "secret", "downwardAPI", "projected", "image")

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
Object = dict[str, Any]


@dataclass(frozen=True)
class Holding:
    """The user's mount and volume that hold a role's model directory, or neither."""

    role: RoleName
    replicas: int
    mount: Mapping[str, Any] | None
    volume: Mapping[str, Any] | None


def claim(topology: Topology) -> str | None:
    """The claim that the run makes for its model directory; None where the user mounts a volume there, or a
    URL needs none.
    """
    spec = topology.cluster.spec
    if spec.model_dir is None or not spec.model_dir.startswith("/"):
        return None
    if any(held.mount is not None for held in holdings(topology)):
        return None
    return f"{topology.run}-model"


def on_one_node(topology: Topology) -> tuple[RoleName, ...]:
    """The roles whose pods must share a node, because they mount a claim that only one node can mount; its
    TensorBoard must be there too.
    """
    spec = topology.cluster.spec
    if spec.model_dir is None or not spec.model_dir.startswith("/"):
        return ()
    if "ReadWriteMany" in (spec.storage or Storage.model_construct()).access_modes:
        return ()
    found = holdings(topology)
    if any(held.mount is not None for held in found) or _readers(spec, found) < 2:
        return ()
    return tuple(held.role for held in found)


def mirrors(topology: Topology, role: ResolvedRole) -> bool:
    """Whether the runtime keeps a mirror of the model directory in the role's tasks, since TensorFlow cannot
    open its URL. Scripts see the URL as it is.
    """
    spec = topology.cluster.spec
    is_runtime = role.uses_runtime and not role.runs_script and _is_program(spec)
    return is_runtime and role.touches_model_dir and _scheme(spec.model_dir) == BUCKET_SCHEME


def _data(spec: Spec) -> str | None:
    """`parameters.dataDir`, where it is in a bucket."""
    given = spec.program.parameters.get(DATA_DIRECTORY) if spec.program is not None else None
    return given if isinstance(given, str) and _scheme(given) == BUCKET_SCHEME else None


def prefetches(topology: Topology, role: ResolvedRole) -> bool:
    """Whether the runtime copies the program's data from a bucket in the role's tasks: in those that read
    them. Scripts see the URL as it is.
    """
    spec = topology.cluster.spec
    reads = role.uses_runtime and not role.runs_script and role.name not in ("ps", DISPATCHER)
    return reads and _is_program(spec) and _data(spec) is not None


def _is_program(spec: Spec) -> bool:
    return spec.program is not None and spec.program.entrypoint is not None


def bucket_variables(topology: Topology) -> list[Object]:
    """The variables by which the libraries of S3 find the server and the credentials."""
    given = topology.cluster.spec.storage or Storage.model_construct()
    found: list[Object] = []
    if given.endpoint is not None:
        found.append({"name": "AWS_ENDPOINT_URL", "value": given.endpoint.replace("$", "$$")})
    if given.region is not None:
        found.append({"name": "AWS_REGION", "value": given.region.replace("$", "$$")})
    for key in BUCKET_KEYS if given.secret_name is not None else ():
        reference: Object = {"name": given.secret_name, "key": key}
        if key == BUCKET_KEYS[-1]:
            reference["optional"] = True
        found.append({"name": key, "valueFrom": {"secretKeyRef": reference}})
    return found


def _readers(spec: Spec, found: Sequence[Holding]) -> int:
    """Pods that mount the claim."""
    return sum(held.replicas for held in found) + (spec.tensorboard is not None)


def _reader_names(spec: Spec, found: Sequence[str]) -> list[str]:
    return [*found, *(["tensorboard"] if spec.tensorboard is not None else [])]


def affinity(topology: Topology, role: ResolvedRole) -> Object:
    """The role's own affinity, and the one that a ReadWriteOnce claim needs.

    The first pod can be scheduled too: the scheduler accepts a pod whose own labels match the term
    (https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/).
    """
    if role.name not in on_one_node(topology):
        return dict(role.given.affinity)
    return _beside({"matchLabels": {object_names.NODE_LABEL: topology.run}}, role.given.affinity)


def tensorboard_affinity(topology: Topology, own: Mapping[str, Any]) -> Object:
    """The same for the TensorBoard. It never comes first: it would choose a node without GPUs for all."""
    together = on_one_node(topology)
    if not together:
        return dict(own)
    members = {
        "matchLabels": {object_names.RUN_LABEL: topology.run},
        "matchExpressions": [{"key": object_names.ROLE_LABEL, "operator": "In", "values": list(together)}],
    }
    return _beside(members, own)


def _beside(members: Object, own: Mapping[str, Any]) -> Object:
    between = own.get("podAffinity", {})
    if not isinstance(between, Mapping):
        return dict(own)
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": members}
    return {**own, "podAffinity": {**between, _REQUIRED: [*between.get(_REQUIRED, ()), term]}}


def notices(topology: Topology) -> Iterator[str]:
    """Sentences on storage that behaves otherwise than a reader of the file might expect."""
    spec = topology.cluster.spec
    if together := on_one_node(topology):
        names = _reader_names(spec, together)
        pods = _readers(spec, holdings(topology))
        yield (
            f"spec.storage: one node at a time can mount a ReadWriteOnce claim, so the {pods} pods of "
            f"{listed(names)} are placed on one node; accessModes: [ReadWriteMany], or a modelDir such as "
            "s3://bucket/run, lets them spread"
        )
    scheme = _scheme(spec.model_dir)
    alone = [role.name for role in topology.roles if role.touches_model_dir and not mirrors(topology, role)]
    if scheme is not None and scheme not in BUILT_IN and alone:
        yield (
            f"spec.modelDir: {scheme}:// needs a library in the image of the {listed(alone)}; TensorFlow "
            "itself opens gs:// only"
        )


def broken(topology: Topology) -> Iterator[tuple[FieldPath, str]]:
    """The rules for modelDir and storage that the spec breaks."""
    spec = topology.cluster.spec
    path = spec.model_dir
    here: FieldPath = ("spec", "modelDir")
    custom = roles.is_custom(spec)
    if path is None:
        if spec.evaluator is not None and spec.evaluator.replicas and spec.program is not None and not custom:
            yield here, "missing: the evaluator reads the checkpoints there, such as modelDir: /model"
        if spec.storage is not None and not (_is_for_data(spec) and not _claim_fields(spec.storage)):
            yield ("spec", "storage"), "it is mounted at modelDir: give that too, such as modelDir: /model"
        if spec.tensorboard is not None:
            yield ("spec", "tensorboard"), "it shows what is in modelDir: give that, such as modelDir: /model"
    elif path.startswith(("file://", "ram://")):
        scheme = path.partition("://")[0]
        other = "the path itself, such as /model" if scheme == "file" else "a path, such as /model"
        yield here, f"expected {other}, or a URL such as gs://bucket/run, not {path}"
    elif (known := _scheme(path)) is not None:
        yield from _of_url(spec, path, known)
        if known == BUCKET_SCHEME and spec.tensorboard is not None:
            said = f"TensorBoard cannot open {known}://: remove it, and use the command tensorboard"
            yield ("spec", "tensorboard"), said
        yield from _known(topology, known)
    elif not path.startswith("/") or ":" in path or path.rstrip("/") == "" or ".." in path.split("/"):
        said = f"expected an absolute path other than /, or a URL such as gs://bucket/run, not {path}"
        yield here, said
    elif path.rstrip("/") == TMP_PATH or any(
        roles.covers(own, path) or roles.covers(path, own) for own in _NO_DIRECTORIES
    ):
        yield here, f"{path} is not for a model: choose another, such as /model"
    else:
        yield from _volumes(topology, path)
        for name, field in _OF_BUCKETS.items():
            if spec.storage is not None and name in spec.storage.model_fields_set and not _is_for_data(spec):
                said = f"it is for modelDir: s3://..., and modelDir is {path}; remove {field}"
                yield ("spec", "storage", field), said


def _scheme(path: str | None) -> str | None:
    match = _URL.fullmatch(path or "")
    return match[1] if match else None


def _is_for_data(spec: Spec) -> bool:
    """Whether `storage` says how the program's data are reached."""
    return _is_program(spec) and not roles.is_custom(spec) and _data(spec) is not None


def _claim_fields(given: Storage | None) -> list[str]:
    return [
        field for name, field in _OF_CLAIMS.items() if given is not None and name in given.model_fields_set
    ]


def _of_url(spec: Spec, url: str, scheme: str) -> Iterator[tuple[FieldPath, str]]:
    """The rules for a URL, and for what `storage` says beside it."""
    where: FieldPath = ("spec", "storage")
    given = spec.storage
    if scheme != BUCKET_SCHEME and not _is_for_data(spec):
        if given is not None:
            yield where, f"modelDir is {url}: there is nothing to mount; remove storage"
        return
    is_bucket = _BUCKET.fullmatch(url.partition("://")[2]) and not {".", ".."} & set(url.split("/"))
    if scheme == BUCKET_SCHEME and not is_bucket:
        yield ("spec", "modelDir"), f"expected a bucket and a path in it, as in s3://bucket/run, not {url}"
    for field in _claim_fields(given):
        yield (*where, field), f"modelDir is {url}: no claim is made for it; remove {field}"


def _known(topology: Topology, scheme: str) -> Iterator[tuple[FieldPath, str]]:
    """An image of the user's may have what the launcher's lacks."""
    ours = [
        role.name
        for role in topology.roles
        if role.touches_model_dir
        and role.image == roles.DEFAULT_IMAGE
        and role.uses_runtime
        and not mirrors(topology, role)
    ]
    if scheme not in BUILT_IN and ours:
        said = (
            f"{roles.DEFAULT_IMAGE}, the image of the {listed(ours)}, cannot open {scheme}://: its "
            "TensorFlow knows gs:// only, and tensorflow-io, which adds others, is not released for it; use "
            "gs:// or a volume, or give spec.image, an image of yours that can"
        )
        if scheme == BUCKET_SCHEME:
            said += " (for a program with an entrypoint the runtime opens s3://)"
        yield ("spec", "modelDir"), said


def _volumes(topology: Topology, path: str) -> Iterator[tuple[FieldPath, str]]:
    spec = topology.cluster.spec
    found = holdings(topology)
    own = [held for held in found if held.mount is not None]
    without = [held.role for held in found if held.mount is None]
    here: FieldPath = ("spec", "modelDir")
    if own and without:
        said = (
            f"{path} is in a volume of the {listed([held.role for held in own])}, and the {listed(without)} "
            "has none there: give volumes and volumeMounts in spec.template, which is for all roles"
        )
        yield here, said
    kinds = {held.role: _kind(held.volume) for held in own}
    for role, kind in kinds.items():
        if kind in _LOST:
            said = f"is in an {kind} volume of the {role}, which is lost with its pod: mount a claim, or none"
            yield here, f"{path} {said}, and the launcher makes one"
            return
        mount = next(held.mount for held in own if held.role == role) or {}
        if kind in _READ_ONLY or mount.get("readOnly"):
            said = "mounts it readOnly" if kind not in _READ_ONLY else f"has it in a {kind} volume"
            yield here, f"{path} is written to by the {role}, which {said}: mount a claim that can be written"
            return
    if spec.tensorboard is not None and any("subPathExpr" in (held.mount or {}) for held in own):
        said = "is mounted with subPathExpr, whose variables TensorBoard does not have: use subPath"
        yield ("spec", "tensorboard"), f"{path} {said}"
    if not without and any(_where(held, path) != _where(own[0], path) for held in own):
        said = "are not the same volume: give them one, in spec.template"
        yield here, f"{path} of the {listed(list(kinds))} {said}"
    if spec.storage is None:
        return
    modes = spec.storage.access_modes
    where: FieldPath = ("spec", "storage")
    if own:
        yield (
            where,
            f"{path} is in a volume of yours, so no claim is made for it: remove storage, or the mount",
        )
    elif "ReadWriteOncePod" in modes:
        pods = _readers(spec, found)
        if len(modes) > 1:
            yield (*where, "accessModes"), "ReadWriteOncePod stands alone: remove the other modes, or it"
        elif pods > 1:
            names = _reader_names(spec, [held.role for held in found])
            said = (
                f"one pod can mount a ReadWriteOncePod claim, and {pods} pods mount it, of "
                f"{listed(names)}: expected ReadWriteOnce or ReadWriteMany"
            )
            yield (*where, "accessModes"), said


def holdings(topology: Topology) -> list[Holding]:
    """The place of the model directory, if it is a path, for each role that uses it."""
    directory = topology.cluster.spec.model_dir or ""
    found = []
    for role in topology.roles:
        if role.touches_model_dir:
            covering = [m for m in role.pod_mounts if roles.covers(str(m["mountPath"]), directory)]
            mount = max(covering, key=lambda mount: len(mount["mountPath"]), default=None)
            volume = role.pod_volumes.get(mount.get("name", "")) if mount is not None else None
            found.append(Holding(role.name, role.replicas, mount, volume))
    return found


def _kind(volume: Mapping[str, Any] | None) -> str:
    """`emptyDir`, `persistentVolumeClaim` and so on; a volume that says nothing is an emptyDir."""
    return next((kind for kind in volume or {"?": 0} if kind != "name"), "emptyDir")


def _where(held: Holding, path: str) -> object:
    """The same for roles that have the same directory there: the volume, and the path in it."""
    source = {key: value for key, value in (held.volume or {}).items() if key != "name"}
    mount = held.mount or {}
    part = mount.get("subPath") or mount.get("subPathExpr") or ""
    rest = path[len(str(mount.get("mountPath", "")).rstrip("/")) :]
    return source, f"{part}/{rest}".replace("//", "/").strip("/")
