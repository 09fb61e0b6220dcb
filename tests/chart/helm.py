"""Runs a real helm on the chart of this checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parent.parent.parent
CHART: Final = ROOT / "charts" / "tf-launcher"
CI_VALUES: Final = sorted((CHART / "ci").glob("*-values.yaml"))
EXAMPLES: Final = sorted((ROOT / "examples").glob("*/cluster*.yaml"))
EMPTY_CONFIG: Final = Path(os.devnull)

Object = dict[str, Any]


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    error: str


@dataclass(frozen=True)
class Helm:
    """Helm's command line. It reads and writes no file of this machine's user."""

    binary: str
    home: Path
    kubeconfig: Path = EMPTY_CONFIG
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Starts a command and does not wait."""
        return subprocess.Popen(
            [self.binary, *map(str, arguments)],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str | Path, seconds: float = 60) -> Done:
        """Runs a command to its end, and returns its result."""
        done = subprocess.run(
            [self.binary, *map(str, arguments)],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def template(self, *arguments: str | Path, release: str = "mnist") -> list[Object]:
        """Returns the objects, those of `helm test` included. Fails the test where there are none."""
        done = self.run("template", release, CHART, "--namespace", "vision", *arguments)
        assert done.code == 0, done.error
        return [item for item in yaml.load_all(done.out, yaml.CSafeLoader) if item is not None]

    def refusal(self, *arguments: str | Path, release: str = "mnist") -> str:
        """Returns the error about the values, without helm's own words around it."""
        done = self.run("template", release, CHART, "--namespace", "vision", *arguments)
        assert (done.code, done.out) == (1, ""), done
        message = re.sub(r"\n+Use --debug flag .*", "", done.error.strip())
        message = re.sub(r"^Error: values don't meet .*:\ntf-launcher:\n- ", "", message)
        return re.sub(r"^Error: execution error at \(.*?\): ", "", message)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HELM_")}
        folders = {f"HELM_{name}_HOME": str(self.home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        return {**kept, **folders, "KUBECONFIG": str(self.kubeconfig), **self.environment}


def find(home: Path, kubeconfig: Path = EMPTY_CONFIG) -> Helm:
    """Returns the helm of LAUNCHER_TEST_HELM, or of PATH. Skips the test where there is none, or an older
    one.
    """
    binary = os.environ.get("LAUNCHER_TEST_HELM") or shutil.which("helm")
    if binary is None:
        pytest.skip("no helm: install Helm 4, or name it in LAUNCHER_TEST_HELM")
    version = subprocess.run(
        [binary, "version", "--short"], capture_output=True, text=True, timeout=60
    ).stdout
    if not version.startswith("v4."):
        pytest.skip(
            f"{binary} is {version.strip() or 'no helm'}: these tests need Helm 4 (LAUNCHER_TEST_HELM)"
        )
    return Helm(binary, home, kubeconfig)


def sources(cluster: Path) -> list[str]:
    """Returns helm's arguments beside `-f cluster.yaml` for a program in a file beside it."""
    values = yaml.safe_load(cluster.read_text())
    program = values["spec"].get("program") or {}
    source = program.get("source") or program.get("script")
    if source is None or "program" in values:
        return []
    path = Path(source).as_posix()
    key = path.replace(".", "\\.")
    return ["--set-file", f"program.files.{key}={cluster.parent / path}"]


def one(objects: list[Object], kind: str) -> Object:
    """Returns the only object of its kind."""
    (only_object,) = [item for item in objects if item["kind"] == kind]
    return only_object


def document(objects: list[Object]) -> Any:
    """Returns the cluster.yaml that the launcher gets."""
    return json.loads(one(objects, "ConfigMap")["data"]["cluster.json"])


def unpack(objects: list[Object], directory: Path) -> Path:
    """Unpacks the ConfigMap as the kubelet does for the launcher's pod. Returns the path of the file."""
    config = one(objects, "ConfigMap")
    volumes = one(objects, "Job")["spec"]["template"]["spec"]["volumes"]
    (projected,) = [volume["projected"] for volume in volumes if "projected" in volume]
    # The kubelet puts files behind links.
    data = directory / f"..{uuid.uuid4().hex}"
    data.mkdir()
    (directory / "..data").symlink_to(data.name)
    for entry in projected["sources"][0]["configMap"]["items"]:
        path = data / entry["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(config, entry["key"]))
        top = Path(entry["path"]).parts[0]
        if not (directory / top).is_symlink():
            (directory / top).symlink_to(Path("..data", top))
    (argument,) = [word for word in command(objects) if word.endswith("cluster.json")]
    return directory / Path(argument).relative_to("/etc/tf-launcher")


def content(config: Object, key: str) -> bytes:
    """Returns the content of a ConfigMap's key."""
    import base64

    if key in config["data"]:
        return str(config["data"][key]).encode()
    return base64.b64decode(config["binaryData"][key], validate=True)


def command(objects: list[Object]) -> list[str]:
    """Returns the launcher's command line in its Job."""
    (container,) = one(objects, "Job")["spec"]["template"]["spec"]["containers"]
    words: list[str] = container["args"]
    return words
