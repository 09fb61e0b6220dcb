"""`tensorboard` on this machine: a real TensorBoard of a real run, and its page in a real browser."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import launcher
from launcher.backends.local.process.processes import LINUX
from tests.local.machine import eventually, linux_only, with_variable
from tests.paths import ROOT

SECONDS = 200
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MARK = "TF_LAUNCHER_TEST_BOARD"

pytestmark = linux_only


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory in which a run of two epochs has ended."""
    state = tmp_path_factory.mktemp("state")
    done = command_line(
        state,
        *("submit", "examples/strategies/cluster-one-device.yaml", "--backend", "local"),
        *("--set", "spec.program.parameters.epochs=2", "--set", "spec.program.parameters.stepsPerEpoch=8"),
        *("--set", "spec.tensorboard={}"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^tensorboard +python -m launcher tensorboard one-device$", done.stdout, re.MULTILINE)
    assert "Deployment" not in done.stderr
    return state


def environment(state: Path) -> dict[str, str]:
    variables = {"XDG_STATE_HOME": str(state), "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1"}
    return {**os.environ, **variables, MARK: str(state)}


def command_line(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launcher", *arguments],
        cwd=ROOT,
        env=environment(state),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@contextmanager
def board(state: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Starts the command; gives it with the address that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "launcher", "tensorboard", "one-device", *arguments],
        env=environment(state),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"TensorBoard of run one-device: (http://127\.0\.0\.1:\d+/)\n", line)
        assert match, (line, process.communicate(timeout=SECONDS))
        yield process, match[1]
    finally:
        process.kill()
        process.communicate()
    assert LINUX
    eventually(lambda: not with_variable(f"{MARK}={state}"), "every process is gone")


def browser() -> str:
    """A browser that works without a screen; the test is skipped where there is none."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser ({', '.join(BROWSERS)}) on the path: Debian has it as `chromium`")
    return path


def page(url: str, profile: Path) -> str:
    """Returns the content of the page once its scripts are idle."""
    # Tall enough for all charts: those below the lower edge are not drawn.
    window = ("--headless", "--disable-gpu", "--no-first-run", "--window-size=1600,4000")
    options = (*window, "--virtual-time-budget=30000", "--dump-dom")
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
    done = subprocess.run(
        [browser(), *options, *sandbox, f"--user-data-dir={profile}", url],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return done.stdout


def test_a_browser_sees_the_runs_scalars(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows the curves by name, and the last value of each, as the run has reported it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    status = launcher.find("one-device", backend="local").status()
    (records,) = status.records.values()
    metrics = records["evaluation"].fields["metrics"]
    assert metrics.keys() == {"accuracy", "loss"}
    with board(state) as (process, url):
        shown = page(url, tmp_path / "profile")
        assert "<title>one-device</title>" in shown
        numbers = [float(number) for number in re.findall(r">\s*(\d+\.\d+)\s*<", shown)]
        for name, value in metrics.items():
            assert f"epoch_{name}" in shown
            assert pytest.approx(value, rel=1e-3) in numbers, f"{name} {value}"
        process.send_signal(signal.SIGINT)
        message = process.communicate(timeout=SECONDS)[1]
        assert (process.returncode, message) == (0, "Ctrl-C ends it; the run is left alone\n")
    assert command_line(state, "status", "one-device").returncode == 0


@pytest.mark.thorough
def test_it_ends_with_the_command(state: Path) -> None:
    """It ends also when the command is killed; `board` checks it."""
    with board(state) as (process, _):
        assert len(with_variable(f"{MARK}={state}")) >= 2
        process.kill()


@pytest.mark.thorough
def test_a_port_of_ones_own(state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = command_line(state, "tensorboard", "one-device", "--port", port)
    assert (refused.returncode, refused.stdout) == (5, "")
    assert refused.stderr == f"error: port {port} of this machine: Address already in use\nName another.\n"
    with board(state, "--port", port) as (_, url):
        assert url == f"http://127.0.0.1:{port}/"


def test_a_run_with_nothing_to_show(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(
        "apiVersion: launcher/v1alpha1\nkind: TrainingCluster\nmetadata: {name: plain}\n"
        "spec: {strategy: OneDevice, command: ['true']}\n"
    )
    done = command_line(tmp_path, "submit", str(tmp_path / "cluster.yaml"), "--backend", "local")
    assert done.returncode == 0, done.stderr
    refused = command_line(tmp_path, "tensorboard", "plain")
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "error: run plain has no model directory that TensorBoard could show\n" in refused.stderr
