"""What a submission and a watch cost as the workers grow, against `kubectl apply` of the same manifests.

    python -m benchmarks.submit [ROUNDS]

Takes the cluster of the kubeconfig. Without one it starts a control plane from KUBEBUILDER_ASSETS, and lets
the pods run there, since nobody else would.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measuring import ENVIRONMENT, ROOT, milliseconds, table
from launcher import loading, planning, printing
from launcher.backends.base import Plan
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.client import Client
from launcher.backends.kubernetes.connection import connect

DEMO = str(ROOT / "examples" / "fashion-mnist" / "cluster.yaml")
LAUNCHER = [sys.executable, "-m", "launcher"]
FEW, MANY = 2, 1_000
WATCHED_SECONDS = 30
START_SECONDS = 300
LABEL = "tf-launcher.dev/run"


def overrides(name: str, workers: int, *, suspended: bool) -> list[str]:
    """Of the demo. A suspended run has all its objects, and no pods to disturb the next measurement."""
    return [
        f"metadata.name={name}",
        f"spec.worker.replicas={workers}",
        f"spec.runPolicy.suspend={str(suspended).lower()}",
        "spec.storage.reclaimPolicy=Delete",
    ]


def planned(name: str, workers: int, *, suspended: bool, namespace: str) -> Plan:
    """What is submitted."""
    (loaded,) = loading.load(DEMO, overrides(name, workers, suspended=suspended))
    return planning.plan(planning.placed(loaded, None, namespace), "benchmark")


def submit(name: str, workers: int, *, suspended: bool = True) -> list[str]:
    """The command."""
    flags = [f"--set={override}" for override in overrides(name, workers, suspended=suspended)]
    return [*LAUNCHER, "submit", DEMO, "--detach", *flags]


def submissions(backend: KubernetesBackend, rounds: int, directory: Path) -> None:
    """Whole processes, in turns."""
    manifests = directory / "manifests.json"
    apply = ["kubectl", "apply", "-f", str(manifests)]
    few, many, kubectl = (
        f"submit --detach, {FEW} workers",
        f"submit --detach, {MANY:,} workers",
        f"kubectl apply, {MANY:,} workers",
    )
    ways: dict[str, Callable[[str], list[str]]] = {
        few: lambda name: submit(name, FEW),
        many: lambda name: submit(name, MANY),
    }
    if shutil.which("kubectl"):
        ways[kubectl] = lambda _: apply
    spent: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for round_ in range(rounds + 1):
        for number, (way, command) in enumerate(ways.items()):
            name = f"bench-{os.getpid()}-{round_}-{number}"
            plan = planned(name, MANY, suspended=True, namespace=backend.namespace)
            manifests.write_text(printing.as_json(plan.objects))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            wall = milliseconds(command(name), quiet=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            backend.delete(name, backend.namespace)
            if round_:
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                spent[way].append((wall, 1000 * cpu))
    medians = {
        way: [statistics.median(wall for wall, _ in pairs), statistics.median(cpu for _, cpu in pairs)]
        for way, pairs in spent.items()
    }

    def row(way: str, against: str = "", limit: str = "") -> Sequence[str]:
        ratio = f"{medians[way][0] / medians[against][0]:.2f}" if against else ""
        return way, *(f"{value:.0f}" for value in medians[way]), ratio, against, limit

    rows = [row(few), *([row(kubectl)] if kubectl in ways else []), row(many, few, "1.5")]
    rows += [row(many, kubectl, "2")] if kubectl in ways else []
    print(f"Medians of {rounds} rounds; runs are suspended, so that only their submission is measured.\n")
    print(table(("command", "ms", "CPU ms", "ratio", "to", "should be under"), rows))


def watching(backend: KubernetesBackend, client: Client, *, play: bool) -> None:
    """The cost of `wait`. `play`: lets the pods run, where there is no kubelet."""
    name, namespace = f"bench-{os.getpid()}-watched", backend.namespace
    milliseconds(submit(name, MANY, suspended=False), quiet=True)
    wait = [*LAUNCHER, "wait", name]
    process = subprocess.Popen(wait, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    try:
        begin = time.monotonic()
        tasks = _until_running(client, name, namespace, play=play)
        # The last changes are still on their way to the watcher.
        time.sleep(2)
        started, start_cpu = time.monotonic() - begin, _cpu_seconds(process.pid)
        time.sleep(WATCHED_SECONDS)
        quiet_cpu = _cpu_seconds(process.pid) - start_cpu
        peak = _peak_megabytes(process.pid)
    finally:
        process.terminate()
        process.wait(30)
        backend.delete(name, namespace)
    starting, quiet = 100 * start_cpu / started, 100 * quiet_cpu / WATCHED_SECONDS
    rows = [
        (f"all start, within {started:.0f} s", f"{starting:.1f}", "", ""),
        (f"all run, for {WATCHED_SECONDS} s", f"{quiet:.1f}", f"{peak:.0f}", "5; 150"),
    ]
    print(f"`wait` on a run of {tasks:,} pods.\n")
    print(table(("while", "% of a core", "peak MB", "should be under"), rows))


def _until_running(client: Client, run: str, namespace: str, *, play: bool) -> int:
    deadline = time.monotonic() + START_SECONDS
    done: set[str] = set()
    with ThreadPoolExecutor(4) as pool:
        while time.monotonic() < deadline:
            pods, _ = client.list("Pod", namespace, f"{LABEL}={run}")
            if play:
                fresh = [pod for pod in pods if pod["metadata"]["name"] not in done]
                list(pool.map(lambda pod: _run(client, pod), fresh))
                done.update(pod["metadata"]["name"] for pod in fresh)
            running = done if play else [pod for pod in pods if pod["status"]["phase"] == "Running"]
            if len(running) > MANY:
                return len(running)
            time.sleep(0.5)
    raise SystemExit(f"the pods of {run} did not all run within {START_SECONDS} s")


def _run(client: Client, pod: dict[str, Any]) -> None:
    """As a kubelet would report it."""
    metadata = pod["metadata"]
    state = {"running": {"startedAt": metadata["creationTimestamp"]}}
    container = {"name": "tensorflow", "image": "", "imageID": "", "restartCount": 0, "ready": True}
    status = {
        "phase": "Running",
        "startTime": metadata["creationTimestamp"],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{**container, "state": state}],
    }
    client.merge("Pod", metadata["namespace"], f"{metadata['name']}/status", {"status": status})


def _cpu_seconds(process: int) -> float:
    """User and system time so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_megabytes(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (peak,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1000


@contextmanager
def cluster(directory: Path) -> Iterator[bool]:
    """Whose kubeconfig it is: True for a control plane of our own."""
    known = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    if any(Path(path).exists() for path in known.split(os.pathsep)):
        yield False
        return
    from tests.api.server import UnavailableError, control_plane

    try:
        with control_plane(directory) as started:
            os.environ["KUBECONFIG"] = ENVIRONMENT["KUBECONFIG"] = str(started.kubeconfig)
            yield True
    except UnavailableError as reason:
        raise SystemExit(f"no kubeconfig, and {reason}") from None


def main(rounds: int = 9) -> None:
    """Measures and prints."""
    with tempfile.TemporaryDirectory() as directory, cluster(Path(directory)) as own:
        client = Client(connect())
        backend = KubernetesBackend()
        submissions(backend, rounds, Path(directory))
        print()
        watching(backend, client, play=own)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
