"""Kubeconfigs of users who are not the administrator, and wrong kubeconfigs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.api.plain_requests import Api


def user(api: Api, namespace: str, rules: list[dict[str, Any]], directory: Path) -> Path:
    """A kubeconfig for a service account that has a Role with these rules, and nothing else."""
    rbac = f"apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    made = [
        api.request("POST", f"api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "user"}}),
        api.request("POST", f"{rbac}/roles", {"metadata": {"name": "user"}, "rules": rules}),
        api.request(
            "POST",
            f"{rbac}/rolebindings",
            {
                "metadata": {"name": "user"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "user"},
                "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": namespace}],
            },
        ),
    ]
    assert [answer.status for answer in made] == [201, 201, 201], made
    account = f"api/v1/namespaces/{namespace}/serviceaccounts/user/token"
    answer = api.request("POST", account, {"spec": {"expirationSeconds": 3600}})
    assert answer.status == 201, answer.body
    return kubeconfig(api, directory, token=answer.body["status"]["token"], namespace=namespace)


def kubeconfig(api: Api, directory: Path, **changes: str) -> Path:
    """Returns a copy of the administrator's with another `token`, `server` or `namespace`."""
    document = yaml.safe_load(api.kubeconfig.read_text())
    if "token" in changes:
        document["users"][0]["user"] = {"token": changes["token"]}
    if "server" in changes:
        document["clusters"][0]["cluster"]["server"] = changes["server"]
    if "namespace" in changes:
        document["contexts"][0]["context"]["namespace"] = changes["namespace"]
    path = directory / "kubeconfig"
    path.write_text(json.dumps(document))
    return path
