"""What a submission and a watch cost as the workers grow, against `kubectl apply` of the same manifests.

Takes the cluster of the kubeconfig; without one it starts a control plane from KUBEBUILDER_ASSETS. Where the
cluster has no nodes, it plays them.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import nodes, recording
from benchmarks.apiserver import Api, Arrivals
from benchmarks.cluster import cluster
from benchmarks.measuring import ENVIRONMENT, ROOT, milliseconds, table
from benchmarks.processes import cpu_seconds
from benchmarks.starters import LABEL, LAUNCHER, planned, submit
from launcher.backends.kubernetes.api.connection import connect
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.plan import serialization

FEW, MANY = 2, 1_000
WATCHED_SECONDS = 30
START_SECONDS = 300


def submissions(backend: KubernetesBackend, rounds: int, directory: Path) -> str:
    """Whole processes, in turns."""
    manifests = directory / "manifests.json"
    apply = ["kubectl", "apply", "-f", str(manifests)]
    few, many, kubectl = (
        f"submit --detach, {FEW} workers",
        f"submit --detach, {MANY:,} workers",
        f"kubectl apply, {MANY:,} workers",
    )
    ways: dict[str, Callable[[str], list[str]]] = {
        few: lambda name: submit(name, FEW, backend.namespace, suspended=True),
        many: lambda name: submit(name, MANY, backend.namespace, suspended=True),
    }
    if shutil.which("kubectl"):
        ways[kubectl] = lambda _: apply
    spent: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for round_ in range(rounds + 1):
        for number, (way, command) in enumerate(ways.items()):
            name = f"bench-{os.getpid()}-{round_}-{number}"
            plan = planned(name, MANY, backend.namespace, suspended=True)
            manifests.write_text(serialization.as_json(plan.objects))
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
    return (
        f"Medians of {rounds} rounds; runs are suspended, so that only their submission is measured.\n\n"
        + table(("command", "ms", "CPU ms", "ratio", "to", "should be under"), rows)
    )


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
