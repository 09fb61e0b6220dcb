"""Where the model directory is: in a claim that the run makes, in a user's volume, or at a URL. Each kind of
place is a class: what it needs of the pods, and what of the file it forbids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from launcher import object_names
from launcher.config.spec import RoleName, Storage
from launcher.config.yaml_parser import FieldPath
from launcher.lists_and_counts import listed
from launcher.plan import buckets, roles
from launcher.plan.roles import (
    CONFIG_PATH,
    COPIES_PATH,
    PACKAGES_PATH,
    PARTS_PATH,
    RUNTIME_PATH,
    SOURCE_PATH,
    TASK_PATH,
    TMP_PATH,
    ResolvedRole,
)
from launcher.plan.topology import Topology
from worker.contract.environment import BUCKET_SCHEME

RESERVED_PATHS: Final = (
    CONFIG_PATH,
    SOURCE_PATH,
    PARTS_PATH,
    PACKAGES_PATH,
    RUNTIME_PATH,
    TASK_PATH,
    COPIES_PATH,
)
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

_LOST: Final = ("emptyDir", "ephemeral")
_READ_ONLY: Final = ("configMap", "secret", "downwardAPI", "projected", "image")

_MODEL_DIR: Final = ("spec", "modelDir")
_STORAGE: Final = ("spec", "storage")
_TENSORBOARD: Final = ("spec", "tensorboard")

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
Object = dict[str, Any]
Violation = tuple[FieldPath, str]


@dataclass(frozen=True)
class Holding:
    """The user's mount and volume that hold a role's model directory, or neither."""

    role: RoleName
    replicas: int
    mount: Mapping[str, Any] | None
    volume: Mapping[str, Any] | None


class Place:
    """A place of the model directory. This one is none: the file gives no modelDir."""

    claim: str | None = None
    """The claim that the run makes for it."""
    on_one_node: tuple[RoleName, ...] = ()
    """The roles whose pods must share a node, because they mount a claim that only one node can mount; its
    TensorBoard must be there too.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.spec = topology.cluster.spec
        self.path = self.spec.model_dir or ""

    def problems(self) -> Iterator[Violation]:
        """The rules for modelDir, storage and tensorboard that the spec breaks."""
        spec = self.spec
        evaluates = spec.evaluator is not None and spec.evaluator.replicas
        if evaluates and spec.program is not None and not roles.is_custom(spec):
            message = "missing: the evaluator reads the checkpoints there, such as modelDir: /model"
            yield _MODEL_DIR, message
        if spec.storage is not None and not (self._is_for_data and not self._claim_fields):
            yield _STORAGE, "it is mounted at modelDir: give that too, such as modelDir: /model"
        if spec.tensorboard is not None:
            yield _TENSORBOARD, "it shows what is in modelDir: give that, such as modelDir: /model"

    def notices(self) -> Iterator[str]:
        """Sentences on what is otherwise than a reader of the file might expect."""
        yield from ()

    @property
    def _is_for_data(self) -> bool:
        """Whether `storage` says how the program's data or source are reached."""
        spec = self.spec
        has_data = spec.trains_program and buckets.has_data(spec)
        return not roles.is_custom(spec) and (has_data or buckets.has_source(spec))

    @property
    def _claim_fields(self) -> list[str]:
        return self._given(_OF_CLAIMS)

    def _given(self, fields: Mapping[str, str]) -> list[str]:
        """Those of the fields that `storage` has, as the file calls them."""
        given = self.spec.storage
        return [
            field for name, field in fields.items() if given is not None and name in given.model_fields_set
        ]


class Unfit(Place):
    """No place for a model."""

    def __init__(self, topology: Topology, why: str) -> None:
        super().__init__(topology)
        self._why = why

    def problems(self) -> Iterator[Violation]:
        """See `Place.problems`."""
        yield _MODEL_DIR, self._why


class Url(Place):
    """A URL, which the image's TensorFlow must open."""

    remedy = ""
    """What else than another image helps."""

    @property
    def scheme(self) -> str:
        """Such as gs."""
        return buckets.scheme(self.path) or ""

    @property
    def _openers(self) -> list[ResolvedRole]:
        """The roles whose tasks open the URL by themselves."""
        return [
            role
            for role in self.topology.roles
            if role.touches_model_dir and not buckets.mirrors(self.topology, role)
        ]

    def problems(self) -> Iterator[Violation]:
        """See `Place.problems`."""
        yield from self._of_storage()
        # An image of the user's may have what the launcher's lacks.
        ours = [
            role.name for role in self._openers if role.image == roles.DEFAULT_IMAGE and role.uses_runtime
        ]
        if self.scheme not in BUILT_IN and ours:
            message = (
                f"{roles.DEFAULT_IMAGE}, the image of the {listed(ours)}, cannot open {self.scheme}://: its "
                "TensorFlow knows gs:// only, and tensorflow-io, which adds others, is not released for it; "
                "use gs:// or a volume, or give spec.image, an image of yours that can"
            )
            yield _MODEL_DIR, message + self.remedy

    def _of_storage(self) -> Iterator[Violation]:
        if self._is_for_data:
            yield from self._no_claim()
        elif self.spec.storage is not None:
            yield _STORAGE, f"modelDir is {self.path}: there is nothing to mount; remove storage"

    def _no_claim(self) -> Iterator[Violation]:
        for field in self._claim_fields:
            yield (*_STORAGE, field), f"modelDir is {self.path}: no claim is made for it; remove {field}"

    def notices(self) -> Iterator[str]:
        """See `Place.notices`."""
        alone = [role.name for role in self._openers]
        if self.scheme not in BUILT_IN and alone:
            yield (
                f"spec.modelDir: {self.scheme}:// needs a library in the image of the {listed(alone)}; "
                "TensorFlow itself opens gs:// only"
            )


class Bucket(Url):
    """A bucket of S3, which the runtime keeps a mirror of."""

    remedy = " (for a program with an entrypoint the runtime opens s3://)"

    def _of_storage(self) -> Iterator[Violation]:
        rest = self.path.partition("://")[2]
        if not _BUCKET.fullmatch(rest) or {".", ".."} & set(self.path.split("/")):
            yield _MODEL_DIR, f"expected a bucket and a path in it, as in s3://bucket/run, not {self.path}"
        yield from self._no_claim()
        if self.spec.tensorboard is not None:
            message = f"TensorBoard cannot open {self.scheme}://: remove it, and use the command tensorboard"
            yield _TENSORBOARD, message


class Directory(Place):
    """A path in the pods; `held` says how the roles that use it have it."""

    def __init__(self, topology: Topology, held: Sequence[Holding]) -> None:
        super().__init__(topology)
        self.held = held

    def problems(self) -> Iterator[Violation]:
        """See `Place.problems`."""
        yield from self._of_volumes()
        for field in [] if self._is_for_data else self._given(_OF_BUCKETS):
            message = f"it is for modelDir: s3://..., and modelDir is {self.path}; remove {field}"
            yield (*_STORAGE, field), message

    def _of_volumes(self) -> Iterator[Violation]:
        raise NotImplementedError


class Claim(Directory):
    """A claim that the run makes."""

    def __init__(self, topology: Topology, held: Sequence[Holding]) -> None:
        super().__init__(topology, held)
        self.claim = f"{topology.run}-model"
        self.modes = (self.spec.storage or Storage.model_construct()).access_modes
        board = ["tensorboard"] if self.spec.tensorboard is not None else []
        self._pods = sum(one.replicas for one in held) + len(board)
        """That mount it."""
        self._readers = listed([*(one.role for one in held), *board])
        if "ReadWriteMany" not in self.modes and self._pods > 1:
            self.on_one_node = tuple(one.role for one in held)

    def _of_volumes(self) -> Iterator[Violation]:
        if "ReadWriteOncePod" not in self.modes:
            return
        if len(self.modes) > 1:
            message = "ReadWriteOncePod stands alone: remove the other modes, or it"
            yield (*_STORAGE, "accessModes"), message
        elif self._pods > 1:
            message = (
                f"one pod can mount a ReadWriteOncePod claim, and {self._pods} pods mount it, of "
                f"{self._readers}: expected ReadWriteOnce or ReadWriteMany"
            )
            yield (*_STORAGE, "accessModes"), message

    def notices(self) -> Iterator[str]:
        """See `Place.notices`."""
        if self.on_one_node:
            yield (
                f"spec.storage: one node at a time can mount a ReadWriteOnce claim, so the {self._pods} pods "
                f"of {self._readers} are placed on one node; accessModes: [ReadWriteMany], or a modelDir "
                "such as s3://bucket/run, lets them spread"
            )


class Volume(Directory):
    """A volume of the user's, which one role mounts at least."""

    def _of_volumes(self) -> Iterator[Violation]:
        mounted = [one for one in self.held if one.mount is not None]
        without = [one.role for one in self.held if one.mount is None]
        if without:
            message = (
                f"{self.path} is in a volume of the {listed([one.role for one in mounted])}, and the "
                f"{listed(without)} has none there: give volumes and volumeMounts in spec.template, which is "
                "for all roles"
            )
            yield _MODEL_DIR, message
        if unfit := next(filter(None, map(self._unfit, mounted)), None):
            yield _MODEL_DIR, unfit
            return
        if self.spec.tensorboard is not None and any("subPathExpr" in (one.mount or {}) for one in mounted):
            message = "is mounted with subPathExpr, whose variables TensorBoard does not have: use subPath"
            yield _TENSORBOARD, f"{self.path} {message}"
        if not without and any(self._where(one) != self._where(mounted[0]) for one in mounted):
            message = "are not the same volume: give them one, in spec.template"
            yield _MODEL_DIR, f"{self.path} of the {listed([one.role for one in mounted])} {message}"
        if self.spec.storage is not None:
            message = "is in a volume of yours, so no claim is made for it: remove storage, or the mount"
            yield _STORAGE, f"{self.path} {message}"

    def _unfit(self, held: Holding) -> str:
        """Why a model cannot be kept there; "" where it can."""
        kind = _kind(held.volume)
        if kind in _LOST:
            message = f"is in an {kind} volume of the {held.role}, which is lost with its pod: mount a claim"
            return f"{self.path} {message}, or none, and the launcher makes one"
        if kind in _READ_ONLY or (held.mount or {}).get("readOnly"):
            message = "mounts it readOnly" if kind not in _READ_ONLY else f"has it in a {kind} volume"
            what = f"{self.path} is written to by the {held.role}"
            return f"{what}, which {message}: mount a claim that can be written"
        return ""

    def _where(self, held: Holding) -> object:
        """The same for roles that have the same directory there: the volume, and the path in it."""
        source = {key: value for key, value in (held.volume or {}).items() if key != "name"}
        mount = held.mount or {}
        part = mount.get("subPath") or mount.get("subPathExpr") or ""
        rest = self.path[len(str(mount.get("mountPath", "")).rstrip("/")) :]
        return source, f"{part}/{rest}".replace("//", "/").strip("/")


def place(topology: Topology) -> Place:
    """Where the run's model directory is."""
    path = topology.cluster.spec.model_dir
    if path is None:
        return Place(topology)
    if path.startswith(("file://", "ram://")):
        scheme = path.partition("://")[0]
        other = "the path itself, such as /model" if scheme == "file" else "a path, such as /model"
        return Unfit(topology, f"expected {other}, or a URL such as gs://bucket/run, not {path}")
    if (known := buckets.scheme(path)) is not None:
        return Bucket(topology) if known == BUCKET_SCHEME else Url(topology)
    if not path.startswith("/") or ":" in path or path.rstrip("/") == "" or ".." in path.split("/"):
        message = f"expected an absolute path other than /, or a URL such as gs://bucket/run, not {path}"
        return Unfit(topology, message)
    if path.rstrip("/") == TMP_PATH or any(
        roles.covers(directory, path) or roles.covers(path, directory) for directory in _NO_DIRECTORIES
    ):
        return Unfit(topology, f"{path} is not for a model: choose another, such as /model")
    held = holdings(topology)
    return (Volume if any(one.mount is not None for one in held) else Claim)(topology, held)


def affinity(topology: Topology, role: ResolvedRole) -> Object:
    """The role's own affinity, and the one that a ReadWriteOnce claim needs.

    The first pod can be scheduled too: the scheduler accepts a pod whose own labels match the term
    (https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/).
    """
    if role.name not in place(topology).on_one_node:
        return dict(role.given.affinity)
    return _beside({"matchLabels": {object_names.NODE_LABEL: topology.run}}, role.given.affinity)


def tensorboard_affinity(topology: Topology, given_affinity: Mapping[str, Any]) -> Object:
    """The same for the TensorBoard. It never comes first: it would choose a node without GPUs for all."""
    together = place(topology).on_one_node
    if not together:
        return dict(given_affinity)
    members = {
        "matchLabels": {object_names.RUN_LABEL: topology.run},
        "matchExpressions": [{"key": object_names.ROLE_LABEL, "operator": "In", "values": list(together)}],
    }
    return _beside(members, given_affinity)


def _beside(members: Object, given_affinity: Mapping[str, Any]) -> Object:
    between = given_affinity.get("podAffinity", {})
    if not isinstance(between, Mapping):
        return dict(given_affinity)
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": members}
    return {**given_affinity, "podAffinity": {**between, _REQUIRED: [*between.get(_REQUIRED, ()), term]}}


def holdings(topology: Topology) -> list[Holding]:
    """The place of the model directory, if it is a path, for each role that uses it."""
    directory = topology.cluster.spec.model_dir or ""
    held = []
    for role in topology.roles:
        if role.touches_model_dir:
            covering = [m for m in role.pod_mounts if roles.covers(str(m["mountPath"]), directory)]
            mount = max(covering, key=lambda mount: len(mount["mountPath"]), default=None)
            volume = role.pod_volumes.get(mount.get("name", "")) if mount is not None else None
            held.append(Holding(role.name, role.replicas, mount, volume))
    return held


def _kind(volume: Mapping[str, Any] | None) -> str:
    """`emptyDir`, `persistentVolumeClaim` and so on; a volume that says nothing is an emptyDir."""
    return next((kind for kind in volume or {"?": 0} if kind != "name"), "emptyDir")
