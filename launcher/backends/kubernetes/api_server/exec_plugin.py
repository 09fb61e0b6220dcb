"""A kubeconfig's login command, which prints credentials. Its output is never shown, and its time is limited.

Source: https://kubernetes.io/docs/reference/config-api/client-authentication.v1/
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from launcher.backends.kubernetes.api_server.kubeconfig import Context, UnusableError
from launcher.redaction import keep_secret

_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_CLUSTER_FIELDS: Final = (
    "server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url",
)  # fmt: skip
_EARLIER: Final = timedelta(seconds=10)
"""Seconds before a token expires, it is renewed, so that it does not expire during a request."""


@dataclass(frozen=True)
class Credential:
    """What the command has said: a token, or a client certificate with its key, both PEM; "" for neither."""

    token: str
    certificate: str
    key: str
    until: datetime | None

    @property
    def fresh(self) -> bool:
        """Whether it may be used again."""
        return self.until is None or datetime.now(timezone.utc) < self.until - _EARLIER


class Plugin:
    """The command of a context's user. Raises UnusableError for one that cannot be run at all."""

    def __init__(self, context: Context, origin: str) -> None:
        self._entry: Mapping[str, Any] = context.user["exec"]
        self._context = context
        self._origin = origin
        self._last: Credential | None = None
        self.command = self._entry.get("command") or ""
        if not self.command or "\0" in self.command:
            raise self._failed("exec.command: expected the name of a program")
        if self._entry.get("apiVersion") not in _VERSIONS:
            raise self._failed(f"exec.apiVersion: expected {' or '.join(_VERSIONS)}")
        if self._entry.get("interactiveMode") not in (None, "", "Never", "IfAvailable", "Always"):
            raise self._failed("exec.interactiveMode: expected Never, IfAvailable or Always")

    def credential(self, seconds: float | None) -> Credential:
        """The last credential if it is still valid, else a new one from the command, which may take so many
        seconds; None means no limit.
        """
        last = self._last
        if last is None or not last.fresh:
            last = self._last = self._parsed(self._output(seconds))
        return last

    def forget(self) -> None:
        """The next credential is a new one."""
        self._last = None

    def _output(self, seconds: float | None) -> bytes:
        # Only a command that is declared to be interactive gets the terminal.
        asks = self._entry.get("interactiveMode") == "Always"
        if asks and not sys.stdin.isatty():
            raise self._failed(
                "exec.interactiveMode: its login command asks something, and this is no terminal"
            )
        try:
            process = subprocess.Popen(
                [self._program(), *(self._entry.get("args") or ())],
                stdin=None if asks else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if asks else subprocess.DEVNULL,
                env=self._environment(asks),
                start_new_session=not asks,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "its arguments are none"
            hint = self._entry.get("installHint") or ""
            raise self._failed(f"the login command {self.command} cannot be run: {reason}", hint) from None
        with process:
            try:
                content, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                _end(process)
                raise self._failed(
                    f"the login command {self.command} did not end within {seconds:g} s",
                    "Run it by hand: it may be waiting for an answer. --request-timeout 5m gives it longer.",
                ) from None
            except BaseException:
                _end(process)
                raise
        if process.returncode != 0:
            raise self._failed(
                f"the login command {self.command} failed with exit code {process.returncode}",
                "`kubectl get jobs` with the same kubeconfig shows what it says. You may have to log in.",
            )
        return content

    def _program(self) -> str:
        """A path is relative to the kubeconfig; a bare name is looked for in PATH."""
        return str(self._context.directory / self.command) if os.sep in self.command else self.command

    def _environment(self, interactive: bool) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._entry.get("provideClusterInfo"):
            cluster = self._context.cluster
            spec["cluster"] = {field: cluster[field] for field in _CLUSTER_FIELDS if cluster.get(field)}
            for each in cluster.get("extensions") or ():
                if isinstance(each, dict) and each.get("name") == "client.authentication.k8s.io/exec":
                    spec["cluster"]["config"] = each.get("extension")
        info = {"apiVersion": self._entry["apiVersion"], "kind": "ExecCredential", "spec": spec}
        variables = {pair.get("name") or "": pair.get("value") or "" for pair in self._entry.get("env") or ()}
        try:
            return {**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        except (ValueError, TypeError, RecursionError):
            raise self._failed("the cluster's extensions cannot be given to its login command") from None

    def _parsed(self, content: bytes) -> Credential:
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            raise self._unfit("is no JSON") from None
        status = document.get("status") if isinstance(document, dict) else None
        if not isinstance(status, dict):
            raise self._unfit("has no status")
        if (
            document.get("kind") != "ExecCredential"
            or document.get("apiVersion") != self._entry["apiVersion"]
        ):
            raise self._unfit(f"is no ExecCredential of {self._entry['apiVersion']}")
        names = ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp")
        values = [status.get(name) for name in names]
        keep_secret(*(value for value in values[:3:2] if isinstance(value, str)))
        for name, value in zip(names, values, strict=True):
            if value is not None and not isinstance(value, str):
                raise self._unfit(f"has a status.{name} that is no text")
        token, certificate, key, until = (value or "" for value in values)
        if bool(certificate) != bool(key):
            raise self._unfit("has a client certificate without its key, or the other way round")
        if not token and not certificate:
            raise self._unfit("has neither a token nor a client certificate")
        return Credential(token, certificate, key, self._time(until))

    def _time(self, text: str) -> datetime | None:
        if not text:
            return None
        try:
            # Python 3.10 reads neither Z nor nanoseconds.
            expiry = datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00"))
        except ValueError:
            raise self._unfit("has a status.expirationTimestamp that is no time of RFC 3339") from None
        return expiry if expiry.tzinfo else expiry.replace(tzinfo=timezone.utc)

    def _unfit(self, words: str) -> UnusableError:
        return self._failed(f"what the login command {self.command} prints {words}")

    def _failed(self, reason: str, hint: str = "") -> UnusableError:
        return UnusableError(self._origin, reason, hint)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the command, and its session if it has one of its own."""
    try:
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except OSError:
        pass
    process.wait()
