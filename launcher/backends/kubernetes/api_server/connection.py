"""Finds the API server, the proxy to it and the credentials, as kubectl does."""

from __future__ import annotations

import os
import shlex
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from launcher.backends.kubernetes.api_server import addresses, kubeconfig
from launcher.backends.kubernetes.api_server.addresses import Proxy
from launcher.backends.kubernetes.api_server.credentials import Headers, User, token_of
from launcher.backends.kubernetes.api_server.kubeconfig import Entry, UnusableError, decoded
from launcher.backends.kubernetes.api_server.transport import Transport
from launcher.backends.patience import SECONDS
from launcher.errors import BackendError
from launcher.object_names import is_dns_1123

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Connection:
    """An API server, the proxy to it, and the credentials.

    `host` is its URL, without any secret. `origin` says where this is configured, `namespace` is the one to
    use where none is given, `context` the kubeconfig's context, where it is not its current one, and
    `context_name` its name in any case, "" if there is no kubeconfig. `login` is the command that must run to
    get the credentials, "" if there is none.
    """

    host: str
    origin: str
    namespace: str
    transport: Transport
    _headers: Callable[[float | None], Headers]
    context: str = ""
    tls: ssl.SSLContext | None = None
    """For a connection that the transport does not make; None where there is none."""
    server_name: str = ""
    """Of its certificate, where that is not the host's."""
    proxy: Proxy | None = None
    login: str = ""
    context_name: str = ""
    renew: Callable[[], None] = lambda: None
    """Forgets credentials that the server has refused, where a login command gives others."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def options(self, namespace: str) -> str:
        """The options with which a command uses this cluster and the namespace: ` -n vision --context other`,
        or less.
        """
        space = "" if namespace == self.namespace else f" -n {namespace}"
        return space + (f" --context {shlex.quote(self.context)}" if self.context else "")

    def credentials(self, seconds: float | None = SECONDS) -> Mapping[str, str]:
        """The headers that authenticate the user. Tokens that expire are renewed. A login command may take so
        many seconds; None means no limit. Raises BackendError.
        """
        with self._lock:
            return self._headers(seconds)


def connect(paths: str | None = None, context: str | None = None) -> Connection:
    """Reads the kubeconfig: the one given, else $KUBECONFIG, else ~/.kube/config, else the pod's own service
    account. Sends nothing to the server.

    Raises BackendError if there is none, or it cannot be used.
    """
    kubeconfig_paths = paths or _usual_paths()
    if _any_there(kubeconfig_paths):
        return _from_kubeconfig(kubeconfig_paths, context)
    if paths is None and context is None and (_SERVICE_ACCOUNT / "token").exists():
        return _in_cluster()
    raise BackendError(
        f"there is no kubeconfig: {kubeconfig_paths} does not exist",
        "Set KUBECONFIG to the file that your cluster's administrator gave you, or train on this machine "
        "with --backend local.",
    )


def contexts() -> list[str]:
    """The names of the kubeconfig's contexts. Raises BackendError when it cannot be read."""
    return kubeconfig.contexts(_usual_paths())


def configured() -> bool:
    """Whether there is a kubeconfig or a service account that `connect` would use by default."""
    return _any_there(_usual_paths()) or (_SERVICE_ACCOUNT / "token").exists()


def _usual_paths() -> str:
    return os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())


def _any_there(paths: str) -> bool:
    return any(path and Path(path).expanduser().exists() for path in paths.split(os.pathsep))


def _from_kubeconfig(paths: str, wanted: str | None) -> Connection:
    context = kubeconfig.read(paths, wanted)
    origin = f"context {context.name} of {paths}"
    cluster = context.cluster
    server = addresses.server(cluster.get("server"), origin)
    proxy = addresses.proxy_for(server, cluster.get("proxy-url"), origin)
    name = cluster.get("tls-server-name") or ""
    tls = _tls(cluster, origin) if server.scheme == "https" else None
    user = User(context, origin, tls, server.userinfo)
    if not user.login:
        user.headers(None)  # so that an error in them is raised before the first request
    return Connection(
        server.url,
        origin,
        context.namespace,
        Transport(tls, name, proxy),
        user.headers,
        wanted or "",
        tls,
        name,
        proxy,
        user.login,
        context.name,
        user.renew,
    )


def _tls(cluster: Entry, origin: str) -> ssl.SSLContext:
    data, file = cluster.get("certificate-authority-data"), cluster.get("certificate-authority")
    insecure = cluster.get("insecure-skip-tls-verify") is True
    if insecure and (data or file):
        message = "insecure-skip-tls-verify: true and a certificate-authority exclude each other"
        raise UnusableError(origin, message, "Leave out insecure-skip-tls-verify.")
    field = "certificate-authority-data" if data else "certificate-authority"
    try:
        tls = ssl.create_default_context(
            cafile=file if file and not data else None, cadata=decoded(data).decode() if data else None
        )
    except (ssl.SSLError, ValueError):
        raise UnusableError(origin, f"{field}: it holds no certificate in PEM") from None
    except OSError as error:
        raise UnusableError(origin, f"{field}: {file}: {error.strerror}") from None
    # As kubectl: the authorities that clusters make for themselves often lack an extension or two.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _in_cluster() -> Connection:
    origin = "this pod's service account"
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    tls = _tls({"certificate-authority": str(_SERVICE_ACCOUNT / "ca.crt")}, origin)
    try:
        namespace = (_SERVICE_ACCOUNT / "namespace").read_text(errors="replace").strip()
    except OSError as error:
        raise UnusableError(origin, error.strerror or "its namespace cannot be read") from None
    if not is_dns_1123(namespace or "default"):
        raise UnusableError(origin, "its namespace is no name of one")
    server = addresses.server(f"https://{f'[{host}]' if ':' in host else host}:{port}", origin)

    def headers(_: float | None) -> Headers:
        # Kubernetes renews it before it ends.
        return {"authorization": f"Bearer {token_of(_SERVICE_ACCOUNT / 'token', origin)}"}

    return Connection(server.url, origin, namespace or "default", Transport(tls), headers, tls=tls)
