"""Plays the nodes of a cluster that has none, in a process of its own: binds each new pod, says
that it runs, and lets it go when it is deleted.

    python -m benchmarks.nodes

It says so when it begins, and goes on until its standard input ends.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from benchmarks.apiserver import JSON, Api, GoneError
from benchmarks.measuring import ENVIRONMENT, ROOT
from launcher.backends.kubernetes.api_server.connection import connect

NODES = 20
CONNECTIONS = 8
PREFIX = "simulated-"
BEGUN = "the nodes are there"
STOP_SECONDS = 30


@contextmanager
def played(api: Api) -> Iterator[None]:
    """Plays the nodes, where the cluster has none of its own."""
    there, _ = api.list("api/v1/nodes")
    if there:
        yield
        return
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.nodes"],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != BEGUN:
                raise SystemExit("the nodes could not be played")
            yield
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def play(api: Api) -> None:
    """Plays until standard input ends."""
    names = [f"{PREFIX}{number}" for number in range(NODES)]
    for name in names:
        api.ask("POST", "api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}})
    _, version = api.list("api/v1/pods")
    watch = api.watch("api/v1/pods", version)
    numbers = itertools.count(1)
    try:
        with ThreadPoolExecutor(CONNECTIONS) as pool:

            def follow() -> None:
                for event in watch:
                    metadata = event["object"]["metadata"]
                    if event["type"] == "ADDED":
                        number = next(numbers)
                        pool.submit(told, run, api, metadata, names[number % NODES], number)
                    elif event["type"] == "MODIFIED" and "deletionTimestamp" in metadata:
                        pool.submit(told, end, api, metadata)

            thread = threading.Thread(target=follow)
            thread.start()
            print(BEGUN, flush=True)
            sys.stdin.read()
            watch.close()
            thread.join()
    finally:
        for name in names:
            api.ask("DELETE", f"api/v1/nodes/{name}", accept=JSON)


def run(api: Api, metadata: dict[str, Any], node: str, number: int) -> None:
    """Schedules and starts the pod, as the scheduler and the kubelet do: two writes."""
    name = metadata["name"]
    path = f"api/v1/namespaces/{metadata['namespace']}/pods/{name}"
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    now = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    container = {"name": "tensorflow", "image": "", "imageID": "", "restartCount": 0, "ready": True}
    status = {
        "phase": "Running",
        "startTime": now,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": [{**container, "state": {"running": {"startedAt": now}}}],
    }
    api.ask("POST", f"{path}/binding", binding, accept=JSON)
    api.ask(
        "PATCH", f"{path}/status", {"status": status}, content_type="application/strategic-merge-patch+json"
    )


def end(api: Api, metadata: dict[str, Any]) -> None:
    """Ends a pod that is being deleted, as the kubelet does."""
    path = f"api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}?gracePeriodSeconds=0"
    api.ask("DELETE", path)


def told(tell: Callable[..., None], *arguments: Any) -> None:
    """Calls `tell`, and prints why the server refuses, unless the pod is gone meanwhile."""
    try:
        tell(*arguments)
    except GoneError:
        pass
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)


if __name__ == "__main__":
    play(Api(connect(os.environ.get("KUBECONFIG"))))
