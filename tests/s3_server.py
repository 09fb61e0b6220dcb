"""A real S3 server as a process on this machine (SeaweedFS), and a proxy before it for faults."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.free_ports import free_ports

KEY, SECRET = "an-access-key", "a-secret-that-nobody-may-see-7f3a"
BUCKET = "models"
_SECONDS = 60.0

Decide = Callable[[str, str], str]
"""Method and path of a request -> "pass"; "503"; "hang" until the proxy ends; "slow": a second late; "lost":
the server gets it, and the answer is lost."""


class S3Server:
    """It keeps what it has when it is killed and started again, at the same address."""

    def __init__(self, directory: Path, gigabytes: int = 4) -> None:
        """It takes so many gigabytes; those of a deleted object are not free at once."""
        self._directory = directory
        self._gigabytes = gigabytes
        self._ports: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        (directory / "s3.json").write_text(json.dumps({"identities": [identity]}))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports[0]}"

    def environment(self, url: str | None = None) -> dict[str, str]:
        """What its clients need; `url` is that of a proxy."""
        given = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
        return {**given, "AWS_ENDPOINT_URL": url or self.url}

    def start(self) -> None:
        is_first = not self._ports
        self._ports = self._ports or free_ports(8)
        self._launch()
        until = time.monotonic() + _SECONDS
        while not self._makes_bucket():
            assert time.monotonic() < until, (self._directory / "log").read_text()[-3000:]
            if is_first and self._process is not None and self._process.poll() is not None:
                self._ports = free_ports(8)  # another process has taken one of them
                self._launch()
            time.sleep(0.1)

    def _launch(self) -> None:
        names = ("s3.port", "master.port", "volume.port", "filer.port")
        ports = [f"-{name}={port}" for name, port in zip(names, self._ports, strict=False)]
        ports += [f"-{name}.grpc={port}" for name, port in zip(names, self._ports[4:], strict=True)]
        program = Path(sys.executable).with_name("weed")
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(program, "server", f"-dir={self._directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
                    *("-filer", "-s3", f"-s3.config={self._directory}/s3.json", *ports),
                    *("-s3.port.iceberg=0", "-s3.port.lance=0", f"-volume.max={self._gigabytes}"),
                    "-s3.autoCreateBucket=false",  # as S3 does
                    # It would send statistics to its makers.
                    *("-master.telemetry=false", "-master.volumeSizeLimitMB=1024"),
                ],
                cwd=self._directory,
                stdout=log,
                stderr=log,
                env={"HOME": str(self._directory), "PATH": os.environ["PATH"]},
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._directory)

    def _makes_bucket(self) -> bool:
        """The filer is the store behind the server; it makes buckets without a signature."""
        with contextlib.suppress(OSError):
            filer = http.client.HTTPConnection("127.0.0.1", self._ports[3], timeout=5)
            filer.request("POST", f"/buckets/{BUCKET}/")
            made = filer.getresponse().status in (200, 201, 409)  # 409: it is there
            filer.close()
            s3 = http.client.HTTPConnection("127.0.0.1", self._ports[0], timeout=5)
            s3.request("GET", "/")
            answers = s3.getresponse().status < 500
            s3.close()
            return made and answers
        return False


class FaultyProxy:
    """Passes requests on to a server, as `decide` says. `requests` are those that came, and what was done."""

    def __init__(self, server: S3Server) -> None:
        self.decide: Decide = lambda method, path: "pass"
        self.requests: list[tuple[str, str, str]] = []
        self.hanging = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()
        proxy, target = self, server.url.removeprefix("http://")

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with proxy._lock:
                    what = proxy.decide(self.command, self.path)
                    proxy.requests.append((self.command, self.path, what))
                if what == "hang":
                    proxy.hanging.set()
                    proxy._over.wait(300)
                    self.close_connection = True
                    return
                if what == "503":
                    self._answer(503, {}, b"<Error><Code>SlowDown</Code><Message>Later.</Message></Error>")
                    return
                if what == "slow":
                    time.sleep(1.0)
                try:
                    status, headers, content = _pass_on(
                        target, self.command, self.path, dict(self.headers.items()), body
                    )
                except OSError:
                    self.close_connection = True  # as without a proxy
                    return
                if what == "lost":
                    self.close_connection = True
                    return
                self._answer(status, headers, content)

            do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the library's names

            def _answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
                with contextlib.suppress(OSError):
                    self.send_response_only(status)
                    for name, value in headers.items():
                        if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                            self.send_header(name, value)
                    length = headers.get("Content-Length") if self.command == "HEAD" else None
                    self.send_header("Content-Length", length or str(len(content)))
                    self.end_headers()
                    self.wfile.write(b"" if self.command == "HEAD" else content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


def _pass_on(
    target: str, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> tuple[int, Mapping[str, str], bytes]:
    connection = http.client.HTTPConnection(target, timeout=60)
    try:
        # The signature covers the Host that the client has named.
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers.items()), answer.read()
    finally:
        connection.close()


@contextlib.contextmanager
def s3_server(directory: Path, gigabytes: int = 4) -> Iterator[S3Server]:
    server = S3Server(directory, gigabytes)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def faulty(server: S3Server) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(server)
    try:
        yield proxy
    finally:
        proxy.stop()
