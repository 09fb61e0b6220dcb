"""The controller of TFJobs on nodes, as Kubeflow's own SDK sees it: nothing of the SDK is ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.api.conftest import ROOT
from tests.api.plain_requests import Api, wait_for
from tests.kind.conftest import IMAGE
from tests.kind.runs import Runs

SDK = ("kubeflow-training==1.9.4", "kubernetes==31.0.0", "setuptools")
"""Newer clients of Kubernetes refuse the SDK's models."""
CRDS = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"

CALLS = """
import json, sys
from kubeflow.training import (KubeflowOrgV1ReplicaSpec, KubeflowOrgV1RunPolicy, KubeflowOrgV1TFJob,
    KubeflowOrgV1TFJobSpec, TrainingClient)
from kubernetes.client import V1Container, V1ObjectMeta, V1PodSpec, V1PodTemplateSpec

kubeconfig, namespace, image = sys.argv[1:]
client = TrainingClient(config_file=kubeconfig, namespace=namespace, job_kind="TFJob")
code = "import os, json; print('accuracy=0.5', json.loads(os.environ['TF_CONFIG'])['task'], flush=True)"

def replicas(count, code):
    container = V1Container(name="tensorflow", image=image, command=["python3", "-c", code])
    template = V1PodTemplateSpec(spec=V1PodSpec(containers=[container]))
    return KubeflowOrgV1ReplicaSpec(replicas=count, template=template, restart_policy="Never")

def job(name, code):
    specs = {"Chief": replicas(1, code), "Worker": replicas(2, code)}
    policy = KubeflowOrgV1RunPolicy(clean_pod_policy="None")
    spec = KubeflowOrgV1TFJobSpec(run_policy=policy, tf_replica_specs=specs)
    metadata = V1ObjectMeta(name=name, namespace=namespace)
    version = "kubeflow.org/v1"
    client.create_job(KubeflowOrgV1TFJob(api_version=version, kind="TFJob", metadata=metadata, spec=spec))

job("good", code)
ended = client.wait_for_job_conditions("good", timeout=240, polling_interval=1)
found = {
    "ended": [each.type for each in ended.status.conditions if each.status == "True"],
    "succeeded": client.is_job_succeeded("good"),
    "pods": len(client.get_job_pod_names("good")),
    "masters": len(client.get_job_pod_names("good", is_master=True)),
    "second": len(client.get_job_pod_names("good", replica_type="worker", replica_index=1)),
    "log": list(client.get_job_logs("good")[0].values()),
}
job("bad", "raise SystemExit(3)")
try:
    client.wait_for_job_conditions("bad", timeout=240, polling_interval=1)
except RuntimeError as error:
    found["refused"] = "Failed" in str(error)
found["failed"] = client.is_job_failed("bad")
client.delete_job("good")
client.delete_job("bad")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the SDK. Skips where no index has it."""
    folder = tmp_path_factory.mktemp("sdk")
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    made = subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", python, *SDK], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"the Kubeflow SDK cannot be had: {made.stderr.strip()[-300:]}")
    return python


def test_the_sdk_creates_waits_reads_and_deletes(api: Api, runs: Runs, sdk: Path, tmp_path: Path) -> None:
    item = yaml.safe_load((ROOT / "manifests" / "controller" / "crd.yaml").read_text())
    made = api.request("POST", CRDS, item)
    assert made.status in (201, 409), made.body
    log = tmp_path / "controller.log"
    arguments = [
        "--namespace",
        runs.namespace,
        "--lease-namespace",
        runs.namespace,
        "--address",
        "127.0.0.1:0",
    ]
    environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig)}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "launcher", "controller", *arguments],
            env=environment,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        assert wait_for(lambda: "leads, and trains" in log.read_text(), 60), log.read_text()
        answer = subprocess.run(
            [sdk, "-c", CALLS, str(api.kubeconfig), runs.namespace, IMAGE],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert answer.returncode == 0, (answer.stderr, log.read_text())
        summary = json.loads(answer.stdout.splitlines()[-1])
        assert summary.pop("log")
        assert summary == {
            "ended": ["Created", "Succeeded"],
            "succeeded": True,
            "pods": 3,
            "masters": 1,
            "second": 1,
            "refused": True,
            "failed": True,
        }
        assert wait_for(lambda: not api.list("Job", runs.namespace), 90)
    finally:
        process.terminate()
        process.wait(60)
        if made.status == 201:
            api.request("DELETE", f"{CRDS}/{item['metadata']['name']}")
