"""What an earlier release has made is a run to this one: tests/releases has the objects as it sent them.

docs/compatibility.md, "Versions", has the promise.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import parser
from launcher.errors import ConflictError
from launcher.status import Phase
from tests.api.conftest import installed
from tests.api.kubelet import Kubelet
from tests.api.plain_requests import PATHS, Api, wait_for
from tests.api.runs import Follower, backend_for, role_messages
from tests.releases.record import CRDS, FILES, HERE

RELEASES = sorted(path.parent.name for path in HERE.glob("*/parameter-server.json"))
ROLES = {
    "parameter-server": {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1},
    "multi-worker-mirrored": {"worker": 3},
    "tfjob": {"worker": 2, "ps": 1},
}
"""The pods of each run, its primary role first."""

Run = Callable[..., tuple[int, str, str]]


class Made:
    """A run as the release made it, in one namespace."""

    def __init__(self, api: Api, kubelet: Kubelet, release: str, name: str) -> None:
        self.api, self.kubelet, self.name = api, kubelet, name
        self.file = str(FILES / f"{name}.yaml")
        self.objects = json.loads((HERE / release / f"{name}.json").read_text())
        self.run = self.objects[0]["metadata"]["labels"]["tf-launcher.dev/run"]
        uid = ""
        for item in self.objects:
            uid = uid or self._apply(item, uid)
            if item is not self.objects[0]:
                self._apply(item, uid)

    @property
    def roles(self) -> dict[str, int]:
        return ROLES[self.name]

    @property
    def primary(self) -> str:
        return next(iter(self.roles))

    def _apply(self, item: dict[str, Any], uid: str) -> str:
        """As the launcher applies it. Returns its uid."""
        item = copy.deepcopy(item)
        item["metadata"]["namespace"] = self.kubelet.namespace
        for owner in item["metadata"].get("ownerReferences", ()):
            owner["uid"] = uid
        path = f"{self.path(item['kind'])}/{item['metadata']['name']}"
        query = {"fieldManager": "tf-launcher", "fieldValidation": "Strict"}
        answer = self.api.patch(path, item, "application/apply-patch+yaml", **query)
        assert answer.status == 201, answer.body
        return str(answer.body["metadata"]["uid"])

    def path(self, kind: str) -> str:
        jobsets = "apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
        return {**PATHS, "JobSet": jobsets}[kind].format(self.kubelet.namespace)

    def start_all(self) -> None:
        for role, count in self.roles.items():
            self.kubelet.start(role, count)

    def suspended(self) -> set[bool]:
        return {job["spec"]["suspend"] for job in self.api.list("Job", self.kubelet.namespace)}

    def left(self) -> list[str]:
        """All objects of the run, but for the claims."""
        return [
            f"{kind} {item['metadata']['name']}"
            for kind in PATHS
            if kind not in ("Event", "PersistentVolumeClaim")
            for item in self.api.list(kind, self.kubelet.namespace)
            if item["metadata"].get("labels", {}).get("tf-launcher.dev/run") == self.run
        ]

    def claims(self) -> list[dict[str, Any]]:
        return self.api.list("PersistentVolumeClaim", self.kubelet.namespace)


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=ROLES)
def made(request: pytest.FixtureRequest, api: Api, kubelet: Kubelet, release: str) -> Made:
    return Made(api, kubelet, release, request.param)


@pytest.fixture
def run(
    api: Api,
    kubelet: Kubelet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """A command on the namespace: exit code, standard output and standard error."""
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def call(*arguments: str) -> tuple[int, str, str]:
        code = parser.main([*arguments, "-n", kubelet.namespace, "--backend", "kubernetes"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_there_is_a_release() -> None:
    assert "0.1.0" in RELEASES


def test_it_is_listed_and_shown(made: Made, run: Run) -> None:
    made.start_all()
    code, out, _ = run("list", "-o", "name")
    assert (code, out.split()) == (0, [made.run])
    # The Job controller counts in its own time.
    assert wait_for(lambda: ready(run("status", made.run, "-o", "json")) == made.roles)
    assert f"run {made.run} is running" in run("status", made.run)[1]
    for command in ("status", "describe", "events"):
        code, _, error = run(command, made.run)
        assert (code, error) == (0, ""), command


def ready(command_output: tuple[int, str, str]) -> dict[str, int]:
    """The pods of each role that are ready, as `status -o json` has them."""
    code, out, error = command_output
    assert (code, error) == (0, "")
    return {role["role"]: role["ready"] for role in json.loads(out)["status"]["roles"]}


def test_it_is_followed_to_its_end_and_what_is_left_is_stopped(made: Made, api: Api) -> None:
    follower = Follower(backend_for(api).follow(made.run, made.kubelet.namespace))
    made.start_all()
    follower.until(lambda status: all(role.ready == role.desired for role in status.roles))
    for pod in made.kubelet.pods(made.primary):
        made.kubelet.end(pod, 0)
    end = follower.rest()
    assert (end.phase, end.ended) == (Phase.SUCCEEDED, True)
    assert {role.role for role in end.roles} == set(made.roles)
    # Whoever follows ends those that nobody has released. A TFJob without a cleanPodPolicy keeps them.
    stopped = {role for role, message in role_messages(end).items() if message.startswith("RunEnded: ")}
    assert stopped == ({"worker", "ps", "evaluator"} if made.name == "parameter-server" else set())


def test_it_is_suspended_and_resumed(made: Made, run: Run) -> None:
    made.start_all()
    code, _, error = run("suspend", made.run)
    assert (code, error) == (0, "")
    assert made.suspended() == {True}
    made.kubelet.finish_deleted()
    assert f"run {made.run} is suspended" in run("status", made.run)[1]
    code, _, error = run("resume", made.run)
    assert (code, error) == (0, "")
    assert made.suspended() == {False}
    made.start_all()
    assert f"run {made.run} is running" in run("status", made.run)[1]


def test_it_goes_on_where_its_file_is_submitted_again(made: Made, run: Run) -> None:
    """This release makes other objects of the file: they would change a run that goes on."""
    made.start_all()
    before = sorted(pod["metadata"]["uid"] for pod in made.kubelet.pods())
    code, _, error = run("submit", made.file, "--detach")
    assert code == ConflictError.exit_code
    assert "this cannot be changed meanwhile" in error
    assert "--replace" in error
    assert sorted(pod["metadata"]["uid"] for pod in made.kubelet.pods()) == before


def test_it_is_replaced_and_its_claim_stays(made: Made, run: Run) -> None:
    made.start_all()
    claims = {claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in made.claims()}
    assert bool(claims) == (made.name != "tfjob")
    for pod in made.kubelet.pods():
        made.kubelet.end(pod, 1)
    code, out, error = run("submit", made.file, "--detach", "--replace")
    assert code == 0, error
    assert f"run {made.run}" in out
    made.start_all()
    assert f"run {made.run} is running" in run("status", made.run)[1]
    assert {claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in made.claims()} == claims
    # No Job owns it any more, whose time to live might take it along.
    assert all(not claim["metadata"].get("ownerReferences") for claim in made.claims())


def test_it_is_deleted(made: Made, run: Run) -> None:
    code, out, error = run("delete", made.run, "--yes")
    assert (code, error) == (0, "")
    assert made.left() == []
    kept = made.name == "multi-worker-mirrored"
    claims = [claim for claim in made.claims() if "deletionTimestamp" not in claim["metadata"]]
    assert [claim["metadata"]["name"] for claim in claims] == (["bert-model"] if kept else [])
    assert ("PersistentVolumeClaim bert-model" in out) == kept


def test_a_jobset(api: Api, kubelet: Kubelet, run: Run, release: str) -> None:
    with installed(api, *CRDS):
        made = Made(api, kubelet, release, "jobset")
        code, out, _ = run("status", made.run, "-o", "json")
        document = json.loads(out)
        assert (code, document["status"]["phase"]) == (0, "Suspended")
        roles = {role["role"]: role["replicas"] for role in document["status"]["roles"]}
        assert roles == {"worker": 3}
        assert run("list", "-o", "name")[1].split() == [made.run]
        code, out, error = run("delete", made.run)
        assert (code, error) == (0, "")
        assert "PersistentVolumeClaim queued-model" in out
        assert made.left() == []
        assert api.request("GET", f"{made.path('JobSet')}/{made.run}").status == 404
