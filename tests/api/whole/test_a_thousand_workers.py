"""A run of 1,000 workers on simulated nodes: all run, are followed, and are deleted with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchmarks import apiserver, measuring, nodes
from launcher.backends.kubernetes.api_server.connection import connect
from tests.api.conftest import ROOT
from tests.api.plain_requests import PATHS, Api, wait_for
from tests.api.runs import skip_beside_a_kubelet

WORKERS = 1_000
DEMO = ROOT / "examples" / "fashion-mnist" / "cluster.yaml"
LAUNCHER = [sys.executable, "-m", "launcher"]
SECONDS = 240


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_all_run_are_followed_and_deleted(
    api: Api, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_beside_a_kubelet()
    monkeypatch.setitem(measuring.ENVIRONMENT, "KUBECONFIG", str(api.kubeconfig))
    environment = {
        **os.environ,
        "KUBECONFIG": str(api.kubeconfig),
        "XDG_STATE_HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    # Retain: no controller here removes the finalizer from a claim.
    settings = [
        f"metadata.namespace={namespace}",
        f"spec.worker.replicas={WORKERS}",
        "spec.storage.reclaimPolicy=Retain",
    ]
    submit = [*LAUNCHER, "submit", str(DEMO), *(f"--set={setting}" for setting in settings)]

    def launcher(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*LAUNCHER, *words, "fashion-mnist", "-n", namespace],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    with (
        nodes.played(apiserver.Api(connect(str(api.kubeconfig)))),
        subprocess.Popen(submit, env=environment, stdout=subprocess.PIPE, text=True) as follower,
    ):
        alarm = threading.Timer(SECONDS, follower.kill)
        alarm.start()
        try:
            assert follower.stdout is not None
            assert any(f"  {WORKERS} tasks started" in line for line in follower.stdout)
            # The Job controller counts them a little later.
            launcher("wait", "--for=running")
            rows = [line.split() for line in launcher("status").stdout.splitlines()]
            assert [row[1] for row in rows if row[:1] == ["worker"]] == [f"{WORKERS}"]
            follower.send_signal(signal.SIGINT)
            follower.wait(30)
            launcher("delete")
            left = [kind for kind in PATHS if kind not in ("Event", "PersistentVolumeClaim", "ConfigMap")]
            assert wait_for(lambda: not any(api.list(kind, namespace) for kind in left), SECONDS)
        finally:
            alarm.cancel()
            follower.kill()
