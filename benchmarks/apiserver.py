"""Requests of the benchmarks to an API server: the metadata of objects, and the server's own metrics."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlencode

from launcher.backends.kubernetes.api_server.connection import Connection
from launcher.backends.kubernetes.api_server.transport import Answer

JSON = "application/json"
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")
METRIC = re.compile(
    r"^(apiserver_request_total|apiserver_response_sizes_sum|apiserver_watch_events_sizes_sum"
    r"|apiserver_request_body_size_bytes_sum)\{(.*)\} (\S+)$",
    re.MULTILINE,
)
VERB = re.compile(r'\bverb="(\w+)"')
ANSWER_SECONDS = 60.0
WATCH_SECONDS = 3600
QUIET_WRITES = 10
"""Writes in a second; an idle cluster renews its leases."""


class GoneError(RuntimeError):
    """The object does not exist any more."""


class Cost(NamedTuple):
    """The requests of an API server by its own metrics: since its start, or between two times."""

    writes: int
    """Requests that change an object."""
    reads: int
    """All other requests, and those with dryRun."""
    received: int
    """Bytes of the objects that it got to write."""
    sent: int
    """Bytes of its answers, and of the events for watchers."""

    def since(self, before: Cost) -> Cost:
        """Returns the difference."""
        return Cost(*(now - then for now, then in zip(self, before, strict=True)))


class Api:
    """One API server. Every method raises RuntimeError when it refuses, OSError when it does not answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.namespace = connection.namespace

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        accept: str = METADATA,
        content_type: str = JSON,
    ) -> dict[str, Any]:
        """Returns the server's answer."""
        answer = self._request(method, path, body, {"Accept": accept, "Content-Type": content_type})
        return dict(json.loads(answer.read()))

    def list(self, path: str, **selectors: str) -> tuple[list[dict[str, Any]], str]:
        """Returns the objects' metadata, and the version from which to watch them."""
        answer = self.ask("GET", f"{path}?{urlencode(selectors)}", accept=METADATA_LIST)
        return [item["metadata"] for item in answer["items"] or []], answer["metadata"]["resourceVersion"]

    def watch(self, path: str, version: str, **selectors: str) -> Watch:
        """Watches the changes of objects since that version, with their metadata only."""

        def opened(version: str) -> Answer:
            query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
            query |= selectors
            return self._request(
                "GET", f"{path}?{urlencode(query)}", None, {"Accept": METADATA}, silence=None
            )

        return Watch(opened, version)

    def cost(self) -> Cost:
        """Returns the cost until now."""
        return counted(self._request("GET", "metrics", None, {"Accept": "text/plain"}).read().decode())

    def settle(self, seconds: float) -> Cost:
        """Waits, at most `seconds`, until hardly any object is written any more."""
        until = time.monotonic() + seconds
        before = self.cost()
        while True:
            time.sleep(1)
            now = self.cost()
            if now.writes - before.writes < QUIET_WRITES or time.monotonic() > until:
                return now
            before = now

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        *,
        silence: float | None = ANSWER_SECONDS,
    ) -> Answer:
        answer = self._connection.transport.request(
            method,
            f"{self._connection.host}/{path}",
            None if body is None else json.dumps(body).encode(),
            {**headers, **self._connection.credentials(), "User-Agent": "tf-launcher-benchmark"},
            silence,
        )
        if answer.status >= 300:
            error = GoneError if answer.status == 404 else RuntimeError
            raise error(f"{method} {path}: {answer.status} {answer.read().decode(errors='replace')}")
        return answer


def counted(metrics: str) -> Cost:
    """Reads the text of `/metrics`."""
    writes = reads = received = sent = 0.0
    for name, labels, value in METRIC.findall(metrics):
        if name == "apiserver_request_total":
            verb = VERB.search(labels)
            if verb and verb[1] in WRITES and 'dry_run=""' in labels:
                writes += float(value)
            else:
                reads += float(value)
        elif name == "apiserver_request_body_size_bytes_sum":
            received += float(value)
        elif 'verb="WATCH"' not in labels:  # their events are counted
            sent += float(value)
    return Cost(int(writes), int(reads), int(received), int(sent))


class Watch:
    """The events of a watch; `close` ends them, from any thread. A server ends a watch that is too slow,
    which may happen on a busy machine; it is then resumed at its last event.
    """

    def __init__(self, opened: Callable[[str], Answer], version: str) -> None:
        self._opened = opened
        self._version = version
        self._answer = opened(version)
        self._closed = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while not self._closed:
            try:
                yield from self._events()
            except OSError:
                pass
            finally:
                self._answer.close()
            if not self._closed:
                self._answer = self._opened(self._version)

    def _events(self) -> Iterator[dict[str, Any]]:
        rest = b""
        for piece in self._answer.stream():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise RuntimeError(f"a watch ended: {event['object']}")
                self._version = event["object"]["metadata"]["resourceVersion"]
                yield event

    def close(self) -> None:
        """Ends the events."""
        self._closed = True
        try:
            self._answer.shut()
        except (OSError, ValueError):  # it has ended
            pass


class Arrivals:
    """The times at which the pods of a selection appeared, each once, from now on: `time.monotonic()`, in
    order.
    """

    def __init__(self, api: Api, namespace: str, **selectors: str) -> None:
        path = f"api/v1/namespaces/{namespace}/pods"
        there, version = api.list(path, **selectors)
        if there:
            raise RuntimeError(f"{len(there)} pods of {selectors} are there already")
        self._watch = api.watch(path, version, **selectors)
        self._times: list[float] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> Arrivals:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.close()
        self._thread.join()

    def _follow(self) -> None:
        seen = set()
        for event in self._watch:
            name = event["object"]["metadata"]["name"]
            if event["type"] != "DELETED" and name not in seen:
                seen.add(name)
                with self._changed:
                    self._times.append(time.monotonic())
                    self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._times)

    def when(self, count: int, deadline: float) -> float | None:
        """Returns when there were `count` pods; None where the deadline passed before."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._times) >= count, max(0.0, deadline - time.monotonic()))
            return self._times[count - 1] if len(self._times) >= count else None
