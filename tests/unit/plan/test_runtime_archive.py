"""Which runtime a role's pods have, and the archive that travels with the run."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import subprocess
import sys
import zipfile
from typing import Any

import pytest

import launcher
from launcher import status
from launcher.plan import rendering, roles, runtime_archive, topology
from launcher.plan.program_files import ProgramFiles
from launcher.validation import loader
from tests.paths import ROOT
from worker.contract.environment import MODULES
from worker.contract.version import VERSION

VALID = ROOT / "tests" / "specs" / "valid"
CONFIG_MAP_BYTES = 1 << 20
WITH_IMAGES = ProgramFiles({"train.py": b"from worker.data import FASHION_MNIST\n"})


def objects(name: str, *overrides: str, program: ProgramFiles | None = None) -> list[dict[str, Any]]:
    (loaded,) = loader.load(str(VALID / f"{name}.yaml"), list(overrides))
    return rendering.render(topology.build(loaded.cluster), program)


def containers(rendered: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the containers by role."""
    return {
        item["metadata"]["labels"]["tf-launcher.dev/role"]: item["spec"]["template"]["spec"]["containers"][0]
        for item in rendered
        if item["kind"] == "Job"
    }


def archive(rendered: list[dict[str, Any]]) -> bytes | None:
    maps = [item for item in rendered if item["metadata"]["name"].endswith("-runtime")]
    return base64.b64decode(maps[0]["binaryData"]["worker.zip"]) if maps else None


def names(content: bytes) -> set[str]:
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        assert opened.namelist() == ["__main__.py", MODULES]
        with zipfile.ZipFile(io.BytesIO(opened.read(MODULES))) as modules:
            return set(modules.namelist())


def test_launcher_and_runtime_are_of_one_version() -> None:
    assert launcher.__version__ == VERSION


@pytest.mark.parametrize(
    ("image", "is_ours"),
    [
        ("tf-launcher-worker", True),
        ("tf-launcher-worker:dev", True),
        ("registry.example.com:5000/team/tf-launcher-worker:1.0-gpu", True),
        ("tf-launcher-worker@sha256:0123", True),
        ("registry.example.com/tf-launcher-worker:1@sha256:0123", True),
        ("tensorflow/tensorflow:2.21.0", False),
        ("tf-launcher-worker/trainer:1", False),
        ("my-tf-launcher-worker:dev", False),
        ("localhost:5000/trainer", False),
    ],
)
def test_an_image_is_known_by_the_last_part_of_its_name(image: str, is_ours: bool) -> None:
    assert roles.is_own_image(image) is is_ours


def test_each_role_has_the_runtime_that_its_image_needs() -> None:
    containers_by_role = containers(rendered := objects("runtime-that-travels"))
    travelling = ["python3", "/opt/tf-launcher/runtime/worker.zip"]
    assert {role: container["command"] for role, container in containers_by_role.items()} == {
        "chief": travelling,
        "worker": travelling,
        "ps": travelling,
        "evaluator": ["python", "-m", "worker"],
    }
    mounted = {
        role: [mount for mount in container["volumeMounts"] if mount["name"] == "launcher-runtime"]
        for role, container in containers_by_role.items()
    }
    there = {"name": "launcher-runtime", "mountPath": "/opt/tf-launcher/runtime", "readOnly": True}
    assert mounted == {"chief": [there], "worker": [there], "ps": [there], "evaluator": []}
    assert archive(rendered) == runtime_archive.packed(None)


@pytest.mark.parametrize("runtime", ["Travels", "Image"])
def test_the_file_decides_where_it_says_so(runtime: str) -> None:
    rendered = objects("runtime-that-travels", f"spec.runtime={runtime}")
    commands = {container["command"][0] for container in containers(rendered).values()}
    assert commands == {"python3" if runtime == "Travels" else "python"}
    assert (archive(rendered) is not None) == (runtime == "Travels")


def test_an_image_in_a_pod_template_counts() -> None:
    own_image = (
        "spec.worker.podTemplate={spec: {containers: [{name: tensorflow, image: x/tf-launcher-worker:1}]}}"
    )
    containers_by_role = containers(objects("runtime-that-travels", own_image))
    assert (containers_by_role["worker"]["command"][0], containers_by_role["ps"]["command"][0]) == (
        "python",
        "python3",
    )


def module_path(container: dict[str, Any]) -> list[str]:
    return [each["value"] for each in container["env"] if each["name"] == "PYTHONPATH"]


@pytest.mark.parametrize(
    ("script", "imports_runtime"),
    [
        (b"import worker\n\nworker.release()\n", True),
        (b"def main():\n    from worker import release\n", True),
        (b"import workers\n# import worker\n", False),
        (b"import tensorflow as tf\n", False),
    ],
)
def test_a_script_finds_the_runtime_that_it_imports(script: bytes, imports_runtime: bool) -> None:
    """Any other script keeps the PYTHONPATH of its image."""
    source = "spec.program={source: ./train.py}"
    overrides = ("spec.runtime=null", source, "spec.chief.command=[python, t.py]")
    program = ProgramFiles({"train.py": script})
    container = containers(objects("script-with-the-runtime-beside-it", *overrides, program=program))["chief"]
    assert container["command"] == ["python", "t.py"]
    assert module_path(container) == (["/opt/tf-launcher/runtime/worker.zip"] if imports_runtime else [])
    given = ("spec.chief.env=[{name: PYTHONPATH, value: /mine}]",)
    rendered = objects("script-with-the-runtime-beside-it", *overrides, *given, program=program)
    assert module_path(containers(rendered)["chief"]) == ["/mine"]


def test_its_tasks_leave_by_themselves() -> None:
    """They get the time for it at the run's end, as tasks with the image's runtime do."""
    for name in ("runtime-that-travels", "runtime-of-the-image"):
        assert all(status.leaves(item) for item in objects(name) if item["kind"] == "Job")
    jobs = [item for item in objects("script-with-the-runtime-beside-it") if item["kind"] == "Job"]
    assert [status.leaves(job) for job in jobs] == [False, True, True]


def test_an_image_that_runs_as_it_is_has_none() -> None:
    assert archive(objects("custom-any-image")) is None
    assert archive(objects("tfjob-one-worker")) is None


def test_all_of_the_runtime_travels_and_fits() -> None:
    there = {f"worker/{path.relative_to(ROOT / 'worker')}" for path in (ROOT / "worker").rglob("*.py")}
    assert names(runtime_archive.packed(None)) == there
    folder = ROOT / "worker" / "data" / "fashion-mnist"
    images = {f"worker/data/fashion-mnist/{path.name}" for path in folder.iterdir()}
    assert names(runtime_archive.packed(WITH_IMAGES)) == there | images
    size = re.search(r"archive of (\d+) KB", (ROOT / "docs" / "design.md").read_text())
    assert size is not None
    assert len(runtime_archive.packed(None)) == pytest.approx(1000 * int(size[1]), rel=0.05)
    # The rest is reserved for growth; of the whole, 550 KiB are the images.
    assert len(runtime_archive.packed(WITH_IMAGES)) < 0.9 * CONFIG_MAP_BYTES


def test_the_same_runtime_is_the_same_archive() -> None:
    content = runtime_archive.packed(None)
    code = (
        "import hashlib; from launcher.plan import runtime_archive as r;"
        "print(hashlib.sha256(r.packed(None)).hexdigest())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.strip() == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    "source",
    [
        b"import worker.data\n",
        b"from worker.data import fashion_mnist\n",
        b"from worker import data\n",
        b"    from worker import alive, data as d\n",
    ],
)
def test_the_images_go_with_the_programs_that_import_them(source: bytes) -> None:
    with_images = runtime_archive.packed(ProgramFiles({"a/b.py": source}))
    assert any(name.endswith(".gz") for name in names(with_images))
    for other in (ProgramFiles({"notes.txt": source}), ProgramFiles({"a.py": b"import worker.database\n"})):
        assert not any(name.endswith(".gz") for name in names(runtime_archive.packed(other)))


def test_what_init_writes_and_the_demo_have_their_images() -> None:
    for path in (ROOT / "launcher/init_template/train.py", ROOT / "examples/fashion-mnist/fashion_mnist.py"):
        program = ProgramFiles({path.name: path.read_bytes()})
        assert any(name.endswith(".gz") for name in names(runtime_archive.packed(program)))
