"""The files that a task sees: its volumes at a pod's paths, and no claims of other pods."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.local.backend import LocalBackend
from launcher.backends.local.process import network_namespace
from launcher.status import Phase
from tests.local.machine import Machine, job, linux_only

WHY = network_namespace.forbidden()
pytestmark = [
    linux_only,
    pytest.mark.skipif(
        bool(network_namespace.forbidden()), reason=f"no namespaces: {network_namespace.forbidden()}"
    ),
]

CLAIM = {"persistentVolumeClaim": {"claimName": "model"}}
PLACE = "/model-of-a-test"


def claim(machine: Machine) -> Path:
    return machine.root / "volumes" / "default" / "model"


@pytest.mark.parametrize("allow_network", [False, True])
def test_a_path_in_a_programs_text_is_in_the_volume(machine: Machine, allow_network: bool) -> None:
    machine.backend = LocalBackend(machine.root, machine.settings, allow_network=allow_network)
    code = (
        f"import os; os.makedirs('{PLACE}/a'); open('{PLACE}/a/file', 'w').write('x')\n"
        "print(os.environ['AT'], os.path.samefile(os.environ['AT'], '" + PLACE + "'))\n"
        "print(os.getcwd()); open('here', 'w').close()"
    )
    env = [{"name": "AT", "value": PLACE}]
    status = machine.run(job("chief", code, primary=True, env=env, mounts={PLACE: CLAIM}, backoffLimit=0))
    assert status.phase is Phase.SUCCEEDED, machine.texts()
    assert (claim(machine) / "a" / "file").read_text() == "x"
    work = machine.directory().pod("demo-chief-0") / "work"
    assert machine.texts() == [f"{claim(machine)} True", str(work)]
    assert (work / "here").exists()
    assert not Path(PLACE).exists()


def test_volumes_below_what_is_there_and_what_is_not(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").touch()
    mounts: dict[str, Any] = {
        f"{PLACE}/deep/model": CLAIM,
        f"{PLACE}/data": {"hostPath": {"path": str(tmp_path / "data")}},
        "/var/lib/of-a-test/cache": {"emptyDir": {}},
        "/mnt": {"emptyDir": {}},
    }
    code = (
        f"import os; print(sorted(os.listdir('{PLACE}')), os.listdir('{PLACE}/data'), os.listdir('/mnt'))\n"
        f"open('{PLACE}/deep/model/file', 'w').close(); open('/mnt/file', 'w').close()\n"
        "open('/var/lib/of-a-test/cache/file', 'w').close()\n"
        "print(os.path.isdir('/etc'), os.path.exists('/proc/self/status'), os.path.exists('/dev/null'))\n"
        f"for path in ('/new-of-a-test', '{PLACE}/new', '/var/lib/of-a-test/new'):\n"
        "    try: os.mkdir(path)\n"
        "    except OSError as error: print(error.strerror)"
    )
    status = machine.run(job("chief", code, primary=True, mounts=mounts, backoffLimit=0))
    assert status.phase is Phase.SUCCEEDED, machine.texts()
    first, second, *refused = machine.texts()
    assert first == "['data', 'deep'] ['x'] []"
    assert second == "True True True"
    assert refused == ["Read-only file system"] * 3
    assert [path.name for path in claim(machine).iterdir()] == ["file"]
    assert not Path("/var/lib/of-a-test").exists()


LOOKS = (
    "import os, sys; path = {path!r}\n"
    "print(os.path.exists(path))\n"
    "try: open(path + '/file', 'w')\n"
    "except OSError as error: print(error.strerror)\n"
    "try: os.makedirs(path)\n"
    "except OSError as error: print(error.strerror)"
)


@pytest.mark.parametrize("reclaim", ["Retain", "Delete"])
def test_another_pods_claim_is_not_there(machine: Machine, reclaim: str) -> None:
    """For instance, the chief's model directory is not in the pod of a ps, which cannot save for
    the chief.
    """
    annotations = {"tf-launcher.dev/reclaim-policy": reclaim}
    declared = {"kind": "PersistentVolumeClaim", "metadata": {"name": "model", "annotations": annotations}}
    path = str(machine.directory().claim("model"))
    status = machine.run(
        job("ps", LOOKS.format(path=path), primary=True, backoffLimit=0),
        job("chief", f"import os; os.mkdir('{PLACE}/x')", mounts={PLACE: CLAIM}),
        declared,
    )
    assert status.phase is Phase.SUCCEEDED
    assert machine.texts("ps") == ["False", "No such file or directory", "Read-only file system"]


@pytest.mark.thorough
def test_tensorflow_saves_there_as_little_as_on_a_cluster(machine: Machine) -> None:
    code = (
        "import tensorflow as tf\n"
        f"path = {str(claim(machine))!r} + '/checkpoints/ckpt'\n"
        "one = dict(tensor_names=['a'], shape_and_slices=[''], tensors=[tf.ones(1)])\n"
        "try: tf.raw_ops.SaveV2(prefix=path, **one)\n"
        "except tf.errors.OpError as error: print(type(error).__name__)"
    )
    machine.run(
        job("ps", code, primary=True, backoffLimit=0),
        job("chief", "import time; time.sleep(600)", mounts={PLACE: CLAIM}),
    )
    assert machine.texts("ps")[-1] == "NotFoundError"


@pytest.mark.parametrize("path", ["/", "/usr", "/etc", "/proc", "/dev", "/tmp", "/tmp/x", sys.prefix])
def test_what_a_task_cannot_do_without_stays(machine: Machine, path: str) -> None:
    status = machine.run(job("chief", "print('ran')", primary=True, mounts={path: {"emptyDir": {}}}))
    assert status.phase is Phase.SUCCEEDED, machine.texts()
    assert machine.texts() == ["ran"]
