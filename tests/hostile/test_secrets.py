"""No secret is printed, whatever contains it and however the command ends. Tests may only add to
the table.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from launcher import redaction
from launcher.errors import BackendError
from tests.hostile.servers import GOOD, answering, kubeconfig, launch, launch_all, server

SECRET = "S3CRETvalue0f-this_test"
ENCODED = base64.b64encode(f"somebody:{SECRET}".encode()).decode()
LOGIN = "client.authentication.k8s.io/v1"


def prints(directory: Path, output: str, errors: str = "", code: int = 0) -> dict[str, Any]:
    """Returns a login command."""
    script = directory / "login.py"
    script.write_text(
        f"import sys\nsys.stdout.write({output!r})\nsys.stderr.write({errors!r})\nsys.exit({code})\n"
    )
    arguments = [str(script)]
    return {"exec": {"apiVersion": LOGIN, "command": sys.executable, "args": arguments, "env": None}}


def credential(**status: object) -> str:
    return json.dumps({"apiVersion": LOGIN, "kind": "ExecCredential", "status": status})


def in_file(directory: Path, text: str) -> dict[str, Any]:
    (directory / "token").write_text(text)
    return {"tokenFile": "token"}


USERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "token": lambda _: {"token": SECRET},
    "token with its line end": lambda _: {"token": f"{SECRET}\n"},
    "token of two lines": lambda _: {"token": f"first\n{SECRET}"},
    "token with a carriage return": lambda _: {"token": f"{SECRET}\r\nX-Other: {SECRET}"},
    "token that HTTP would fold": lambda _: {"token": f"{SECRET}\n {SECRET}"},
    "token that is not ASCII": lambda _: {"token": f"{SECRET}ü€"},
    "token with NUL": lambda _: {"token": f"{SECRET}\0"},
    "token that is a list": lambda _: {"token": [SECRET]},
    "token that is a mapping": lambda _: {"token": {SECRET: SECRET}},
    "token file": lambda d: in_file(d, f" {SECRET}\n\n"),
    "token file of two lines": lambda d: in_file(d, f"{SECRET}\n{SECRET}\n"),
    "token file with a byte order mark": lambda d: in_file(d, f"\ufeff{SECRET}\n"),
    "password": lambda _: {"username": "somebody", "password": SECRET},
    "password of two lines": lambda _: {"username": "somebody", "password": f"{SECRET}\n{SECRET}"},
    "password that is a list": lambda _: {"username": "somebody", "password": [SECRET]},
    "key": lambda _: {"client-certificate-data": "eHh4", "client-key-data": ENCODED},
    "key that is no base64": lambda _: {"client-certificate-data": "eHh4", "client-key-data": SECRET + "!"},
    "as": lambda _: {"token": SECRET, "as": f"me\n{SECRET}"},
    "login": lambda d: prints(d, credential(token=SECRET)),
    "login with a line end": lambda d: prints(d, credential(token=f"{SECRET}\n")),
    "login of two lines": lambda d: prints(d, credential(token=f"{SECRET}\n{SECRET}")),
    "login with a number": lambda d: prints(d, credential(token=[SECRET])),
    "login that fails": lambda d: prints(d, SECRET, f"cannot log in with {SECRET}", 3),
    "login that prints no JSON": lambda d: prints(d, f"token: {SECRET}"),
    "login of another version": lambda d: prints(
        d, json.dumps({"kind": SECRET, "status": {"token": SECRET}})
    ),
    "login with a wrong time": lambda d: prints(d, credential(token=SECRET, expirationTimestamp=SECRET)),
    "login with a wrong key": lambda d: prints(
        d, credential(clientCertificateData=SECRET, clientKeyData=SECRET)
    ),
    "provider": lambda _: {"auth-provider": {"name": "oidc", "config": {"id-token": SECRET}}},
    "provider that is wrong": lambda _: {"auth-provider": {"name": "gcp", "config": {"cmd-path": SECRET}}},
    "provider of another type": lambda _: {
        "auth-provider": {"name": "oidc", "config": {"id-token": [SECRET]}}
    },
}
COMMANDS = (("list", "--backend", "kubernetes"), ("submit", GOOD, "--detach"))


def echoes(handler: BaseHTTPRequestHandler) -> None:
    """Returns the client's credentials, as some gateways do."""
    headers = "; ".join(f"{name}: {value}" for name, value in handler.headers.items())
    code = 401 if handler.path.startswith("/version") else 403
    content = json.dumps({"kind": "Status", "code": code, "message": headers}).encode()
    answering(content, code)(handler)


def check_silent(done: Any) -> None:
    assert done.returncode in (0, 2, 4, 5), done
    for form in (SECRET, ENCODED, base64.b64encode(SECRET.encode()).decode()[:-4]):
        assert form not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("source", USERS)
def test_a_user_s(tmp_path: Path, source: str) -> None:
    with server(echoes) as api:
        kubeconfig(tmp_path, f"http://127.0.0.1:{api.port}", USERS[source](tmp_path))
        check_silent(launch_all(tmp_path, *COMMANDS))


URLS = [
    "http://somebody:{secret}@127.0.0.1:{port}",
    "http://somebody:{secret}@127.0.0.1:{port}/a path",
    "http://somebody:{secret}@127.0.0.1:{port}0000000",
    "http://somebody:{secret}@[127.0.0.1]:{port}",
    "ftp://somebody:{secret}@127.0.0.1:{port}",
    "somebody:{secret}@127.0.0.1:{port}",
    "http://somebody:{secret}@127.0.0.1:{port}/?token={secret}",
    "http://somebody:{secret}@127.0.0.1:1",
    "http://somebody:{secret}@",
    "http://somebody:{secret}@a..b",
]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("place", ["server", "proxy-url", "HTTP_PROXY"])
def test_a_url_s(tmp_path: Path, place: str, url: str) -> None:
    with server(echoes) as api:
        filled = url.format(secret=SECRET, port=api.port)
        address = filled if place == "server" else "http://127.0.0.1:1"
        kubeconfig(tmp_path, address, {}, {"proxy-url": filled} if place == "proxy-url" else {})
        environment = {"HTTP_PROXY": filled, "http_proxy": filled} if place == "HTTP_PROXY" else {}
        check_silent(launch(tmp_path, *COMMANDS[0], environment=environment))


def test_with_the_whole_traceback(tmp_path: Path) -> None:
    """The traceback of --debug has no secrets either."""
    with server(echoes) as api:
        kubeconfig(tmp_path, f"http://127.0.0.1:{api.port}", {"token": SECRET})
        for command in COMMANDS:
            done = launch(tmp_path, *command, environment={"TF_LAUNCHER_DEBUG": "1"})
            assert SECRET not in done.stdout + done.stderr


def test_a_message_has_none_from_the_start() -> None:
    """The message of an error that `import launcher` raises has no secrets, for instance in a notebook."""
    redaction.keep_secret(f"{SECRET}\n")
    error = BackendError(f"the server says {SECRET}", f"see https://me:{SECRET[:5]}@host/path")
    assert str(error) == "the server says [redacted]\nsee https://[redacted]@host/path"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("proxy http://me:pw@proxy:3128 refused", "proxy http://[redacted]@proxy:3128 refused"),
        ("https://host/a@b", "https://host/a@b"),
        ("Authorization: Bearer abcdefghijklmnopqrst", "Authorization: Bearer [redacted]"),
        ("basic authentication failed", "basic authentication failed"),
        ("got eyJhbGciOiJSUzI1.eyJzdWIiOiJ4.c2ln", "got [redacted]"),
    ],
)
def test_what_looks_like_a_secret(text: str, expected: str) -> None:
    assert redaction.redacted_message(text) == expected
