"""Runs the controller: one leader at a time watches, and its threads see to the TFJobs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import kopf
import kubernetes
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.api_server.connection import connect
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.patience import Patience
from launcher.controller import LEASE, kubeflow_operator
from launcher.controller.endpoints import Endpoints
from launcher.controller.observed import TFJOB, Observed
from launcher.controller.reconciler import Reconciler
from launcher.controller.work_queue import WorkQueue
from launcher.errors import BackendError, LauncherError
from launcher.object_names import RUN_LABEL

_THREADS: Final = 8
"""Each is busy with one TFJob; a submission makes about ten requests."""
_LEASE_SECONDS, _RENEW_SECONDS, _RETRY_SECONDS = 15, 10, 2
"""client-go's defaults: when a lease of a leader that is gone is free, how long the leader tries to renew it
before it leaves, and how often.
"""
_AGAIN_SECONDS: Final = (1, 2, 4, 8)
"""Between the tries of a watch that is refused. Where all are in vain, the controller leaves."""
_OPERATOR_SECONDS: Final = 30.0
"""How often the training-operator is looked for."""
_STOP_SECONDS: Final = 20.0
"""At SIGTERM, for what is being done: less than a pod's usual grace of 30 s."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """`namespaces` are those whose TFJobs are trained, empty for all. `lease_namespace` has the lease.
    `address` is where metrics and health are served.
    """

    namespaces: Sequence[str]
    lease_namespace: str
    address: tuple[str, int]
    context: str | None = None


class _Lease(LeaseLock):
    """Knows when it was renewed last: a request that gets no answer would hide that it was not."""

    renewed = 0.0
    """By time.monotonic()."""
    _released = False

    def create(self, *arguments: Any, **named: Any) -> bool:
        return self._noted(super().create(*arguments, **named))  # type: ignore[no-untyped-call]

    def update(self, *arguments: Any, **named: Any) -> bool:
        if self._released:
            return False  # the election's own thread goes on until the process ends
        return self._noted(super().update(*arguments, **named))  # type: ignore[no-untyped-call]

    def release(self) -> None:
        """Leaves the lease to the next one at once, if it is held: a lease without a holder is free."""
        held, lease = self.get(self.name, self.namespace)  # type: ignore[no-untyped-call]
        if held and lease.holder_identity == self.identity:
            self._released = True
            lease.holder_identity = ""
            super().update(self.name, self.namespace, lease)  # type: ignore[no-untyped-call]

    def _noted(self, succeeded: Any) -> bool:
        if succeeded:
            self.renewed = time.monotonic()
        return bool(succeeded)


class Leader:
    """Trains TFJobs from when it leads until it is told to stop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client = Client(connect(None, options.context), Patience(None))
        if not self._client.knows(TFJOB):
            raise BackendError(
                "the cluster does not know the kind TFJob (kubeflow.org/v1)",
                "Have its CRD made: kubectl apply -f manifests/controller/crd.yaml",
            )
        self._observed = Observed()
        backend = KubernetesBackend(context=options.context, patience=Patience(None))
        self._reconciler = Reconciler(self._client, backend, self._observed, options.lease_namespace)
        self._endpoints = Endpoints(options.address, self._observed)
        self._queue = WorkQueue(self._see_to, self._failed, _THREADS)
        self._stop, self._watch_failed = threading.Event(), threading.Event()
        self._foreign = ""

    def run(self) -> NoReturn:
        """Ends the process: with 0 after SIGTERM, with 5 where the lease was lost or a watch has failed."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        self._endpoints.start()
        _log.info("serves metrics and health at %s:%s", self._options.address[0], self._endpoints.port)
        _configure_client(self._options.context)
        identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        lock = _Lease(LEASE, self._options.lease_namespace, identity)  # type: ignore[no-untyped-call]
        lost = threading.Event()
        config = electionconfig.Config(
            lock, _LEASE_SECONDS, _RENEW_SECONDS, _RETRY_SECONDS, self._lead, lost.set
        )
        election = leaderelection.LeaderElection(config)
        threading.Thread(target=election.run, daemon=True).start()
        while not self._stop.wait(0.2):
            late = time.monotonic() - lock.renewed > _RENEW_SECONDS + _RETRY_SECONDS
            if lost.is_set() or (self._endpoints.leads and late):
                # Another one may lead by now: nothing more may be written.
                _log.error("the lease %s is lost: leaving", LEASE)
                os._exit(BackendError.exit_code)
            if self._watch_failed.is_set():
                # Who leads and sees nothing is in the way of another.
                _log.error("what was watched is not seen any more: leaving")
                os._exit(BackendError.exit_code)
        self._queue.close(_STOP_SECONDS)
        self._release(lock)
        # Threads that still watch would disturb the interpreter's end.
        logging.shutdown()
        os._exit(0)

    def _release(self, lock: _Lease) -> None:
        try:
            lock.release()
        except Exception as error:  # noqa: BLE001 - it ends, and the lease runs out by itself
            _log.warning("the lease %s could not be released: %s", LEASE, error)

    def _lead(self) -> None:
        try:
            self._watch()
        finally:
            self._watch_failed.set()

    def _watch(self) -> None:
        where = ", ".join(self._options.namespaces) or "all namespaces"
        _log.info("leads, and trains the TFJobs of %s", where)
        self._endpoints.leads = True
        self._look_for_operator()
        self._queue.start()
        threading.Thread(target=self._keep_looking, daemon=True).start()
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True  # needs rights on CRDs and namespaces
        settings.networking.error_backoffs = _AGAIN_SECONDS
        asyncio.run(
            kopf.operator(
                registry=self._registry(),
                settings=settings,
                standalone=True,
                clusterwide=not self._options.namespaces,
                namespaces=list(self._options.namespaces),
            )
        )

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(_login(self._options.context))
        kopf.on.event("kubeflow.org", "v1", "tfjobs", registry=registry)(self._seer(TFJOB))
        run_labels: Any = {RUN_LABEL: kopf.PRESENT}
        kopf.on.event("batch", "v1", "jobs", labels=run_labels, registry=registry)(self._seer("Job"))
        kopf.on.event("", "v1", "pods", labels=run_labels, registry=registry)(self._seer("Pod"))
        if self._client.knows("JobSet"):
            kopf.on.event("jobset.x-k8s.io", "v1alpha2", "jobsets", labels=run_labels, registry=registry)(
                self._seer("JobSet")
            )
        return registry

    def _seer(self, kind: str) -> Callable[..., Any]:
        async def see(event: Any, **_: Any) -> None:
            item = event["object"]
            self._queue.add(self._observed.see(kind, item, gone=event["type"] == "DELETED"))

        see.__name__ = f"see_{kind.lower()}"  # by which kopf tells handlers apart
        return see

    def _see_to(self, key: Any) -> float | None:
        if self._foreign:
            return _OPERATOR_SECONDS
        started = time.monotonic()
        try:
            return self._reconciler.see_to(key)
        finally:
            self._endpoints.seen_to(time.monotonic() - started)

    def _failed(self, key: Any, error: Exception) -> None:
        self._endpoints.failed()
        if isinstance(error, LauncherError):
            _log.warning("%s/%s: %s", *key, error)
            self._reconciler.warn(key, error)
        else:
            _log.error("%s/%s: an error in the controller", *key, exc_info=error)

    # ---- the training-operator, if it still runs

    def _look_for_operator(self) -> None:
        sentence = kubeflow_operator.running(self._client, self._options.namespaces)
        if sentence and sentence != self._foreign:
            _log.error("no TFJob is taken: %s", sentence)
        elif self._foreign and not sentence:
            _log.info("the training-operator has left: TFJobs are taken")
        self._foreign = sentence

    def _keep_looking(self) -> None:
        while not self._stop.wait(_OPERATOR_SECONDS):
            try:
                self._look_for_operator()
            except BackendError as error:
                _log.warning("the training-operator could not be looked for: %s", error)


def _configure_client(context: str | None) -> None:
    """Has the Kubernetes client of the lease use what kubectl would, or the pod's service account."""
    try:
        kubernetes.config.load_kube_config(context=context)
    except kubernetes.config.ConfigException:
        kubernetes.config.load_incluster_config()


def _login(context: str | None) -> Callable[..., Any]:
    def login(**_: Any) -> kopf.ConnectionInfo:
        _configure_client(context)  # a service account's token is renewed each hour
        configuration = kubernetes.client.Configuration.get_default_copy()
        key = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        scheme, _space, token = str(key or "").rpartition(" ")
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            scheme=scheme or None,
            token=token or None,
            default_namespace="default",
        )

    return login
