"""The Dockerfile and its locks agree with pyproject.toml."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import requires
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from launcher.plan.roles import DEFAULT_IMAGE

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOCK = (ROOT / "requirements" / "lock.txt").read_text()
SMALL_LOCK = """\
# made by uv
above==1.0 \\
    --hash=sha256:aa
    # via tf-launcher (pyproject.toml)
below==2.0 ; python_full_version < '3.11' \\
    --hash=sha256:bb
    # via
    #   above
    #   beside
below==3.0 ; python_full_version >= '3.11' \\
    --hash=sha256:cc
    # via
    #   above
    #   beside
beside==1.0 \\
    --hash=sha256:dd
    # via tf-launcher (pyproject.toml:dev)
deepest==0.1 \\
    --hash=sha256:ee
    # via below
other==0.2 \\
    --hash=sha256:ff
    # via
    #   -c requirements/lock.txt
    #   beside
"""


@pytest.fixture(scope="module")
def select() -> ModuleType:
    specification = importlib.util.spec_from_file_location("select_", ROOT / "requirements" / "select.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def names(lock: str) -> list[str]:
    return re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE)


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (["above"], ["above", "below", "below", "deepest"]),
        (["below"], ["below", "below", "deepest"]),
        (["other"], ["other"]),
        (["beside"], ["below", "below", "beside", "deepest", "other"]),
        (["beside", "-below"], ["beside", "other"]),
        (["beside", "-other"], ["below", "below", "beside", "deepest"]),
    ],
)
def test_select_takes_what_is_needed_and_nothing_else(
    select: ModuleType, wanted: list[str], chosen: list[str]
) -> None:
    selected = select.select(SMALL_LOCK, wanted)
    assert names(selected) == chosen
    assert selected.count("--hash") == len(chosen)


@pytest.mark.parametrize("wanted", [["above", "missing"], ["above", "-missing"]])
def test_select_refuses_what_the_lock_does_not_have(select: ModuleType, wanted: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^not in the lock: missing$"):
        select.select(SMALL_LOCK, wanted)


def selections() -> list[list[str]]:
    """Returns the packages of each image, the launcher's first."""
    return [packages.split() for packages in re.findall(r"select\.py /build/lock\.txt ([^>\\]+)", DOCKERFILE)]


def required(extra: str) -> set[str]:
    lines = [Requirement(line) for line in requires("tf-launcher") or []]
    return {
        one.name.lower().replace("_", "-")
        for one in lines
        if (one.marker is None) == (extra == "")
        and (one.marker is None or one.marker.evaluate({"extra": extra}))
    }


def test_the_images_hold_what_the_project_requires() -> None:
    launcher, worker = selections()
    assert {name for name in launcher if not name.startswith("-")} == required("") | required("controller")
    # tensorflow-cpu replaces tensorflow where it exists.
    assert set(worker) == required("worker") | {"tensorflow-cpu"}


def test_a_selection_of_the_real_lock(select: ModuleType) -> None:
    launcher, worker = (set(names(select.select(LOCK, wanted))) for wanted in selections())
    assert {"pydantic-core", "markupsafe", "urllib3", "aiohttp"} <= launcher
    assert {"numpy", "grpcio", "protobuf", "h5py"} <= worker
    assert not (launcher | worker) & {"pytest", "mypy", "ruff", "hatchling", "aiohttp-retry"}
    assert not launcher & {"numpy", "tensorflow", "tensorflow-cpu"}
    assert not worker & {"kubernetes", "pydantic"}


def test_the_gpu_lock_differs_from_the_other_in_nothing_but_cuda() -> None:
    gpu = (ROOT / "requirements" / "gpu.txt").read_text()
    pins = set(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", gpu, re.MULTILINE))
    locked = set(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", LOCK, re.MULTILINE))
    assert all(name.startswith("nvidia-") for name, _ in pins - locked)
    assert {"tensorflow", "tf-keras", "tensorboard", "nvidia-cudnn-cu12"} <= {name for name, _ in pins}
    assert "tensorflow-cpu" not in {name for name, _ in pins}


def test_make_builds_the_image_that_a_run_asks_for() -> None:
    assert f"--tag {DEFAULT_IMAGE.replace(':dev', ':$(TAG)')} ." in (ROOT / "Makefile").read_text()


def test_what_is_not_in_the_lock_is_pinned_here() -> None:
    """A build argument can change each of these versions."""
    base = re.search(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert base is not None
    assert re.fullmatch(r"python:3\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base[1])
    assert set(re.findall(r"^FROM (\S*[:$]\S*)", DOCKERFILE, re.MULTILINE)) == {
        "${BASE}",
        "worker-${VARIANT}-packages",
    }
    installed = re.findall(r"apt-get install (?:--\S+ )*(.*?) &&", DOCKERFILE)
    assert installed == ['"${BINUTILS}"']
    assert re.search(r"^ARG BINUTILS=binutils=\S+$", DOCKERFILE, re.MULTILINE)
