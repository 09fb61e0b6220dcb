"""`kubectl apply -k manifests/controller` on a real API server: all is taken, and its rights are enough."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.control_plane import DEFAULT_ASSETS
from tests.api import installed_controller
from tests.api.conftest import ROOT, installed
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import PATHS, Api, wait_for

FOLDER = ROOT / "manifests" / "controller"
SPACE = "tf-launcher"


@pytest.fixture
def deployment(api: Api) -> Iterator[dict[str, Any]]:
    """The controller's, with all that belongs to it."""
    directory = os.environ.get("KUBEBUILDER_ASSETS", str(DEFAULT_ASSETS))
    kubectl = shutil.which("kubectl") or shutil.which("kubectl", path=directory)
    if kubectl is None:
        pytest.skip(f"no kubectl on the path nor in {directory}")

    def run(*arguments: str) -> None:
        subprocess.run(
            [kubectl, *arguments, "-k", str(FOLDER)],
            env={**os.environ, "KUBECONFIG": str(api.kubeconfig)},
            check=True,
            timeout=120,
        )

    with installed(api, FOLDER / "crd.yaml"):
        try:
            run("apply", "--warnings-as-errors")
            path = f"{PATHS['Deployment'].format(SPACE)}/tf-launcher-controller"
            yield api.request("GET", path).body
        finally:
            run("delete", "--ignore-not-found")
            # What it defines belongs to the TFJobs.
            assert api.request("GET", installed_controller.TFJOBS.format(SPACE)).status == 200


def test_all_of_it_is_taken_and_its_rights_are_enough(
    api: Api, deployment: dict[str, Any], kubelet: Kubelet, tmp_path: Path
) -> None:
    """The namespace enforces Pod Security "restricted"."""
    assert wait_for(lambda: len(api.list("Pod", SPACE)) == 2), api.list("Event", SPACE)
    with installed_controller.running(api, deployment, tmp_path / "pod") as made:
        installed_controller.train(api, kubelet, made.log)


@pytest.mark.thorough
def test_one_that_may_not_watch_leaves(api: Api, deployment: dict[str, Any], tmp_path: Path) -> None:
    """It would lead and do nothing, and no other could."""
    binding = "apis/rbac.authorization.k8s.io/v1/clusterrolebindings/tf-launcher-controller"
    assert api.request("DELETE", binding).status == 200
    with installed_controller.running(api, deployment, tmp_path / "pod") as made:
        assert made.process.wait(60) == 5
        assert "what was watched is not seen any more: leaving" in made.log.read_text()
