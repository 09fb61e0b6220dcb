"""The kubeconfigs that most people have, read without the `kubernetes` package, whose import costs more than
all else that a submission does on this machine.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

_VERIFICATION: Final = {"certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"}
_CLUSTER_FIELDS: Final = frozenset({"server", "extensions"} | _VERIFICATION)
_CERTIFICATE: Final = {f"client-{part}{data}" for part in ("certificate", "key") for data in ("", "-data")}
_USER_FIELDS: Final = frozenset({"token", "tokenFile", "extensions"} | _CERTIFICATE)
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy")

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Plain:
    """What a kubeconfig of one file says, where it has neither a login command nor a proxy. `headers` says
    who we are, each time anew.
    """

    server: str
    context: str
    namespace: str
    tls: ssl.SSLContext | None
    headers: Callable[[], Mapping[str, str]]


def read(paths: str, context: str | None) -> Plain | None:
    """The context, None for the current one. None where there is anything unusual, or wrong: the `kubernetes`
    package then knows better, or has the words for it.
    """
    files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    files = [file for file in files if file.exists()]
    if len(files) != 1 or any(map(os.environ.get, _PROXIES)):
        return None
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        document = yaml.load(files[0].read_bytes(), loader)  # noqa: S506 - a safe one
        name = context or document["current-context"]
        chosen = _entry(document, "contexts", name, "context")
        cluster = _entry(document, "clusters", chosen["cluster"], "cluster")
        user = _entry(document, "users", chosen["user"], "user")
        if cluster.keys() - _CLUSTER_FIELDS or user.keys() - _USER_FIELDS:
            return None
        server = cluster["server"]
        if not _is_plain(server):
            return None
        tls = _tls(cluster, user, files[0].parent) if urlsplit(server).scheme == "https" else None
        headers = _headers(user, files[0].parent)
        headers()
        return Plain(server.rstrip("/"), name, chosen.get("namespace") or "default", tls, headers)
    except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError, AttributeError):
        return None


def _is_plain(server: str) -> bool:
    parts = urlsplit(server)
    # Raises ValueError where the port is none.
    usual = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    return usual and "@" not in parts.netloc


def _entry(document: Entry, kind: str, name: str, field: str) -> Entry:
    entry = next((each for each in document[kind] if each["name"] == name), None)
    if entry is None or not isinstance(entry[field], dict):
        raise LookupError(name)
    found: Entry = entry[field]
    return found


def _tls(cluster: Entry, user: Entry, directory: Path) -> ssl.SSLContext:
    data = cluster.get("certificate-authority-data")
    file = cluster.get("certificate-authority")
    tls = ssl.create_default_context(
        cafile=str(directory / file) if file and not data else None,
        cadata=_decoded(data).decode() if data else None,
    )
    # As kubectl: the authorities that clusters make for themselves often lack an extension or two.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate, key = (
        _content(user, "client-certificate", directory),
        _content(user, "client-key", directory),
    )
    if certificate and key:
        # OpenSSL takes them from a file only.
        with tempfile.NamedTemporaryFile() as both:
            both.write(certificate + b"\n" + key)
            both.flush()
            tls.load_cert_chain(both.name)
    elif certificate or key:
        raise LookupError("a client certificate without its key, or the other way round")
    return tls


def _decoded(text: str) -> bytes:
    return base64.b64decode("".join(text.split()), validate=True)


def _content(user: Entry, field: str, directory: Path) -> bytes:
    if data := user.get(f"{field}-data"):
        return _decoded(data)
    return (directory / user[field]).read_bytes() if user.get(field) else b""


def _headers(user: Entry, directory: Path) -> Callable[[], Mapping[str, str]]:
    token, file = user.get("token"), user.get("tokenFile")

    def headers() -> Mapping[str, str]:
        # A file's token is renewed by whoever wrote it.
        own = token or ((directory / file).read_text().strip() if file else "")
        return {"authorization": f"Bearer {own}"} if own else {}

    return headers
