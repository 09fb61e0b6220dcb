"""Finds the API server and the credentials, as kubectl does."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from launcher.backends.kubernetes import kubeconfig as kubeconfig_files
from launcher.backends.kubernetes.kubeconfig import Plain
from launcher.backends.kubernetes.transport import Direct, Pooled, Transport, socket_options
from launcher.errors import BackendError

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CONNECTIONS: Final = 64
"""Kept open at most; `logs --follow` has one a task."""


@dataclass(frozen=True)
class Connection:
    """An API server, the way to it, and who we are there.

    `origin` says where all this stands, `namespace` is the one to use where none is given, `context` the
    kubeconfig's context, where it is not its current one.
    """

    host: str
    origin: str
    namespace: str
    transport: Transport
    _headers: Callable[[], Mapping[str, str]]
    context: str = ""
    tls: Callable[[], ssl.SSLContext | None] = lambda: None
    """For a connection that the transport does not make; None where there is none."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def options(self, namespace: str) -> str:
        """What a command needs to get to the namespace: ` -n vision --context other`, or less."""
        space = "" if namespace == self.namespace else f" -n {namespace}"
        return space + (f" --context {self.context}" if self.context else "")

    def credentials(self) -> Mapping[str, str]:
        """The headers that say who we are; tokens that expire are renewed. Raises BackendError."""
        with self._lock:
            return self._headers()


def connect(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """Reads the kubeconfig: the one given, else $KUBECONFIG, else ~/.kube/config, else the pod's own service
    account. Nothing is asked of the server yet.

    Raises BackendError when there is none, or it cannot be used.
    """
    paths = kubeconfig or _usual_paths()
    if _any_there(paths):
        plain = kubeconfig_files.read(paths, context)
        return _from_plain(plain, paths, context) if plain else _from_kubeconfig(paths, context)
    if kubeconfig is None and context is None and (_SERVICE_ACCOUNT / "token").exists():
        return _in_cluster()
    raise BackendError(
        f"there is no kubeconfig: {paths} does not exist",
        "Set KUBECONFIG to the file that your cluster's administrator gave you, or train on this machine "
        "with --backend local.",
    )


def configured() -> bool:
    """Whether `connect` finds something without being told where."""
    return _any_there(_usual_paths()) or (_SERVICE_ACCOUNT / "token").exists()


def _usual_paths() -> str:
    return os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())


def _any_there(paths: str) -> bool:
    return any(path and Path(path).expanduser().exists() for path in paths.split(os.pathsep))


def _from_plain(plain: Plain, paths: str, context: str | None) -> Connection:
    origin = f"context {plain.context} of {paths}"

    def headers() -> Mapping[str, str]:
        try:
            return plain.headers()
        except OSError as error:
            raise _unusable(origin, str(error)) from error

    transport = Direct(plain.server, plain.tls)
    return Connection(
        plain.server, origin, plain.namespace, transport, headers, context or "", lambda: plain.tls
    )


def _from_kubeconfig(paths: str, context: str | None) -> Connection:
    from kubernetes import client, config

    with _complaints(paths):
        contexts, current = _contexts(paths, context)
    name = context or current
    known = {each["name"]: each.get("context") or {} for each in contexts}
    if name not in known:
        raise BackendError(
            f"there is no context {name} in {paths}",
            f"There are: {', '.join(sorted(known)) or 'none'}.",
        )
    configuration = client.Configuration()
    with _complaints(f"context {name} of {paths}"):
        config.load_kube_config(paths, name, configuration)
    namespace = known[name].get("namespace") or "default"
    return _connection(configuration, f"context {name} of {paths}", namespace, context or "")


def _contexts(paths: str, context: str | None) -> tuple[list[dict[str, Any]], str]:
    from kubernetes import config
    from kubernetes.config.kube_config import KubeConfigMerger

    merged = KubeConfigMerger(paths).config
    if context is None and (merged is None or not merged.safe_get("current-context")):
        raise BackendError(
            f"{paths} names no current context",
            "Choose one with `kubectl config use-context NAME`.",
        )
    if context is not None:
        return [each.value for each in merged.safe_get("contexts") or []], context
    contexts, current = config.list_kube_config_contexts(paths)
    return contexts, current["name"]


def _in_cluster() -> Connection:
    origin = "this pod's service account"
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST", ""),
        os.environ.get("KUBERNETES_SERVICE_PORT", "443"),
    )
    try:
        tls = ssl.create_default_context(cafile=str(_SERVICE_ACCOUNT / "ca.crt"))
        namespace = (_SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError as error:
        raise _unusable(origin, str(error)) from error
    # See `kubeconfig`: the cluster's own authority may lack what the strict check asks for.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    url = f"https://{f'[{host}]' if ':' in host else host}:{port}"

    def headers() -> Mapping[str, str]:
        try:
            # Read each time: the kubelet renews it within the hour.
            return {"authorization": f"Bearer {(_SERVICE_ACCOUNT / 'token').read_text().strip()}"}
        except OSError as error:
            raise _unusable(origin, str(error)) from error

    return Connection(url, origin, namespace or "default", Direct(url, tls), headers, tls=lambda: tls)


def _connection(configuration: Any, origin: str, namespace: str, context: str = "") -> Connection:
    from kubernetes.client.rest import RESTClientObject

    configuration.connection_pool_maxsize = _CONNECTIONS
    configuration.socket_options = socket_options()
    if not configuration.verify_ssl:
        import urllib3

        # The user has said so in the kubeconfig; kubectl is silent about it too.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    pool = RESTClientObject(configuration).pool_manager

    def headers() -> Mapping[str, str]:
        with _complaints(origin):
            settings = configuration.auth_settings().values()
        return {each["key"]: each["value"] for each in settings if each["in"] == "header" and each["value"]}

    def tls() -> ssl.SSLContext:
        found = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        found.verify_flags &= ~ssl.VERIFY_X509_STRICT  # see `kubeconfig`
        if not configuration.verify_ssl:
            found.check_hostname = False
            found.verify_mode = ssl.CERT_NONE
        if configuration.cert_file:
            found.load_cert_chain(configuration.cert_file, configuration.key_file)
        return found

    host = configuration.host.rstrip("/")
    return Connection(host, origin, namespace, Pooled(pool), headers, context, tls)


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def _complaints(origin: str) -> Iterator[None]:
    """Makes a BackendError of what the client says or logs about the kubeconfig: it only logs it when a
    credential plugin fails, and then goes on without credentials.
    """
    import yaml
    from kubernetes.config import ConfigException

    collector = _Collector()
    root = logging.getLogger()
    root.addHandler(collector)
    try:
        yield
    except (
        ConfigException,
        yaml.YAMLError,
        OSError,
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
    ) as error:
        raise _unusable(origin, str(error) or type(error).__name__) from error
    finally:
        root.removeHandler(collector)
    if collector.messages:
        raise _unusable(origin, "; ".join(collector.messages))


def _unusable(origin: str, reason: str) -> BackendError:
    return BackendError(
        f"cannot use {origin}: {reason}",
        "`kubectl get jobs` with the same kubeconfig tells more.",
    )
