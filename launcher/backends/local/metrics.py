"""The metrics of a run's tasks, as this machine's Prometheus finds them.

Each task has a port of its own, at which a socket of the machine's network listens: the run's own network is
closed, and its tasks inherit the socket. A file of targets names the ports while the run is running. One
entry in Prometheus' configuration finds all runs of this machine:

    scrape_configs:
      - job_name: tf-launcher
        file_sd_configs: [{files: [/home/me/.local/state/tf-launcher/targets/*.json]}]
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path

from launcher.backends.local.store import RunDirectory, Submission, write_json
from launcher.backends.run_facts import submitted


def addresses(submission: Submission) -> dict[str, str]:
    """Where tasks serve metrics: each address in the cluster, and that on this machine."""
    jobs = submission.of_kind("Job")
    port = submitted(jobs[0], "spec", "monitoring", "port") if jobs else None
    address_pairs = submission.addresses.items() if port is not None else ()
    return {there: here for there, here in address_pairs if there.endswith(f":{port}")}


def listen(submission: Submission) -> Mapping[str, int]:
    """Opens the sockets, by their addresses. One whose port was taken meanwhile is left out."""
    descriptors = {}
    for address in addresses(submission).values():
        host, _, port = address.rpartition(":")
        with contextlib.suppress(OSError):
            descriptors[address] = socket.create_server((host, int(port))).detach()
    return descriptors


def targets_path(directory: RunDirectory) -> Path:
    """The file of the run's targets: https://prometheus.io/docs/guides/file-sd/."""
    return directory.store / "targets" / f"{directory.namespace}.{directory.run}.json"


def write_targets(directory: RunDirectory, submission: Submission) -> None:
    """Names the ports. Raises OSError."""
    metrics_addresses = addresses(submission)
    if metrics_addresses:
        path = targets_path(directory)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        labels = {"namespace": directory.namespace}
        write_json(path, [{"targets": list(metrics_addresses.values()), "labels": labels}])
