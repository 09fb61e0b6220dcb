"""The demo on a cluster with nodes: it trains, its pods end by themselves, and no object of it stays."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.control_plane import DEFAULT_ASSETS
from tests.api.plain_requests import wait_for
from tests.kind.runs import DEMO, RUN, Runs, accuracy

TASKS = {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}


def test_it_trains_and_all_tasks_leave_by_themselves(runs: Runs, tmp_path: Path) -> None:
    done = runs.launcher("submit", str(DEMO), *runs.settings())
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracy(done.stdout) >= 0.80
    for role, count in TASKS.items():
        status = runs.job(role)["status"]
        assert status["succeeded"] == count
        assert status.get("failed", 0) == 0
        assert {c["type"] for c in status["conditions"] if c["status"] == "True"} >= {"Complete"}
    # They ended by themselves: a task that is stopped leaves with 143.
    ended = [pod["status"]["containerStatuses"][0] for pod in runs.pods()]
    assert [container["state"]["terminated"]["exitCode"] for container in ended] == [0] * 5
    assert [container["restartCount"] for container in ended] == [0] * 5

    page = tmp_path / "run.html"
    assert runs.of("report", "-o", str(page)).returncode == 0
    # The report uses the pods, their logs, and the cluster's events.
    shown = page.read_text()
    assert "preparing the container" in shown
    assert "a checkpoint was scored" in shown
    assert "SuccessfulCreate" in shown

    # A user without the launcher would do this. The Job's deletion deletes all other objects but the claim.
    gone = runs.api.request("DELETE", runs.path("Job", f"{RUN}-chief"), {"propagationPolicy": "Background"})
    assert gone.status == 200, gone.body
    claim = [f"PersistentVolumeClaim {RUN}-model"]
    assert wait_for(lambda: runs.left() == claim, 90), runs.left()
    assert runs.of("delete").returncode == 0
    assert wait_for(lambda: not runs.left(), 90), runs.left()


def test_delete_in_the_midst_of_training_leaves_nothing(runs: Runs) -> None:
    runs.submit()
    runs.trains()
    assert runs.of("delete").returncode == 0
    assert wait_for(lambda: not runs.left(), 90), runs.left()
    assert runs.of("status").returncode == 3


def test_what_render_prints_can_be_applied(runs: Runs) -> None:
    assets = os.environ.get("KUBEBUILDER_ASSETS", DEFAULT_ASSETS)
    kubectl = shutil.which("kubectl", path=f"{os.environ['PATH']}{os.pathsep}{assets}")
    if kubectl is None:
        pytest.skip("no kubectl on the PATH or in KUBEBUILDER_ASSETS")
    rendered = runs.launcher("render", str(DEMO), *runs.settings("spec.program.parameters.epochs=2"))
    assert rendered.returncode == 0, rendered.stderr
    applied = subprocess.run(
        [kubectl, "apply", "--server-side", "-f", "-"],
        env=runs.environment,
        input=rendered.stdout,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert applied.returncode == 0, applied.stderr
    # Above all, no warning of Pod Security.
    assert "Warning" not in applied.stderr
    runs.succeeds()
