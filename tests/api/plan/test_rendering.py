"""How a real API server and the real Job controller treat the rendered manifests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.control_plane import DEFAULT_ASSETS
from launcher.plan import rendering, topology
from launcher.validation import loader, source
from tests.api.conftest import restricted_namespace
from tests.api.plain_requests import PATHS, Api, wait_for
from tests.paths import ROOT

DEMO = ROOT / "examples" / "fashion-mnist" / "cluster.yaml"
FILES = [
    *sorted((ROOT / "tests" / "specs" / "valid").glob("*.yaml")),
    *sorted(ROOT.glob("examples/*/cluster*.yaml")),
]
TASK_INDEX_FIELD = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def objects(path: Path) -> list[dict[str, Any]]:
    return [
        item
        for loaded in loader.load(str(path))
        for item in rendering.render(topology.build(loaded.cluster), source.read(loaded))
    ]


def differences(sent: Any, kept: Any, path: str = "") -> Iterator[str]:
    """Yields the paths where the stored object lacks or changes what was sent.

    Defaults that the server adds do not count. Neither does a missing false, 0 or empty value that is the
    field's zero, since Go leaves those out of JSON.
    """
    if isinstance(sent, dict) and isinstance(kept, dict):
        for key, value in sent.items():
            yield from differences(value, kept.get(key), f"{path}.{key}")
    elif isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        for index, value in enumerate(sent):
            yield from differences(value, kept[index], f"{path}[{index}]")
    elif sent != kept and (sent or kept is not None):
        yield f"{path}: sent {sent!r}, kept {kept!r}"


@pytest.fixture(scope="module")
def shared(api: Api) -> Iterator[str]:
    """A namespace for tests that leave no objects in it."""
    with restricted_namespace(api) as name:
        yield name


@pytest.fixture(scope="module")
def shared_oldest(oldest_api: Api) -> Iterator[str]:
    with restricted_namespace(oldest_api) as name:
        yield name


def accepted_unchanged(api: Api, path: Path, namespace: str) -> None:
    for item in objects(path):
        if item["kind"] not in PATHS:
            continue  # other projects' kinds are in test_gang_scheduling.py
        answer = api.create(item, namespace, dryRun="All")
        assert answer.status == 201, answer.body["message"]
        assert answer.warnings == ""
        item["metadata"]["namespace"] = namespace
        assert list(differences(item, answer.body)) == []


STABLE = [path for path in FILES if path.stem != "gang-of-kubernetes"]
"""Without what needs a feature gate: tests/api/plan/test_kubernetes_gang.py."""


@pytest.mark.parametrize("path", STABLE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_object_is_accepted_unchanged_without_a_warning(api: Api, path: Path, shared: str) -> None:
    accepted_unchanged(api, path, shared)


OLD = [path for path in STABLE if path.stem != "tasks-that-share-a-gpu"]
"""Without resource claims, which are general since Kubernetes 1.34."""


@pytest.mark.by_day("valid/fixed-shards", "valid/parameter-server")
@pytest.mark.parametrize("path", OLD, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_oldest_supported_version_accepts_it_too(oldest_api: Api, path: Path, shared_oldest: str) -> None:
    accepted_unchanged(oldest_api, path, shared_oldest)


def test_the_server_would_have_refused_an_unknown_field(api: Api, shared: str) -> None:
    job = objects(DEMO)[0]
    job["spec"]["template"]["spec"]["hostName"] = "x"
    answer = api.create(job, shared, dryRun="All")
    assert answer.status == 400
    assert 'unknown field "spec.template.spec.hostName"' in answer.body["message"]


@pytest.mark.parametrize(
    ("image", "options", "done"),
    [
        ("tf-launcher-worker:dev", [], "created"),
        ("tensorflow/tensorflow:2.21.0", ["--server-side"], "serverside-applied"),
    ],
    ids=["runtime-of-the-image", "runtime-that-travels"],
)
def test_render_pipes_into_kubectl_apply(api: Api, image: str, options: list[str], done: str) -> None:
    directory = os.environ.get("KUBEBUILDER_ASSETS", DEFAULT_ASSETS)
    kubectl = shutil.which("kubectl") or shutil.which("kubectl", path=directory)
    if kubectl is None:
        pytest.skip(f"no kubectl on the path nor in {directory}")
    rendered = subprocess.run(
        [sys.executable, "-m", "launcher", "render", str(DEMO), "--set", f"spec.image={image}"],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=True,
    )
    applied = subprocess.run(
        [kubectl, "apply", "--dry-run=server", "--validate=strict", *options, "-f", "-"],
        input=rendered.stdout,
        env={**os.environ, "KUBECONFIG": str(api.kubeconfig)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert applied.returncode == 0, applied.stderr.decode()
    assert applied.stderr == b""
    lines = applied.stdout.decode().splitlines()
    assert f"job.batch/fashion-mnist-chief {done} (server dry run)" in lines
    jobs = [line.startswith("job.batch/") for line in lines]
    assert jobs == sorted(jobs), "a pod needs what the others are"
    assert len(lines) == len(objects(DEMO)) + ("configmap/fashion-mnist-runtime" in applied.stdout.decode())


def test_the_job_controller_makes_the_pods_of_the_topology(api: Api, namespace: str) -> None:
    """The namespace enforces Pod Security "restricted"."""
    (loaded,) = loader.load(str(DEMO), [f"metadata.namespace={namespace}"])
    planned = topology.build(loaded.cluster)
    for item in rendering.render(planned, source.read(loaded)):
        made = api.create(item, namespace)
        assert (made.status, made.warnings) == (201, ""), made.body

    wait_for(lambda: len(api.list("Pod", namespace)) == 5)
    pods = {pod["spec"]["hostname"]: pod for pod in api.list("Pod", namespace)}
    refused = [event["message"] for event in api.list("Event", namespace) if event["type"] == "Warning"]
    assert refused == []
    assert pods.keys() == {task.pod_name for task in planned.tasks}
    for task in planned.tasks:
        pod = pods[task.pod_name]
        assert task.address == f"{task.pod_name}.{pod['spec']['subdomain']}:2222"
        index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        assert index == str(task.index)
        env = {variable["name"]: variable for variable in pod["spec"]["containers"][0]["env"]}
        assert env["TASK_INDEX"]["valueFrom"]["fieldRef"]["fieldPath"] == TASK_INDEX_FIELD
        # A variable can refer only to variables before it.
        names = list(env)
        assert names.index("TASK_INDEX") < names.index("TF_CONFIG")
        assert "$(TASK_INDEX)" in env["TF_CONFIG"]["value"]
