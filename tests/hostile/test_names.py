"""Invalid names of runs and namespaces, in every command and every function that takes one. Tests may only
add to the table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import launcher
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.api_server.connection import connect
from launcher.backends.kubernetes.api_server.resources import path_of
from launcher.cli import parser
from launcher.errors import BackendError, SpecError
from tests.hostile.servers import GOOD, answering, kubeconfig, server

NAMES = {
    "up": "../../../evil",
    "one up": "..",
    "here": ".",
    "a path": "a/b",
    "another API": "default/../../../apis/batch/v1/jobs",
    "quoted": "a%2f..%2fb",
    "a query": "a?limit=1",
    "a fragment": "a#b",
    "a selector": "a,b!=c",
    "nothing": "",
    "a space": " ",
    "a line end": "a\nb",
    "escapes": "\x1b]52;c;aGk=\x07",
    "capitals": "Default",
    "an underscore": "a_b",
    "other letters": "größe",
    "other digits": "a\u0661",
    "half a letter": "\ud800",
    "no UTF-8": "a\udcff",
    "long": "a" * 64,
    "very long": "a" * 5_000,
    "an option": "-n",
}
WITH_NAME = ("status", "describe", "logs", "events", "wait", "tensorboard", "suspend", "resume", "delete")
FILES = ("render", "submit", "doctor")


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster whose address no test may contact."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    try:
        code = parser.main(arguments)
    except SystemExit as leave:
        code = int(leave.code or 0)
    return code, capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_namespace(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    commands = [
        *([command, "my-run"] for command in WITH_NAME),
        *([command, GOOD] for command in FILES),
        ["submit", GOOD, "--backend", "local", "--detach"],
        ["submit", GOOD, "--dry-run", "client"],
        ["status", "my-run", "--backend", "local"],
        ["delete", "my-run", "--backend", "local"],
        ["report", "my-run", "-o", str(tmp_path / "report.html")],
        ["list"],
        ["list", "--backend", "kubernetes"],
        ["ui"],
        ["report", "my-run", "--serve"],
        ["doctor"],
        ["doctor", "--role"],
    ]
    for command in commands:
        code, output = run(capsys, *command, f"--namespace={name}")
        assert (code, "expected a namespace: lower-case" in output) == (2, True), (command, output)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_run(capsys: pytest.CaptureFixture[str], name: str) -> None:
    for command in WITH_NAME:
        code, output = run(capsys, command, "--", name)
        assert (code, "expected a run's name: lower-case" in output) == (2, True), (command, output)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_function(name: str) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: launcher.find(name),
        lambda: launcher.find("my-run", namespace=name),
        lambda: launcher.runs(namespace=name),
        lambda: launcher.runs(namespace=name, backend="local"),
        lambda: launcher.doctor(namespace=name),
        lambda: launcher.render(GOOD, namespace=name),
        lambda: launcher.submit(GOOD, namespace=name, backend="local"),
    ]
    for call in calls:
        with pytest.raises(SpecError, match="expected a"):
            call()


@pytest.mark.parametrize(
    "name", [each for each in NAMES.values() if each], ids=[key for key in NAMES if NAMES[key]]
)
def test_a_context_s_namespace(tmp_path: Path, name: str) -> None:
    with pytest.raises(BackendError, match=r"namespace: expected lower-case letters|it is not YAML"):
        connect(str(kubeconfig(tmp_path, "http://127.0.0.1:1", context={"namespace": name})))


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_an_owner(capsys: pytest.CaptureFixture[str], name: str) -> None:
    if name in ("a", "a" * 64):
        return  # an object's name may be longer
    code, output = run(capsys, "submit", GOOD, f"--owned-by=Job/{name}")
    assert (code, "expected" in output) == (2, True), output


@pytest.mark.parametrize("name", [each for each in NAMES.values() if each not in ("", ".", "..")])
def test_a_path_has_as_many_parts_as_it_should(name: str) -> None:
    path = path_of("Job", name, name, "status")
    assert path.count("/") == len(["apis", "batch", "v1", "namespaces", "X", "jobs", "X", "status"]) - 1
    assert path.isascii()
    assert set("?# \n").isdisjoint(path)


def test_a_pod_that_the_server_calls_so(tmp_path: Path) -> None:
    """The launcher puts names from a server into paths of requests."""
    with server(answering(b"line\n")) as api:
        client = Client(connect(str(kubeconfig(tmp_path, f"http://127.0.0.1:{api.port}"))))
        list(client.log("default", "../../../secrets?a=b", {}, silence=5).lines())
        assert api.asked == ["GET /api/v1/namespaces/default/pods/..%2F..%2F..%2Fsecrets%3Fa%3Db/log"]


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-1", "-inf", "1e400", "1e10", "0x10", "9" * 5_000, "1 week", ""]
)
@pytest.mark.parametrize("option", ["--since", "--timeout"])
def test_a_time(capsys: pytest.CaptureFixture[str], option: str, text: str) -> None:
    command = "logs" if option == "--since" else "wait"
    code, output = run(capsys, command, "my-run", f"{option}={text}")
    assert (code, "expected a time" in output) == (2, True)
