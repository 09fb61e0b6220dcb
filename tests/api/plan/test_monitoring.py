"""The PodMonitor, against the definition of the Prometheus operator; and the NetworkPolicy for scrapers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.cli import parser
from launcher.errors import BackendError
from tests.api.conftest import installed
from tests.api.plain_requests import Api
from tests.api.runs import RUN, plan
from tests.api.users import kubeconfig, user

PATH = "apis/monitoring.coreos.com/v1"
SCRAPERS: list[dict[str, Any]] = [
    {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
        "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["prometheus"]}]},
    },
    {"podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}},
    {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
    {"ipBlock": {"cidr": "fd00::/8"}},
]
MONITORING: dict[str, Any] = {"port": 9090, "from": SCRAPERS}
MONITOR = {**MONITORING, "podMonitor": {"labels": {"release": "prometheus"}, "intervalSeconds": 15}}


@pytest.fixture
def crd(api: Api) -> Iterator[None]:
    """Installs the kind."""
    with installed(api, "monitoring.coreos.com_podmonitors"):
        yield


def monitors(api: Api, namespace: str) -> list[dict[str, Any]]:
    answer = api.request("GET", f"{PATH}/namespaces/{namespace}/podmonitors")
    assert answer.status == 200, answer.body
    pod_monitors: list[dict[str, Any]] = answer.body["items"]
    return pod_monitors


def test_the_policy_admits_scrapers_of_every_form(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    planned = plan(tmp_path, namespace, f"spec.monitoring={json.dumps(MONITORING)}")
    backend.submit(planned, detach=True)
    (policy,) = api.list("NetworkPolicy", namespace)
    assert policy["spec"]["ingress"][1:] == [{"from": SCRAPERS, "ports": [{"protocol": "TCP", "port": 9090}]}]


def test_the_monitor_is_accepted_strictly_and_goes_with_the_run(
    api: Api, backend: KubernetesBackend, crd: None, namespace: str, tmp_path: Path
) -> None:
    planned = plan(tmp_path, namespace, f"spec.monitoring={json.dumps(MONITOR)}")
    assert "PodMonitor mnist would be created" in backend.dry_run(planned)
    backend.submit(planned, detach=True)
    (monitor,) = monitors(api, namespace)
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "metrics", "interval": "15s"}]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (owner,) = monitor["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Job", "mnist-chief")
    backend.delete(RUN, namespace)
    assert monitors(api, namespace) == []


def test_without_its_definition_nothing_is_made(
    api: Api,
    backend: KubernetesBackend,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if api.request("GET", PATH).status != 404:
        pytest.skip("this cluster has the Prometheus operator")
    planned = plan(tmp_path, namespace, f"spec.monitoring={json.dumps(MONITOR)}")
    with pytest.raises(BackendError, match="the cluster does not know podmonitors") as error:
        backend.submit(planned, detach=True)
    assert error.value.message.endswith("which spec.monitoring.podMonitor asks for")
    assert api.list("Job", namespace) == []
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(api, tmp_path, namespace=namespace)))
    file = (str(tmp_path / "cluster.yaml"), "--set", f"spec.monitoring={json.dumps(MONITOR)}")
    assert parser.main(["doctor", *file]) == 5
    assert "does not know podmonitors" in capsys.readouterr().out


def test_the_printed_role_is_enough(
    api: Api,
    crd: None,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan(tmp_path, namespace)
    file = (str(tmp_path / "cluster.yaml"), "--set", f"spec.monitoring={json.dumps(MONITOR)}")
    assert parser.main(["doctor", *file, "--role", "-n", namespace]) == 0
    rules = yaml.safe_load(capsys.readouterr().out)["rules"]
    monkeypatch.setenv("KUBECONFIG", str(user(api, namespace, rules[:-1], tmp_path)))
    assert parser.main(["doctor", *file]) == 5
    assert "right to podmonitors" in capsys.readouterr().out
