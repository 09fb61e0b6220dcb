"""A real Kubernetes control plane on loopback, without kubelet or scheduler: etcd, kube-apiserver and
kube-controller-manager, as controller-runtime's envtest starts them.

The binaries are those of `setup-envtest`, in the directory that KUBEBUILDER_ASSETS names.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Final

DEFAULT_ASSETS: Final = "/usr/local/kubebuilder/bin"
BINARIES: Final = ("etcd", "kube-apiserver", "kube-controller-manager")
GANG_FEATURES: Final = "--feature-gates=GenericWorkload=true,GangScheduling=true"
"""Alpha in Kubernetes 1.36: PodGroups, and a scheduler that starts the pods of one together."""
TOKEN: Final = "administrator-of-the-test-cluster"
START_SECONDS: Final = 60
STOP_SECONDS: Final = 10
PR_SET_PDEATHSIG: Final = 1

# What the runs of the launcher need of kube-controller-manager; all of them would keep a core busy.
CONTROLLERS: Final = (
    "deployment-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "ttl-after-finished-controller",
)


class UnavailableError(Exception):
    """This machine has no control plane to start; says what is missing."""


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane. `kubeconfig` lets its bearer do everything."""

    url: str
    kubeconfig: Path


def assets() -> Path:
    """The directory of the binaries. Raises UnavailableError when one is missing."""
    directory = Path(os.environ.get("KUBEBUILDER_ASSETS", DEFAULT_ASSETS))
    missing = [name for name in BINARIES if not (directory / name).exists()]
    if missing:
        raise UnavailableError(f"no {', '.join(missing)} in {directory} (KUBEBUILDER_ASSETS)")
    if shutil.which("openssl") is None:
        raise UnavailableError("no openssl, which makes the key of the service accounts")
    return directory


@contextmanager
def control_plane(
    directory: Path, version: str | None = None, more: Sequence[str] = (), gang: bool = False
) -> Iterator[ControlPlane]:
    """Starts the three servers, with all state and logs in `directory`, and stops them at the end.

    `version`, such as 1.33, makes later servers behave as that version did; None: as they are. `more` are
    controllers beside CONTROLLERS. With `gang` the server knows GANG_FEATURES.
    Raises UnavailableError when there are no binaries, RuntimeError when they do not start.
    """
    binaries = assets()
    emulated = [f"--emulated-version=kube={version}"] if version else []
    key = directory / "service-accounts.key"
    _run("openssl", "genrsa", "-out", str(key), "2048")
    tokens = directory / "tokens.csv"
    tokens.write_text(f"{TOKEN},administrator,administrator,system:masters\n")
    client_port, peer_port, port = _free_ports(3)
    etcd, peer, url = (
        f"http://127.0.0.1:{client_port}",
        f"http://127.0.0.1:{peer_port}",
        f"https://127.0.0.1:{port}",
    )
    with ExitStack() as stack:

        def start(name: str, *flags: str) -> Callable[[], None]:
            return stack.enter_context(_process(binaries / name, flags, directory / f"{name}.log"))

        start(
            "etcd",
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )
        certificates = directory / "certificates"
        check = start(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={certificates}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            f"--service-account-issuer={url}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            *emulated,
            *([GANG_FEATURES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"] if gang else ()),
        )
        certificate = certificates / "apiserver.crt"
        _wait("kube-apiserver", lambda: certificate.exists() and _ready(f"{url}/readyz", certificate), check)
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(url, certificate))
        check = start(
            "kube-controller-manager",
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--controllers={','.join((*CONTROLLERS, *more))}",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            *emulated,
            *([GANG_FEATURES] if gang else ()),
        )
        # Pods are refused until their namespace has its service account.
        account = f"{url}/api/v1/namespaces/default/serviceaccounts/default"
        _wait("kube-controller-manager", lambda: _ready(account, certificate), check)
        yield ControlPlane(url, kubeconfig)


@contextmanager
def scheduler(directory: Path, kubeconfig: Path, *more: str) -> Iterator[None]:
    """Lets a scheduler place the pods of the control plane, with these flags besides. Raises UnavailableError
    when there is none.
    """
    binary = assets() / "kube-scheduler"
    if not binary.exists():
        raise UnavailableError(f"no {binary.name} in {binary.parent} (KUBEBUILDER_ASSETS)")
    flags = (f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0", *more)
    with _process(binary, flags, directory / f"{binary.name}.log"):
        yield


@contextmanager
def _process(binary: Path, flags: tuple[str, ...], log: Path) -> Iterator[Callable[[], None]]:
    """Runs the server; yields a function that raises RuntimeError when it has ended."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [binary, *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "GOGC": "400"},  # a tenth of its processor time, for 100 MB
            preexec_fn=_die_with_parent,
        )

    def check() -> None:
        if process.poll() is not None:
            end = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
            raise RuntimeError(f"{binary.name} ended with {process.returncode}:\n{end}")

    try:
        yield check
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _die_with_parent() -> None:
    # A test run that is killed leaves no server behind. Linux only; elsewhere they are stopped at the end.
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (AttributeError, OSError):
        pass


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _wait(what: str, ready: Callable[[], bool], check: Callable[[], None]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} was not ready after {START_SECONDS} s")
        time.sleep(0.05)


def _ready(url: str, certificate: Path) -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    try:
        context: SSLContext = create_default_context(cafile=str(certificate))
        with urllib.request.urlopen(request, timeout=5, context=context) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _kubeconfig(url: str, certificate: Path) -> str:
    # JSON is YAML.
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {"name": "test", "cluster": {"server": url, "certificate-authority": str(certificate)}}
            ],
            "users": [{"name": "administrator", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "administrator"}}],
        }
    )


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)
