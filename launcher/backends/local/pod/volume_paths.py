"""The paths and names that a pod template gives for its volumes: what Kubernetes refuses is refused here.

Here it matters more: a volume is a folder, and `..` leads out of it. Source: kubernetes/kubernetes
`pkg/apis/core/validation/validation.go` (validateLocalDescendingPath, validateLocalNonReservedPath) and
`pkg/volume/util/subpath` (a subPath through a symbolic link).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from launcher.object_names import is_dns_1123, is_dns_subdomain

_CONFIG_KEY = re.compile(r"(?!\.{1,2}$)(?!\.\.)[-._a-zA-Z0-9]{1,253}")


class OutsideError(OSError):
    """A path leads out of its volume."""

    def __str__(self) -> str:
        return str(self.args[0])


def below(volume: Path, path: str, field: str) -> Path:
    """A path in a volume, which need not be there yet. Raises OutsideError where it leads out of the volume,
    through a symbolic link too.
    """
    if wrong := _not_descending(path):
        raise OutsideError(f"{field}: {path!r}: {wrong}")
    full_path = volume / path
    if not full_path.resolve().is_relative_to(volume.resolve()):
        raise OutsideError(f"{field}: {path!r}: leads out of its volume, through a symbolic link")
    return full_path


def problems(spec: Mapping[str, Any], keys: Mapping[str, Any]) -> Iterator[str]:
    """All that is wrong with a pod's volumes and the first container's mounts, each with its field. `keys`
    are those of each ConfigMap that there is.
    """
    for number, volume in enumerate(spec.get("volumes") or ()):
        yield from _volume(volume, f"volumes[{number}]", keys)
    for number, mount in enumerate(spec["containers"][0].get("volumeMounts") or ()):
        for field in ("subPath", "subPathExpr"):
            if wrong := _not_descending(mount.get(field) or ""):
                yield _message(f"containers[0].volumeMounts[{number}].{field}", mount[field], wrong)


def _volume(volume: Mapping[str, Any], field: str, keys: Mapping[str, Any]) -> Iterator[str]:
    if not is_dns_1123(volume["name"]):
        yield _message(f"{field}.name", volume["name"], "must be a lowercase RFC 1123 label")
    claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
    if claim is not None and not is_dns_subdomain(claim):
        wrong = "must be a lowercase RFC 1123 subdomain"
        yield _message(f"{field}.persistentVolumeClaim.claimName", claim, wrong)
    host = (volume.get("hostPath") or {}).get("path") or ""
    if ".." in host.split("/"):
        yield _message(f"{field}.hostPath.path", host, "must not contain '..'")
    sources: list[tuple[str, Mapping[str, Any]]] = [(field, volume)]
    for number, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
        sources.append((f"{field}.projected.sources[{number}]", source))
    for where, source in sources:
        for kind in ("configMap", "secret", "downwardAPI"):
            yield from _items(source.get(kind) or {}, f"{where}.{kind}")
        token = (source.get("serviceAccountToken") or {}).get("path") or ""
        if wrong := _not_descending(token):
            yield _message(f"{where}.serviceAccountToken.path", token, wrong)
    if (source := volume.get("configMap")) is not None:
        yield from _known(source, f"{field}.configMap", keys)


def _items(source: Mapping[str, Any], field: str) -> Iterator[str]:
    for number, item in enumerate(source.get("items") or ()):
        path = item.get("path") or ""
        wrong = "must be set" if not path else _not_descending(path)
        if not wrong and path.startswith(".."):
            wrong = "must not start with '..'"
        if wrong:
            yield _message(f"{field}.items[{number}].path", path, wrong)


def _known(source: Mapping[str, Any], field: str, keys: Mapping[str, Any]) -> Iterator[str]:
    """What is mounted of a ConfigMap."""
    there = keys.get(source.get("name") or "", ())
    for key in there:
        if not _CONFIG_KEY.fullmatch(key):
            yield _message(field, key, "must consist of letters, digits, '-', '_' or '.', as a key")
    for number, item in enumerate(source.get("items") or ()):
        if item.get("key") not in there and not source.get("optional"):
            yield _message(f"{field}.items[{number}].key", item.get("key"), "there is no such key")


def _not_descending(path: str) -> str:
    if path.startswith("/"):
        return "must be a relative path"
    return "must not contain '..'" if ".." in path.split("/") else ""


def _message(field: str, value: Any, wrong: str) -> str:
    return f"spec.{field}: {value!r}: {wrong}"
