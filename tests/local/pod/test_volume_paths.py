"""Paths that lead out of a volume are refused, as Kubernetes refuses them: no file outside is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.errors import BackendError
from launcher.status import Phase
from tests.local.machine import Machine, job

UP = "../../../../../../../../../../{outside}/written"

LEADING_OUT = ["../x", "..", "a/..", "a/../../x", "./../x", "a/b/../../../x", "{outside}/written", UP]
"""Paths that are not below their base. Tests may only add to them."""

NO_CLAIMS = [*LEADING_OUT, ".", "a/b", "", "A", "a_b", ".a", "a..b", "a\0b", "x" * 254]
"""Invalid names of claims. Tests may only add to them."""

CONFIG = {"kind": "ConfigMap", "metadata": {"name": "files"}, "data": {"key": "text"}}
CLAIM = {"persistentVolumeClaim": {"claimName": "claim"}}


def refused(machine: Machine, tmp_path: Path, text: str, field: str, *objects: Any) -> None:
    """Checks that nothing is started, no file stays, and no file outside is written."""
    outside = tmp_path / "outside"
    outside.mkdir(exist_ok=True)
    with pytest.raises(BackendError) as error:
        machine.submit(*objects)
    assert f"chief: spec.{field}: {text!r}: " in error.value.message
    assert not list(outside.iterdir())
    assert not machine.directory().path.exists()
    assert machine.backend.runs() == []


def with_mount(volume: dict[str, Any], **mount: Any) -> dict[str, Any]:
    chief = job("chief", "print('ran')", primary=True)
    pod = chief["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", **volume}]
    pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data", **mount}]
    return chief


def path_of(text: str, tmp_path: Path) -> str:
    return text.format(outside=tmp_path / "outside")


@pytest.mark.parametrize("path", LEADING_OUT)
@pytest.mark.parametrize("field", ["subPath", "subPathExpr"])
@pytest.mark.parametrize("volume", [{"emptyDir": {}}, CLAIM], ids=["emptyDir", "claim"])
def test_a_sub_path(machine: Machine, tmp_path: Path, path: str, field: str, volume: dict[str, Any]) -> None:
    text = path_of(path, tmp_path)
    where = f"containers[0].volumeMounts[0].{field}"
    refused(machine, tmp_path, text, where, with_mount(volume, **{field: text}))


@pytest.mark.parametrize("path", [*LEADING_OUT, "", "..x", "..data/x"])
@pytest.mark.parametrize("kind", ["configMap", "secret"])
@pytest.mark.parametrize("projected", [False, True])
def test_the_path_of_an_item(machine: Machine, tmp_path: Path, path: str, kind: str, projected: bool) -> None:
    text = path_of(path, tmp_path)
    source: dict[str, Any] = {kind: {"name": "files", "items": [{"key": "key", "path": text}]}}
    field = f"{kind}.items[0].path"
    if projected:
        source, field = {"projected": {"sources": [source]}}, f"projected.sources[0].{field}"
    refused(machine, tmp_path, text, f"volumes[0].{field}", with_mount(source), CONFIG)


@pytest.mark.parametrize("path", LEADING_OUT)
def test_the_path_of_a_token(machine: Machine, tmp_path: Path, path: str) -> None:
    text = path_of(path, tmp_path)
    volume = {"projected": {"sources": [{"serviceAccountToken": {"path": text}}]}}
    field = "volumes[0].projected.sources[0].serviceAccountToken.path"
    refused(machine, tmp_path, text, field, with_mount(volume))


@pytest.mark.parametrize("name", NO_CLAIMS)
def test_the_name_of_a_claim(machine: Machine, tmp_path: Path, name: str) -> None:
    text = path_of(name, tmp_path)
    field = "volumes[0].persistentVolumeClaim.claimName"
    refused(machine, tmp_path, text, field, with_mount({"persistentVolumeClaim": {"claimName": text}}))


@pytest.mark.parametrize("name", ["A", "a.b", "x" * 64])
def test_the_name_of_a_volume(machine: Machine, tmp_path: Path, name: str) -> None:
    chief = with_mount({"emptyDir": {}})
    chief["spec"]["template"]["spec"]["volumes"][0]["name"] = name
    refused(machine, tmp_path, name, "volumes[0].name", chief)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "", 5, None])
def test_the_name_of_a_volume_that_is_not_even_a_files(machine: Machine, name: Any) -> None:
    chief = with_mount({"emptyDir": {}})
    chief["spec"]["template"]["spec"]["volumes"][0]["name"] = name
    with pytest.raises(BackendError, match=r"volumes\[0\]\.name: expected the name of a file"):
        machine.submit(chief)


@pytest.mark.parametrize("key", ["../x", "..", ".", "a/b", "..x", ""])
def test_the_key_of_a_config_map(machine: Machine, tmp_path: Path, key: str) -> None:
    files = {**CONFIG, "data": {key: "text"}}
    refused(
        machine, tmp_path, key, "volumes[0].configMap", with_mount({"configMap": {"name": "files"}}), files
    )


def test_a_key_that_is_not_there(machine: Machine, tmp_path: Path) -> None:
    source = {"name": "files", "items": [{"key": "none", "path": "x"}]}
    field = "volumes[0].configMap.items[0].key"
    refused(machine, tmp_path, "none", field, with_mount({"configMap": source}), CONFIG)
    optional = with_mount({"configMap": {**source, "optional": True}})
    assert machine.run(optional, CONFIG).phase is Phase.SUCCEEDED


@pytest.mark.parametrize("path", ["/tmp/../etc", "../x"])
def test_a_host_path(machine: Machine, tmp_path: Path, path: str) -> None:
    refused(machine, tmp_path, path, "volumes[0].hostPath.path", with_mount({"hostPath": {"path": path}}))


def test_a_sub_path_that_a_variable_leads_out(machine: Machine, tmp_path: Path) -> None:
    chief = with_mount({"emptyDir": {}}, subPathExpr="$(UP)/x")
    chief["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "UP", "value": ".."})
    refused(machine, tmp_path, "../x", "containers[0].volumeMounts[0].subPath", chief)


def test_a_sub_path_through_a_link(machine: Machine, tmp_path: Path) -> None:
    """A task has made the link in its claim."""
    outside = tmp_path / "outside"
    outside.mkdir()
    claim = machine.root / "volumes" / "default" / "claim"
    claim.mkdir(parents=True)
    (claim / "link").symlink_to(outside)
    refused(
        machine,
        tmp_path,
        "link/x",
        "containers[0].volumeMounts[0].subPath",
        with_mount(CLAIM, subPath="link/x"),
    )
    (claim / "link").unlink()
    assert machine.run(with_mount(CLAIM, subPath="link/x")).phase is Phase.SUCCEEDED
    assert (claim / "link" / "x").is_dir()


@pytest.mark.parametrize("path", ["a", "a/b", "a..b", "..a", ".a", "a/.b"])
def test_a_path_below_is_taken(machine: Machine, path: str) -> None:
    assert machine.run(with_mount(CLAIM, subPath=path)).phase is Phase.SUCCEEDED
    assert (machine.root / "volumes" / "default" / "claim" / path).is_dir()
