"""Kubeconfigs that Kubernetes does not accept: one message each, and never a looser meaning. Tests may only
add to the tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.backends.kubernetes.api_server.connection import connect
from launcher.errors import BackendError
from tests.hostile.servers import kubeconfig

HERE = "https://127.0.0.1:6443"
LOGIN = {"apiVersion": "client.authentication.k8s.io/v1", "command": "login"}


def refused(path: Path) -> str:
    with pytest.raises(BackendError) as error:
        connect(str(path)).credentials(5)
    assert error.value.hint
    return error.value.message


@pytest.mark.parametrize("value", ["false", "true", "no", "", 0, 1, 0.0, [], {}, "False"])
def test_verification_is_off_by_true_alone(tmp_path: Path, value: object) -> None:
    message = refused(kubeconfig(tmp_path, HERE, {}, {"insecure-skip-tls-verify": value}))
    expected = "clusters[0].cluster.insecure-skip-tls-verify: expected true or false, without quotes"
    assert message.endswith(expected)


@pytest.mark.parametrize(("value", "off"), [("yes", True), ("off", False), ("null", False), ("TRUE", True)])
def test_what_yaml_calls_true(tmp_path: Path, value: str, off: bool) -> None:
    path = kubeconfig(tmp_path, HERE)
    document = yaml.safe_dump(json.loads(path.read_text()))
    lines = f"server: {HERE}\n    insecure-skip-tls-verify: {value}\n"
    path.write_text(document.replace(f"server: {HERE}\n", lines))
    tls = connect(str(path)).tls
    assert tls is not None
    assert tls.check_hostname is not off


TYPES: list[tuple[dict[str, Any], str]] = [
    ({"cluster": {"server": 5}}, "clusters[0].cluster.server"),
    ({"cluster": {"server": ["https://x"]}}, "clusters[0].cluster.server"),
    ({"cluster": {"tls-server-name": True}}, "clusters[0].cluster.tls-server-name"),
    ({"cluster": {"proxy-url": {}}}, "clusters[0].cluster.proxy-url"),
    ({"cluster": {"certificate-authority": 1}}, "clusters[0].cluster.certificate-authority"),
    ({"cluster": {"certificate-authority-data": "!"}}, "clusters[0].cluster.certificate-authority-data"),
    ({"cluster": {"certificate-authority-data": 5}}, "clusters[0].cluster.certificate-authority-data"),
    ({"cluster": {"disable-compression": "no"}}, "clusters[0].cluster.disable-compression"),
    ({"user": {"token": 12345}}, "users[0].user.token"),
    ({"user": {"token": True}}, "users[0].user.token"),
    ({"user": {"tokenFile": 1}}, "users[0].user.tokenFile"),
    ({"user": {"client-certificate-data": "a"}}, "users[0].user.client-certificate-data"),
    ({"user": {"client-key": []}}, "users[0].user.client-key"),
    ({"user": {"username": 1}}, "users[0].user.username"),
    ({"user": {"password": 1}}, "users[0].user.password"),
    ({"user": {"as-groups": "admins"}}, "users[0].user.as-groups"),
    ({"user": {"exec": "login"}}, "users[0].user.exec"),
    ({"user": {"exec": {**LOGIN, "args": "a b"}}}, "users[0].user.exec.args"),
    ({"user": {"exec": {**LOGIN, "args": [1]}}}, "users[0].user.exec.args"),
    ({"user": {"exec": {**LOGIN, "env": {"A": "b"}}}}, "users[0].user.exec.env"),
    ({"user": {"exec": {**LOGIN, "env": ["A=b"]}}}, "users[0].user.exec.env[0]"),
    ({"user": {"exec": {**LOGIN, "env": [{"name": "A", "value": 1}]}}}, "users[0].user.exec.env[0].value"),
    ({"user": {"exec": {**LOGIN, "provideClusterInfo": "yes"}}}, "users[0].user.exec.provideClusterInfo"),
    ({"user": {"exec": {**LOGIN, "command": 5}}}, "users[0].user.exec.command"),
    ({"user": {"auth-provider": []}}, "users[0].user.auth-provider"),
    ({"user": {"auth-provider": {"config": []}}}, "users[0].user.auth-provider.config"),
    ({"context": {"namespace": 5}}, "contexts[0].context.namespace"),
    ({"context": {"user": ["u"]}}, "contexts[0].context.user"),
]


@pytest.mark.parametrize(("change", "field"), TYPES, ids=[field for _, field in TYPES])
def test_a_field_of_another_type(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    message = refused(kubeconfig(tmp_path, HERE, **change))
    assert f"kubeconfig: {field}: expected " in message


MEANT: list[tuple[dict[str, Any], str]] = [
    ({"user": {"exec": {"command": "login"}}}, "exec.apiVersion: expected client.authentication.k8s.io/v1"),
    ({"user": {"exec": {**LOGIN, "command": ""}}}, "exec.command: expected the name of a program"),
    ({"user": {"exec": {**LOGIN, "command": "a\0b"}}}, "exec.command: expected the name of a program"),
    ({"user": {"exec": {**LOGIN, "command": "/nowhere/login"}}}, "cannot be run: No such file or directory"),
    (
        {"user": {"exec": {**LOGIN, "command": "true", "args": ["\0"]}}},
        "cannot be run: its arguments are none",
    ),
    ({"user": {"exec": {**LOGIN, "interactiveMode": "Sometimes"}}}, "exec.interactiveMode: expected Never"),
    ({"user": {"as": "me", "as-groups": ["admins"]}}, "as-groups and as-user-extra are not carried out"),
    ({"user": {"client-certificate-data": "eHh4"}}, "a client certificate without its key"),
    ({"user": {"client-key": "/nowhere", "client-certificate": "/nowhere"}}, "No such file or directory"),
    ({"user": {"tokenFile": "/dev/null"}}, "tokenFile: /dev/null is empty"),
    ({"user": {"tokenFile": "/dev/zero"}}, "tokenFile: /dev/zero has over 1,048,576 bytes"),
    ({"user": {"tokenFile": "a\0b"}}, "no name of a file"),
    ({"cluster": {"certificate-authority": "/nowhere"}}, "certificate-authority: /nowhere: No such file"),
    ({"cluster": {"certificate-authority": "/dev/null"}}, "it holds no certificate in PEM"),
    ({"cluster": {"certificate-authority-data": "eHh4"}}, "it holds no certificate in PEM"),
    ({"cluster": {"certificate-authority-data": "/////w=="}}, "it holds no certificate in PEM"),
    (
        {"cluster": {"certificate-authority-data": "eHh4", "insecure-skip-tls-verify": True}},
        "insecure-skip-tls-verify: true and a certificate-authority exclude each other",
    ),
    ({"context": {"cluster": "nowhere"}}, "it names cluster nowhere, which is not there"),
    ({"context": {"user": "nobody"}}, "it names user nobody, which is not there"),
]


@pytest.mark.parametrize(("change", "expected"), MEANT, ids=[expected for _, expected in MEANT])
def test_what_cannot_be_meant(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    assert expected in refused(kubeconfig(tmp_path, HERE, **change))


TEXTS = {
    "no mapping": b"[]",
    "text": b"nothing",
    "half": b"{",
    "tabs": b"clusters:\n\t- name: c",
    "zeros": b"\0" * 100,
    "no UTF-8": b"\xff\xfeclusters: \xff",
    "many levels": b"[" * 25_000,
    "many levels of mappings": b"{a: " * 25_000,
    "many levels of blocks": b"- " * 25_000,
    "an alias in itself": b"clusters: &a [*a]",
    "a tag": b"clusters: !!python/object:os.system {}",
    "an odd key": b"? [a, b]\n: c",
    "a huge number": b"current-context: 0x" + b"f" * 6_000,
    "a huge decimal number": b"current-context: " + b"9" * 6_000,
    "clusters that are none": b"clusters: 3",
    "entries that are none": b"clusters: [3]",
    "a name that is none": b"clusters: [{name: 3}]",
    "only a context": b"current-context: gone",
    "a context of nothing": b"current-context: a\ncontexts: [{name: a}]",
    "nothing": b"",
    "a merge of nothing": b"<<: 3",
    "an odd date": b"current-context: !!timestamp 2026-99-99",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_file_that_is_none(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(text)
    assert str(path) in refused(path)


def test_a_folder_and_an_endless_file(tmp_path: Path) -> None:
    assert "Is a directory" in refused(tmp_path)
    assert "which no kubeconfig has" in refused(Path("/dev/zero"))
