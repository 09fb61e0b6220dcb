"""A program that no one ConfigMap can hold, on a real API server: all parts arrive, and go with the run."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import zipfile
from pathlib import Path

from launcher.backends.kubernetes.backend import KubernetesBackend
from tests.api.plain_requests import Api
from tests.api.runs import RUN, plan


def test_a_program_of_twenty_megabytes(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    content = os.urandom(19_900_000)
    (folder / "data.bin").write_bytes(content)
    (folder / "mnist.py").write_text("class Mnist: ...\n")
    planned = plan(tmp_path, namespace, "spec.program.source=code")
    backend.submit(planned, detach=True)

    answer = api.request("GET", f"api/v1/namespaces/{namespace}/configmaps")
    maps = {item["metadata"]["name"]: item for item in answer.body["items"]}
    job = api.request("GET", f"apis/batch/v1/namespaces/{namespace}/jobs/mnist-chief").body
    spec = job["spec"]["template"]["spec"]
    (paths,) = (
        variable["value"].split(":")
        for variable in spec["containers"][0]["env"]
        if variable["name"] == "TF_LAUNCHER_SOURCE_PARTS"
    )
    mounts = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    whole = b""
    for path in paths:
        holder, _, key = path.rpartition("/")
        name = volumes[mounts[holder]]["configMap"]["name"]
        whole += base64.b64decode(maps[name]["binaryData"][key])
        assert maps[name]["metadata"]["ownerReferences"][0]["name"] == "mnist-chief"
    assert (
        hashlib.sha256(whole).hexdigest()
        == json.loads(maps["mnist-config"]["data"]["run.json"])["source"]["digest"]
    )
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.read("data.bin") == content

    worker = api.request("GET", f"apis/batch/v1/namespaces/{namespace}/jobs/mnist-worker").body
    assert "part" not in json.dumps(worker["spec"]["template"]["spec"]["volumes"]), "a server imports nothing"
    backend.delete(RUN, namespace)
    left = api.request("GET", f"api/v1/namespaces/{namespace}/configmaps").body["items"]
    assert not [item for item in left if item["metadata"]["name"].startswith("mnist-")]
