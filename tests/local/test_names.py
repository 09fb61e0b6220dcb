"""A namespace and a run's name become folders: invalid names are refused by the functions that take them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.base import EVERYONE, Plan
from launcher.backends.local.backend import LocalBackend
from launcher.errors import SpecError
from tests.local.machine import job

BAD_NAMES = [
    "../../../evil",
    "..",
    ".",
    "",
    "/",
    "/etc",
    "a/b",
    "a/../../b",
    "a\0b",
    "a\nb",
    "*",
    "[a-z]*",
    "Upper",
    "a_b",
    "-a",
    "a-",
    "a.b",
    "x" * 64,
    "x" * 5000,
    "ä",
    "\ud800",
    "\x1b[2J",
    ".hidden",
    "~",
    "%2e%2e",
]
"""Invalid names of namespaces and runs. Tests may only add to them."""

CALLS: dict[str, Callable[[LocalBackend, str, str], Any]] = {
    "submit": lambda to, run, space: to.submit(Plan(run, space, [job("chief", "pass")], []), detach=True),
    "replace": lambda to, run, space: to.submit(
        Plan(run, space, [job("chief", "pass")], []), detach=True, replace=True
    ),
    "status": lambda to, run, space: to.status(run, space),
    "follow": lambda to, run, space: list(to.follow(run, space)),
    "logs": lambda to, run, space: list(to.logs(run, space, EVERYONE, follow=False)),
    "events": lambda to, run, space: list(to.events(run, space, follow=False)),
    "tensorboard": lambda to, run, space: to.tensorboard(run, space),
    "history": lambda to, run, space: to.history(run, space),
    "histories": lambda to, run, space: next(to.histories(run, space)),
    "suspend": lambda to, run, space: to.suspend(run, space),
    "resume": lambda to, run, space: to.resume(run, space),
    "stop": lambda to, run, space: to.stop(run, space),
    "places": lambda to, run, space: to.places(run, space),
    "delete": lambda to, run, space: to.delete(run, space),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_call_takes_a_wrong_name(tmp_path: Path, call: str) -> None:
    root = tmp_path / "a" / "b" / "state"
    backend = LocalBackend(root)
    for bad in BAD_NAMES:
        for run, namespace in ((bad, "default"), ("demo", bad), (bad, bad)):
            with pytest.raises(SpecError) as error:
                CALLS[call](backend, run, namespace)
            assert len(error.value.problems) == (2 if run == namespace else 1)
            str(error.value).encode("ascii")
            assert str(error.value).isprintable() or run == namespace
    assert not (tmp_path / "a").exists(), "nothing was made"


def test_no_list_takes_a_wrong_namespace(tmp_path: Path) -> None:
    for bad in BAD_NAMES:
        with pytest.raises(SpecError, match="expected a namespace"):
            LocalBackend(tmp_path).runs(bad)


@pytest.mark.parametrize(
    "arguments",
    [
        ["submit", "cluster.yaml", "--backend", "local"],
        ["status", "demo", "--backend", "local"],
        ["status", "demo"],
        ["list"],
        ["logs", "demo"],
        ["wait", "demo"],
        ["report", "demo", "-o", "page.html"],
        ["suspend", "demo"],
        ["resume", "demo"],
        ["tensorboard", "demo"],
        ["delete", "demo"],
    ],
    ids=" ".join,
)
def test_every_command_says_so_in_one_message(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "cluster.yaml").write_text(
        "{apiVersion: launcher/v1alpha1, kind: TrainingCluster, metadata: {name: demo}, "
        "spec: {strategy: OneDevice, image: x, worker: {command: ['true']}}}"
    )
    state = tmp_path / "one" / "two" / "three" / "state"
    done = subprocess.run(
        [sys.executable, "-m", "launcher", *arguments, "-n", "../../../evil"],
        cwd=tmp_path,
        env={**os.environ, "XDG_STATE_HOME": str(state), "KUBECONFIG": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert "'../../../evil'" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.yaml"]
