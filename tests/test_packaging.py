"""The wheel: its content, and that it works without this repository."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import launcher

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel's content, as pip would install it."""
    target = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def test_the_wheel_holds_every_file_of_its_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    packages = ("launcher", "worker", "manifests")
    there = {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == there
    assert {"manifests/job.yaml.j2", "worker/data/fashion-mnist/LICENSE"} <= held
    assert "worker/data/fashion-mnist/train-images-idx3-ubyte.gz" in held
    assert {f"{package}/py.typed" for package in packages} <= held


def test_the_wheel_says_what_it_is(installed: Path) -> None:
    (info,) = installed.glob("*.dist-info")
    metadata = (info / "METADATA").read_text()
    assert f"Version: {launcher.__version__}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert (info / "licenses" / "LICENSE").read_text().lstrip().startswith("Apache License")
    assert "tf-launcher = launcher.__main__:main" in (info / "entry_points.txt").read_text()


def test_the_wheel_renders_from_an_empty_directory(installed: Path, tmp_path: Path) -> None:
    # The editable installation puts the repository on the module path; the wheel must come first.
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    where = "import launcher as l, manifests as m, worker as w; print(l.__file__, m.__file__, w.__file__)"
    paths = subprocess.run(
        [sys.executable, "-c", where],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.split()
    assert all(path.startswith(str(installed)) for path in paths)
    done = subprocess.run(
        [sys.executable, "-m", "launcher", "render", "-"],
        input=(ROOT / "tests" / "specs" / "valid" / "parameter-server.yaml").read_text(),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kinds = [document["kind"] for document in yaml.safe_load_all(done.stdout)]
    assert {"Job", "Service"} <= set(kinds)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tf-launcher` in a virtual environment that has the wheel and what it requires, and nothing else: the
    versions are the lock's. Skips where no index has them.
    """
    place = tmp_path_factory.mktemp("environment")
    venv.create(place / "venv", with_pip=False)
    python = place / "venv" / "bin" / "python"
    lock = place / "launcher.txt"
    requirements = ROOT / "requirements"
    select = [sys.executable, str(requirements / "select.py"), str(requirements / "lock.txt")]
    chosen = subprocess.run([*select, *_launchers()], capture_output=True, text=True, timeout=60, check=True)
    lock.write_text(chosen.stdout)
    uv = str(Path(sys.executable).with_name("uv"))
    install = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--python",
        str(python),
    ]
    for what in (["--require-hashes", "-r", str(lock)], [str(wheel)]):
        done = subprocess.run([*install, *what], capture_output=True, text=True, timeout=240, check=False)
        if re.search("(?i)failed to fetch|dns error|connection refused", done.stderr):
            pytest.skip(f"no index answers: {done.stderr[-300:]}")
        assert done.returncode == 0, done.stderr
    return python.with_name("tf-launcher")


def _launchers() -> list[str]:
    """The distributions that the wheel requires, without those of its extra."""
    required = [Requirement(line) for line in requires("tf-launcher") or []]
    return [each.name.lower() for each in required if each.marker is None]


def test_the_wheel_runs_the_commands_of_the_readme(command: Path, tmp_path: Path) -> None:
    """All but those that start TensorFlow or talk to a cluster."""
    shown = subprocess.run(
        [command.with_name("python"), "-c", "import importlib.util as i; print(i.find_spec('tensorflow'))"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert shown.stdout == "None\n"
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for text in blocks for line in text.splitlines() if line.startswith("tf-launcher ")]
    assert "tf-launcher init first" in lines
    here = [line for line in lines if not re.match(r"tf-launcher (submit|delete) ", line)]
    others = ["tf-launcher help", "tf-launcher version", "tf-launcher list --backend local"]
    others += ["tf-launcher schema", "tf-launcher completion bash", "tf-launcher convert tfjob.yaml"]
    others += ["tf-launcher doctor --role", "tf-launcher render --as jobset first/cluster.yaml"]
    tfjob = ROOT / "tests" / "releases" / "files" / "tfjob.yaml"
    (tmp_path / "tfjob.yaml").write_text(tfjob.read_text())
    for line in [*here, *others]:
        done = run(command, line, tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        assert "Traceback" not in done.stderr
    assert run(command, "tf-launcher version", tmp_path).stdout == f"tf-launcher {launcher.__version__}\n"
    # The runtime travels out of the wheel, too.
    render = "tf-launcher render first/cluster.yaml --set spec.image=tensorflow/tensorflow:2.21.0"
    first = run(command, render, tmp_path).stdout
    (archive,) = (item for item in yaml.safe_load_all(first) if "binaryData" in item)
    assert archive["kind"] == "ConfigMap"


def test_the_wheel_says_what_a_run_on_this_machine_needs(command: Path, tmp_path: Path) -> None:
    assert run(command, "tf-launcher init first", tmp_path).returncode == 0
    done = run(command, "tf-launcher submit first/cluster.yaml --backend local", tmp_path)
    assert done.returncode == 1
    message = r"of this machine \(Python [0-9.]+\) has no TensorFlow: install tf-launcher\[worker\]"
    expected = rf"{command.parent}/python\S* {message}"
    assert re.search(f"chief +failed: {expected}", done.stdout), done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert run(command, "tf-launcher delete my-run --backend local", tmp_path).returncode == 0


def run(command: Path, line: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """One command line, as typed where the environment is active and nothing else is known."""
    _, *arguments = shlex.split(line)
    environment = {
        "PATH": f"{command.parent}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "HOME": str(directory),
        "XDG_STATE_HOME": str(directory / "state"),
    }
    return subprocess.run(
        [command, *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", ["lock.txt", "uv.txt", "gpu.txt"])
def test_a_lock_names_no_place_and_leaves_nothing_unhashed(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    assert "://" not in text
    code = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    assert {line.split()[0] for line in code if line.startswith("-")} == set()
    pins = re.findall(r"^\S+==\S+.*\n(?:    --hash=sha256:[0-9a-f]{64}.*\n)+", text, re.MULTILINE)
    assert len(pins) == sum(not line.startswith(" ") for line in code)


def test_the_lock_answers_every_requirement() -> None:
    text = (ROOT / "requirements" / "lock.txt").read_text()
    locked: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([a-z0-9-]+)==([^\s;]+)", text, re.MULTILINE):
        locked.setdefault(name, []).append(version)
    required = [Requirement(line) for line in requires("tf-launcher") or []]
    assert required
    for requirement in required:
        versions = locked.get(requirement.name.lower().replace("_", "-"), [])
        assert any(requirement.specifier.contains(version) for version in versions), (
            f"make lock: {requirement}"
        )
