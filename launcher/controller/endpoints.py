"""What the controller serves by HTTP: Prometheus' metrics, and whether it lives."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Histogram, make_wsgi_app
from prometheus_client import Counter as Total
from prometheus_client.core import GaugeMetricFamily

from launcher.controller import conditions
from launcher.controller.observed import Observed


class Endpoints:
    """Serves `/metrics`, `/healthz` and `/readyz` at `address`, host and port."""

    def __init__(self, address: tuple[str, int], observed: Observed) -> None:
        self.leads = False
        self._observed = observed
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "tf_launcher_controller_reconcile_seconds",
            "Seconds to see to a TFJob once",
            registry=self._registry,
        )
        self._errors = Total(
            "tf_launcher_controller_errors", "Times that seeing to a TFJob failed", registry=self._registry
        )
        self._registry.register(self)
        self._metrics: Callable[..., Iterable[bytes]] = make_wsgi_app(self._registry)
        self._server = make_server(*address, self._answer, handler_class=_Quiet)

    @property
    def port(self) -> int:
        """The port, which the system chose where 0 was asked for."""
        return int(self._server.server_port)

    def start(self) -> None:
        """Serves in a thread."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def seen_to(self, seconds: float) -> None:
        """A TFJob was seen to, in so many seconds."""
        self._seconds.observe(seconds)

    def failed(self) -> None:
        """That was in vain."""
        self._errors.inc()

    def collect(self) -> Iterable[Any]:
        """The metrics that are read off when they are asked for."""
        leads = GaugeMetricFamily("tf_launcher_controller_leads", "1 for the replica that trains TFJobs")
        leads.add_metric([], float(self.leads))
        yield leads
        jobs = GaugeMetricFamily(
            "tf_launcher_tfjobs", "TFJobs by their newest condition", labels=["condition"]
        )
        for condition, count in sorted(self._conditions().items()):
            jobs.add_metric([condition], count)
        yield jobs

    def _conditions(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for key in self._observed.tfjobs():
            status = (self._observed.tfjob(key) or {}).get("status") or {}
            newest = (status.get("conditions") or [{"type": "None"}])[-1]["type"]
            counts[conditions.FAILED if conditions.is_true(status, conditions.FAILED) else newest] += 1
        return counts

    def _answer(self, environ: Any, start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path == "/metrics":
            return self._metrics(environ, start)
        is_known = path in ("/healthz", "/readyz")
        start("200 OK" if is_known else "404 Not Found", [("Content-Type", "text/plain")])
        return [b"ok\n" if is_known else b"expected /metrics, /healthz or /readyz\n"]


class _Quiet(WSGIRequestHandler):
    """Logs no request: probes come every few seconds."""

    def log_message(self, *_: Any) -> None:
        """Says nothing."""
