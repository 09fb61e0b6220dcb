"""The Role that `doctor --role` prints is enough for a run, from submit to delete."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.api.plain_requests import wait_for
from tests.kind.runs import Runs

CLUSTER = """\
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {name: small}
spec:
  strategy: OneDevice
  command: [python, -c, "print('trained')"]
  modelDir: /model
  chief: {resources: {cpu: 100m, memory: 100Mi}}
"""
RBAC = "apis/rbac.authorization.k8s.io/v1/namespaces/{}"


def bearer(runs: Runs) -> str:
    """Returns the token of a service account that has only the printed Role."""
    printed = runs.launcher("doctor", "--role", "--namespace", runs.namespace)
    assert printed.returncode == 0, printed.stderr
    (role,) = [document for document in yaml.safe_load_all(printed.stdout) if document]
    accounts = f"api/v1/namespaces/{runs.namespace}/serviceaccounts"
    binding = {
        "apiVersion": role["apiVersion"],
        "kind": "RoleBinding",
        "metadata": {"name": "trainer"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": role["metadata"]["name"],
        },
        "subjects": [{"kind": "ServiceAccount", "name": "trainer", "namespace": runs.namespace}],
    }
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    for path, body in (
        (accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer"}}),
        (f"{RBAC.format(runs.namespace)}/roles", role),
        (f"{RBAC.format(runs.namespace)}/rolebindings", binding),
    ):
        made = runs.api.request("POST", path, body)
        assert made.status == 201, made.body
    return str(runs.api.request("POST", f"{accounts}/trainer/token", request).body["status"]["token"])


def test_a_run_with_no_other_rights(runs: Runs, tmp_path: Path) -> None:
    kubeconfig = yaml.safe_load(runs.api.kubeconfig.read_text())
    kubeconfig["users"] = [{"name": "trainer", "user": {"token": bearer(runs)}}]
    (context,) = (c for c in kubeconfig["contexts"] if c["name"] == kubeconfig["current-context"])
    context["context"]["user"] = "trainer"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    runs.environment["KUBECONFIG"] = str(tmp_path / "kubeconfig")
    (tmp_path / "cluster.yaml").write_text(CLUSTER)

    settings = runs.settings("spec.storage.reclaimPolicy=Delete")
    done = runs.launcher("submit", str(tmp_path / "cluster.yaml"), *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert runs.of("logs", "--raw", run="small").stdout == "trained\n"
    assert runs.of("delete", run="small").returncode == 0
    assert wait_for(lambda: not runs.left(), 90), runs.left()
    # The service account has no other rights.
    listed = runs.launcher("list", "--backend", "kubernetes")
    assert listed.returncode == 5
    assert "may not list jobs.batch in namespace default" in listed.stderr
