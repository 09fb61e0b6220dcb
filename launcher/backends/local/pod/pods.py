"""A Job's pod template and an index -> the pod, its command, environment and directories."""

from __future__ import annotations

import importlib.util
import os
import random
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from launcher.backends import folders
from launcher.backends.local.pod import volume_paths
from launcher.backends.local.pod.environment import NODE, environment, expand
from launcher.backends.local.pod.translation import Translation
from launcher.backends.local.process.mount_namespace import View
from launcher.backends.local.process.processes import MARK, Launch
from launcher.backends.local.store import RunDirectory, Submission, memory_root, new_uid, temporary_root
from launcher.object_names import DOMAIN, ROLE_LABEL
from launcher.plan.pods import COPIES_VOLUME, PACKAGES_VOLUME, RUN_FILE
from launcher.status import ATTEMPT_ANNOTATION, INDEX_KEY, labels_of
from worker.contract.environment import BUCKET_KEYS, BUCKET_SCHEME, Env
from worker.contract.run_config import GRACE_SECONDS

PROCESS_ANNOTATION: Final = f"{DOMAIN}/process"
"""See `processes.identity`."""

_INHERITED: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
"""Variables that replace the image's environment. The user's others are left out, since they do not exist on
a cluster either.
"""

_BUCKET_VARIABLES: Final = (
    *BUCKET_KEYS, "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
)  # fmt: skip
"""Variables of the user's that say who may use a bucket, and where it is. On a cluster a Secret or the pod's
identity does; no others get them.
"""

_READ_ONLY: Final = ("configMap", "secret", "downwardAPI", "projected")
"""Volumes that nobody writes to."""
_NEEDED: Final = ("/bin", "/dev", "/etc", "/lib", "/proc", "/sys", "/tmp", "/usr", __file__)  # noqa: S108

_PYTHON: Final = ("python", "python3")
PYTHON_VARIABLE: Final = "TF_LAUNCHER_PYTHON"
"""Names the `python` and `python3` of the tasks, such as one with another TensorFlow."""
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own for generated names."""

VOLUME_KINDS: Final = ("emptyDir", "configMap", "persistentVolumeClaim", "hostPath")
"""The volumes that have a meaning on this machine."""


@dataclass(frozen=True)
class Surroundings:
    """What the supervisor has made for its tasks. `variables` are in each one's environment, unless it has
    them itself; with `views` each sees its volumes at their mountPath: see `mount_namespace.View`.
    `listeners` maps addresses of this machine to the sockets that listen there.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    views: bool = False
    listeners: Mapping[str, int] = field(default_factory=dict)


class PodTemplate:
    """One Job's pods. Nothing is written or started before `materialise`."""

    def __init__(
        self,
        directory: RunDirectory,
        submission: Submission,
        job: dict[str, Any],
        surroundings: Surroundings | None = None,
    ) -> None:
        self.job = job
        self._surroundings = surroundings or Surroundings()
        self.role: str = labels_of(job).get(ROLE_LABEL, job["metadata"]["name"])
        self.template: Mapping[str, Any] = job["spec"]["template"]
        self.spec: Mapping[str, Any] = self.template["spec"]
        self.container: Mapping[str, Any] = self.spec["containers"][0]
        grace: float | None = self.spec.get("terminationGracePeriodSeconds")
        self.grace: float = GRACE_SECONDS if grace is None else grace
        self._directory = directory
        self._submission = submission
        self._config_maps = submission.config_maps()
        self._binary_data = submission.binary_data()
        names = [*self._config_maps, *self._binary_data]
        self.config_keys = {
            name: {*self._config_maps.get(name, ()), *self._binary_data.get(name, ())} for name in names
        }
        """Of each of the run's ConfigMaps."""
        self._volumes: dict[str, Mapping[str, Any]] = {
            volume["name"]: volume for volume in self.spec.get("volumes") or ()
        }

    def hostname(self, index: int) -> str:
        """Stable over replacements, and the name of the pod's directory."""
        return f"{self.job['metadata']['name']}-{index}"

    def pod(self, index: int, attempt: int, created: str) -> dict[str, Any]:
        """A new Pod object, Pending, as the Job controller makes it. `created` is a Kubernetes time."""
        metadata = self.template.get("metadata") or {}
        job = self.job["metadata"]
        suffix = "".join(random.choices(_SUFFIX_LETTERS, k=5))  # noqa: S311 - no secret
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{self.hostname(index)}-{suffix}",
                "namespace": self._submission.namespace,
                "uid": new_uid(),
                "creationTimestamp": created,
                "labels": {
                    **(metadata.get("labels") or {}),
                    "batch.kubernetes.io/job-name": job["name"],
                    "job-name": job["name"],
                    INDEX_KEY: str(index),
                },
                "annotations": {
                    **(metadata.get("annotations") or {}),
                    INDEX_KEY: str(index),
                    ATTEMPT_ANNOTATION: str(attempt),
                },
            },
            "spec": {
                "hostname": self.hostname(index),
                "nodeName": NODE,
                "serviceAccountName": self.spec.get("serviceAccountName", "default"),
            },
            "status": {"phase": "Pending", "containerStatuses": []},
        }

    def launch(self, pod: Mapping[str, Any]) -> Launch:
        """Raises `environment.MissingError` and `volume_paths.OutsideError`."""
        index = int(pod["metadata"]["labels"][INDEX_KEY])
        attempt = int(pod["metadata"]["annotations"][ATTEMPT_ANNOTATION])
        variables = environment(self.container, pod, self._config_maps)
        # The controller appends it, so no other variable can refer to it.
        container_variables = {"JOB_COMPLETION_INDEX": str(index), **variables}
        self.check_paths(index, variables)
        translation = self.translation(index, variables)
        words = [*(self.container.get("command") or ()), *(self.container.get("args") or ())]
        argv = [translation.text(expand(word, container_variables)) for word in words]
        if argv and argv[0] in _PYTHON:
            argv[0] = tasks_python()
        env = {**image_environment(), **self._surroundings.variables}
        env["HOSTNAME"] = self.hostname(index)
        # Without a volume there, /tmp is the container's own and goes with it.
        env["TMPDIR"] = translation.path("/tmp") or str(self._temporary(index))  # noqa: S108
        env.update((name, translation.text(value)) for name, value in container_variables.items())
        if Env.PACKAGES in container_variables:
            env.update((name, value) for name, value in os.environ.items() if name.startswith("PIP_"))
            env.update(
                (name, value) for name, value in container_variables.items() if name.startswith("PIP_")
            )
        if self._uses_bucket:
            env.update((name, os.environ[name]) for name in _BUCKET_VARIABLES if os.environ.get(name))
            env.update(
                (name, container_variables[name])
                for name in ("AWS_ENDPOINT_URL", "AWS_REGION")
                if name in container_variables
            )
        env[MARK] = f"{self._submission.uid}/{pod['metadata']['uid']}"
        log = self._directory.log(self.hostname(index), attempt)
        view = self._view(index, variables) if self._surroundings.views else None
        listener = self._surroundings.listeners.get(env.get(Env.METRICS, ""))
        if listener is not None:
            env[Env.METRICS] = f"fd:{listener}"
        inherited = [] if listener is None else [listener]
        return Launch(argv, env, self._cwd(index, translation), log, view, inherited)

    @property
    def _uses_bucket(self) -> bool:
        documents = (files[RUN_FILE] for files in self._config_maps.values() if RUN_FILE in files)
        return any(f'"{BUCKET_SCHEME}://' in document for document in documents)

    def _view(self, index: int, variables: Mapping[str, str]) -> View:
        mounts: dict[str, str] = {}
        opened: list[str] = []
        read_only: list[str] = []
        writable: set[Path] = set()
        readable: set[Path] = set()
        for mount in self.container.get("volumeMounts") or ():
            volume = self._volumes.get(mount["name"])
            if volume is None:
                continue
            source, path = self._volume(index, volume), mount["mountPath"]
            is_read_only = bool(mount.get("readOnly")) or any(kind in volume for kind in _READ_ONLY)
            (readable if is_read_only else writable).add(source)
            if volume["name"].startswith("launcher-") and "persistentVolumeClaim" not in volume:
                continue  # variables hold the paths of the launcher's own
            if "persistentVolumeClaim" in volume:
                opened.append(str(source))
            source /= _sub_path(mount, variables)
            if source.is_dir() and self._may_cover(path, source):
                mounts[path] = str(source)
                if is_read_only:
                    read_only.append(path)
        # By the paths that variables and arguments give, too: those of this machine.
        read_only_sources = [str(source) for source in readable - writable if source.is_dir()]
        mounts |= {path: path for path in read_only_sources}
        read_only += read_only_sources
        scratch = self._directory.pod(self.hostname(index)) / "view"
        return View(mounts, [str(path) for path in self._claims], opened, str(scratch), read_only)

    @property
    def _claims(self) -> Sequence[Path]:
        """The folders that hold claims."""
        return self._directory.store / "volumes", self._directory.path / "claims"

    def _may_cover(self, path: str, source: Path) -> bool:
        """Whether the folder may replace what this machine has at that path."""
        if not path.startswith("/") or Path(path).is_relative_to("/tmp"):  # noqa: S108 - translated, as TMPDIR is
            return False
        here = Path(os.path.realpath(path))
        needed = (sys.prefix, sys.base_prefix, sys.executable, self._directory.store, source, *_NEEDED)
        return not any(Path(each).resolve().is_relative_to(here) for each in needed)

    def translation(self, index: int, variables: Mapping[str, str] | None = None) -> Translation:
        """The addresses of the run, and the mounts of this pod."""
        mounts = {}
        for mount in self.container.get("volumeMounts") or ():
            if (volume := self._volumes.get(mount["name"])) is not None:
                mounts[mount["mountPath"]] = str(self._volume(index, volume) / _sub_path(mount, variables))
        shared = ("/tmp",) if "launcher-tmp" in self._volumes else ()  # noqa: S108
        return Translation(self._submission.addresses, mounts, shared)

    def check_paths(self, index: int, variables: Mapping[str, str]) -> None:
        """Raises volume_paths.OutsideError for a subPath that leads out of its volume."""
        for number, mount in enumerate(self.container.get("volumeMounts") or ()):
            volume, path = self._volumes.get(mount["name"]), _sub_path(mount, variables)
            if volume is not None and path:
                field = f"spec.containers[0].volumeMounts[{number}].subPath"
                volume_paths.below(self._volume(index, volume), path, field)

    def materialise(self, index: int, attempt: int) -> None:
        """Makes the pod's directories, empty as a new pod's are, and writes its ConfigMaps.

        Raises OSError. Claims and hostPaths keep what they hold.
        """
        directory = self._directory.pod(self.hostname(index))
        directory.mkdir(parents=True, exist_ok=True)
        for fresh in (directory / "work", directory / "volumes", self._temporary(index), self._memory(index)):
            if fresh is not None and fresh.exists():
                folders.remove(fresh)
        (directory / "work").mkdir()
        self._temporary(index).mkdir(parents=True, mode=0o700)
        if self._surroundings.views:
            for needed in (directory / "view", *self._claims):
                needed.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A command that follows the run may open the log as soon as the pod exists.
        self._directory.log(self.hostname(index), attempt).touch()
        translation = self.translation(index)
        for volume in self._volumes.values():
            path = self._volume(index, volume)
            host = volume.get("hostPath")
            if host is None or host.get("type") == "DirectoryOrCreate":
                path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if (source := volume.get("configMap")) is not None:
                self._write_config_map(path, source, translation)
        self.check_paths(index, {})
        for mount in self.container.get("volumeMounts") or ():
            volume = self._volumes.get(mount["name"], {})
            if mount.get("subPath") and ("emptyDir" in volume or "persistentVolumeClaim" in volume):
                (self._volume(index, volume) / mount["subPath"]).mkdir(parents=True, exist_ok=True)

    def _write_config_map(self, path: Path, source: Mapping[str, Any], translation: Translation) -> None:
        texts = self._config_maps.get(source["name"], {})
        binaries = self._binary_data.get(source["name"], {})
        items = source.get("items") or [{"key": key, "path": key} for key in [*texts, *binaries]]
        for item in items:
            file = path / item["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            if item["key"] in binaries:
                file.write_bytes(binaries[item["key"]])
            elif item["key"] in texts:  # otherwise it is optional, which preflight has checked
                # Kubernetes keeps line ends as they are.
                file.write_bytes(translation.file(texts[item["key"]]).encode())

    def _volume(self, index: int, volume: Mapping[str, Any]) -> Path:
        if (host := volume.get("hostPath")) is not None:
            return Path(str(host["path"]))
        if (claim := volume.get("persistentVolumeClaim")) is not None:
            return self._directory.claim(str(claim["claimName"]))
        if not any(kind in volume for kind in VOLUME_KINDS):
            # Preflight has checked that the path exists.
            return Path(self.mount_path(volume["name"]))
        if "emptyDir" in volume and self.mount_path(volume["name"]).rstrip("/") == "/tmp":  # noqa: S108
            return self._temporary(index)
        if volume["name"] == PACKAGES_VOLUME:
            return self._directory.path / "packages"  # one for all tasks: they share this machine
        if volume["name"] == COPIES_VOLUME and (memory := self._memory(index)) is not None:
            return memory
        return self._directory.volume(self.hostname(index), str(volume["name"]))

    def mount_path(self, volume: str) -> str:
        """Where the container sees the volume first; "" where it does not."""
        for mount in self.container.get("volumeMounts") or ():
            if mount["name"] == volume:
                return str(mount["mountPath"])
        return ""

    def _temporary(self, index: int) -> Path:
        return temporary_root(self._submission.uid) / f"{self.role}-{index}"

    def _memory(self, index: int) -> Path | None:
        root = memory_root(self._submission.uid)
        return None if root is None else root / f"{self.role}-{index}"

    def _cwd(self, index: int, translation: Translation) -> Path:
        wanted = self.container.get("workingDir")
        if wanted is None:
            return self._directory.pod(self.hostname(index)) / "work"
        return Path(translation.path(wanted) or wanted)


def _sub_path(mount: Mapping[str, Any], variables: Mapping[str, str] | None) -> str:
    return mount.get("subPath") or expand(mount.get("subPathExpr") or "", variables or {})


def tasks_python() -> str:
    """Returns the tasks' Python: this process's own, or the one that the user names."""
    return os.environ.get(PYTHON_VARIABLE) or sys.executable


def image_environment() -> dict[str, str]:
    """What the image's environment would be: little of the user's, and `python` and `worker` to be found."""
    env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    env["PATH"] = os.pathsep.join([str(Path(tasks_python()).parent), env.get("PATH") or os.defpath])
    # A worker image sets it too: output is read while it is news.
    env["PYTHONUNBUFFERED"] = "1"
    worker = importlib.util.find_spec("worker")
    if worker is not None and worker.origin is not None:
        holder = str(Path(worker.origin).parents[1])
        # On PYTHONPATH, site-packages would come before the standard library.
        if holder not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
            others = env.get("PYTHONPATH", "").split(os.pathsep)
            env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([holder, *filter(None, others)]))
    return env
