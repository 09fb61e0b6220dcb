"""Servers, proxies and login commands that never answer, or answer without an end: every command ends, and
says what it waits for. No test measures time; a command without a limit would reach the test's own limit.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.backends import patience
from launcher.backends.patience import OutOfPatienceError, Patience
from launcher.cli import parser
from tests.hostile.servers import GOOD, kubeconfig

HEAD = b"HTTP/1.1 200 OK\r\n"
SLOW: dict[str, tuple[bytes, bytes]] = {
    "silence": (b"", b""),
    "a status, byte by byte": (b"", b"H"),
    "headers, byte by byte": (HEAD, b"A"),
    "headers, one by one": (HEAD, b"A: b\r\n"),
    "only that it goes on": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a body, byte by byte": (HEAD + b"Content-Length: 100000\r\n\r\n", b" "),
    "a body, chunk by chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "the size of a chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
    "a body without end": (HEAD + b"\r\n", b" "),
}
COMMANDS = (
    ("list", "--backend", "kubernetes"),
    ("status", "my-run", "--backend", "kubernetes"),
    ("logs", "my-run", "--backend", "kubernetes", "-f"),
    ("wait", "my-run", "--backend", "kubernetes"),
    ("delete", "my-run", "--backend", "kubernetes"),
    ("events", "my-run", "--backend", "kubernetes", "-f"),
    ("doctor",),
    ("submit", GOOD),
)


@contextmanager
def dripping(first: bytes, again: bytes) -> Iterator[int]:
    """A port that accepts every connection, and sends `again` repeatedly."""
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(first)
                while not over.wait(0.05):
                    connection.sendall(again)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=serve, args=(connection,), daemon=True)
            threads.append(thread)
            thread.start()

    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield listening.getsockname()[1]
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join(10)
        for thread in threads:
            thread.join(10)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = parser.main(arguments)
    return code, capsys.readouterr().err


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(patience, "TELL_SECONDS", 0.1)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.by_day("only that it goes on", "a status, byte by byte", "a body without end")
@pytest.mark.parametrize("name", SLOW)
def test_a_server(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    with dripping(*SLOW[name]) as port:
        url = f"http://127.0.0.1:{port}"
        kubeconfig(tmp_path, url)
        for command in COMMANDS if name == "silence" else COMMANDS[:2]:
            code, output = run(capsys, *command, "--request-timeout", "1")
            assert code == 5, output
            waited = rf"the API server {url} has not answered for 0.1 s; this is given up in (1|0\.\d) s\n"
            assert len(re.findall(waited, output)) == 1, output
            assert f"error: the API server {url} has not answered within 1 s\n" in output


def test_a_run_that_may_be_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The run is not on this machine, and the cluster does not answer: the message is not `no such run`."""
    with dripping(*SLOW["silence"]) as port:
        kubeconfig(tmp_path, f"http://127.0.0.1:{port}")
        code, output = run(capsys, "status", "my-run", "--request-timeout", "0.4")
    assert code == 5
    assert "there is no run my-run in namespace default on this machine, and the cluster could not" in output


@pytest.mark.parametrize("name", ["silence", "headers, one by one"])
def test_a_proxy(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    with dripping(*SLOW[name]) as port:
        proxy = f"http://127.0.0.1:{port}"
        kubeconfig(tmp_path, "https://api.example.com", {}, {"proxy-url": proxy})
        code, output = run(capsys, *COMMANDS[0], "--request-timeout", "0.4")
    assert code == 5
    assert f"through the proxy {proxy} (proxy-url in the kubeconfig), has not answered within 0.4 s" in output


@pytest.mark.parametrize("server", ["https://api.example.com", "http://api.example.com"])
def test_a_dead_proxy_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        proxy = f"http://127.0.0.1:{free.getsockname()[1]}"
    kubeconfig(tmp_path, server)
    name = f"{server.partition(':')[0].upper()}_PROXY"
    monkeypatch.setenv(name, proxy)
    monkeypatch.setenv(name.lower(), proxy)
    code, output = run(capsys, *COMMANDS[0])
    assert code == 5
    assert f"error: the proxy {proxy} (" in output
    expected = f"on the way to the API server {server}: nobody answers there, connection refused"
    assert expected in output


def test_a_proxy_that_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    with dripping(refusal, b"") as port:
        proxy = f"http://127.0.0.1:{port}"
        kubeconfig(tmp_path, "https://api.example.com", {}, {"proxy-url": proxy})
        code, output = run(capsys, *COMMANDS[0])
    assert code == 5
    assert "407 Proxy Authentication Required; the server itself was not reached" in output


@pytest.mark.parametrize(
    "script",
    [
        "import time; time.sleep(3600)",
        "import os, time; os.close(1); time.sleep(3600)",
        "import time\nwhile True: print('{', flush=True); time.sleep(0.01)",
        "while True: print('x' * 65536)",
        "import subprocess; subprocess.run(['sleep', '3600'])",
        "import subprocess; subprocess.Popen(['sleep', '3600'])",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)",
        "import sys; sys.stdin.read(); import time; time.sleep(3600)",
    ],
)
def test_a_login_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, script: str) -> None:
    api = "client.authentication.k8s.io/v1"
    user = {"exec": {"apiVersion": api, "command": sys.executable, "args": ["-c", script]}}
    kubeconfig(tmp_path, "http://127.0.0.1:1", user)
    code, output = run(capsys, *COMMANDS[0], "--request-timeout", "0.5")
    assert code == 5
    assert f"the login command {sys.executable} has not answered for 0.1 s; " in output
    assert f"the login command {sys.executable} did not end within 0." in output


def test_only_the_time_of_requests_counts() -> None:
    waiting = Patience(1_000)
    with waiting.waiting(), waiting.waiting():
        first = waiting.left()
    assert first is not None
    before = waiting.left()
    assert waiting.left() == before
    waiting.restart()
    assert waiting.left() == 1_000
    waiting.lift()
    assert waiting.left() is None
    assert Patience(0).left() is None


def test_what_is_raised_is_raised_and_what_hangs_is_left_alone() -> None:
    def fails() -> None:
        raise KeyError("a")

    calls: list[str] = []
    over = threading.Event()
    waiting = Patience(0.3, calls.append)
    with pytest.raises(KeyError):
        waiting.call(fails, "it")
    assert waiting.call(lambda: 5, "it") == 5
    hangs: Callable[[], Any] = over.wait
    for _ in range(2):
        with pytest.raises(OutOfPatienceError, match=r"it has not answered within 0\.3 s"):
            waiting.call(hangs, "it")
    over.set()
    (call,) = calls
    assert re.fullmatch(r"it has not answered for 0.1 s; this is given up in 0\.[12] s", call)
