"""Why a task's peer cannot be reached: against a real DNS server, or none, in a network of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.worker import dns

pytestmark = pytest.mark.skipif(not dns.possible(), reason="needs user, network and mount namespaces")

BEGINNING = """
import json, socket, threading
from tests.worker.dns import DnsServer
from worker.peers import probes
HERE = "run-worker-0.run.team.svc.cluster.local"
PEERS = {"run-worker-0": "run-worker-0.run:2222"}
"""


def told(code: str, folder: Path) -> Any:
    """What the code gives to `say`."""
    return json.loads(dns.run(BEGINNING + code, folder).splitlines()[-1])


def test_a_task_s_address_costs_two_queries(tmp_path: Path) -> None:
    """With the namespace and `svc` behind it, it would cost six: three search domains, two kinds."""
    code = """
server = DnsServer([HERE])
def count(host):
    server.queries.clear()
    socket.getaddrinfo(host, 2222, type=socket.SOCK_STREAM)
    return len(server.queries)
print(json.dumps([count("run-worker-0.run"), count("run-worker-0.run.team.svc")]))
"""
    assert told(code, tmp_path) == [2, 6]


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ("DnsServer()", "DNS does not know its name"),
        ("None", f"the DNS server {dns.SERVER} does not answer"),
        ("DnsServer(); server.silent = True", f"the DNS server {dns.SERVER} does not answer"),
        (
            "DnsServer([HERE]); server.failing = True",
            f"the DNS server {dns.SERVER} answers, but not with an address (SERVFAIL?)",
        ),
        ("DnsServer([HERE])", "nothing listens on its port: connection refused"),
    ],
    ids=["unknown", "no server", "silent", "failing", "nothing listens"],
)
def test_each_reason_has_its_own_words(tmp_path: Path, server: str, reason: str) -> None:
    code = f"""
server = {server}
print(json.dumps([check("run-worker-0.run:2222") for check in (probes.absence, probes.fault)]))
"""
    assert told(code, tmp_path) == [reason, reason]


def test_a_connection_that_is_dropped_times_out(tmp_path: Path) -> None:
    """As a NetworkPolicy drops it: here, a full queue of connections that nobody accepts."""
    code = """
server = DnsServer([HERE])
listener = socket.create_server(("127.0.0.1", 2222), backlog=0)
waiting = [socket.socket() for _ in range(3)]
for each in waiting:
    each.setblocking(False)
    each.connect_ex(("127.0.0.1", 2222))
print(json.dumps(probes.absence("run-worker-0.run:2222", 0.5)))
"""
    assert told(code, tmp_path) == (
        "connecting to it times out: its pod is gone, or its node, or a NetworkPolicy is in the way"
    )


def test_no_way_to_it(tmp_path: Path) -> None:
    code = 'print(json.dumps(probes.absence("192.0.2.1:2222")))'
    assert told(code, tmp_path) == "it cannot be reached: Network is unreachable: a NetworkPolicy?"


def test_who_waits_goes_on_by_itself_when_dns_is_back(tmp_path: Path) -> None:
    code = """
server = DnsServer([HERE])
server.silent = True
listener = socket.create_server(("127.0.0.1", 2222))
heard = []
def report(reasons, seconds):
    heard.append(dict(reasons))
    server.silent = False
probes.wait(PEERS, 60, report, check=probes.absence)
print(json.dumps(heard))
"""
    silent = f"the DNS server {dns.SERVER} does not answer"
    assert told(code, tmp_path) == [{"run-worker-0": silent}, {}]


def test_who_waits_in_vain_says_why(tmp_path: Path) -> None:
    code = """
try: probes.wait(PEERS, 3, lambda *_: None)
except probes.Unanswered as error: print(json.dumps(str(error)))
"""
    reason = f"run-worker-0 (the DNS server {dns.SERVER} does not answer)"
    assert told(code, tmp_path) == f"after 3 s there was no answer from {reason}"
