"""Clocks of server and client that differ."""

from __future__ import annotations

import ssl
import subprocess
import threading
import time
from email.utils import formatdate
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from launcher.backends.base import LogLine
from launcher.backends.kubernetes.api_server.api_errors import UnreachableError
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.api_server.connection import connect
from launcher.backends.kubernetes.preflight.doctor import examine
from launcher.backends.kubernetes.state.clock_skew import disagreement, local_lines, local_status
from launcher.status import fold
from tests.unit.fake_api import Fake, Handler, Query, says
from worker.contract.records import Event, Record


def test_a_server_whose_clock_is_an_hour_behind(fake: Fake) -> None:
    def late(handler: Handler, query: Query) -> None:
        handler.date_time_string = lambda timestamp=None: formatdate(time.time() - 3600, usegmt=True)  # type: ignore[method-assign]
        says({"gitVersion": "v1.36.0"})(handler, query)

    fake.will(late)
    fake.client.version()
    assert 3590 < fake.client.ahead < 3610
    assert disagreement(fake.client.ahead) == (
        "this machine's clock is 60 min ahead of the cluster's; times shown are this machine's"
    )


def test_a_server_whose_clock_is_right(fake: Fake) -> None:
    fake.will(says({"gitVersion": "v1.36.0"}))
    fake.client.version()
    assert fake.client.ahead == 0.0


def test_the_cluster_s_times_become_this_machine_s() -> None:
    job = {
        "metadata": {"name": "mnist-chief"},
        "spec": {},
        "status": {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:05:00Z"},
    }
    status = fold([job], [])
    moved = local_status(status, -30.0)
    assert status.started is not None
    assert moved.started == status.started - 30
    assert moved.finished == status.started + 270
    assert local_status(status, 0.0) is status

    record = Record(Event.READY, "mnist-chief-0", 100.0, {})
    ready = LogLine("chief", 0, 0, "", record)
    notice = LogLine("run", 0, 0, "", Record(Event.NOTICE, "run", 100.0, {"message": ""}))
    plain = LogLine("chief", 0, 0, "text", None)
    times = [line.record and line.record.time for line in local_lines([ready, notice, plain], 5.0)]
    assert times == [105.0, 100.0, None]


AUTHORITY = """\
[ca]
default_ca = own
[own]
database = index.txt
rand_serial = yes
default_md = sha256
policy = any
x509_extensions = names
[any]
commonName = supplied
[names]
subjectAltName = IP:127.0.0.1
"""


def over(directory: Path) -> tuple[Path, Path]:
    """Returns a certificate that was valid in the year 2020, and its key."""
    certificate, key, request = (directory / name for name in ("certificate.pem", "key.pem", "request.pem"))
    (directory / "authority.cnf").write_text(AUTHORITY)
    (directory / "index.txt").touch()
    wanted = ["openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=over"]
    signed = ["openssl", "ca", "-batch", "-selfsign", "-notext", "-config", "authority.cnf"]
    year = ["-startdate", "20200101000000Z", "-enddate", "20210101000000Z"]
    for command in (
        [*wanted, "-keyout", str(key), "-out", str(request)],
        [*signed, *year, "-keyfile", str(key), "-in", str(request), "-out", str(certificate), "-outdir", "."],
    ):
        subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=60)
    return certificate, key


def test_a_certificate_that_is_over_by_our_clock(tmp_path: Path) -> None:
    certificate, key = over(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        path = tmp_path / "kubeconfig"
        path.write_text(
            f"""\
current-context: a
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
users: [{{name: a, user: {{}}}}]
clusters:
- name: a
  cluster: {{server: "https://127.0.0.1:{server.server_port}", certificate-authority: certificate.pem}}
"""
        )
        with pytest.raises(UnreachableError, match="certificate has expired") as refused:
            Client(connect(str(path))).version()
        server.shutdown()
        thread.join()
    assert "this machine's clock: certificates have a time" in refused.value.hint


def test_a_doctor_names_what_an_old_server_lacks(fake: Fake) -> None:
    def old(handler: Handler, query: Query) -> None:
        known = handler.path == "/version"
        says({"gitVersion": "v1.30.1"} if known else {"message": "no"}, 200 if known else 404)(handler, query)

    fake.will(old)
    server = examine(fake.client, "default")[0]
    assert (server.subject, server.verdict) == ("API server", "missing")
    assert "lacks a Job's podFailurePolicy (1.31), a Job's backoffLimitPerIndex (1.33)" in server.message
    assert server.advice == "It must be 1.33 or newer."
