"""What a submission and a watch cost as the workers grow, against `kubectl apply` of the same manifests.

Takes the cluster of the kubeconfig; without one it starts a control plane from KUBEBUILDER_ASSETS. Where the
cluster has no nodes, it plays them.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import nodes, recording
from benchmarks.apiserver import Api, Arrivals
from benchmarks.cluster import cluster
from benchmarks.measuring import ENVIRONMENT, LIBRARIES, ROOT, milliseconds, table
from benchmarks.processes import cpu_seconds
from benchmarks.starters import LABEL, LAUNCHER, planned, submit
from launcher.backends.kubernetes.api_server.connection import connect
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.plan import serialization

FEW, MANY = 2, 1_000
WATCHED_SECONDS = 30
START_SECONDS = 300


def submissions(backend: KubernetesBackend, rounds: int, directory: Path) -> str:
    """Whole processes, in turns."""
    manifests = directory / "manifests.json"
    apply = ["kubectl", "apply", "-f", str(manifests)]
    few, many = (f"submit --detach, {workers:,} workers" for workers in (FEW, MANY))
    kubectl_few, kubectl_many = (f"kubectl apply, {workers:,} workers" for workers in (FEW, MANY))
    ways: dict[str, tuple[int, Callable[[str], list[str]]]] = {
        few: (FEW, lambda name: submit(name, FEW, backend.namespace, suspended=True)),
        many: (MANY, lambda name: submit(name, MANY, backend.namespace, suspended=True)),
    }
    alone = "pydantic, Jinja2, PyYAML, http.client and ssl alone"

    def imports(_: str) -> list[str]:
        return [sys.executable, "-c", f"import http.client, ssl\n{LIBRARIES}"]

    kubectl = shutil.which("kubectl")
    if kubectl:
        ways |= {
            kubectl_few: (FEW, lambda _: apply),
            kubectl_many: (MANY, lambda _: apply),
            alone: (FEW, imports),
        }
    spent: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for round_ in range(rounds + 1):
        for number, (way, (workers, command)) in enumerate(ways.items()):
            name = f"bench-{os.getpid()}-{round_}-{number}"
            plan = planned(name, workers, backend.namespace, suspended=True)
            manifests.write_text(serialization.as_json(plan.objects))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            wall = milliseconds(command(name), quiet=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if command is not imports:
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

    rows, version = [row(few), row(many, few, "1.5")], ""
    if kubectl:
        rows += [row(kubectl_few), row(kubectl_many), row(alone, kubectl_few)]
        rows += [row(few, kubectl_few, "2.5"), row(many, kubectl_many, "2.5")]
        version = f" {_version()}."
    return (
        f"Medians of {rounds} rounds; runs are suspended, so that only their submission is measured.{version}"
        "\n\n" + table(("command", "ms", "CPU ms", "ratio", "to", "should be under"), rows)
    )


def _version() -> str:
    """Kubectl's. A wrapper that chooses among several takes twice the time of one."""
    printed = subprocess.run(
        ["kubectl", "version", "--client", "--output=json"], capture_output=True, text=True, check=True
    )
    return f"kubectl {json.loads(printed.stdout)['clientVersion']['gitVersion']}"


def watching(backend: KubernetesBackend, api: Api) -> str:
    """The cost of `wait`."""
    name, namespace = f"bench-{os.getpid()}-watched", backend.namespace
    tasks = len(planned(name, MANY, namespace).addresses)
    wait = [*LAUNCHER, "wait", name, "-n", namespace]
    selectors = {"labelSelector": f"{LABEL}={name}", "fieldSelector": "status.phase=Running"}
    with Arrivals(api, namespace, **selectors) as running:
        milliseconds(submit(name, MANY, namespace), quiet=True)
        process = subprocess.Popen(wait, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        try:
            begin = time.monotonic()
            if running.when(tasks, begin + START_SECONDS) is None:
                raise SystemExit(f"the pods of {name} did not all run within {START_SECONDS} s")
            # The last changes are still on their way to the watcher.
            time.sleep(2)
            started, start_cpu = time.monotonic() - begin, cpu_seconds(process.pid)
            time.sleep(WATCHED_SECONDS)
            quiet_cpu = cpu_seconds(process.pid) - start_cpu
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
    return f"`wait` on a run of {tasks:,} pods.\n\n" + table(
        ("while", "% of a core", "peak MB", "should be under"), rows
    )


def _peak_megabytes(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (peak,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1000


def main() -> None:
    """Measures and prints."""
    options = recording.parser("benchmarks.submit", str(__doc__), 9).parse_args()
    with tempfile.TemporaryDirectory() as directory, cluster(Path(directory)):
        api, backend = Api(connect()), KubernetesBackend()
        with nodes.played(api):
            tables = [submissions(backend, options.rounds, Path(directory)), watching(backend, api)]
    recording.publish("submit", "\n\n".join(tables), record=options.record)


if __name__ == "__main__":
    main()
