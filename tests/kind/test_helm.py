"""Releases on a cluster with nodes: the launcher runs in the cluster with its service account's rights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.api.plain_requests import wait_for
from tests.chart.helm import CI_VALUES, find, one, sources
from tests.chart.releases import RELEASE, Release
from tests.kind.conftest import LAUNCHER_IMAGE
from tests.kind.runs import DEMO, RUN, SECONDS, Runs, accuracy

TO_THE_END = ("--wait", "--wait-for-jobs", "--timeout", f"{SECONDS}s")
# The clusters of these tests have no TPUs.
CARRIED_OUT = [path for path in CI_VALUES if path.stem != "tpu-values"]
ONE_DEVICE = next(path for path in CI_VALUES if path.stem == "one-device-values")


class Installed(Release):
    """A release with the images of the tests."""

    def __init__(self, runs: Runs, directory: Path) -> None:
        super().__init__(runs.api, find(directory / "helm", runs.api.kubeconfig), runs.namespace, directory)
        repository, _, tag = LAUNCHER_IMAGE.rpartition(":")
        self.images = f"image.repository={repository},image.tag={tag},spec.image={runs.image}"
        self.storage_class = runs.storage_class

    def deploy(self, verb: str, values: Path, *arguments: str) -> str:
        """Installs or upgrades."""
        settings = self.images
        if self.storage_class and "modelDir" in yaml.safe_load(values.read_text())["spec"]:
            settings += f",spec.storage.storageClassName={self.storage_class}"
        return self.done(verb, "-f", values, *sources(values), "--set", settings, *arguments)

    def gone(self, run: str) -> Callable[[], bool]:
        """Returns whether nothing is left of the release and its run."""
        labels = (f"app.kubernetes.io/instance={RELEASE}", f"tf-launcher.dev/run={run}", "owner=helm")
        return lambda: not self.left(*labels)

    def log(self) -> str:
        """Returns the log of the current launcher, of all its pods."""
        name = one(self.objects(), "Job")["metadata"]["name"]
        texts = []
        for pod in self.api.list("Pod", self.namespace):
            if pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == name:
                texts.append(self.api.log(self.namespace, pod["metadata"]["name"]))
        return "".join(texts)


@pytest.fixture
def release(runs: Runs, tmp_path: Path) -> Installed:
    return Installed(runs, tmp_path)


def test_the_demo(release: Installed) -> None:
    release.deploy("install", DEMO, *TO_THE_END)
    assert accuracy(release.log()) >= 0.80
    assert "Phase:          Succeeded" in release.done("test")
    release.done("uninstall")
    assert wait_for(release.gone(RUN), 90), release.left("app.kubernetes.io/managed-by")


@pytest.mark.parametrize("values", CARRIED_OUT, ids=lambda path: path.stem)
def test_strategies(release: Installed, values: Path) -> None:
    release.deploy("install", values, *TO_THE_END)
    assert "has succeeded" in release.log()


def test_upgrade_and_rollback_in_the_middle(release: Installed) -> None:
    """The run resumes where it was."""
    longer = ("--set", "spec.program.parameters.epochs=2000,spec.program.parameters.stepsPerEpoch=200")
    release.deploy("install", ONE_DEVICE, *longer)
    assert wait_for(lambda: "epoch 2/2000" in release.log(), SECONDS)
    release.deploy("upgrade", ONE_DEVICE, *longer, "--set", "spec.template.resources.cpu=150m")
    assert wait_for(lambda: "holds an earlier run that did not finish" in release.log(), SECONDS)
    assert wait_for(lambda: "step 200/200" in release.log(), SECONDS)
    release.done("rollback", "1")
    assert wait_for(lambda: "holds an earlier run that did not finish" in release.log(), SECONDS)
    assert "which went on, is deleted and replaced" in release.log()
    release.done("uninstall")
    assert wait_for(release.gone("one-device"), 90), release.left("app.kubernetes.io/managed-by")


def test_a_program_that_is_wrong(release: Installed) -> None:
    """The release fails as the run does, and reports the error."""
    done = release.helm(
        "install",
        *("-f", ONE_DEVICE, "--set", release.images, *TO_THE_END),
        *("--set-json", 'program.files={"line.py": "class Line: ..."}'),
    )
    assert done.code == 1
    assert "status: Failed" in done.error
    assert "run one-device has failed" in release.log()
    assert "STATUS: failed" in release.done("status")
