"""Makes the pod, takes what it sends through a tunnel, and removes the pod."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

from launcher.backends import copied_files
from launcher.backends.base import Board
from launcher.backends.kubernetes.api_server.client import Client, Object
from launcher.backends.kubernetes.api_server.port_forward import Tunnel
from launcher.backends.kubernetes.api_server.resources import owner_reference
from launcher.backends.kubernetes.model_files.sender import COMPLETE, CONTENT
from launcher.backends.kubernetes.tensorboard import reason
from launcher.config.role_fields import rules
from launcher.config.spec import RoleTemplate
from launcher.errors import BackendError, LauncherError
from launcher.object_names import COPY_LABEL, RUN_LABEL
from launcher.plan.pods import escaped, without_sidecars

_PORT: Final = 9000
_CONTAINER: Final = "copy"
_LIFE_SECONDS: Final = 3600
"""After which the cluster ends the pod, whatever has become of us."""
_IDLE_SECONDS: Final = 120
"""How long it waits to be asked."""
_ASKING_SECONDS: Final = 60.0
"""For its program to start, once the pod runs."""
_SILENCE_SECONDS: Final = 60.0
"""Between two pieces of what it sends."""
_PIECE: Final = 1 << 20

_RESOURCES: Final = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}
_LOCKED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@dataclass(frozen=True)
class Origin:
    """What is to be copied: `path` below `directory`, which `mount` has in the primary's pods. `root` is the
    run's root object, a Job or a JobSet as `kind` says, whose end is the pod's, too.
    """

    run: str
    kind: str
    root: Object
    primary: Object
    mount: Mapping[str, Any]
    directory: str
    path: str


def copy(client: Client, origin: Origin, target: Path, seconds: float) -> None:
    """Writes it to `target`. The pod has so many seconds to come up.

    Raises ConflictError where there is nothing at the path, BackendError where the pod does not come up, may
    not be made, or the connection breaks, and LauncherError where this machine cannot write.
    """
    namespace = origin.root["metadata"]["namespace"]
    pod = _pod(client, origin)
    name = pod["metadata"]["labels"][COPY_LABEL]
    selector = f"{COPY_LABEL}={name}"
    client.create(pod)
    try:
        _wait(client, namespace, selector, seconds)
        with Tunnel(client, namespace, lambda: str(pod["metadata"]["name"]), _PORT, 0) as tunnel:
            _receive(lambda: _asked(tunnel), origin.path, target)
    finally:
        client.patience.restart()
        client.delete_all("Pod", namespace, selector)


def _pod(client: Client, origin: Origin) -> Object:
    run, root, mount = origin.run, origin.root, origin.mount
    spec = origin.primary["spec"]["template"]["spec"]
    container = spec["containers"][0]
    (volume,) = (each for each in spec["volumes"] if each["name"] == mount["name"])
    namespace = root["metadata"]["namespace"]
    name = f"{run[:40].rstrip('-')}-cp-{secrets.token_hex(4)}"
    labels = {"app.kubernetes.io/name": "tf-launcher", "app.kubernetes.io/component": "cp", COPY_LABEL: name}
    metadata = without_sidecars({"labels": labels, "annotations": {}}, ())
    program = files(__package__).joinpath("sender.py").read_text(encoding="utf-8")
    arguments = [program, origin.directory, origin.path, str(_PORT), str(_IDLE_SECONDS)]
    kept = ["securityContext", *(field.alias for field in rules(RoleTemplate, "pod", ("image", "node")))]
    same_image = [field.alias for field in rules(RoleTemplate, "container", ("image",))]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "name": name,
            "namespace": namespace,
            "ownerReferences": [owner_reference(origin.kind, root)],
        },
        "spec": {
            **{key: spec[key] for key in kept if spec.get(key)},
            **_beside(client, run, namespace, volume),
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _LIFE_SECONDS,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [
                {
                    "name": _CONTAINER,
                    "image": container["image"],
                    **{key: container[key] for key in same_image if container.get(key)},
                    "command": ["python3", "-c", *map(escaped, arguments)],
                    "resources": _RESOURCES,
                    "securityContext": _LOCKED,
                    "volumeMounts": [{**_plain(mount), "readOnly": True}],
                }
            ],
            "volumes": [volume],
        },
    }


def _plain(mount: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is for a mount that is written to."""
    return {
        key: value for key, value in mount.items() if key not in ("mountPropagation", "recursiveReadOnly")
    }


def _beside(client: Client, run: str, namespace: str, volume: Mapping[str, Any]) -> Object:
    """On the node of the run's own pods, where only one node can mount the claim and they live."""
    claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
    claim_object = client.get("PersistentVolumeClaim", namespace, claim) if claim else None
    modes = ((claim_object or {}).get("spec") or {}).get("accessModes") or ()
    if claim_object is None or {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
        return {}
    pods, _ = client.list("Pod", namespace, f"{RUN_LABEL}={run}")
    if not any((pod.get("status") or {}).get("phase") == "Running" for pod in pods):
        return {}
    term = {"labelSelector": {"matchLabels": {RUN_LABEL: run}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _wait(client: Client, namespace: str, selector: str, seconds: float) -> None:
    """Until the pod runs."""
    until = time.monotonic() + seconds
    while True:
        pods, _ = client.list("Pod", namespace, selector)
        phase = (pods[0].get("status") or {}).get("phase") if pods else None
        if phase == "Running":
            return
        if phase in ("Failed", "Succeeded") or not pods:
            why = reason(pods[0]) if pods else "it is gone"
            raise BackendError(
                f"the pod that copies has ended: {why}",
                "It runs `python3` in the run's own image: without one there, copy with kubectl.",
            )
        if time.monotonic() > until:
            raise BackendError(
                f"the pod that copies is not up after {seconds:g} s: {reason(pods[0])}",
                "--timeout 30m waits longer, for an image that is being pulled say.",
            )
        client.patience.restart()  # it answers; what takes long is the pod
        time.sleep(0.5)


def _asked(tunnel: Board) -> socket.socket | None:
    """A connection on which the answer has begun; None where the program does not listen yet."""
    address = urlsplit(tunnel.url)
    connection = socket.create_connection(
        (str(address.hostname), address.port or 0), timeout=_SILENCE_SECONDS
    )
    try:
        connection.sendall(b"send\n")
        if connection.recv(1, socket.MSG_PEEK):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def _receive(asked: Callable[[], socket.socket | None], path: str, target: Path) -> None:
    until = time.monotonic() + _ASKING_SECONDS
    while (connection := asked()) is None:
        if time.monotonic() > until:
            raise BackendError("the pod that copies does not answer", "Try again in a while.")
        time.sleep(0.5)
    with connection, connection.makefile("rb") as file, _understood():
        stream = _Received(file)
        answer = json.loads(stream.readline(1 << 20))
        if answer["found"] == "nothing":
            raise copied_files.nothing_at(path, [str(name) for name in answer["there"]])
        with copied_files.made(target) as temporary:
            unpack(stream, temporary)


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """What comes from a pod is not believed: whatever is odd about it ends the copy with one message."""
    try:
        yield
    except (LauncherError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise BackendError(f"the copy is not whole: {type(error).__name__}: {error}", "Try again.") from error


class _Received:
    """A connection whose end, and whose errors, are not taken for those of this machine's disk."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        """See `BinaryIO.read`. Raises BackendError."""
        try:
            return self._file.read(size)
        except OSError as error:
            raise _broken(error) from error

    def readline(self, size: int) -> bytes:
        """See `BinaryIO.readline`. Raises BackendError."""
        try:
            return self._file.readline(size)
        except OSError as error:
            raise _broken(error) from error


def _broken(why: object = "") -> BackendError:
    message = f" ({why})" if str(why) else ""
    return BackendError(f"the connection broke before all was copied{message}", "Try again.")


def unpack(stream: Any, target: Path) -> None:
    """Writes what the tar holds to the target, and nowhere else. Raises BackendError when the tar is cut off,
    or would write elsewhere, OSError when this machine cannot write.
    """
    with _tar(stream) as tar:
        for member in tar:
            if member.name == COMPLETE:
                return
            parts = PurePosixPath(member.name).parts
            if parts[:1] != (CONTENT,) or ".." in parts or "\0" in member.name:
                raise BackendError(f"the pod sent a file that is none of the run's: {member.name[:80]!a}")
            path = target.joinpath(*parts[1:])
            if member.isdir():
                path.mkdir()
            elif member.isfile() and (content := tar.extractfile(member)) is not None:
                _write(path, content)
    raise _broken()


@contextlib.contextmanager
def _tar(stream: Any) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            yield tar
    except (tarfile.TarError, EOFError) as error:
        raise _broken(error) from error


def _write(path: Path, content: Any) -> None:
    with path.open("xb") as file:
        while piece := content.read(_PIECE):
            file.write(piece)
