"""Kubeconfigs, read as kubectl reads them: the files of $KUBECONFIG as one, and every field of its type.

No message here quotes a value of a user: it may be a secret in the wrong place. Source:
https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from launcher.config.yaml_parser import MAX_DEPTH, too_deep
from launcher.errors import BackendError
from launcher.object_names import is_dns_1123
from launcher.redaction import keep_secret

Entry = Mapping[str, Any]

_MAX_BYTES: Final = 8 << 20
_CLUSTER: Final = {
    "server": "text", "tls-server-name": "text", "insecure-skip-tls-verify": "bool", "proxy-url": "text",
    "certificate-authority": "text", "certificate-authority-data": "base64", "disable-compression": "bool",
    "extensions": "list",
}  # fmt: skip
_USER: Final = {
    "client-certificate": "text", "client-certificate-data": "base64", "client-key": "text",
    "client-key-data": "base64", "token": "text", "tokenFile": "text", "username": "text", "password": "text",
    "as": "text", "as-uid": "text", "as-groups": "texts", "as-user-extra": "mapping",
    "auth-provider": "mapping", "exec": "mapping", "extensions": "list",
}  # fmt: skip
_CONTEXT: Final = {"cluster": "text", "user": "text", "namespace": "text", "extensions": "list"}
_TOP: Final = {
    "apiVersion": "text", "kind": "text", "current-context": "text", "preferences": "mapping",
    "clusters": "list", "users": "list", "contexts": "list", "extensions": "list",
}  # fmt: skip
_EXEC: Final = {
    "apiVersion": "text", "command": "text", "args": "texts", "env": "list", "installHint": "text",
    "provideClusterInfo": "bool", "interactiveMode": "text",
}  # fmt: skip
_LISTS: Final = {
    "clusters": ("cluster", _CLUSTER),
    "users": ("user", _USER),
    "contexts": ("context", _CONTEXT),
}
_WORDS: Final = {
    "text": "text, in quotes where it looks like a number",
    "texts": "a list of text",
    "bool": "true or false, without quotes",
    "base64": "text in base64",
    "mapping": "a mapping",
    "list": "a list",
}
_SECRET_NAME: Final = re.compile("token|secret|password|credential", re.IGNORECASE)
_SECRETS: Final = ("token", "password", "client-key-data")


@dataclass(frozen=True)
class Context:
    """One context with its cluster and its user. File names are absolute; `cluster_name` is as the kubeconfig
    has it, `directory` is where a relative command of the user's begins.
    """

    name: str
    namespace: str
    cluster_name: str
    cluster: Entry
    user: Entry
    directory: Path


class UnusableError(BackendError):
    """The kubeconfig, or a file that it names, is wrong."""

    def __init__(self, origin: str, reason: str, hint: str = "") -> None:
        usual = (
            "`kubectl config view` shows what is in it, and `kubectl get jobs` whether kubectl can use it."
        )
        super().__init__(f"cannot use {origin}: {reason}", hint or usual)


def contexts(paths: str) -> list[str]:
    """The names of the contexts in these files. Raises UnusableError."""
    documents = [(_document(file), file) for file in _files(paths)]
    return [name for document, file in documents for name, _ in _entries(document, "contexts", file)]


def read(paths: str, context: str | None) -> Context:
    """The context of these files, None for the current one. Raises UnusableError, and BackendError for a
    context that is not there.
    """
    merged: dict[str, dict[str, tuple[Entry, Path]]] = {kind: {} for kind in _LISTS}
    current = ""
    for file in _files(paths):
        document = _document(file)
        # As in kubectl, the first file that has a value wins.
        current = current or document.get("current-context") or ""
        for kind in _LISTS:
            for name, entry in _entries(document, kind, file):
                merged[kind].setdefault(name, (entry, file.parent))
    name = context if context is not None else current
    if not name:
        raise BackendError(
            f"{paths} names no current context", "Choose one with `kubectl config use-context NAME`."
        )
    if name not in merged["contexts"]:
        there = ", ".join(sorted(merged["contexts"])) or "none"
        raise BackendError(f"there is no context {name} in {paths}", f"There are: {there}.")
    chosen = merged["contexts"][name][0]
    namespace = chosen.get("namespace") or "default"
    if not is_dns_1123(namespace):
        message = (
            f"context {name}: namespace: expected lower-case letters, digits and '-', at most 63 characters"
        )
        raise UnusableError(paths, message)
    cluster = _named(merged, "clusters", chosen.get("cluster"), f"context {name} of {paths}")
    if not chosen.get("user"):
        user: tuple[Entry, Path] = {}, Path()
    else:
        user = _named(merged, "users", chosen["user"], f"context {name} of {paths}")
    return Context(
        name,
        namespace,
        chosen["cluster"],
        _absolute(*cluster, "certificate-authority"),
        _absolute(*user, "client-certificate", "client-key", "tokenFile"),
        user[1],
    )


def _files(paths: str) -> Iterator[Path]:
    for path in paths.split(os.pathsep):
        if path and (file := Path(path).expanduser()).exists():
            yield file.absolute()


def _document(file: Path) -> Entry:
    origin = str(file)
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UnusableError(origin, error.strerror or "it cannot be read") from None
    if len(content) > _MAX_BYTES:
        raise UnusableError(origin, f"it has over {_MAX_BYTES:,} bytes, which no kubeconfig has")
    try:
        if too_deep(content) is not None:
            raise UnusableError(origin, f"it is nested deeper than {MAX_DEPTH} levels")
        document = yaml.load(content, _Loader)  # noqa: S506 - a safe one
    except yaml.YAMLError as error:
        # Without the text of the file, which may be a secret.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise UnusableError(origin, f"it is not YAML{where}") from None
    except (ValueError, RecursionError, OverflowError, TypeError, AttributeError):
        raise UnusableError(origin, "it is not YAML that a kubeconfig could have") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise UnusableError(
            origin, "it is no kubeconfig: expected a mapping with clusters, users and contexts"
        )
    _check(document, _TOP, origin, "")
    return document


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """As Kubernetes reads YAML: a date is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def _entries(document: Entry, kind: str, file: Path) -> Iterator[tuple[str, Entry]]:
    field, types = _LISTS[kind]
    for number, each in enumerate(document.get(kind) or ()):
        where = f"{kind}[{number}]"
        if not isinstance(each, dict):
            raise UnusableError(str(file), f"{where}: expected a mapping with name and {field}")
        _check(each, {"name": "text", field: "mapping"}, str(file), where)
        entry = each.get(field) or {}
        for secret in _SECRETS if kind == "users" else ():
            _keep(entry.get(secret))
        _check(entry, types, str(file), f"{where}.{field}")
        if kind == "users" and entry.get("exec"):
            _check_exec(entry["exec"], str(file), f"{where}.{field}.exec")
        if kind == "users" and entry.get("auth-provider"):
            _check_provider(entry["auth-provider"], str(file), f"{where}.{field}.auth-provider")
        yield each.get("name") or "", entry


def _keep(value: object) -> None:
    if isinstance(value, str):
        keep_secret(value)


def _check_provider(entry: Entry, origin: str, where: str) -> None:
    _check(entry, {"name": "text", "config": "mapping"}, origin, where)
    for name, value in (entry.get("config") or {}).items():
        if "token" in str(name) or "secret" in str(name):
            _keep(value)
        _check({"config": value}, {"config": "text"}, origin, where)


def _check_exec(entry: Entry, origin: str, where: str) -> None:
    _check(entry, _EXEC, origin, where)
    for number, pair in enumerate(entry.get("env") or ()):
        if not isinstance(pair, dict):
            raise UnusableError(origin, f"{where}.env[{number}]: expected a mapping with name and value")
        _keep(pair.get("value") if _SECRET_NAME.search(str(pair.get("name"))) else None)
        _check(pair, {"name": "text", "value": "text"}, origin, f"{where}.env[{number}]")


def _check(entry: Entry, types: Mapping[str, str], origin: str, where: str) -> None:
    """Raises UnusableError for a field of another type. As in Kubernetes, unknown fields are ignored, and
    null means that there is no value.
    """
    for field, kind in types.items():
        value = entry.get(field)
        if value is not None and not _fits(value, kind):
            path = f"{where}.{field}" if where else field
            raise UnusableError(origin, f"{path}: expected {_WORDS[kind]}")


def _fits(value: object, kind: str) -> bool:
    if kind == "base64":
        return isinstance(value, str) and _is_base64(value)
    if kind == "texts":
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    return isinstance(value, {"text": str, "bool": bool, "mapping": dict, "list": list}[kind])


def _is_base64(text: str) -> bool:
    try:
        decoded(text)
    except (binascii.Error, ValueError):
        return False
    return True


def decoded(text: str) -> bytes:
    """Decodes base64, and ignores line ends. Raises ValueError."""
    return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)


def _named(
    merged: Mapping[str, Mapping[str, tuple[Entry, Path]]], kind: str, name: str | None, origin: str
) -> tuple[Entry, Path]:
    if not name or name not in merged[kind]:
        field = kind.removesuffix("s")
        raise UnusableError(origin, f"it names {field} {name}, which is not there" if name else f"no {field}")
    return merged[kind][name]


def _absolute(entry: Entry, directory: Path, *fields: str) -> Entry:
    """With the names of files absolute: they are relative to the kubeconfig that has them."""
    return {**entry, **{field: str(directory / entry[field]) for field in fields if entry.get(field)}}
