"""What the HTTP client for an API server does."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes.api_server.transport import Transport


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server.asked.append((self.command, self.path, body, self.headers.get("Authorization")))
        server.ports.add(self.client_address[1])
        self.send_response(201 if self.command == "PATCH" else 200)
        self.send_header("Warning", '299 - "one"')
        self.send_header("Warning", '299 - "two"')
        ways = {"/whole": self.whole, "/short": self.short, "/chunks": self.chunks, "/cut": self.cut}
        ways.get(self.path.partition("?")[0], self.silence)()

    do_PATCH = do_GET  # noqa: N815 - the base class finds it by name

    def whole(self) -> None:
        self.send_header("Content-Length", "200000")
        self.end_headers()
        self.wfile.write(b"x" * 200_000)

    def short(self) -> None:
        self.send_header("Content-Length", "10")
        self.end_headers()
        self.wfile.write(b"abc")
        self.close_connection = True

    def chunks(self) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")

    def cut(self) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"3\r\nabc\r\n5\r\nde")
        self.close_connection = True

    def silence(self) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"3\r\nabc\r\n")
        self.wfile.flush()
        self.connection.settimeout(30)
        self.connection.recv(1)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        # A client that does not trust the server hangs up, and the server would print a traceback.
        quiet = {"handle_error": lambda *_: None}
        vars(server).update(quiet, asked=[], ports=set(), url=f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()


def test_a_request_and_its_answer(server: Any) -> None:
    transport = Transport(None)
    url = f"{server.url}/whole?a=b%20c"
    answer = transport.request("PATCH", url, "ü".encode(), {"Authorization": "Bearer me"}, 30)
    assert answer.status == 201
    assert answer.headers("Warning") == ['299 - "one"', '299 - "two"']
    assert (answer.header("content-length"), answer.header("Retry-After")) == ("200000", "")
    assert answer.read() == b"x" * 200_000
    assert server.asked == [("PATCH", "/whole?a=b%20c", "ü".encode(), "Bearer me")]


def test_a_connection_serves_again_once_its_answer_is_read(server: Any) -> None:
    transport = Transport(None)
    for path in ("whole", "chunks", "whole"):
        transport.request("GET", f"{server.url}/{path}", None, {}, 30).read()
    assert len(server.ports) == 1
    # Read now, these two are under way at the same time.
    both = [transport.request("GET", f"{server.url}/whole", None, {}, 30) for _ in range(2)]
    assert [len(answer.read()) for answer in both] == [200_000, 200_000]
    assert len(server.ports) == 2


def test_a_connection_that_the_server_has_closed_is_not_used_again() -> None:
    answers = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        transport = Transport(None)
        for _ in range(2):

            def serve() -> None:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(answers)

            thread = threading.Thread(target=serve)
            thread.start()
            answer = transport.request("GET", f"{url}/", None, {}, 30)
            thread.join(30)
            assert answer.read() == b"ok"


@pytest.mark.parametrize(("path", "length"), [("whole", 200_000), ("chunks", 5)])
def test_a_stream_to_its_end(server: Any, path: str, length: int) -> None:
    answer = Transport(None).request("GET", f"{server.url}/{path}", None, {}, 30)
    assert sum(map(len, answer.stream())) == length
    answer.close()


@pytest.mark.parametrize("path", ["short", "cut"])
def test_an_answer_that_ends_before_its_end(server: Any, path: str) -> None:
    transport = Transport(None)
    answer = transport.request("GET", f"{server.url}/{path}", None, {}, 30)
    with pytest.raises(OSError, match="IncompleteRead"):
        list(answer.stream())
    answer.close()
    with pytest.raises(OSError, match="IncompleteRead"):
        transport.request("GET", f"{server.url}/{path}", None, {}, 30).read()


@pytest.mark.parametrize("secure", [False, True])
def test_a_stream_is_ended_from_another_thread(server: Any, tmp_path: Path, secure: bool) -> None:
    url, trusted = secured(server, tmp_path) if secure else (server.url, None)
    answer = Transport(trusted).request("GET", f"{url}/silence", None, {}, None)
    pieces = answer.stream()
    assert next(pieces) == b"abc"
    timer = threading.Timer(0.2, answer.shut)
    timer.start()
    with pytest.raises(OSError, match=r"."):
        list(pieces)
    timer.join()
    answer.close()


def test_silence_has_a_bound(server: Any) -> None:
    answer = Transport(None).request("GET", f"{server.url}/silence", None, {}, 0.2)
    with pytest.raises(OSError, match="timed out"):
        list(answer.stream())
    answer.close()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with pytest.raises(OSError, match="refused"):
        Transport(None).request("GET", f"{url}/", None, {}, 30)


def test_what_answers_speaks_no_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(OSError, match=r"SSH-2\.0"):
            Transport(None).request("GET", f"{url}/", None, {}, 30)
        thread.join(30)


def secured(server: Any, tmp_path: Path) -> tuple[str, ssl.SSLContext]:
    """Returns the server's URL with TLS, and a context that trusts it."""
    names = ["-keyout", "key.pem", "-out", "own.pem", "-days", "1"]
    subject = ["-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, *subject]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "own.pem", tmp_path / "key.pem")
    server.socket = serving.wrap_socket(server.socket, server_side=True)
    trusted = ssl.create_default_context(cafile=tmp_path / "own.pem")
    return server.url.replace("http:", "https:"), trusted


def test_only_the_authority_s_servers_are_trusted(server: Any, tmp_path: Path) -> None:
    url, trusted = secured(server, tmp_path)
    assert Transport(trusted).request("GET", f"{url}/chunks", None, {}, 30).read() == b"abcde"
    with pytest.raises(OSError, match="certificate verify failed"):
        Transport(ssl.create_default_context()).request("GET", f"{url}/chunks", None, {}, 30)


def test_a_server_with_a_path_of_its_own(server: Any) -> None:
    """As Rancher has for a cluster behind it."""
    url = f"{server.url}/k8s/clusters/c-1"
    Transport(None).request("GET", f"{url}/version", None, {}, 30).close()
    assert server.asked[0][1] == "/k8s/clusters/c-1/version"
