"""Only the run itself reaches its tasks, and no other address does. Its programs can download
nevertheless.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from launcher.backends.local.backend import LocalBackend
from launcher.backends.local.process import network_namespace
from tests.local.machine import Machine, job, linux_only
from tests.paths import ROOT

ADDRESSES = [f"demo-{role}-0.demo:2222" for role in ("chief", "worker", "ps")]

pytestmark = linux_only

isolated_only = pytest.mark.skipif(
    bool(network_namespace.forbidden()), reason=f"no network namespaces here: {network_namespace.forbidden()}"
)

SERVER = """
import json, os, sys, time
import tensorflow as tf
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
server = tf.distribute.Server(
    tf.train.ClusterSpec(config["cluster"]), job_name=task["type"], task_index=0, protocol="grpc"
)
print("up", flush=True)
time.sleep(600)
"""

UNSHARE = ["unshare", "--user", "--map-root-user"]

STRANGER = """
import json, socket, subprocess, sys
from pathlib import Path
from launcher.backends.local.backend import LocalBackend
from tests.local.machine import Machine, eventually, job

# A machine with an address that others reach it by.
subprocess.run("ip link set lo up && ip address add 192.0.2.1/32 dev lo", shell=True, check=True)
root, allowed, code, addresses = Path(sys.argv[1]), sys.argv[2] == "True", sys.argv[3], sys.argv[4:]
machine = Machine(root, None)
machine.backend = LocalBackend(root, allow_network=allowed)
cluster = {role: [address] for role, address in zip(("chief", "worker", "ps"), addresses)}
jobs = []
for role in cluster:
    config = json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}})
    env = [{"name": "TF_CONFIG", "value": config}]
    jobs.append(job(role, code, primary=role == "chief", env=env, grace=1))
machine.submit(*jobs, addresses=addresses)
eventually(lambda: machine.texts().count("up") == 3, "three servers")
found = {}
for local in machine.directory().submission().addresses.values():
    for host in ("192.0.2.1", "127.0.0.1", "::1"):
        try:
            socket.create_connection((host, int(local.rpartition(":")[2])), timeout=10).close()
            found.setdefault(host, []).append("open")
        except ConnectionRefusedError:
            found.setdefault(host, []).append("refused")
machine.backend.delete("demo", "default")
print(json.dumps(found))
"""
"""Code that runs in its own network namespace, as a machine with two addresses."""


@isolated_only
@pytest.mark.skipif(shutil.which("ip") is None, reason="no `ip` here to give a machine an address")
@pytest.mark.parametrize(
    ("allowed", "expected"), [(False, "refused"), pytest.param(True, "open", marks=pytest.mark.thorough)]
)
def test_no_other_address_reaches_a_server_of_tensorflow(
    tmp_path: Path, allowed: bool, expected: str
) -> None:
    done = subprocess.run(
        [*UNSHARE, "--net", sys.executable, "-c", STRANGER, str(tmp_path), str(allowed), SERVER, *ADDRESSES],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == {host: [expected] * 3 for host in ("192.0.2.1", "127.0.0.1", "::1")}


class _Files(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        body = f"{self.path} {self.headers['Host']} ".encode() * 20_000
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[int]:
    """The port of a web server on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


# `localhost` itself bypasses the proxy, so the address is written as a number.
DOWNLOAD = """
import urllib.error, urllib.request
import http.client, os
from urllib.parse import urlsplit
url = "http://2130706433:{port}/data?x=1"
found = urllib.request.urlopen(url, timeout=60).read()
print(len(found), found[:30].decode())
print(urllib.request.urlopen(urllib.request.Request(url, data=b"x" * 300_000), timeout=60).status)
proxy = urlsplit(os.environ["HTTPS_PROXY"])
tunnel = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=60)
tunnel.set_tunnel("127.0.0.1", {port})
for _ in range(2):
    tunnel.request("GET", "/through")
    print(tunnel.getresponse().read()[:8].decode())
tunnel.close()
try:
    urllib.request.urlopen("http://2130706433:1/", timeout=60)
except urllib.error.HTTPError as error:
    print(error.code)
try:
    urllib.request.urlopen("http://127.0.0.1:{port}/", timeout=60)
except urllib.error.URLError as error:
    print(error.reason)
"""


@isolated_only
def test_a_program_downloads_all_the_same(machine: Machine, site: int) -> None:
    machine.run(job("chief", DOWNLOAD.replace("{port}", str(site)), primary=True, backoffLimit=0))
    length = len(f"/data?x=1 2130706433:{site} ") * 20_000
    assert machine.texts() == [
        f"{length} {f'/data?x=1 2130706433:{site} /data?x=1'[:30]}",
        "201",
        "/through",
        "/through",
        "502",
        "[Errno 111] Connection refused",
    ]
    assert machine.directory().log_path.read_text() == ""


ODD_REQUESTS = [
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET http:// HTTP/1.1\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\n\r\n",
    b"CONNECT x:99999999 HTTP/1.1\r\n\r\n",
    b"CONNECT :1 HTTP/1.1\r\n\r\n",
    b"\xff\xfe\x00\r\n\r\n",
    b"G" * 80_000,
    b"",
]
"""Requests that a proxy does not serve. Tests may only add to them."""


@isolated_only
def test_the_proxy_goes_on_after_what_is_no_request(machine: Machine, site: int) -> None:
    code = f"""
import os, socket, urllib.request
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTP_PROXY"])
for odd in {ODD_REQUESTS!r}:
    with socket.create_connection((proxy.hostname, proxy.port), timeout=60) as connection:
        connection.sendall(odd)
        connection.shutdown(socket.SHUT_WR)
        try:
            print(connection.recv(12).decode())
        except ConnectionResetError:
            print("reset")
print(urllib.request.urlopen("http://2130706433:{site}/", timeout=60).status)
"""
    machine.run(job("chief", code, primary=True, backoffLimit=0))
    *answers, last = machine.texts()
    assert last == "200"
    assert set(answers) <= {"HTTP/1.1 400", "HTTP/1.1 502", "reset", ""}
    assert len(answers) == len(ODD_REQUESTS)


@isolated_only
def test_files_stay_the_users_own(machine: Machine, tmp_path: Path) -> None:
    machine.run(job("chief", f"open({str(tmp_path / 'file')!r}, 'w').close()", primary=True))
    stat = (tmp_path / "file").stat()
    assert (stat.st_uid, stat.st_gid) == (os.geteuid(), tmp_path.stat().st_gid)


@isolated_only
def test_a_user_without_rights_has_it_too(tmp_path: Path) -> None:
    """The user has id 1000 and no capabilities, whether or not `root` runs the tests."""
    prefix = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    assert "network: the run's own" in _submitted(tmp_path, prefix)


def test_a_machine_that_forbids_it_is_named(tmp_path: Path) -> None:
    forbids = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all "$@"'
    output = _submitted(tmp_path, [*UNSHARE, "sh", "-c", forbids, "sh"])
    assert output.count("\n") == 1
    assert "warning: the run has no network of its own, since this machine forbids it (" in output


def test_the_network_that_is_allowed_is_the_machines(tmp_path: Path, site: int) -> None:
    machine = Machine(tmp_path, None)  # type: ignore[arg-type]
    machine.backend = LocalBackend(tmp_path, allow_network=True)
    code = (
        f"import os, urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1:{site}/').status)\n"
        "print('HTTP_PROXY' in os.environ)"
    )
    message = machine.submit(job("chief", code, primary=True))
    assert message.startswith("network: this machine's own;")
    machine.end()
    assert machine.texts() == ["200", "False"]


SUBMITS = """
import sys
from pathlib import Path
from tests.local.machine import Machine, job
machine = Machine(Path(sys.argv[1]), None)
print(machine.submit(job("chief", "print('up')", primary=True)))
assert machine.end().phase == "Succeeded"
assert machine.texts() == ["up"]
"""


def _submitted(tmp_path: Path, prefix: list[str]) -> str:
    """Returns what a submission there prints."""
    if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        pytest.skip(f"{prefix[0]} is not to be had here")
    done = subprocess.run(
        [*prefix, sys.executable, "-c", SUBMITS, str(tmp_path / "state")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
