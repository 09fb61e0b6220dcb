"""Packages that a program asks for: installed by pip, beside the TensorFlow of this environment."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.wheels import digest, wheel
from worker.contract.exit_codes import ExitCode

CODE = """
import json, sys
from pathlib import Path
from worker import packages
from worker.failures import Failure
try:
    told = packages.install(json.loads(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), print)
except Failure as failure:
    print(failure.message)
    sys.exit(failure.exit_code)
import spare
print("spare", spare.VERSION)
import os, subprocess
child = [sys.executable, "-c", "import spare; print('child', spare.VERSION)"]
subprocess.run(child, env={**os.environ, **told}, check=True)
"""
SECRET = "open-sesame"


def start(
    folder: Path,
    *requirements: str,
    seconds: float = 120,
    variables: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Starts a process that installs the requirements from the wheels in `folder`, and uses them."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment |= {"PIP_CONFIG_FILE": os.devnull, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    environment |= variables or {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder / "wheels")}
    command = [sys.executable, "-c", CODE, json.dumps(requirements), str(folder / "packages"), str(seconds)]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    wheel(tmp_path / "wheels", "spare", "1.0")
    wheel(tmp_path / "wheels", "spare", "2.0", ["rim>=1"])
    wheel(tmp_path / "wheels", "rim", "1.5")
    return tmp_path


@pytest.fixture
def index() -> Iterator[http.server.ThreadingHTTPServer]:
    """A package index that answers with the status in its `code`, or not at all where that is 0."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not server.code:  # type: ignore[attr-defined]
                hung.wait(60)
            self.send_error(server.code or 503)  # type: ignore[attr-defined]

        def log_message(self, *arguments: object) -> None:
            pass

    hung = threading.Event()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    hung.set()
    server.shutdown()
    server.server_close()


def url(index: http.server.ThreadingHTTPServer) -> dict[str, str]:
    place = f"127.0.0.1:{index.server_port}"
    return {"PIP_INDEX_URL": f"http://user:{SECRET}@{place}/simple", "PIP_RETRIES": "0"}


def test_one_of_several_tasks_installs_and_all_use_it(folder: Path) -> None:
    tasks = [start(folder, "spare==2.0") for _ in range(3)]
    outcomes = [ended(task) for task in tasks]
    assert [code for code, _ in outcomes] == [0, 0, 0], outcomes
    whole_output = "".join(output for _, output in outcomes)
    assert whole_output.count("installing 1 package\n") == whole_output.count("Successfully installed") == 1
    assert whole_output.count("spare 2.0\n") == whole_output.count("child 2.0\n") == 3
    assert "waiting for the packages" in whole_output
    code, output = ended(start(folder, "spare==1.0"))
    assert (code, "spare 1.0" in output) == (0, True), "another environment, though it is the same folder"


@pytest.mark.nightly
@pytest.mark.thorough
def test_tensorflow_and_what_it_stands_on_stay_as_they_are(folder: Path) -> None:
    here = version("tensorflow-cpu") if sys.platform == "linux" else version("tensorflow")
    # By a name under which this environment does not have it.
    wheel(folder / "wheels", "hub", "1.0", [f"tensorflow=={here}", "spare"])
    code, output = ended(start(folder, "hub"))
    assert code == 0, output
    assert "tensorflow" not in output.partition("Successfully installed")[2].splitlines()[0]
    wheel(folder / "wheels", "old", "1.0", ["numpy<1.20"])
    code, output = ended(start(folder, "old"))
    assert code == ExitCode.PROGRAM_ERROR
    assert f"old 1.0 depends on numpy<1.20; the image has numpy=={version('numpy')}; give other" in output
    code, output = ended(start(folder, "keras==2.0"))
    assert code == ExitCode.PROGRAM_ERROR
    assert f"the file asks for keras==2.0; the image has keras=={version('keras')}" in output


@pytest.mark.thorough
@pytest.mark.nightly
def test_hashes_must_match(folder: Path) -> None:
    wheels = folder / "wheels"
    right = f"--hash={digest(wheels / 'spare-1.0-py3-none-any.whl')}"
    assert ended(start(folder, f"spare==1.0 {right}"))[0] == 0
    code, output = ended(start(folder, f"spare==1.0 --hash=sha256:{'0' * 64}"))
    assert (code, "DO NOT MATCH THE HASHES" in output) == (ExitCode.PROGRAM_ERROR, True)
    second = f"--hash={digest(wheels / 'spare-2.0-py3-none-any.whl')}"
    code, output = ended(start(folder, f"spare==2.0 {second}"))
    assert (code, "rim>=1" in output) == (ExitCode.PROGRAM_ERROR, True), output


@pytest.mark.by_day("503-75", runtime=())
@pytest.mark.parametrize(
    ("status", "exit_code"),
    [
        (503, ExitCode.RETRYABLE),
        (429, ExitCode.RETRYABLE),
        (404, ExitCode.PROGRAM_ERROR),
        (401, ExitCode.PROGRAM_ERROR),
    ],
)
def test_an_index_that_is_away_is_tried_again(
    folder: Path, index: http.server.ThreadingHTTPServer, status: int, exit_code: ExitCode
) -> None:
    index.code = status  # type: ignore[attr-defined]
    code, output = ended(start(folder, "spare", variables=url(index)))
    assert code == exit_code, output
    assert str(status) in output
    assert SECRET not in output


@pytest.mark.nightly
@pytest.mark.thorough
def test_no_index_at_the_address_is_tried_again(folder: Path) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_RETRIES": "0"}
    code, output = ended(start(folder, "spare", variables=nowhere))
    assert (code, "does not answer" in output) == (ExitCode.RETRYABLE, True), output


def test_it_takes_a_bounded_time(folder: Path, index: http.server.ThreadingHTTPServer) -> None:
    index.code = 0  # type: ignore[attr-defined]
    code, output = ended(start(folder, "spare", seconds=4, variables=url(index)))
    assert (code, "not installed after 4 s" in output) == (ExitCode.RETRYABLE, True), output


@pytest.mark.nightly
@pytest.mark.thorough
def test_sigterm_ends_it_and_the_next_task_begins_anew(
    folder: Path, index: http.server.ThreadingHTTPServer
) -> None:
    index.code = 0  # type: ignore[attr-defined]
    hung = {**url(index), "PIP_FIND_LINKS": str(folder / "wheels")}
    first = start(folder, "spare==2.0", variables=hung)
    assert first.stdout is not None
    assert first.stdout.readline() == "installing 1 package\n"
    deadline = time.monotonic() + 60
    while not list(folder.glob("packages/*/pip.log")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    assert ended(first)[0] == ExitCode.PREEMPTED
    code, output = ended(start(folder, "spare==2.0"))
    assert (code, "Successfully installed" in output) == (0, True), output
