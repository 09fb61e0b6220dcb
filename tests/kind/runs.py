"""The command line on a cluster with nodes, and the cluster's view of its runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

import pytest

from tests.api.plain_requests import PATHS, Api
from worker.contract.records import Record

ROOT: Final = Path(__file__).parent.parent.parent
DEMO: Final = ROOT / "examples" / "fashion-mnist" / "cluster.yaml"
RUN: Final = "fashion-mnist"
SECONDS: Final = 280
"""Limit of a whole run, which takes a minute on an idle machine."""

Object = dict[str, Any]


class Runs:
    """Runs in one namespace. `image` is what their tasks run, `storage_class` what their claims name, "" for
    none.
    """

    def __init__(self, api: Api, namespace: str, image: str, home: Path, storage_class: str = "") -> None:
        self.api = api
        self.namespace = namespace
        self.image = image
        self.storage_class = storage_class
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(api.kubeconfig),
            # So that no run of this machine is found.
            "XDG_STATE_HOME": str(home),
            "PYTHONPATH": str(ROOT),
        }

    def launcher(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Runs one command; `stdin` is its input."""
        return subprocess.run(
            [sys.executable, "-m", "launcher", *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def settings(self, *overrides: str, claim: bool = True) -> list[str]:
        """As `submit` and `render` take them. `claim`: the file's run makes one."""
        all_settings = [f"metadata.namespace={self.namespace}", f"spec.image={self.image}", *overrides]
        if claim and self.storage_class:
            all_settings.append(f"spec.storage.storageClassName={self.storage_class}")
        return [word for setting in all_settings for word in ("--set", setting)]

    def submit(self, *overrides: str, file: Path = DEMO, claim: bool | None = None) -> None:
        """Starts a run and lets it go on. `claim`: it makes one, as the demo does."""
        settings = self.settings(*overrides, claim=file == DEMO if claim is None else claim)
        done = self.launcher("submit", str(file), "--detach", *settings)
        assert done.returncode == 0, done.stderr

    def of(self, command: str, *arguments: str, run: str = RUN) -> subprocess.CompletedProcess[str]:
        """Runs a command about a run."""
        return self.launcher(
            command, run, "--namespace", self.namespace, "--backend", "kubernetes", *arguments
        )

    def succeeds(self, run: str = RUN) -> str:
        """Returns the output of `wait`. Fails unless the run succeeds."""
        done = self.of("wait", run=run)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def records(self, role: str, index: int = 0, event: str = "", run: str = RUN) -> list[Record]:
        """Returns the task's records, from the pods that still exist."""
        lines = self.of("logs", "--raw", "--role", role, "--index", str(index), run=run).stdout.splitlines()
        records = [record for line in lines if (record := Record.parse(line))]
        return [record for record in records if not event or record.event == event]

    def trains(self, epoch: int = 1) -> None:
        """Waits until the epoch has ended."""
        command = [sys.executable, "-m", "launcher", "logs", RUN, "--namespace", self.namespace]
        command += ["--backend", "kubernetes", "--role", "chief", "--raw", "--follow"]
        with subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            alarm = threading.Timer(SECONDS, process.kill)
            alarm.start()
            try:
                reached = map(Record.parse, process.stdout)
                ends = (at.fields for at in reached if at is not None and at.fields.get("epoch_end"))
                if any(fields["epoch"] >= epoch for fields in ends):
                    return
            finally:
                alarm.cancel()
                process.kill()
        pytest.fail(f"epoch {epoch} did not end\n{self.of('status').stdout}")

    def pods(self, role: str | None = None, index: int | None = None, run: str | None = None) -> list[Object]:
        """Returns the pods of all runs, or of one role, task or run."""
        wanted = {
            "tf-launcher.dev/run": run,
            "tf-launcher.dev/role": role,
            "batch.kubernetes.io/job-completion-index": None if index is None else str(index),
        }
        labels = {key: value for key, value in wanted.items() if value is not None}
        pods = self.api.list("Pod", self.namespace)
        return [pod for pod in pods if labels.items() <= pod["metadata"]["labels"].items()]

    def pod(self, role: str, index: int = 0, run: str | None = None) -> str:
        """Returns the name of the task's latest pod."""
        pods = self.pods(role, index, run)
        latest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return str(latest["metadata"]["name"])

    def job(self, role: str, run: str = RUN) -> Object:
        """Returns the role's Job."""
        wanted = {"tf-launcher.dev/run": run, "tf-launcher.dev/role": role}
        jobs = self.api.list("Job", self.namespace)
        (job,) = [job for job in jobs if wanted.items() <= job["metadata"]["labels"].items()]
        return job

    def numbers(self, role: str) -> list[int]:
        """Returns the numbers of the role's tasks that have a pod, ascending."""
        labels = [pod["metadata"]["labels"] for pod in self.pods(role)]
        return sorted({int(each["batch.kubernetes.io/job-completion-index"]) for each in labels})

    def path(self, kind: str, name: str) -> str:
        """Returns the path of an object on the API server."""
        return f"{PATHS[kind].format(self.namespace)}/{name}"

    def left(self) -> list[str]:
        """Returns all objects of runs, as `kind name`."""
        return [
            f"{kind} {item['metadata']['name']}"
            for kind in PATHS
            if kind != "Event"
            for item in self.api.list(kind, self.namespace)
            if "tf-launcher.dev/run" in item["metadata"].get("labels", {})
        ]


def accuracy(output: str) -> float:
    """Returns the evaluator's last accuracy, from the summary."""
    match = re.search(r"^evaluation +accuracy ([\d.]+)", output, re.MULTILINE)
    assert match, output
    return float(match[1])
