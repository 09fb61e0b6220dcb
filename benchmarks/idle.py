"""What a run costs while nothing goes on: requests to the API server, by those who follow it, and processor
time and memory of the processes in its pods.

Starts a control plane from KUBEBUILDER_ASSETS, whose pods are played, and a run of real processes on this
machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import clusters, nodes, processes, recording
from benchmarks.api_proxy import ApiProxy, proxy
from benchmarks.apiserver import Api as Servers
from benchmarks.apiserver import Arrivals
from benchmarks.control_plane import UnavailableError, control_plane
from benchmarks.measuring import ENVIRONMENT, ROOT, table
from benchmarks.starters import LABEL, LAUNCHER, submit
from launcher.backends.kubernetes.api_server.connection import connect
from tests.api.kubelet import node
from tests.api.plain_requests import Api

MANY, FEW = 999, 2
"""Workers; with chief, ps and evaluator three pods more, or four."""
START_SECONDS = 300.0
SETTLE_SECONDS = 45.0
NODE = "node-with-logs"
BATCH_MICROSECONDS = 10_000_000
ROLES = ("chief", "worker", "ps", "evaluator")
WRITE = "import sys, pathlib, slow_input; slow_input.write(pathlib.Path(sys.argv[1]))"


class Follower(NamedTuple):
    """A command that follows a run, behind a proxy of its own."""

    name: str
    run: str
    between: ApiProxy
    process: subprocess.Popen[bytes]


def following(minutes: float) -> str:
    """The requests of commands that follow runs in which nothing happens."""
    with tempfile.TemporaryDirectory(prefix="idle-") as name, ExitStack() as stack:
        directory = Path(name)
        try:
            kubeconfig = stack.enter_context(control_plane(directory)).kubeconfig
        except UnavailableError as reason:
            raise SystemExit(str(reason)) from None
        os.environ["KUBECONFIG"] = ENVIRONMENT["KUBECONFIG"] = str(kubeconfig)
        api, servers = Api(kubeconfig), Servers(connect())
        stack.enter_context(nodes.played(servers))
        logs = stack.enter_context(node(api, directory, NODE))
        port = api.request("GET", f"api/v1/nodes/{NODE}").body["status"]["daemonEndpoints"]
        for number in range(nodes.NODES):
            path = f"api/v1/nodes/{nodes.PREFIX}{number}/status"
            addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
            status = {"addresses": addresses, "daemonEndpoints": port}
            api.patch(path, {"status": status}, "application/merge-patch+json")
        for item in (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}},
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "owner"},
                "spec": {
                    "suspend": True,
                    "template": {
                        "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}
                    },
                },
            },
        ):
            assert api.create(item, "default").status == 201
        owned = ("--owned-by", "ConfigMap/owner", "--owned-by", "Job/owner")
        followers: list[Follower] = []

        def follow(name: str, run: str, command: Sequence[str]) -> None:
            between = stack.enter_context(proxy(kubeconfig))
            folder = directory / f"follower-{len(followers)}"
            folder.mkdir()
            environment = {**ENVIRONMENT, "KUBECONFIG": str(between.kubeconfig(folder))}
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(_ended, process)
            followers.append(Follower(name, run, between, process))

        def started(run: str, workers: int, more: Sequence[str]) -> list[str]:
            return [word for word in submit(run, workers, "default") if word != "--detach"] + list(more)

        selectors = {"fieldSelector": "status.phase=Running"}
        for name, run, workers, more in (
            ("submit", "many", MANY, ()),
            ("the chart's Job", "few", FEW, owned),
        ):
            with Arrivals(servers, "default", labelSelector=f"{LABEL}={run}", **selectors) as running:
                follow(name, run, started(run, workers, more))
                if running.when(workers + 3, time.monotonic() + START_SECONDS) is None:
                    raise SystemExit(f"the pods of {run} did not all run within {START_SECONDS:g} s")
        follow(
            "logs -f --role chief",
            "few",
            [*LAUNCHER, "logs", "few", "-f", "--role", "chief", "-n", "default"],
        )
        for pod in api.list("Pod", "default"):
            logs.write(pod["metadata"]["name"], "begins")
        time.sleep(SETTLE_SECONDS)
        before = [
            (len(each.between.asked), each.between.sent, processes.cpu_seconds(each.process.pid))
            for each in followers
        ]
        time.sleep(60 * minutes)
        rows = []
        for each, (asked, sent, cpu) in zip(followers, before, strict=True):
            requests = each.between.asked[asked:]
            watches = sum(request.query.get("watch") == "true" for request in requests)
            opened = sum(request.path.endswith("/log") for request in requests)
            pods = str(len(api.list("Pod", "default")) - FEW - 3) if each.run == "many" else str(FEW + 3)
            rows.append(
                (
                    each.name,
                    pods,
                    *(f"{count / minutes:.1f}" for count in (len(requests), watches, opened)),
                    f"{(each.between.sent - sent) / minutes / 1000:.1f}",
                    f"{1000 * (processes.cpu_seconds(each.process.pid) - cpu) / minutes:.0f}",
                )
            )
    heads = (
        "command",
        "pods",
        "requests a minute",
        "of watches",
        "of logs",
        "KB a minute",
        "CPU ms a minute",
    )
    return f"Over {minutes:g} minutes:\n\n{table(heads, rows)}"


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


class Usage(NamedTuple):
    """A process. Memory in MB: `shared` is what it has in common with others, a part for each."""

    cpu: float
    resident: float
    proportional: float
    private: float

    @classmethod
    def of(cls, process: int) -> Usage:
        """Now. Raises OSError where it has ended."""
        sizes = {}
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]:
            name, size, *_ = line.split()
            sizes[name.rstrip(":")] = int(size) / 1024
        private = sizes["Private_Clean"] + sizes["Private_Dirty"]
        return cls(processes.cpu_seconds(process), sizes["Rss"], sizes["Pss"], private)


def in_pods(minutes: float) -> str:
    """Processor time and memory in the pods of a run whose batches take 10 s each."""
    with idle_run() as (directory, name):
        pods = {role: _processes(directory, name, role) for role in ROLES}
        bare = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        everyone = [("bare Python", "", bare.pid)]
        for role, pod_processes in pods.items():
            everyone += [(role, what, pid) for what, pid in pod_processes]
        try:
            time.sleep(SETTLE_SECONDS)
            before = [Usage.of(pid) for _, _, pid in everyone]
            time.sleep(60 * minutes)
            after = [Usage.of(pid) for _, _, pid in everyone]
        finally:
            _ended(bare)
    rows = [
        (
            role,
            what,
            f"{1000 * (now.cpu - then.cpu) / minutes:.0f}",
            f"{now.resident:.1f}",
            f"{now.proportional:.1f}",
            f"{now.private:.1f}",
        )
        for (role, what, _), then, now in zip(everyone, before, after, strict=True)
    ]
    heads = ("pod", "process", "CPU ms a minute", "resident MB", "its share MB", "its own MB")
    return f"In the pods, over {minutes:g} minutes in which a batch takes 10 s:\n\n{table(heads, rows)}"


@contextmanager
def idle_run() -> Iterator[tuple[str, str]]:
    """A run on this machine that hardly does anything: its state directory, and its name."""
    name = f"idle-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="idle-") as folder:
        directory = Path(folder)
        environment = {**ENVIRONMENT, "XDG_STATE_HOME": folder, "PYTHONPATH": str(ROOT)}
        sources = [clusters.PROGRAMS / f"{module}.py" for module in ("slow_input", "idle_program")]
        data = directory / "data"
        path = {**environment, "PYTHONPATH": str(clusters.PROGRAMS)}
        data.mkdir()
        subprocess.run([sys.executable, "-c", WRITE, str(data)], env=path, check=True, capture_output=True)
        spec: dict[str, Any] = {
            "program": {
                "entrypoint": "idle_program:Program",
                "parameters": {
                    "epochs": 1,
                    "stepsPerEpoch": 100_000,
                    "globalBatchSize": 32,
                    "inputMicroseconds": BATCH_MICROSECONDS,
                    "stepMicroseconds": 1_000,
                    "dataDir": str(data),
                },
            },
        }
        replicas = dict.fromkeys(ROLES, 1)
        file = clusters.write(directory, name, "ParameterServer", replicas, sources, spec)
        run = [sys.executable, "-m", "launcher"]
        process = subprocess.Popen(
            [*run, "submit", str(file), "--backend", "local", "--detach"], cwd=ROOT, env=environment
        )
        try:
            process.wait(START_SECONDS)
            log = directory / "tf-launcher" / "runs" / "default" / name / "pods" / f"{name}-chief-0" / "log.0"
            until = time.monotonic() + START_SECONDS
            while not log.exists() or '"progress"' not in log.read_text():
                if time.monotonic() > until:
                    raise SystemExit(f"the run did not train within {START_SECONDS:g} s")
                time.sleep(1.0)
            yield folder, name
        finally:
            subprocess.run(
                [*run, "delete", name, "--backend", "local"], cwd=ROOT, env=environment, check=False
            )


def _processes(directory: str, name: str, role: str) -> list[tuple[str, int]]:
    """Those of the first pod of a role: what each is, and its id, the parents first."""
    config = f"{name}-{role}-0"
    pids = [pid for pid in processes.with_environment("TF_LAUNCHER_") if config in _environment(pid)]
    parents = {pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pids}
    names = ("supervisor", "starter", "training process")
    ordered: list[tuple[str, int]] = []
    (current,) = (pid for pid in pids if parents[pid] not in pids)
    while current:
        ordered.append((names[len(ordered)] if len(ordered) < len(names) else "another", current))
        current = next((pid for pid in pids if parents[pid] == current), 0)
    return ordered


def _environment(process: int) -> str:
    return Path(f"/proc/{process}/environ").read_text(errors="replace")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=str(__doc__))
    parser.add_argument("--record", action="store_true", help="renew this harness' part of docs/benchmarks/")
    parser.add_argument("--minutes", type=float, default=6.0, help="how long it looks on (%(default)g)")
    parser.add_argument("--part", choices=("following", "in_pods"), help="only this")
    options = parser.parse_args()
    parts = {"following": following, "in_pods": in_pods}
    chosen = [measure for name, measure in parts.items() if options.part in (None, name)]
    with ThreadPoolExecutor() as pool:  # at the same time, since neither does much
        tables = list(pool.map(lambda measure: measure(options.minutes), chosen))
    recording.publish("idle", "\n\n".join(tables), record=options.record)


if __name__ == "__main__":
    main()
