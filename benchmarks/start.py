"""From the command to all pods running, against `kubectl apply` of the same manifests and operators that are
installed: how long it takes, and what the API server has to do.

Takes the cluster of the kubeconfig; without one it starts a control plane from KUBEBUILDER_ASSETS. Where the
cluster has no nodes, it plays them, alike for all.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import nodes, recording
from benchmarks.apiserver import JSON, METADATA_LIST, Api, Arrivals, Cost
from benchmarks.cluster import cluster
from benchmarks.measuring import ENVIRONMENT, ROOT, table
from benchmarks.starters import LABEL, PEERS, Starter, planned, starters
from launcher.backends.kubernetes.api_server.connection import connect

WORKERS = (10, 100, 1_000)
MANY = 5_000
DEADLINE_SECONDS = 180
SETTLE_SECONDS = 30


class Start(NamedTuple):
    """Seconds from the command; None where the deadline came first. `cost` is that of the whole start."""

    created: float | None
    running: float | None
    cost: Cost


def main() -> None:
    """Measures in turns and prints."""
    parser = recording.parser("benchmarks.start", str(__doc__), 3)
    parser.add_argument("--many", action="store_true", help=f"{MANY:,} workers, instead of the smaller runs")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar=f"{{{','.join(PEERS)}}}[:NAMESPACE]",
        help="whose operator is installed there; of one that watches a namespace only, with that",
    )
    parser.add_argument(
        "--no-service",
        action="store_true",
        help="apply the same manifests without their Service too: whose tasks would not find each other",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=DEADLINE_SECONDS,
        metavar="SECONDS",
        help="for one start (%(default)s)",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, cluster(Path(directory)):
        api = Api(connect())
        with nodes.played(api):
            text = measured(
                api,
                starters(options.peer, api.namespace, bare=options.no_service),
                [MANY] if options.many else WORKERS,
                options.rounds,
                options.deadline,
                Path(directory),
            )
    if options.many:
        recording.publish("start-many", text, record=options.record)
    else:
        recording.publish("start", text, record=options.record)


def measured(
    api: Api,
    players: Sequence[Starter],
    sizes: Sequence[int],
    rounds: int,
    deadline: float,
    directory: Path,
) -> str:
    """The table. A small start of each before the first round is not counted."""
    numbers = itertools.count()
    for player in players:
        started(api, player, f"bench-{os.getpid()}-{next(numbers)}", WORKERS[0], deadline, directory)
    rows: list[Sequence[str]] = []
    for workers in sizes:
        starts: dict[str, list[Start]] = {}
        refused = {}
        for _ in range(rounds):
            for player in players:
                run = f"bench-{os.getpid()}-{next(numbers)}"
                if reason := player.impossible(run, workers):
                    refused[player.name] = reason
                    continue
                if any(start.running is None for start in starts.get(player.name, ())):
                    continue  # once is enough
                start = started(api, player, run, workers, deadline, directory)
                starts.setdefault(player.name, []).append(start)
                print(f"{workers:,} workers, {player.name}: {start}", file=sys.stderr)
        rows += _rows(workers, starts, deadline)
        rows += [(f"{workers:,}", name, reason, *[""] * 6) for name, reason in refused.items()]
    heads = ("workers", "by", "created s", "Running s", "ratio", "writes", "reads", "MB in", "MB out")
    return f"The shortest times, and the median counts, of {rounds} rounds.\n\n{table(heads, rows)}"


def _rows(workers: int, starts: Mapping[str, Sequence[Start]], deadline: float) -> list[Sequence[str]]:
    def seconds(values: Sequence[float | None]) -> float | None:
        # What else a machine does only adds.
        return min((value for value in values if value is not None), default=None)

    def shown(value: float | None) -> str:
        return f"more than {deadline:.0f}" if value is None else f"{value:.1f}"

    ours = seconds([start.running for start in starts["submit"]])
    rows: list[Sequence[str]] = []
    for name, all_ in starts.items():
        running = seconds([start.running for start in all_])
        costs = [median(numbers) for numbers in zip(*(start.cost for start in all_), strict=True)]
        rows.append(
            (
                f"{workers:,}",
                name,
                shown(seconds([start.created for start in all_])),
                shown(running),
                f"{running / ours:.2f}" if ours and running else "",
                f"{costs[0]:,.0f}",
                f"{costs[1]:,.0f}",
                f"{costs[2] / 1e6:.1f}",
                f"{costs[3] / 1e6:.1f}",
            )
        )
    return rows


def started(api: Api, player: Starter, run: str, workers: int, deadline: float, directory: Path) -> Start:
    """One start. Leaves nothing behind."""
    manifests = directory / "manifests.json"
    command = player.command(run, workers, manifests)
    tasks = len(planned(run, workers, player.namespace).addresses)
    label = f"{LABEL}={run}"
    with (
        Arrivals(api, player.namespace, labelSelector=label) as created,
        Arrivals(api, player.namespace, labelSelector=label, fieldSelector="status.phase=Running") as running,
    ):
        before = api.cost()
        begin = time.monotonic()
        try:
            subprocess.run(
                command,
                cwd=ROOT,
                env=ENVIRONMENT,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            all_run = running.when(tasks, begin + deadline)
            all_created = created.when(tasks, begin + deadline)
            cost = api.settle(SETTLE_SECONDS if all_run else 0).since(before)
        finally:
            remove(api, player, run, manifests)
    return Start(all_created and all_created - begin, all_run and all_run - begin, cost)


def remove(api: Api, player: Starter, run: str, manifests: Path) -> None:
    """Deletes the run, its pods at once, and waits until the cluster has done with it."""
    if player.manifests is None:
        primary = planned(run, 1, player.namespace).objects[0]["metadata"]["name"]
        path = f"apis/batch/v1/namespaces/{player.namespace}/jobs/{primary}?propagationPolicy=Background"
        api.ask("DELETE", path, accept=JSON)
    else:
        subprocess.run(
            ["kubectl", "delete", "--wait=false", "--ignore-not-found", "-f", str(manifests)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    pods, selector = f"api/v1/namespaces/{player.namespace}/pods", f"labelSelector={LABEL}%3D{run}"
    until = time.monotonic() + 10 * DEADLINE_SECONDS
    while api.list(pods, labelSelector=f"{LABEL}={run}")[0]:
        with contextlib.suppress(OSError, RuntimeError):  # thousands take longer than a request may
            api.ask("DELETE", f"{pods}?{selector}&gracePeriodSeconds=0", accept=METADATA_LIST)
        if time.monotonic() > until:
            raise RuntimeError(f"pods of {run} do not go")
        time.sleep(1)
    api.settle(10 * DEADLINE_SECONDS)


if __name__ == "__main__":
    main()
