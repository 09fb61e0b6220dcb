"""A kubeconfig's user -> the headers of a request, and the certificate of a connection.

A secret with a line end in it cannot be a header. It is refused here, since an HTTP client would quote it in
its message.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from launcher.backends.kubernetes.api_server.addresses import basic
from launcher.backends.kubernetes.api_server.exec_plugin import Plugin
from launcher.backends.kubernetes.api_server.kubeconfig import Context, UnusableError, decoded
from launcher.errors import BackendError
from launcher.redaction import keep_secret

Headers = Mapping[str, str]

_MAX_FILE: Final = 1 << 20
"""Bytes, of a token or a certificate."""


class User:
    """Of one context. `tls` is the TLS context of its connections, None where there is none; `userinfo` is
    that of the server's URL.
    """

    def __init__(self, context: Context, origin: str, tls: ssl.SSLContext | None, userinfo: str) -> None:
        self._entry = context.user
        self._context = context
        self._origin = origin
        self._tls = tls
        self._userinfo = userinfo
        self._plugin = Plugin(context, origin) if self._entry.get("exec") else None
        self._loaded = ""
        self._provider: Callable[[], str] | None = None
        if tls is not None:
            self._load_own_certificate(tls)
        if self._entry.get("auth-provider") and self._plugin is None:
            self._provider = _by_package(context, origin)

    @property
    def login(self) -> str:
        """The command that must run to get the credentials, as `login command aws`; "" if there is none."""
        if self._plugin is not None:
            return f"login command {self._plugin.command}"
        return "auth-provider" if self._provider is not None else ""

    def renew(self) -> None:
        """The server has refused what the login command has said, whatever time it has given for it."""
        if self._plugin is not None:
            self._plugin.forget()

    def headers(self, seconds: float | None) -> Headers:
        """The headers that authenticate the user, for one request. A login command may take so many seconds.
        Raises UnusableError.
        """
        headers = {}
        if authorization := self._authorization(seconds):
            headers["authorization"] = authorization
        for field, header in (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid")):
            if value := self._entry.get(field):
                headers[header] = _fitting(value, self._origin, field)
        if self._entry.get("as-groups") or self._entry.get("as-user-extra"):
            message = "as-groups and as-user-extra are not carried out here: name the user alone, with `as`"
            raise UnusableError(self._origin, message)
        return headers

    def _authorization(self, seconds: float | None) -> str:
        entry = self._entry
        if token := self._token():
            return f"Bearer {token}"
        if self._plugin is not None:
            credential = self._plugin.credential(seconds)
            self._load_plugin_s_certificate(credential.certificate, credential.key)
            where = f"the token of the {self.login}"
            return f"Bearer {_fitting(credential.token, self._origin, where)}" if credential.token else ""
        if self._provider is not None:
            return _fitting(self._provider(), self._origin, "the token of its auth-provider")
        if entry.get("username"):
            return basic(f"{entry['username']}:{entry.get('password') or ''}")
        return basic(self._userinfo) if self._userinfo else ""

    def _token(self) -> str:
        """A token in a file is read again, since its writer renews it; white space around it is left out."""
        if file := self._entry.get("tokenFile"):
            try:
                return token_of(Path(file), self._origin)
            except UnusableError:
                if not self._entry.get("token"):
                    raise
        return _fitting(self._entry.get("token") or "", self._origin, "token")

    def _load_own_certificate(self, tls: ssl.SSLContext) -> None:
        certificate, key = self._content("client-certificate"), self._content("client-key")
        if bool(certificate) != bool(key):
            message = "it has a client certificate without its key, or the other way round"
            raise UnusableError(self._origin, message)
        if certificate:
            _load(tls, certificate, key, self._origin)

    def _load_plugin_s_certificate(self, certificate: str, key: str) -> None:
        if certificate and self._tls is not None and certificate != self._loaded:
            self._loaded = certificate
            _load(self._tls, certificate.encode(), key.encode(), self._origin)

    def _content(self, field: str) -> bytes:
        if data := self._entry.get(f"{field}-data"):
            return decoded(data)
        file = self._entry.get(field)
        return _content(Path(file), self._origin, field) if file else b""


def token_of(file: Path, origin: str) -> str:
    """The token in a file. Raises UnusableError."""
    text = _content(file, origin, "tokenFile").decode(errors="replace").strip()
    keep_secret(text)
    if not text:
        raise UnusableError(origin, f"tokenFile: {file} is empty")
    return _fitting(text, origin, f"the token in {file}")


def _content(file: Path, origin: str, field: str) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no name of a file"
        raise UnusableError(origin, f"{field}: {file}: {reason}") from None
    if len(content) > _MAX_FILE:
        raise UnusableError(origin, f"{field}: {file} has over {_MAX_FILE:,} bytes")
    return content


def _fitting(value: str, origin: str, field: str) -> str:
    """The value of a header. Raises UnusableError if it cannot be one; the message does not quote it."""
    keep_secret(value)
    if value.isascii() and value.isprintable():
        return value
    kind = "a line end" if "\n" in value or "\r" in value else "a character"
    hint = (
        "Write it on one line; `token: |` keeps the line's end, and `token: >-` does not."
        if "\n" in value
        else ""
    )
    raise UnusableError(origin, f"{field} has {kind} in it that no HTTP header can carry", hint)


def _load(tls: ssl.SSLContext, certificate: bytes, key: bytes, origin: str) -> None:
    # OpenSSL takes them from a file only.
    with tempfile.NamedTemporaryFile() as both:
        both.write(certificate + b"\n" + key)
        both.flush()
        try:
            # OpenSSL would ask on the terminal for the password of an encrypted key.
            tls.load_cert_chain(both.name, password="")
        except (OSError, ValueError):
            message = "its client certificate and key are not PEM, do not belong together, or are encrypted"
            raise UnusableError(origin, message) from None


def _by_package(context: Context, origin: str) -> Callable[[], str]:
    """The `kubernetes` package knows auth-providers, which kubectl has given up but for OpenID Connect."""
    from kubernetes import client, config

    name = context.name
    document: dict[str, Any] = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://localhost"}}],
        "users": [{"name": "u", "user": dict(context.user)}],
    }
    configuration = client.Configuration()

    def header() -> str:
        # Its error may quote what the provider has answered, so it is not shown.
        try:
            if not configuration.api_key:
                config.load_kube_config_from_dict(document, name, configuration)
            return str(configuration.get_api_key_with_prefix("BearerToken") or "")
        except BackendError:
            raise
        except Exception as error:  # noqa: BLE001
            kind = type(error).__name__
            raise UnusableError(origin, f"its auth-provider gives no token ({kind})") from None

    return header
