"""A controller that was installed on an API server without nodes: its pod is a process of this machine, with
the service account's rights.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.api import users
from tests.api.conftest import ROOT
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import Api, wait_for

TFJOBS = "apis/kubeflow.org/v1/namespaces/{}/tfjobs"


class Controller(NamedTuple):
    """A process, and the file of what it prints."""

    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def running(api: Api, deployment: dict[str, Any], folder: Path) -> Iterator[Controller]:
    """Runs the Deployment's command until the end. Yields it once it leads."""
    space = deployment["metadata"]["namespace"]
    pod = deployment["spec"]["template"]["spec"]
    account = f"api/v1/namespaces/{space}/serviceaccounts/{pod['serviceAccountName']}/token"
    answer = api.request("POST", account, {"spec": {"expirationSeconds": 3600}})
    assert answer.status == 201, answer.body
    folder.mkdir()
    known = users.kubeconfig(api, folder, token=answer.body["status"]["token"], namespace=space)
    # In a pod the namespace is read from the account's volume, and all pods may have the same port.
    options = ["--lease-namespace", space, "--address", "127.0.0.1:0"]
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "launcher", *pod["containers"][0]["args"], *options],
            env={**os.environ, "KUBECONFIG": str(known), "PYTHONPATH": str(ROOT)},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        assert wait_for(lambda: "leads, and trains" in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield Controller(process, log)
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()


def train(api: Api, kubelet: Kubelet, log: Path) -> None:
    """Has a TFJob suspended, resumed, trained, cleaned up and deleted in time. Fails where a right for it is
    missing.
    """
    path = TFJOBS.format(kubelet.namespace)
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "example.com/a:1"}]}}
    policy = {"suspend": True, "cleanPodPolicy": "All", "ttlSecondsAfterFinished": 20}
    item = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "click"},
        "spec": {
            "runPolicy": policy,
            "tfReplicaSpecs": {"Chief": {"template": template}, "PS": {"template": template}},
        },
    }
    made = api.request("POST", path, item)
    assert made.status == 201, made.body

    def holds(condition: str) -> bool:
        status = api.request("GET", f"{path}/click").body.get("status") or {}
        return any(
            each["type"] == condition and each["status"] == "True" for each in status.get("conditions") or ()
        )

    assert wait_for(lambda: holds("Suspended")), log.read_text()
    resumed = {"spec": {"runPolicy": {"suspend": False}}}
    assert api.patch(f"{path}/click", resumed, "application/merge-patch+json").status == 200
    kubelet.start("ps")
    (chief,) = kubelet.start("chief")
    assert wait_for(lambda: holds("Running")), log.read_text()
    kubelet.end(chief, 0)
    assert wait_for(lambda: holds("Succeeded")), log.read_text()
    wanted = {"TFJobSuspended", "TFJobRunning", "TFJobSucceeded"}

    def told() -> bool:  # an event may come after the condition that it is about
        return wanted <= {event["reason"] for event in api.list("Event", kubelet.namespace)}

    assert wait_for(told), log.read_text()
    # They have no node, so the server deletes them at once.
    assert wait_for(lambda: kubelet.pods() == []), log.read_text()
    assert api.request("GET", f"{path}/click").status == 200
    assert wait_for(lambda: api.request("GET", f"{path}/click").status == 404), log.read_text()
    printed = log.read_text()
    assert "may not" not in printed, printed
    assert "orbidden" not in printed, printed
    assert "Traceback" not in printed, printed
