"""The plain kubeconfigs that are read without the `kubernetes` package, and those that are left to it."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes import kubeconfig
from launcher.backends.kubernetes.connection import connect
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


def read(path: str, context: str | None = None) -> kubeconfig.Plain:
    found = kubeconfig.read(path, context)
    assert found is not None
    return found


def test_contexts(tmp_path: Path) -> None:
    path = written(tmp_path, {"token": "secret"})
    one, two = read(path), read(path, "two")
    assert (one.server, one.context, one.namespace) == ("https://[::1]:6443", "one", "vision")
    assert (two.context, two.namespace) == ("two", "default")
    assert one.headers() == {"authorization": "Bearer secret"}


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
    with pytest.raises(BackendError, match=r"cannot use context one of .* No such file"):
        connection.credentials()


@pytest.mark.parametrize("inline", [True, False])
def test_certificates(tmp_path: Path, pair: tuple[bytes, bytes], inline: bool) -> None:
    certificate, key = (base64.b64encode(each).decode() for each in pair)
    if inline:
        user = {"client-certificate-data": certificate, "client-key-data": key}
        cluster = {"certificate-authority-data": certificate}
    else:
        # Beside the kubeconfig, wherever we are.
        user = {"client-certificate": "certificate.pem", "client-key": "key.pem"}
        cluster = {"certificate-authority": "certificate.pem"}
    tls = read(written(tmp_path, user, cluster)).tls
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_REQUIRED
    assert [each["subject"] for each in tls.get_ca_certs()] == [((("commonName", "somebody"),),)]


def test_a_server_that_is_not_to_be_verified(tmp_path: Path) -> None:
    tls = read(written(tmp_path, {}, {"insecure-skip-tls-verify": True})).tls
    assert tls is not None
    assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_NONE, False)


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        ({"exec": {"command": "login"}}, {}),
        ({"auth-provider": {"name": "oidc"}}, {}),
        ({"username": "somebody", "password": "secret"}, {}),
        ({"token": "secret"}, {"proxy-url": "http://proxy"}),
        ({"token": "secret"}, {"tls-server-name": "other"}),
        ({"token": "secret"}, {"server": "https://me:secret@api:6443"}),
        ({"token": "secret"}, {"server": "https://api:port"}),
        ({"token": "secret"}, {"server": "api:6443"}),
        ({"client-certificate": "certificate.pem"}, {}),
        ({"tokenFile": "nowhere"}, {}),
        ({"token": "secret"}, {"certificate-authority": "nowhere"}),
        ({"token": "secret"}, {"certificate-authority-data": "!"}),
    ],
)
def test_the_unusual_is_left_to_the_package(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any]
) -> None:
    assert kubeconfig.read(written(tmp_path, user, cluster), None) is None


def test_so_are_several_files_and_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, {"token": "secret"})
    (tmp_path / "other").write_text("{}")
    assert kubeconfig.read(f"{path}:{tmp_path / 'other'}", None) is None
    assert kubeconfig.read(path, "three") is None
    assert kubeconfig.read(f"{path}:{tmp_path / 'nothing'}", None) is not None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    assert kubeconfig.read(path, None) is None


def test_a_plain_one_does_not_cost_the_package_s_import(tmp_path: Path) -> None:
    path = written(tmp_path, {"token": "secret"})
    code = (
        "import sys; from launcher.backends.kubernetes.connection import connect; "
        f"connect({path!r}).credentials(); print('kubernetes' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"
