"""`make test-kind` where kind cannot make a cluster: one message, with kind's own last lines.

What the real one says without Docker stands here as kind 0.27 printed it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kind.servers import ClusterError, claim_class, kind_cluster
from tests.paths import ROOT

NO_DOCKER = """\
ERROR: failed to create cluster: failed to get docker info: command "docker info --format '{{json .}}'" \
failed with error: exit status 1

Command Output: {"ID":"","Containers":0,"ContainersRunning":0,"ContainersPaused":0,"ContainersStopped":0}
Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?
"""


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `kind` on the path that keeps its arguments in a file, and fails where `fails` says so."""
    executable = tmp_path / "bin" / "kind"
    executable.parent.mkdir()
    executable.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >> {tmp_path}/calls\n'
        f'test ! -e {tmp_path}/fails-"$1" || {{ cat {tmp_path}/fails-"$1" >&2; exit 1; }}\n'
    )
    executable.chmod(0o755)
    monkeypatch.setenv("PATH", f"{executable.parent}{os.pathsep}{os.environ['PATH']}")
    for name in ("KIND_CONFIG", "KIND_NODE_IMAGE", "LAUNCHER_TEST_STORAGE_CLASS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def calls(kind: Path) -> list[str]:
    return (kind / "calls").read_text().splitlines()


def test_what_kind_is_asked(kind: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (kind / "config.yaml").write_text("kind: Cluster\n")
    monkeypatch.setenv("KIND_CONFIG", str(kind / "config.yaml"))
    monkeypatch.setenv("KIND_NODE_IMAGE", "kindest/node:v1.36.4")
    with kind_cluster(kind / "kubeconfig", ["a:1", "b:2"]) as kubeconfig:
        assert kubeconfig == kind / "kubeconfig"
    created, loaded, deleted = calls(kind)
    assert created == (
        f"create cluster --kubeconfig {kind}/kubeconfig --wait 180s --image kindest/node:v1.36.4"
        f" --config {kind}/config.yaml --name tf-launcher-test"
    )
    assert loaded == "load docker-image a:1 b:2 --name tf-launcher-test"
    assert deleted == f"delete cluster --kubeconfig {kind}/kubeconfig --name tf-launcher-test"


def test_a_cluster_that_cannot_be_made(kind: Path) -> None:
    (kind / "fails-create").write_text("".join(f"step {n}\n" for n in range(9)) + NO_DOCKER)
    with pytest.raises(ClusterError) as caught, kind_cluster(kind / "kubeconfig", []):
        pytest.fail("there is a cluster")
    first, *lines = str(caught.value).splitlines()
    assert first.startswith("`kind create cluster --kubeconfig ")
    assert first.endswith("failed with exit code 1, and said last:")
    assert lines[-1] == f"    {NO_DOCKER.splitlines()[-1]}"
    assert len(lines) == 8
    # It may be another's of the same name.
    assert len(calls(kind)) == 1


def test_images_that_cannot_be_loaded(kind: Path) -> None:
    (kind / "fails-load").write_text('ERROR: image: "a:1" not present locally\n')
    with pytest.raises(ClusterError, match='"a:1" not present locally'), kind_cluster(kind / "k", ["a:1"]):
        pytest.fail("there is a cluster with the image")
    assert [call.split()[0] for call in calls(kind)] == ["create", "load", "delete"]


def test_a_long_line_is_cut(kind: Path) -> None:
    (kind / "fails-create").write_text("x" * 100_000)
    with pytest.raises(ClusterError, match=r"x{300} \.\.\.$"), kind_cluster(kind / "kubeconfig", []):
        pytest.fail("there is a cluster")


def test_no_kind_and_no_configuration(kind: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIND_CONFIG", str(kind / "none.yaml"))
    with (
        pytest.raises(ClusterError, match=r"none\.yaml: there is no such file"),
        kind_cluster(kind / "k", []),
    ):
        pytest.fail("there is a cluster")
    monkeypatch.delenv("KIND_CONFIG")
    monkeypatch.setenv("PATH", str(kind / "empty"))
    with pytest.raises(ClusterError, match="there is no kind on the path"), kind_cluster(kind / "k", []):
        pytest.fail("there is a cluster")


def test_the_tests_say_it_once_and_without_a_traceback(kind: Path) -> None:
    (kind / "fails-create").write_text(NO_DOCKER)
    environment = {key: value for key, value in os.environ.items() if key != "LAUNCHER_TEST_KUBECONFIG"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/kind/test_lost_pods.py"],
        cwd=ROOT,
        env={**environment, "LAUNCHER_TEST_KIND": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, output
    assert output.count("no cluster to test on: `kind create cluster") == 1
    assert output.count("Is the docker daemon running?") == 1
    assert "Traceback" not in output
    assert "servers.py" not in output


def named(name: str, default: str = "") -> dict[str, Any]:
    annotations = {"storageclass.kubernetes.io/is-default-class": default} if default else None
    return {"metadata": {"name": name, "annotations": annotations}}


def test_a_claim_names_a_class_only_where_none_is_the_default(
    kind: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert claim_class([named("slow"), named("standard", "true")]) == ""
    assert claim_class([named("slow"), named("fast", "false")]) == "fast"
    with pytest.raises(ClusterError, match="no StorageClass"):
        claim_class([])
    monkeypatch.setenv("LAUNCHER_TEST_STORAGE_CLASS", "slow")
    assert claim_class([named("slow"), named("standard", "true")]) == "slow"
    with pytest.raises(ClusterError, match="the cluster has standard"):
        claim_class([named("standard", "true")])
