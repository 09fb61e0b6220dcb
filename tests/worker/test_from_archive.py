"""worker.zip, started as a pod starts it: by a Python with TensorFlow and nothing of the launcher's, from a
folder that cannot be written, and by a user without rights where this process is root.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from launcher import plan_of_file
from launcher.validation import loader
from tests.worker.cluster import ROOT
from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event, Record
from worker.contract.version import VERSION

NOBODY = 65532
CLUSTER = """\
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {name: small}
spec:
  strategy: OneDevice
  image: tensorflow/tensorflow:2.21.0
  program:
    source: ./fashion_mnist.py
    entrypoint: fashion_mnist:FashionMnist
    keras: 3
    parameters: {epochs: 2, stepsPerEpoch: 47, globalBatchSize: 64}
  modelDir: /model
"""
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))


class Pod:
    """A directory with the volumes of a run's pod, and an environment of Python that has all that this one
    has, but not the packages `without`, nor the launcher's.
    """

    def __init__(self, folder: Path, without: tuple[str, ...] = ()) -> None:
        self.folder = folder
        (folder / "cluster.yaml").write_text(CLUSTER)
        shutil.copy(ROOT / "examples" / "fashion-mnist" / "fashion_mnist.py", folder)
        (loaded,) = loader.load(str(folder / "cluster.yaml"))
        objects = plan_of_file.plan(loaded).objects
        maps = {item["metadata"]["name"]: item for item in objects if item["kind"] == "ConfigMap"}
        spec = objects[0]["spec"]["template"]["spec"]
        (self.container,) = spec["containers"]
        self.paths = {mount["mountPath"]: folder / mount["name"] for mount in self.container["volumeMounts"]}
        for volume in spec["volumes"]:
            there = folder / volume["name"]
            there.mkdir()
            if "configMap" in volume:
                self._write(there, volume["configMap"], maps[volume["configMap"]["name"]])
            else:
                there.chmod(0o777)
        self.python = self._environment(without)

    def _write(self, there: Path, volume: Mapping[str, Any], config_map: Mapping[str, Any]) -> None:
        data = {name: text.encode() for name, text in (config_map.get("data") or {}).items()}
        data |= {name: base64.b64decode(t) for name, t in (config_map.get("binaryData") or {}).items()}
        for item in volume.get("items") or [{"key": key, "path": key} for key in data]:
            (there / item["path"]).write_bytes(data[item["key"]])
            (there / item["path"]).chmod(0o444)
        there.chmod(0o555)

    def _environment(self, without: tuple[str, ...]) -> Path:
        packages = self.folder / "packages"
        packages.mkdir()
        for entry in SITE_PACKAGES.iterdir():
            if entry.suffix != ".pth" and entry.name.partition("-")[0] not in (
                "launcher",
                "worker",
                *without,
            ):
                (packages / entry.name).symlink_to(entry)
        made = self.folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True, timeout=60)
        (site,) = made.glob("lib/python*/site-packages")
        # What a .pth file names is a place for modules, whose own .pth files do not count.
        (site / "packages.pth").write_text(f"{packages}\n")
        return made / "bin" / "python3"

    def path(self, text: str) -> str:
        for mounted, there in self.paths.items():
            if text == mounted or text.startswith(f"{mounted}/"):
                return f"{there}{text[len(mounted) :]}"
        return text

    def change(self, **fields: Any) -> None:
        """Of the run's configuration."""
        config = self.paths["/etc/tf-launcher"] / "run.json"
        document = {**json.loads(config.read_text()), **fields}
        config.unlink()
        config.write_text(json.dumps(document))
        config.chmod(0o444)

    def run(self, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        command = [self.path(word) for word in self.container["command"]]
        assert command[0] == "python3"
        environment = {
            each["name"]: self.path(each.get("value", "0"))
            for each in self.container["env"]
            if "name" in each
        }
        environment |= {"HOME": "/", "PATH": os.defpath, "TMPDIR": self.path("/tmp"), **changes}
        self.change(model_dir=self.path("/model"))
        user = self._user()
        return subprocess.run(
            [str(self.python), *command[1:], *arguments],
            env=environment,
            cwd=self.paths["/tmp"],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )

    def _user(self) -> int | None:
        """One without rights, if this process may become it and it may read what is to be run."""
        if os.geteuid() != 0:
            return None
        try:
            done = subprocess.run([self.python, "-c", ""], check=False, timeout=60, user=NOBODY, group=NOBODY)
        except PermissionError:
            return None
        return NOBODY if done.returncode == 0 else None


def records(done: subprocess.CompletedProcess[str], event: str) -> list[Record]:
    parsed = [Record.parse(line) for line in done.stdout.splitlines()]
    return [record for record in parsed if record is not None and record.event == event]


def test_it_trains_where_there_is_tensorflow_and_nothing_else(tmp_path: Path) -> None:
    """Neither TensorBoard nor tf_keras, which TensorFlow 2.21 does not bring along."""
    pod = Pod(tmp_path, without=("tensorboard", "tf_keras"))
    names = ("launcher", "worker", "tensorboard", "tf_keras")
    absent = f"import importlib.util as u; print([n for n in {names} if u.find_spec(n)])"
    lookup = subprocess.run(
        [pod.python, "-c", absent], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert lookup.stdout.strip() == "[]"
    done = pod.run()
    assert done.returncode == ExitCode.DONE, done.stdout + done.stderr
    (devices,) = records(done, Event.DEVICES)
    assert devices.fields["runtime"] == f"{VERSION} that travels with the run"
    last = records(done, Event.PROGRESS)[-1]
    # Of real images: chance is 0.1.
    assert last.fields["metrics"]["accuracy"] > 0.6
    assert len(records(done, Event.EXPORTED)) == 1
    (notice,) = records(done, Event.NOTICE)
    assert "the image has no TensorBoard" in notice.fields["message"]
    # It runs from its own directory, and has left the archive's folder as it was.
    assert [path.name for path in pod.paths["/opt/tf-launcher/runtime"].iterdir()] == ["worker.zip"]
    assert (pod.paths["/var/run/tf-launcher"] / "runtime" / "worker" / "contract" / "version.py").exists()


@pytest.mark.parametrize(
    ("without", "message"),
    [
        (("tensorflow",), "has no TensorFlow: use an image that has it (spec.image, or the role's own)"),
        (("tf_keras",), "the image has no tf_keras: install it there"),
    ],
    ids=["tensorflow", "tf_keras"],
)
def test_what_the_image_lacks_is_one_message(without: tuple[str, ...], message: str, tmp_path: Path) -> None:
    pod = Pod(tmp_path, without)
    pod.change(keras=2)
    done = pod.run()
    assert done.returncode == ExitCode.PROGRAM_ERROR
    (failed,) = records(done, Event.FAILED)
    assert message in failed.fields["message"]
    assert failed.fields["traceback"] == ""
    assert "Traceback" not in done.stdout + done.stderr


def test_a_runtime_of_another_version_refuses_the_run(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    pod.change(version="0.0.9")
    done = pod.run()
    assert done.returncode == ExitCode.PROGRAM_ERROR
    (failed,) = records(done, Event.FAILED)
    assert failed.fields["message"].startswith(
        f"the image has the worker runtime of tf-launcher {VERSION}, and tf-launcher 0.0.9 has made "
    )
    assert "spec.runtime: Travels" in failed.fields["message"]


def test_a_worker_module_of_the_images_own_is_in_nobodys_way(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    (pod.paths["/tmp"] / "worker.py").write_text("raise SystemExit('the wrong one')\n")
    (pod.paths["/tmp"] / "own.py").write_text(
        "import worker, beside\nprint(worker.__file__, beside.__name__)\n"
    )
    (pod.paths["/tmp"] / "beside.py").write_text("")
    done = pod.run("--", "own.py")
    assert done.returncode == ExitCode.DONE, done.stdout + done.stderr
    assert f"{pod.paths['/var/run/tf-launcher']}/runtime/worker/__init__.py beside" in done.stdout


def test_a_script_that_python_runs_imports_it_from_the_archive(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    archive = pod.path("/opt/tf-launcher/runtime/worker.zip")
    task = pod.path("/var/run/tf-launcher")
    code = "import worker; from worker.data import FASHION_MNIST as f; print([p.name for p in f.iterdir()])"
    done = subprocess.run(
        [pod.python, "-c", code],
        env={"PYTHONPATH": archive, Env.TASK_DIR: task, "PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "train-images-idx3-ubyte.gz" in done.stdout


def test_too_old_a_python_says_so(tmp_path: Path) -> None:
    """One is made out of this one: what counts is what it says of itself."""
    old = "import sys; sys.version_info = (3, 8, 18, 'final', 0); sys.argv = sys.argv[1:]; import runpy\n"
    old += "runpy.run_path(sys.argv[0], run_name='__main__')"
    archive = Pod(tmp_path).path("/opt/tf-launcher/runtime/worker.zip")
    done = subprocess.run(
        [sys.executable, "-c", old, archive], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == ExitCode.PROGRAM_ERROR, done.stderr
    (failed,) = records(done, Event.FAILED)
    assert failed.fields["message"] == (
        "python3 of the image is Python 3.8, and the worker runtime needs 3.9 or newer"
    )
