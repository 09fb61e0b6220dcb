"""Gangs, against the definitions of the projects that schedule them: the objects made, and the values
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.cli import parser
from launcher.config.spec import Gang
from launcher.errors import BackendError
from launcher.plan.gang_scheduling import API_VERSIONS
from tests.api.conftest import installed
from tests.api.plain_requests import Api
from tests.api.runs import RUN, plan
from tests.api.users import kubeconfig, user

PROJECTS = {
    "Volcano": ("scheduling.volcano.sh_podgroups", "apis/scheduling.volcano.sh/v1beta1"),
    "Coscheduling": ("scheduling.x-k8s.io_podgroups", "apis/scheduling.x-k8s.io/v1alpha1"),
}


@pytest.fixture(params=sorted(PROJECTS))
def gang(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def crd(api: Api, gang: str) -> Iterator[str]:
    """Installs the gang's PodGroup; gives its path."""
    with installed(api, PROJECTS[gang][0]):
        yield PROJECTS[gang][1]


def groups(api: Api, api_path: str, namespace: str) -> list[dict[str, Any]]:
    answer = api.request("GET", f"{api_path}/namespaces/{namespace}/podgroups")
    assert answer.status == 200, answer.body
    pod_groups: list[dict[str, Any]] = answer.body["items"]
    return pod_groups


def test_the_group_is_accepted_strictly_and_goes_with_the_run(
    api: Api, backend: KubernetesBackend, gang: str, crd: str, namespace: str, tmp_path: Path
) -> None:
    planned = plan(tmp_path, namespace, f"spec.scheduling={{gang: {gang}}}", "spec.ps.replicas=2")
    assert "PodGroup mnist would be created" in backend.dry_run(planned)
    backend.submit(planned, detach=True)
    (group,) = groups(api, crd, namespace)
    assert group["spec"]["minMember"] == 4  # the chief, both ps, and one of the two workers
    (owner,) = group["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Job", "mnist-chief")

    again = plan(tmp_path, namespace, f"spec.scheduling={{gang: {gang}}}", "spec.ps.replicas=2")
    assert backend.submit(again, detach=True) == "run mnist is running already, and is what was submitted"
    backend.delete(RUN, namespace)
    assert groups(api, crd, namespace) == []


def test_the_group_is_as_the_file_says(
    backend: KubernetesBackend, api: Api, gang: str, crd: str, namespace: str, tmp_path: Path
) -> None:
    fields: dict[str, Any] = {"minMember": 2, "minResources": {"cpu": "3"}}
    if gang == "Coscheduling":
        fields["scheduleTimeoutSeconds"] = 9
    backend.submit(plan(tmp_path, namespace, f"spec.scheduling={ {'gang': gang, **fields} }"), detach=True)
    (group,) = groups(api, crd, namespace)
    assert {name: group["spec"][name] for name in fields} == fields
    assert "minTaskMember" not in group["spec"]


@pytest.mark.parametrize("gang", sorted(API_VERSIONS))
def test_without_its_definition_nothing_is_made(
    api: Api,
    backend: KubernetesBackend,
    gang: Gang,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if api.request("GET", f"apis/{API_VERSIONS[gang]}").status != 404:
        pytest.skip(f"this cluster has {gang}")
    planned = plan(tmp_path, namespace, f"spec.scheduling={{gang: {gang}}}")
    for attempt in (backend.dry_run, lambda planned: backend.submit(planned, detach=True)):
        with pytest.raises(
            BackendError, match="is not installed: the cluster does not know podgroups"
        ) as error:
            attempt(planned)
        assert error.value.message.endswith(f"which spec.scheduling.gang: {gang} asks for")
        assert "Ask the administrator" in error.value.hint
    assert api.list("Job", namespace) == api.list("ConfigMap", namespace)[1:] == []

    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(api, tmp_path, namespace=namespace)))
    assert parser.main(["doctor"]) == 0
    assert f"(spec.scheduling.gang: {gang})" in capsys.readouterr().out
    file = str(tmp_path / "cluster.yaml")
    assert parser.main(["doctor", file, "--set", f"spec.scheduling.gang={gang}"]) == 5
    out = capsys.readouterr().out
    assert re.search(r"^missing .* is not installed: the cluster does not know podgroups", out, re.MULTILINE)
    assert f"or change spec.scheduling.gang: {gang}." in out
    assert parser.main(["doctor", file]) == 0
    assert "podgroups" not in capsys.readouterr().out


def test_the_printed_role_is_enough(
    api: Api,
    gang: str,
    crd: str,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned = plan(tmp_path, namespace, f"spec.scheduling={{gang: {gang}}}")
    file = (str(tmp_path / "cluster.yaml"), "--set", f"spec.scheduling.gang={gang}")
    assert parser.main(["doctor", *file, "--role", "-n", namespace]) == 0
    rules = yaml.safe_load(capsys.readouterr().out)["rules"]
    lacking = user(api, namespace, rules[:-1], tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(lacking))
    assert parser.main(["doctor", *file]) == 5
    assert "right to podgroups" in capsys.readouterr().out
    # Other runs do not need the gang.
    assert parser.main(["doctor"]) == 0
    assert f"Without it, a run with spec.scheduling.gang: {gang} is refused." in capsys.readouterr().out
    with pytest.raises(BackendError, match="may not patch podgroups"):
        KubernetesBackend(str(lacking)).submit(planned, detach=True)
    assert api.list("Job", namespace) == []

    role = f"apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/user"
    assert api.request("PUT", role, {"metadata": {"name": "user"}, "rules": rules}).status == 200
    backend = KubernetesBackend(str(lacking))
    backend.submit(planned, detach=True)
    backend.delete(RUN, namespace)
    assert groups(api, crd, namespace) == []
