"""Answers that no API server gives: one message and a documented exit code. Tests may only add to
the tables.
"""

from __future__ import annotations

import copy
import gc
import json
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import parser
from tests.hostile.servers import GOOD, Respond, answering, kubeconfig, launch, server

Object = dict[str, Any]
DOCUMENTED = (0, 1, 2, 3, 4, 5)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = parser.main(arguments)
    except SystemExit as leave:
        code = int(leave.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


BODIES = {
    "an empty object": b"{}",
    "a list": b"[]",
    "null": b"null",
    "a number": b"5",
    "text": b'"text"',
    "true": b"true",
    "nothing": b"",
    "half": b'{"items": [',
    "not UTF-8": b'{"items": ["\xff\xfe"]}',
    "UTF-16": '{"items": []}'.encode("utf-16"),
    "levels": b"[" * 100_000,
    "levels of objects": b'{"a":' * 100_000,
    "a large number": b'{"metadata": {"resourceVersion": ' + b"9" * 5_000 + b"}}",
    "not a number": b'{"metadata": NaN, "items": Infinity}',
    "items that are none": b'{"metadata": {}, "items": 5}',
    "items that are null": b'{"metadata": {}, "items": [null]}',
    "items that are empty": b'{"metadata": {}, "items": [{}]}',
    "items without names": b'{"metadata": {}, "items": [{"metadata": {}}]}',
    "items with names alone": b'{"metadata": {}, "items": [{"metadata": {"name": "a"}}]}',
    "metadata that is null": b'{"metadata": null, "items": []}',
    "metadata that is text": b'{"metadata": "text"}',
    "half a letter": b'{"metadata": {"name": "\\ud800", "uid": "\\udfff"}, "gitVersion": "\\ud800"}',
    "a version that is none": b'{"gitVersion": {"a": []}}',
    "an old version": b'{"gitVersion": "v' + b"1" * 5_000 + b'.1"}',
    "resources that are none": b'{"metadata": {"name": "a"}, "resources": 5, "status": []}',
    "HTML": b"<html>Sign in</html>",
}
COMMANDS = (
    ("list", "--backend", "kubernetes"),
    ("status", "my-run", "--backend", "kubernetes"),
    ("logs", "my-run", "--backend", "kubernetes"),
    ("wait", "my-run", "--backend", "kubernetes"),
    ("events", "my-run"),
    ("report", "my-run", "--backend", "kubernetes", "-o", "-"),
    ("delete", "my-run", "--backend", "kubernetes"),
    ("scale", "my-run", "--workers", "3", "--backend", "kubernetes"),
    ("suspend", "my-run", "--backend", "kubernetes"),
    ("tensorboard", "my-run", "--backend", "kubernetes"),
    ("doctor",),
    ("submit", GOOD, "--detach"),
    ("submit", GOOD, "--dry-run", "server"),
    ("submit", GOOD, "--replace", "--detach"),
    ("submit", GOOD, "--detach", "--owned-by", "Job/owner"),
)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server whose `respond` the test sets."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # No answer improves by waiting.
    monkeypatch.setattr("launcher.backends.kubernetes.api_server.client.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("launcher.backends.patience.Patience.note_answer", lambda _: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
        gc.freeze()  # else each of these tests goes through all that other tests have imported
    # What becomes of old connections must not be asked while a deep answer is read.
    gc.disable()
    try:
        with server(answering(b"{}")) as http_server:
            monkeypatch.setenv(
                "KUBECONFIG", str(kubeconfig(tmp_path, f"http://127.0.0.1:{http_server.port}"))
            )
            yield http_server
    finally:
        gc.enable()


def check(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> tuple[int, str]:
    code, out, err = run(capsys, *command)
    assert code in DOCUMENTED, (command, out, err)
    assert "Traceback" not in err
    assert "error in the launcher itself" not in err
    return code, err


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("statuses", [(200, 422), pytest.param((201, 404), marks=pytest.mark.thorough)])
def test_the_same_to_everything(
    capsys: pytest.CaptureFixture[str], cluster: Any, statuses: tuple[int, ...], body: bytes
) -> None:
    for status in statuses:
        cluster.respond = answering(body, status)
        for command in COMMANDS:
            check(capsys, command)


REFUSALS: dict[str, Object | list[Any] | None] = {
    "details of a list": {"details": [], "message": "no"},
    "details of text": {"details": "text", "message": "no"},
    "details of details": {"details": {"kind": {"a": 1}, "name": []}, "message": "no"},
    "a message of a list": {"message": [1, 2]},
    "a message of an object": {"message": {"a": {}}},
    "a long message": {"message": "a" * 1_000_000},
    "a message of lines": {"message": "\n" * 1_000},
    "a reason of a list": {"reason": []},
    "a list": [],
    "nothing": None,
    "a code of text": {"code": "x", "message": 5},
}


@pytest.mark.parametrize("body", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 451, 600, 999])
def test_a_refusal(capsys: pytest.CaptureFixture[str], cluster: Any, status: int, body: object) -> None:
    cluster.respond = answering(json.dumps(body).encode(), status)
    for command in (COMMANDS[0], COMMANDS[1], COMMANDS[10]):
        check(capsys, command)


HEADERS = [
    {"Retry_After": value}
    for value in ("0.0.0", "²", "-1", "9" * 5_000, "999999999", "1e99", "nan", "Wed, 99 Foo", "\u0661", "")
] + [
    {"Date": value}
    for value in ("", "x", "Fri, 31 Dec 9999 23:59:59 GMT", "Thu, 01 Jan 0000 00:00:00 GMT", "0 0", "5" * 99)
] + [
    {"Warning": value} for value in ("", '"', '299 - "', "299 - \\", '"' * 1_000)
]  # fmt: skip


@pytest.mark.parametrize("headers", HEADERS, ids=str)
def test_headers(capsys: pytest.CaptureFixture[str], cluster: Any, headers: dict[str, str]) -> None:
    def respond(handler: BaseHTTPRequestHandler) -> None:
        encoded = {name: value.encode().decode("latin-1") for name, value in headers.items()}
        body = b'{"metadata": {"name": "a"}, "items": []}'
        handler.date_time_string = lambda *_: encoded.pop("Date", "")  # type: ignore[method-assign]
        answering(body, 429 if "Retry_After" in headers else 200, **encoded)(handler)

    cluster.respond = respond
    for command in (COMMANDS[0], COMMANDS[10]):
        check(capsys, command)


RAW = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "nothing": b"",
    "half a status": b"HTTP/1.1 2",
    "a status that is none": b"HTTP/1.1 abc OK\r\n\r\n",
    "a large status": b"HTTP/1.1 99999 OK\r\n\r\n",
    "HTTP/2": b"HTTP/2 200 OK\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 500 + b"\r\n",
    "a long header": b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000 + b"\r\n\r\n",
    "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
    "a long length": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n{}",
    "a chunk that is none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}",
    "a negative chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n{}",
    "a large chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
    "another encoding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "elsewhere": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "to itself": b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
    "a switch": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "odd letters": b"HTTP/1.1 200 \xff\xfe\r\nA: \xff\r\n\xff: b\r\n\r\n\xff",
}


def sends(content: bytes) -> Respond:
    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(content)
        handler.close_connection = True

    return respond


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize("content", RAW.values(), ids=RAW)
def test_bytes(
    capsys: pytest.CaptureFixture[str],
    cluster: Any,
    content: bytes,
    proxied: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster.respond = sends(content)
    if proxied:
        proxy = {"proxy-url": f"http://127.0.0.1:{cluster.port}"}
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://api.example.com", {}, proxy)))
    for command in (COMMANDS[0], COMMANDS[10]):
        code, output = check(capsys, command)
        assert code == 5, output


ADDRESSES = [
    "", "x", "127.0.0.1", "127.0.0.1:6443", "https://", "https:///path", "https://:6443", "https://[::1",
    "https://host:port",
    "https://host:0", "https://host:99999", "https://host:-1",  "https://[zz]:1", "https://a b",
    "https://a\tb", "https://a\nb", "https://a\x00b", "https://a..b", "https://" + "a" * 300, "https://é.de",
    "https://host/?a=b", "https://host/#a", "ftp://host", "file:///etc/passwd", "unix:///run/x", "HTTP:/host",
    "https://host%00", "https://%31%32", "https://ho`st", "https://a@b@c@", "//host", "javascript:1",
]  # fmt: skip
PROXIES = [
    *(each for each in ADDRESSES if each not in ("", "x", "127.0.0.1", "127.0.0.1:6443")),
    "socks5://127.0.0.1:1080", "socks4://127.0.0.1:1080", "socks5h://me:pw@127.0.0.1:1080", "SOCKS://x", "socks://",
]  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_server_s_address(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, address)))
    code, output = check(capsys, COMMANDS[0])
    assert (code, "server" in output) == (5, True)


@pytest.mark.parametrize("place", ["proxy-url", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("address", [each for each in PROXIES if "\0" not in each])
def test_a_proxy_s_address(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    place: str,
) -> None:
    cluster = {"proxy-url": address} if place == "proxy-url" else {}
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "https://127.0.0.1:1", {}, cluster)))
    if place != "proxy-url":
        monkeypatch.setenv(place, address)
    code, output = check(capsys, COMMANDS[0])
    assert code == 5
    if address.lower().startswith("socks") and "://" in address:
        assert "a SOCKS proxy, which the launcher does not speak to" in output


LABELS = {"tf-launcher.dev/run": "my-run", "tf-launcher.dev/role": "chief"}
JOB = {
    "metadata": {
        "name": "my-run-chief",
        "namespace": "default",
        "uid": "u1",
        "labels": LABELS,
        "annotations": {
            "tf-launcher.dev/primary": "true",
            "tf-launcher.dev/spec": json.dumps({"spec": {"modelDir": "/model", "runPolicy": {}}}),
        },
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"uid": "o", "kind": "Job", "name": "owner"}],
    },
    "spec": {
        "completions": 1,
        "parallelism": 1,
        "suspend": False,
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {
                "terminationGracePeriodSeconds": 30,
                "volumes": [{"name": "m", "persistentVolumeClaim": {"claimName": "c"}}],
                "containers": [
                    {"name": "tensorflow", "volumeMounts": [{"name": "m", "mountPath": "/model"}], "env": []}
                ],
            },
        },
    },
    "status": {
        "active": 0,
        "ready": 0,
        "succeeded": 0,
        "failed": 1,
        "startTime": "2026-01-01T00:00:01Z",
        "completionTime": "2026-01-01T00:00:09Z",
        "conditions": [{"type": "Failed", "status": "True", "reason": "R", "message": "m"}],
    },
}  # fmt: skip
POD = {
    "metadata": {
        "name": "my-run-chief-0-abcde",
        "namespace": "default",
        "uid": "p1",
        "labels": {
            **LABELS,
            "batch.kubernetes.io/job-name": "my-run-chief",
            "batch.kubernetes.io/job-completion-index": "0",
        },
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"uid": "u1", "kind": "Job", "name": "my-run-chief"}],
    },
    "spec": {
        "nodeName": "node",
        "containers": [{"name": "tensorflow", "resources": {"limits": {"memory": "1Gi"}}}],
    },
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "m",
        "startTime": "2026-01-01T00:00:01Z",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "r", "message": "m"}],
        "initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "r", "message": "m"}}}],
        "containerStatuses": [
            {
                "name": "tensorflow",
                "state": {
                    "terminated": {
                        "exitCode": 137,
                        "reason": "OOMKilled",
                        "message": "m",
                        "startedAt": "2026-01-01T00:00:02Z",
                        "finishedAt": "2026-01-01T00:00:03Z",
                    }
                },
            }
        ],
    },
}
EVENT = {
    "metadata": {"name": "e", "uid": "e1", "creationTimestamp": "2026-01-01T00:00:05Z"},
    "involvedObject": {"kind": "Pod", "name": "my-run-chief-0-abcde", "uid": "p1"},
    "type": "Warning",
    "reason": "Failed",
    "message": "m",
    "count": 3,
    "series": {"count": 3, "lastObservedTime": "2026-01-01T00:00:05Z"},
    "lastTimestamp": "2026-01-01T00:00:05Z",
}  # fmt: skip
LINE = b'2026-01-01T00:00:02.5Z {"tf-launcher":1,"event":"progress","task":"my-run-chief-0","time":1}\n'
ODD: list[Any] = [None, [], {}, [None], {"a": None}, "", "x", "\ud800", 5, -1, 10**30, True, 1.5]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from places(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    if not path:
        return odd
    changed_copy = copy.deepcopy(value)
    inner = changed_copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = odd
    return changed_copy


def has(jobs: Any, pods: Any, events: Any) -> Respond:
    """Returns a server that has only these objects."""
    kinds = {"jobs": jobs, "pods": pods, "events": events}

    def respond(handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        if path.endswith("/log"):
            answering(LINE)(handler)
        elif (kind := path.rpartition("/")[2]) in kinds:
            document = {"metadata": {"resourceVersion": "7"}, "items": [kinds[kind]]}
            answering(json.dumps(document).encode())(handler)
        else:
            answering(b'{"message": "there is none"}', 404)(handler)

    return respond


def test_the_objects_are_right_as_they_are(capsys: pytest.CaptureFixture[str], cluster: Any) -> None:
    cluster.respond = has(JOB, POD, EVENT)
    code, out, err = run(capsys, *COMMANDS[1])
    assert (code, err) == (0, "")
    assert "run my-run has failed" in out
    code, out, err = run(capsys, *COMMANDS[4])
    assert (code, err) == (0, "")
    assert "chief 0" in out


@pytest.mark.by_day("event")
@pytest.mark.parametrize("kind", ["job", "pod", "event"])
def test_one_field_is_odd(capsys: pytest.CaptureFixture[str], cluster: Any, kind: str) -> None:
    """Each field gets each odd value: `status`, `list` and `events` of an object that is malformed."""
    item = {"job": JOB, "pod": POD, "event": EVENT}[kind]
    for position, path in enumerate(places(item)):
        # Two odd values for each field, and others for the next field.
        for odd in (ODD[position % len(ODD)], ODD[(5 * position + 7) % len(ODD)]):
            wrong = changed(item, path, odd)
            cluster.respond = has(*(wrong if name == kind else other for name, other in
                                    (("job", JOB), ("pod", POD), ("event", EVENT))))  # fmt: skip
            code, out, err = run(capsys, *COMMANDS[4 if kind == "event" else position % 2])
            assert code in DOCUMENTED, (path, odd, out, err)


SEEN: list[tuple[str, tuple[Any, ...], Any]] = [
    ("job", ("spec", "template", "metadata", "labels", "tf-launcher.dev/role"), 5),
    ("job", ("status", "conditions", 0, "status"), 1.5),
    ("job", ("status", "conditions", 0, "message"), 10**30),
    ("pod", ("spec", "nodeName"), {"a": None}),
    ("pod", ("spec", "nodeName"), 5),
]


@pytest.mark.parametrize(("kind", "path", "odd"), SEEN)
def test_what_was_an_error_of_the_launcher(
    capsys: pytest.CaptureFixture[str], cluster: Any, kind: str, path: tuple[Any, ...], odd: object
) -> None:
    items = {"job": JOB, "pod": POD, "event": EVENT}
    items[kind] = changed(items[kind], path, odd)
    cluster.respond = has(*items.values())
    for command in COMMANDS[:2]:
        check(capsys, command)


def test_no_warning_reaches_the_user(tmp_path: Path) -> None:
    """Such as urllib3's warning about an unverified server, or what it logs."""
    path = kubeconfig(tmp_path, "http://127.0.0.1:1", {}, {"insecure-skip-tls-verify": True})
    document = json.loads(path.read_text())
    document["clusters"][0]["cluster"]["proxy-url"] = "http://127.0.0.1:1"
    path.write_text(json.dumps(document))
    done = launch(tmp_path, *COMMANDS[0])
    assert done.returncode == 5
    assert "Warning" not in done.stderr
