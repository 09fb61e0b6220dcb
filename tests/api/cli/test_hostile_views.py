"""What commands show of a run on a cluster: no secret, of its file or of the cluster, and no command to the
terminal, whatever its pods, events and objects say. The tables only grow.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pty
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.cli import parser
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import Api
from tests.api.runs import RUN, plan, start_all

SECRET = "S3CRETvalue0f-this_test"
ENCODED = base64.b64encode(SECRET.encode()).decode()
EVIL = "\x1b]52;c;aGk=\x07\x1b[2J\u202e\u2028 end"
VIEWS = (
    ("status", RUN),
    *(("status", RUN, "-o", form) for form in ("json", "yaml", "wide", "name")),
    ("describe", RUN),
    ("events", RUN),
    ("report", RUN, "-o", "-"),
    *(("list", "--backend", "kubernetes", "-o", form) for form in ("json", "yaml", "wide", "name")),
    ("list", "--backend", "kubernetes", "-l", "tf-launcher.dev/run=mnist"),
)
"""Commands that show something of a run."""
ODD: dict[str, dict[str, Any]] = {
    "a Job that the launcher did not make": {"metadata": {"labels": {"tf-launcher.dev/role": "boss"}}},
    "no role": {"metadata": {"labels": {"tf-launcher.dev/role": None}}},
    "no annotations": {"metadata": {"annotations": None}},
    "annotations that are no JSON": {
        "metadata": {"annotations": {"tf-launcher.dev/spec": "[[[", "tf-launcher.dev/addresses": EVIL}}
    },
    "other labels": {"metadata": {"labels": {"team": "x" * 63, "example.com/a": ""}}},
    "suspended": {"spec": {"suspend": True}},
}
"""What somebody may change about the run's Jobs."""


@pytest.fixture
def seen(
    api: Api,
    backend: KubernetesBackend,
    kubelet: Kubelet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Kubelet:
    """A run whose variables and Secret hold the secret, with pods."""
    space = kubelet.namespace
    made = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "login"},
        "stringData": {"password": SECRET},
    }
    answer = api.request("POST", f"api/v1/namespaces/{space}/secrets", {**made})
    assert answer.status == 201, answer.body
    env = [
        {"name": "TOKEN", "value": SECRET},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}},
    ]
    backend.submit(plan(tmp_path, space, f"spec.chief.env={json.dumps(env)}"), detach=True)
    # Whose token is none of the server's: as in a kubeconfig that another tool has left.
    config = yaml.safe_load(api.kubeconfig.read_text())
    config["users"].append({"name": "other", "user": {"token": SECRET}})
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    start_all(kubelet)
    return kubelet


def show(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[int, str]:
    code = parser.main(arguments)
    out, err = capfdbinary.readouterr()
    return code, (out + err).decode()


def on_a_terminal(*arguments: str) -> str:
    """What a terminal gets."""
    ours, its = pty.openpty()
    child = os.fork()
    if child == 0:
        os.close(ours)
        for number in range(3):
            os.dup2(its, number)
        try:
            sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            parser.main(arguments)
            sys.stdout.flush()
        finally:
            os._exit(0)
    os.close(its)
    shown = io.BytesIO()
    try:
        while piece := os.read(ours, 65536):
            shown.write(piece)
    except OSError:
        pass  # it has ended
    os.close(ours)
    os.waitpid(child, 0)
    return shown.getvalue().decode()


def test_no_secret_and_no_escape(
    api: Api,
    seen: Kubelet,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    space = seen.namespace
    (pod,) = seen.pods("chief")
    for reason, message in (("Evil", EVIL), ("FailedMount", f"x {EVIL}")):
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"chief.{reason.lower()}"},
            "involvedObject": {
                "kind": "Pod",
                "name": pod["metadata"]["name"],
                "namespace": space,
                "uid": pod["metadata"]["uid"],
                "apiVersion": "v1",
            },
            "reason": reason,
            "message": message,
            "type": "Warning",
            "lastTimestamp": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "source": {"component": "kubelet"},
        }
        answer = api.request("POST", f"api/v1/namespaces/{space}/events", event)
        assert answer.status == 201, answer.body
    (worker, _) = seen.pods("worker")
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": EVIL}}
    seen.set(worker, "Pending", waiting)
    for command in VIEWS:
        code, output = show(capfdbinary, *command, "-n", space)
        assert code == 0, output
        assert SECRET not in output, command
        assert ENCODED not in output, command
    for command in (("status", RUN), ("describe", RUN), ("events", RUN), ("status", RUN, "-o", "wide")):
        shown = on_a_terminal(*command, "-n", space)
        assert "end" in shown, command
        for part in ("\x1b]", "\x1b[2J", "\u202e", "\u2028", "\x07"):
            assert part not in shown, (command, part)


@pytest.mark.parametrize("change", ODD)
def test_jobs_that_were_changed(
    api: Api,
    seen: Kubelet,
    capfdbinary: pytest.CaptureFixture[bytes],
    change: str,
) -> None:
    space = seen.namespace
    for job in api.list("Job", space):
        path = f"apis/batch/v1/namespaces/{space}/jobs/{job['metadata']['name']}"
        assert api.patch(path, ODD[change], "application/merge-patch+json").status == 200
    for command in VIEWS:
        code, output = show(capfdbinary, *command, "-n", space)
        assert code in (0, 3, 5), (command, output)
        assert "Traceback" not in output
        assert SECRET not in output
