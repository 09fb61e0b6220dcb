"""The wheel: what it holds, and that it works where nothing of this repository is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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
    """A directory with the wheel's content, as pip would lay it."""
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
    # The repository is on the path by its editable installation; the wheel must come first, and be what runs.
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
    assert kinds[0] == "Job"
    assert "Service" in kinds
    assert list(tmp_path.iterdir()) == []


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
