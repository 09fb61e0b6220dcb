"""The built images are small, run confined, and do their work."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import launcher as launcher_package
from launcher import plan_of_file
from launcher.validation import loader
from tests.images.conftest import CONFINED, Image, docker
from tests.paths import ROOT
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event, Record

EXAMPLES = sorted(path.relative_to(ROOT / "examples") for path in ROOT.glob("examples/*/cluster*.yaml"))
CLUSTER = """\
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {name: small}
spec:
  strategy: OneDevice
  program:
    source: ./fashion_mnist.py
    entrypoint: fashion_mnist:FashionMnist
    parameters: {epochs: 2, stepsPerEpoch: 94, globalBatchSize: 64}
  modelDir: /model
"""
MB = 1_000_000
SIZES = {"launcher": 200 * MB, "worker": 1300 * MB}


@pytest.fixture(params=["launcher", "worker"])
def either(request: pytest.FixtureRequest) -> Image:
    chosen: Image = request.getfixturevalue(request.param)
    assert chosen.inspected["Size"] <= SIZES[request.param]
    return chosen


def test_it_is_small_and_says_what_it_is(either: Image) -> None:
    settings = either.inspected["Config"]
    assert settings["User"] == "65532:65532"
    labels = {
        name.removeprefix("org.opencontainers.image."): text for name, text in settings["Labels"].items()
    }
    assert labels["licenses"] == "Apache-2.0"
    assert labels["version"] == launcher_package.__version__
    assert {"title", "description", "revision"} <= labels.keys()


def test_all_of_our_code_is_compiled(either: Image) -> None:
    """It cannot be compiled later: the root file system is read-only."""
    code = """
import pathlib
sources = [path for path in pathlib.Path("/opt/tf-launcher/lib").rglob("*.py")]
print(len(sources), [str(p) for p in sources if not list(p.parent.glob(f"__pycache__/{p.stem}.*.pyc"))])
"""
    count, _, missing = either.python(code).partition(" ")
    assert int(count) > 3
    assert missing == "[]"


def test_its_user_has_a_name_and_a_home(either: Image) -> None:
    code = """
import getpass, os, tempfile
tempfile.TemporaryFile(dir=os.path.expanduser("~"))
print(getpass.getuser())
"""
    assert either.python(code) == "tf-launcher"


def test_the_worker_image_has_one_tensorflow_and_no_launcher(worker: Image) -> None:
    code = """
import importlib.metadata as metadata, importlib.util as util, json
names = {one.name.lower().replace("_", "-") for one in metadata.distributions()}
there = [name for name in ("launcher", "manifests", "kubernetes", "pytest") if util.find_spec(name)]
print(json.dumps([sorted(n for n in names if n.startswith("tensorflow")), there]))
"""
    tensorflows, there = json.loads(worker.python(code))
    assert len(tensorflows) == 1
    assert there == []


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_launcher_image_validates_and_renders(launcher: Image, example: Path) -> None:
    mounted = [f"--volume={ROOT / 'examples'}:/examples:ro"]
    valid = launcher.run("validate", f"/examples/{example}", options=mounted)
    assert valid.returncode == 0, valid.stderr
    rendered = launcher.run("render", f"/examples/{example}", options=mounted)
    assert rendered.returncode == 0, rendered.stderr
    (loaded,) = loader.load(str(ROOT / "examples" / example))
    expected = [(item["kind"], item["metadata"]["name"]) for item in plan_of_file.plan(loaded).objects]
    objects = [item for item in yaml.safe_load_all(rendered.stdout) if item]
    assert sorted((item["kind"], item["metadata"]["name"]) for item in objects) == sorted(expected)


def test_the_launcher_image_can_talk_to_a_cluster(launcher: Image, tmp_path: Path) -> None:
    """The Kubernetes client works in the image, up to the error that no cluster answers."""
    cluster = {"server": "https://127.0.0.1:9", "insecure-skip-tls-verify": True}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "none",
        "clusters": [{"name": "none", "cluster": cluster}],
        "users": [{"name": "none", "user": {"token": "none"}}],
        "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    }
    (tmp_path / "config").write_text(json.dumps(kubeconfig))
    (tmp_path / "config").chmod(0o644)
    tmp_path.chmod(0o755)
    options = [f"--volume={tmp_path}:/kube:ro", "--env=KUBECONFIG=/kube/config"]
    done = launcher.run("status", "nobody", "--backend", "kubernetes", options=options)
    assert done.returncode == 5, done.stderr
    assert "127.0.0.1" in done.stderr


class Pod:
    """The options of `docker run` for a container like a pod of the launcher's Job or Deployment."""

    def __init__(self, directory: Path, cluster: str, role: str) -> None:
        directory.chmod(0o755)
        (directory / "cluster.yaml").write_text(cluster)
        for program in ("fashion-mnist/fashion_mnist.py", "every-method/every_method.py"):
            shutil.copy(ROOT / "examples" / program, directory)
        (loaded,) = loader.load(str(directory / "cluster.yaml"))
        objects = plan_of_file.plan(loaded).objects
        (job,) = [
            item
            for item in objects
            if item["kind"] in ("Job", "Deployment") and item["metadata"]["name"].endswith(f"-{role}")
        ]
        maps = {
            item["metadata"]["name"]: {
                **{key: text.encode() for key, text in (item.get("data") or {}).items()},
                **{key: base64.b64decode(text) for key, text in (item.get("binaryData") or {}).items()},
            }
            for item in objects
            if item["kind"] == "ConfigMap"
        }
        spec = job["spec"]["template"]["spec"]
        (self.container,) = spec["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in self.container["volumeMounts"]}
        self.options = [
            f"--env={variable['name']}={value.replace('$(TASK_INDEX)', '0')}"
            for variable in self.container.get("env", ())
            for value in [variable.get("value", "0")]
        ]
        for volume in spec["volumes"]:
            path = mounts[volume["name"]]
            if "configMap" not in volume:
                self.options.append(f"--tmpfs={path}")
                continue
            self._write(directory / volume["name"], volume["configMap"], maps)
            self.options.append(f"--volume={directory / volume['name']}:{path}:ro")

    def _write(self, folder: Path, volume: dict[str, Any], maps: dict[str, dict[str, bytes]]) -> None:
        folder.mkdir(mode=0o755)
        data = maps[volume["name"]]
        items = volume.get("items") or [{"key": key, "path": key} for key in data]
        for item in items:
            (folder / item["path"]).write_bytes(data[item["key"]])


def trained(image: Image, pod: Pod) -> subprocess.CompletedProcess[str]:
    done = image.run(*pod.container["command"], options=pod.options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def records(output: str, event: str) -> list[Record]:
    parsed = [Record.parse(line) for line in output.splitlines()]
    return [record for record in parsed if record is not None and record.event == event]


@pytest.mark.parametrize(
    ("kind", "runtime"), [("worker", "of the image"), ("plain", "that travels with the run")]
)
def test_an_image_trains_without_network_rights_or_a_writable_root(
    kind: str, runtime: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    image: Image = request.getfixturevalue(kind)
    chosen = "Image" if kind == "worker" else "Travels"
    pod = Pod(tmp_path, f"{CLUSTER}  image: {image.name}\n  runtime: {chosen}\n", "chief")
    done = trained(image, pod)
    (devices,) = records(done.stdout, Event.DEVICES)
    assert devices.fields["runtime"] == f"{launcher_package.__version__} {runtime}"
    last = records(done.stdout, Event.PROGRESS)[-1]
    assert (last.fields["epoch"], last.fields["step"]) == (2, 94)
    assert last.fields["metrics"]["accuracy"] >= 0.70
    (exported,) = records(done.stdout, Event.EXPORTED)
    assert exported.fields["path"] == "/model/export/1"


def test_a_plain_image_trains_a_model_of_keras_3(plain: Image, tmp_path: Path) -> None:
    cluster = CLUSTER.replace("fashion_mnist", "every_method").replace("FashionMnist", "EveryMethod")
    pod = Pod(tmp_path, f"{cluster}  image: {plain.name}\n", "chief")
    done = trained(plain, pod)
    last = records(done.stdout, Event.PROGRESS)[-1]
    assert (last.fields["epoch"], last.fields["step"]) == (2, 94)
    assert last.fields["metrics"]["accuracy"] >= 0.70
    assert records(done.stdout, Event.EXPORTED)


def test_a_plain_image_has_nothing_of_ours(plain: Image) -> None:
    names = ("launcher", "worker", "manifests")
    code = f"import importlib.util as u; print([n for n in {names} if u.find_spec(n)])"
    done = plain.run("-c", code, options=["--entrypoint=python3"])
    assert done.stdout.strip() == "[]", done.stderr


def test_an_image_of_another_version_refuses_the_run(worker: Image, tmp_path: Path) -> None:
    pod = Pod(tmp_path, CLUSTER, "chief")
    config = tmp_path / "launcher-config" / "run.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "version": "0.0.9"}))
    done = worker.run(*pod.container["command"], options=pod.options)
    assert done.returncode == ExitCode.PROGRAM_ERROR
    (failed,) = records(done.stdout, Event.FAILED)
    assert "tf-launcher 0.0.9 has made the run" in failed.fields["message"]


def test_the_worker_image_has_tensorboard(worker: Image, tmp_path: Path) -> None:
    pod = Pod(tmp_path, f"{CLUSTER}  tensorboard: {{}}\n", "tensorboard")
    started = docker("run", "--detach", *CONFINED, *pod.options, worker.name, *pod.container["command"])
    assert started.returncode == 0, started.stderr
    container = started.stdout.strip()
    try:
        asked = (
            "import urllib.request as r; print(r.urlopen('http://127.0.0.1:6006/data/environment').read())"
        )
        deadline = time.monotonic() + 90
        while '"window_title": "small"' not in docker("exec", container, "python", "-c", asked).stdout:
            assert time.monotonic() < deadline, docker("logs", container).stderr
            time.sleep(1)
    finally:
        docker("rm", "--force", container)


def test_a_server_that_is_the_first_process_leaves_on_sigterm(worker: Image, tmp_path: Path) -> None:
    """Linux does not deliver SIGTERM to a first process without a handler."""
    cluster = CLUSTER.replace("OneDevice", "ParameterServer") + "  worker: {replicas: 1}\n  ps: {}\n"
    pod = Pod(tmp_path, cluster, "ps")
    started = docker("run", "--detach", *CONFINED, *pod.options, worker.name, *pod.container["command"])
    assert started.returncode == 0, started.stderr
    container = started.stdout.strip()
    try:
        listening = "import socket; socket.create_connection(('127.0.0.1', 2222), 5)"
        deadline = time.monotonic() + 90
        while docker("exec", container, "python", "-c", listening).returncode:
            assert time.monotonic() < deadline, docker("logs", container).stderr
            time.sleep(1)
        docker("stop", "--time=60", container)
        assert docker("inspect", "--format={{.State.ExitCode}}", container).stdout.strip() == "143"
    finally:
        docker("rm", "--force", container)
