"""The plain kubeconfigs that are read without the `kubernetes` package, and those that need it."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes.api_server.connection import connect
from launcher.errors import BackendError


def written(directory: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> str:
    path = directory / "kubeconfig"
    contexts = [
        {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "vision"}},
        {"name": "two", "context": {"cluster": "c", "user": "u"}},
    ]
    document = {
        "current-context": "one",
        "contexts": contexts,
        "clusters": [{"name": "c", "cluster": {"server": "https://[::1]:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return str(path)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[bytes, bytes]:
    """A certificate and its key."""
    names = ["-keyout", "key.pem", "-out", "certificate.pem", "-subj", "/CN=somebody", "-days", "1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    return (tmp_path / "certificate.pem").read_bytes(), (tmp_path / "key.pem").read_bytes()


def test_contexts(tmp_path: Path) -> None:
    path = written(tmp_path, {"token": "secret"})
    one, two = connect(path), connect(path, "two")
    assert (one.host, one.origin, one.namespace) == ("https://[::1]:6443", f"context one of {path}", "vision")
    assert two.namespace == "default"
    assert one.credentials() == {"authorization": "Bearer secret"}


def test_a_connection_says_how_to_get_there_again(tmp_path: Path) -> None:
    path = written(tmp_path, {"token": "secret"})
    assert connect(path).options("vision") == ""
    assert connect(path).options("default") == " -n default"
    assert connect(path, "two").options("vision") == " -n vision --context two"


def test_a_token_in_a_file_is_read_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    connection = connect(written(tmp_path, {"tokenFile": "token"}))
    assert connection.credentials() == {"authorization": "Bearer first"}
    (tmp_path / "token").write_text("second\n")
    assert connection.credentials() == {"authorization": "Bearer second"}
    (tmp_path / "token").unlink()
    with pytest.raises(BackendError, match=r"cannot use context one of .*: tokenFile: .* No such file"):
        connection.credentials()


@pytest.mark.parametrize("inline", [True, False])
def test_certificates(tmp_path: Path, pair: tuple[bytes, bytes], inline: bool) -> None:
    certificate, key = (base64.b64encode(each).decode() for each in pair)
    if inline:
        user = {"client-certificate-data": certificate, "client-key-data": key}
        cluster = {"certificate-authority-data": certificate}
    else:
        # They are beside the kubeconfig, whatever the current folder is.
        user = {"client-certificate": "certificate.pem", "client-key": "key.pem"}
        cluster = {"certificate-authority": "certificate.pem"}
    tls = connect(written(tmp_path, user, cluster)).tls
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_REQUIRED
    assert [each["subject"] for each in tls.get_ca_certs()] == [((("commonName", "somebody"),),)]


def test_a_server_that_is_not_to_be_verified(tmp_path: Path) -> None:
    tls = connect(written(tmp_path, {}, {"insecure-skip-tls-verify": True})).tls
    assert tls is not None
    assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_NONE, False)


def test_several_files_are_one(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "token").write_text("theirs")
    first = written(tmp_path, {"token": "ours"})
    other = written(tmp_path / "more", {"tokenFile": "token"}, {"server": "https://other"})
    nothing = str(tmp_path / "nothing")
    # The first file with an entry of a name has precedence, for the whole entry; paths are relative to their
    # own kubeconfig.
    assert connect(f"{nothing}:{first}:{other}").credentials()["authorization"] == "Bearer ours"
    connection = connect(f"{other}:{first}")
    assert (connection.host, connection.credentials()["authorization"]) == ("https://other", "Bearer theirs")


def test_who_is_nobody_or_somebody_else(tmp_path: Path) -> None:
    assert connect(written(tmp_path, {})).credentials() == {}
    basic = connect(written(tmp_path, {"username": "me", "password": "p:w"})).credentials()
    assert basic == {"authorization": "Basic bWU6cDp3"}
    url = {"server": "http://me:p%3Aw@api"}
    assert connect(written(tmp_path, {}, url)).credentials() == basic
    assert connect(written(tmp_path, {}, url)).host == "http://api"
    both = connect(written(tmp_path, {"token": "t", "as": "other"})).credentials()
    assert both == {"authorization": "Bearer t", "Impersonate-User": "other"}


def test_what_a_file_s_token_is_not_there_for(tmp_path: Path) -> None:
    user = {"token": "inline", "tokenFile": "token"}
    assert connect(written(tmp_path, user)).credentials() == {"authorization": "Bearer inline"}
    (tmp_path / "token").write_text("newer")
    assert connect(written(tmp_path, user)).credentials() == {"authorization": "Bearer newer"}


@pytest.mark.parametrize("field", ["proxy-url", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    url = "http://me:pw@proxy:3128"
    if field == "proxy-url":
        connection = connect(written(tmp_path, {}, {field: url}))
    else:
        monkeypatch.setenv(field, url.removeprefix("http://"))
        connection = connect(written(tmp_path, {}))
    assert connection.proxy is not None
    assert (connection.proxy.address.url, connection.proxy.address.userinfo) == ("http://proxy:3128", "me:pw")
    assert field in str(connection.proxy)
    assert "pw" not in str(connection.proxy)


@pytest.mark.parametrize(
    ("server", "no_proxy", "bypassed"),
    [
        ("https://api.example.com", "other, .example.com", True),
        ("https://api.example.com", "ple.com", False),
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
        ("https://[::1]:6443", "[::1]:6443", True),
        ("https://api", "*", True),
        ("https://api", "", False),
    ],
)
def test_what_no_proxy_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, no_proxy: str, bypassed: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    connection = connect(written(tmp_path, {}, {"server": server}))
    assert (connection.proxy is None) is bypassed


def login(script: str, directory: Path, **fields: Any) -> dict[str, Any]:
    (directory / "login").write_text(f"#!{sys.executable}\nimport json, os\n{script}")
    (directory / "login").chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", **fields}}


_COUNTING = """
with open(os.environ["COUNT"], "a") as file: file.write("x")
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
server = info["spec"].get("cluster", {}).get("server")
status = {"token": str(server), "expirationTimestamp": os.environ["END"]}
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


@pytest.mark.parametrize(
    ("end", "calls"), [("2999-01-01T00:00:00.123456789Z", 1), ("2000-01-01T00:00:00Z", 2)]
)
def test_a_login_command(tmp_path: Path, end: str, calls: int) -> None:
    """The command is beside its kubeconfig, and is called again when its token has expired."""
    count = tmp_path / "count"
    env = [{"name": "COUNT", "value": str(count)}, {"name": "END", "value": end}]
    connection = connect(written(tmp_path, login(_COUNTING, tmp_path, env=env, provideClusterInfo=True)))
    for _ in range(2):
        assert connection.credentials() == {"authorization": "Bearer https://[::1]:6443/"}
    assert count.read_text() == "x" * calls


def test_a_login_command_that_gives_a_certificate(tmp_path: Path, pair: tuple[bytes, bytes]) -> None:
    status = {"clientCertificateData": pair[0].decode(), "clientKeyData": pair[1].decode()}
    document = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    user = login(f"print(json.dumps({document!r}))", tmp_path)
    assert connect(written(tmp_path, user)).credentials() == {}
    wrong = login(f"print(json.dumps({document!r}).replace('PRIVATE', ''))", tmp_path)
    with pytest.raises(BackendError, match="its client certificate and key are not PEM"):
        connect(written(tmp_path, wrong)).credentials()


def test_a_login_command_that_does_not_end(tmp_path: Path) -> None:
    """It is ended with the processes that it has started, even while it prints."""
    script = "import subprocess\nprint('{', flush=True)\nsubprocess.run(['sleep', '3600'])\n"
    connection = connect(written(tmp_path, login(script, tmp_path)))
    with pytest.raises(BackendError, match=r"the login command \./login did not end within 0\.5 s"):
        connection.credentials(0.5)


def test_a_plain_one_does_not_cost_the_package_s_import(tmp_path: Path) -> None:
    path = written(tmp_path, {"token": "secret"})
    code = (
        "import sys; from launcher.backends.kubernetes.api_server.connection import connect; "
        f"connect({path!r}).credentials(); print('kubernetes' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"
