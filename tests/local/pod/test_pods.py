"""The environment of a pod's process: the cluster's variables, addresses and paths, as they are on this
machine.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.base import Plan
from launcher.backends.local.process import mount_namespace
from launcher.errors import NotFoundError
from launcher.object_names import RECLAIM_ANNOTATION, SPEC_ANNOTATION
from launcher.status import Phase
from tests.local.machine import Machine, job
from worker.contract.task_names import pod_name, task_file

REPORT = (
    "import json, os, sys; print(json.dumps({'env': dict(os.environ), 'cwd': os.getcwd(), 'argv': sys.argv}))"
)
CONFIG = "/etc/tf-launcher"
TASK = "/var/run/tf-launcher"


def config_map(name: str, data: Mapping[str, str], **more: Any) -> dict[str, Any]:
    return {"kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data), **more}


def claim(name: str, reclaim: str = "Retain") -> dict[str, Any]:
    annotations = {RECLAIM_ANNOTATION: reclaim}
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "annotations": annotations}}


def report(machine: Machine, *objects: dict[str, Any], addresses: Sequence[str] = ()) -> dict[str, Any]:
    status = machine.run(*objects, addresses=addresses)
    assert status.phase is Phase.SUCCEEDED, machine.texts()
    printed: dict[str, Any] = json.loads(machine.texts("chief")[-1])
    return printed


def test_addresses_become_free_ports_of_this_machine(machine: Machine) -> None:
    names = ["demo-chief-0", *(f"demo-worker-{index}" for index in range(11))]
    addresses = [f"{name}.demo:2222" for name in names]
    sparse = '{"cluster":{"worker":{"$(TASK_INDEX)":"demo-worker-$(TASK_INDEX).demo:2222"}}}'
    env = [
        {"name": "SPARSE", "value": sparse},
        {"name": "ALL", "value": json.dumps(addresses)},
        {
            "name": "OTHER",
            "value": "demo-worker-1.demo:22222 x-demo-worker-1.demo:2222",
        },
    ]
    data = config_map("demo-config", {"cluster.json": json.dumps({"worker": addresses[1:]})})
    task_report = report(
        machine,
        job(
            "chief",
            f"print(open('{CONFIG}/cluster.json').read())\n{REPORT}",
            primary=True,
            env=env,
            mounts={CONFIG: {"configMap": {"name": "demo-config"}}},
        ),
        data,
        addresses=addresses,
    )
    local = json.loads(task_report["env"]["ALL"])
    assert len(set(local)) == 12
    assert all(address.startswith("127.0.0.1:") for address in local)
    assert json.loads(task_report["env"]["SPARSE"])["cluster"]["worker"] == {"0": local[1]}
    assert task_report["env"]["OTHER"] == env[2]["value"]
    assert json.loads(machine.texts("chief")[0])["worker"] == local[1:]


def test_paths_become_directories_of_this_machine(machine: Machine, tmp_path: Path) -> None:
    mounts: dict[str, Any] = {
        "/model": {"persistentVolumeClaim": {"claimName": "demo-model"}},
        TASK: {"emptyDir": {}},
        "/data": {"hostPath": {"path": str(tmp_path)}},
        CONFIG: {"configMap": {"name": "demo-config"}},
        "/tmp": {"emptyDir": {}},
    }
    env = [
        {"name": "EXPORT", "value": "/model/export"},
        {"name": "CONFIG_FILE", "value": f"{CONFIG}/run.json"},
        {"name": "TASK_DIR", "value": TASK},
        {"name": "SEARCH", "value": "/opt/a:/data/b:/models"},
        {"name": "URL", "value": "gs://bucket/model"},
        {"name": "SCRATCH", "value": "/tmp/x"},
    ]
    run_json = json.dumps({"model_dir": "/model", "note": "in /model", "data": ["/data/x", 1.0]})
    task_report = report(
        machine,
        job(
            "chief",
            f"print(open('{CONFIG}/run.json').read())\n{REPORT}",
            primary=True,
            env=env,
            mounts=mounts,
            container={"args": ["--logs=/model/logs", "/data", "$(TASK_INDEX)", "$$(TASK_INDEX)"]},
        ),
        config_map("demo-config", {"run.json": run_json}),
        claim("demo-model"),
    )
    variables = task_report["env"]
    model = str(machine.root / "volumes" / "default" / "demo-model")
    task = machine.directory().pod("demo-chief-0") / "volumes" / "volume-1"
    assert variables["EXPORT"] == f"{model}/export"
    assert variables["TASK_DIR"] == str(task)
    assert variables["SEARCH"] == f"/opt/a:{tmp_path}/b:/models"
    assert variables["URL"] == "gs://bucket/model"
    assert variables["SCRATCH"] == f"{variables['TMPDIR']}/x"
    assert task_report["argv"] == ["-c", f"--logs={model}/logs", str(tmp_path), "0", "$(TASK_INDEX)"]
    assert json.loads(machine.texts("chief")[0]) == {
        "model_dir": model,
        "note": "in /model",
        "data": [f"{tmp_path}/x", 1.0],
    }
    assert len(variables["TMPDIR"]) < 60, "room for a Unix socket's path"
    assert not Path(variables["TMPDIR"]).exists(), "removed with the run's end"


def test_temporary_files_go_with_the_run_where_no_volume_is_mounted(machine: Machine) -> None:
    """The files in a container's own /tmp are lost in the same way."""
    task_report = report(
        machine, job("chief", f"import tempfile; tempfile.mkstemp()\n{REPORT}", primary=True)
    )
    temporary = Path(task_report["env"]["TMPDIR"])
    assert temporary.parent.name.startswith("tf-launcher-")
    assert not temporary.exists()


def test_a_tasks_directory_is_found_from_a_peers(machine: Machine) -> None:
    """The chief writes the release to its own disk on this machine, so the path must be the peer's."""
    own_pod, peer = pod_name("demo", "chief", 0), pod_name("demo", "worker", 1)
    code = "import sys; sys.path.insert(0, '')\n"
    code += "from worker.contract.task_names import task_file; import os\n"
    code += f"print(task_file('released', os.environ['TASK_DIR'], {own_pod!r}, {peer!r}))"
    env = [{"name": "TASK_DIR", "value": TASK}]
    chief = job("chief", code, primary=True, env=env, mounts={TASK: {"emptyDir": {}}})
    worker = job(
        "worker",
        "import os; print(os.environ['TASK_DIR'])",
        replicas=2,
        env=env,
        mounts={TASK: {"emptyDir": {}}},
    )
    assert machine.run(chief, worker).phase is Phase.SUCCEEDED
    assert machine.texts("chief") == [machine.texts("worker")[1] + "/released"]
    assert task_file("released", TASK, own_pod, peer) == f"{TASK}/released", (
        "one path on a disk each, in Kubernetes"
    )


def test_the_environment_is_the_images_and_not_the_users(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "x")
    monkeypatch.setenv("LANG", "C.UTF-8")
    env: list[dict[str, Any]] = [
        {"name": "FIRST", "value": "a $(LATER) $$(FIRST)"},
        {"name": "LATER", "value": "$(FIRST)!"},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['tf-launcher.dev/role']"}}},
        {"name": "HOME", "value": "/home/of/the/user"},
    ]
    container = {"envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings"}}]}
    task_report = report(
        machine,
        job("chief", REPORT, primary=True, env=env, container=container),
        config_map("settings", {"x": "1"}),
    )
    variables = task_report["env"]
    assert "MY_SECRET" not in variables
    assert variables["LANG"] == "C.UTF-8"
    assert variables["FIRST"] == "a $(LATER) $(FIRST)"
    assert variables["LATER"] == "a $(LATER) $(FIRST)!"
    assert variables["NAME"] == "chief"
    assert variables["HOME"] == "/home/of/the/user"
    assert variables["P_x"] == "1"
    assert variables["HOSTNAME"] == "demo-chief-0"
    assert variables["JOB_COMPLETION_INDEX"] == variables["TASK_INDEX"] == "0"
    assert variables["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert task_report["cwd"] == str(machine.directory().pod("demo-chief-0") / "work")


def test_files_of_a_config_map(machine: Machine) -> None:
    source = config_map(
        "demo-source",
        {"file-0": "text = '/model'\r\n", "file-1": "x = 1\n"},
        binaryData={"file-2": "/wD+"},
    )
    items = [
        {"key": "file-0", "path": "main.py"},
        {"key": "file-1", "path": "package/inner.py"},
        {"key": "file-2", "path": "weights.bin"},
    ]
    code = (
        "import pathlib, os; root = pathlib.Path(os.environ['SOURCE'])\n"
        "files = [path for path in root.rglob('*') if path.is_file()]\n"
        "print(sorted((str(path.relative_to(root)), path.read_bytes().hex()) for path in files))"
    )
    machine.run(
        job(
            "chief",
            code,
            primary=True,
            env=[{"name": "SOURCE", "value": "/opt/source"}],
            mounts={
                "/opt/source": {"configMap": {"name": "demo-source", "items": items}},
                "/model": {"emptyDir": {}},
            },
        ),
        source,
    )
    assert machine.texts() == [
        str(
            [
                ("main.py", b"text = '/model'\r\n".hex()),
                ("package/inner.py", b"x = 1\n".hex()),
                ("weights.bin", "ff00fe"),
            ]
        )
    ]


def test_an_empty_dir_is_empty_again_after_a_restart(machine: Machine) -> None:
    code = (
        "import os, pathlib, sys\n"
        "here, kept = (pathlib.Path(os.environ[name]) for name in ('TASK_DIR', 'KEPT'))\n"
        "print(os.listdir(here), os.listdir(kept), os.listdir('.'))\n"
        "(here / 'released').touch(); open('here', 'w').close()\n"
        "if not (kept / 'x').exists(): (kept / 'x').touch(); sys.exit(1)"
    )
    env = [{"name": "TASK_DIR", "value": TASK}, {"name": "KEPT", "value": "/kept"}]
    mounts: dict[str, Any] = {TASK: {"emptyDir": {}}, "/kept": {"persistentVolumeClaim": {"claimName": "c"}}}
    machine.run(job("chief", code, primary=True, env=env, mounts=mounts), claim("c"))
    assert machine.texts() == ["[] [] []", "[] ['x'] []"]


@pytest.mark.parametrize(("policy", "kept"), [("Retain", True), ("Delete", False)])
def test_a_claim_stays_or_goes_with_its_run(machine: Machine, policy: str, kept: bool) -> None:
    write = "import os; open(os.environ['FILE'], 'a').write('x'); print(open(os.environ['FILE']).read())"
    chief = job(
        "chief",
        write,
        primary=True,
        env=[{"name": "FILE", "value": "/model/file"}],
        mounts={"/model": {"persistentVolumeClaim": {"claimName": "demo-model"}}},
    )
    for _ in range(2):
        machine.run(chief, claim("demo-model", reclaim=policy))
        last = machine.texts()
        machine.backend.delete("demo", "default")
    assert last == ["xx" if kept else "x"]
    assert (machine.root / "volumes" / "default" / "demo-model" / "file").exists() == kept


@pytest.mark.parametrize("policies", [("Delete", "Delete"), ("Delete", "Retain"), ("Retain", "Delete")])
def test_a_run_that_is_submitted_again_finds_its_claim(machine: Machine, policies: tuple[str, str]) -> None:
    """This holds for every policy, also a former one: an interrupted run resumes from the claim."""
    write = "open('/model/file', 'a').write('x'); print(open('/model/file').read())"
    volume = {"/model": {"persistentVolumeClaim": {"claimName": "demo-model"}}}
    for policy in policies:
        machine.run(job("chief", write, primary=True, mounts=volume), claim("demo-model", reclaim=policy))
    assert machine.texts() == ["xx"]


def test_a_finished_run_that_is_submitted_again_says_what_becomes_of_its_model(machine: Machine) -> None:
    def chief(code: int, **spec: Any) -> dict[str, Any]:
        chief_job = job("chief", f"raise SystemExit({code})", primary=True, backoffLimit=0)
        chief_job["metadata"]["annotations"][SPEC_ANNOTATION] = json.dumps({"spec": spec})
        return chief_job

    trains: dict[str, Any] = {"program": {"entrypoint": "a:B"}, "modelDir": "/model"}
    expected = (
        "run demo has succeeded before; it trains anew, from epoch 1: its export stays, and the new one gets "
        "the next number beside it; its checkpoints are replaced"
    )

    def told(code: int, **spec: Any) -> bool:
        message = machine.submit(chief(code, **spec))
        machine.end()
        return expected in message.splitlines()

    assert not told(1, **trains)
    assert not told(0, **trains), "the one before has failed: this one resumes"
    assert not told(0, **trains, mode="Evaluate")
    assert not told(0, **trains), "the one before has trained nothing"
    assert told(0, **trains)
    assert not told(0, program={"entrypoint": "a:B"}), "which keeps no model"


def test_a_claim_outlives_the_time_to_live_of_its_run(machine: Machine) -> None:
    volume = {"/model": {"persistentVolumeClaim": {"claimName": "demo-model"}}}
    fails = job(
        "chief",
        "open('/model/file', 'w').close(); raise SystemExit(1)",
        primary=True,
        mounts=volume,
        backoffLimit=0,
        ttlSecondsAfterFinished=0,
    )
    machine.run(fails, claim("demo-model", reclaim="Delete"))
    assert machine.backend.runs() == []
    left = machine.root / "volumes" / "default" / "demo-model"
    assert [path.name for path in left.iterdir()] == ["file"]
    with pytest.raises(NotFoundError) as refused:
        machine.backend.delete("demo", "default")
    assert str(left) in refused.value.hint


def test_delete_says_what_goes_and_what_stays(machine: Machine) -> None:
    volume = {"/model": {"persistentVolumeClaim": {"claimName": "demo-model"}}}
    chief = job("chief", "open('/model/file', 'w').close()", primary=True, mounts=volume)
    left = machine.root / "volumes" / "default" / "demo-model"
    machine.run(chief, claim("demo-model"))
    assert machine.backend.claims_to_delete("demo", "default") == []
    assert machine.backend.delete("demo", "default") == f"what it has trained stays, in {left}"
    machine.run(chief, claim("demo-model", reclaim="Delete"))
    assert machine.backend.claims_to_delete("demo", "default") == [str(left)]
    assert machine.backend.delete("demo", "default") == ""
    assert not left.exists()


def test_the_worker_package_is_found_from_any_directory(machine: Machine, tmp_path: Path) -> None:
    chief = job(
        "chief",
        "from worker.contract.environment import PORT; print(PORT)",
        primary=True,
        container={"workingDir": str(tmp_path)},
    )
    machine.run(chief)
    assert machine.texts() == ["2222"]


def test_where_the_model_is(machine: Machine) -> None:
    from worker.contract.run_config import RunConfig

    config = RunConfig(
        run="demo",
        strategy="OneDevice",
        model_dir="/model/a",
        replicas={"chief": 1},
        starting_deadline_seconds=1,
        stall_seconds=1,
        chief_lost_seconds=1,
    )
    chief = job(
        "chief", "pass", primary=True, mounts={"/model": {"persistentVolumeClaim": {"claimName": "c"}}}
    )
    machine.backend.submit(
        Plan("demo", "default", [chief, config_map("demo-config", {"run.json": config.to_json()})], []),
        detach=True,
    )
    machine.end()
    places = machine.backend.places("demo", "default")
    assert places["model directory"] == str(machine.root / "volumes" / "default" / "c" / "a")


@pytest.mark.skipif(not mount_namespace.possible(), reason="this machine gives no mount namespaces")
@pytest.mark.parametrize(
    ("name", "mount"),
    [("launcher-source", {"readOnly": True}), ("files", {}), ("data", {"readOnly": True})],
)
def test_what_a_pod_mounts_to_be_read_cannot_be_written(machine: Machine, name: str, mount: Any) -> None:
    """It is the same on a cluster: a script fails that writes beside itself."""
    code = (
        "import errno, os\n"
        "try:\n    open(os.path.join(os.environ['PLACE'], 'new'), 'w')\n"
        "except OSError as error:\n    print(errno.errorcode[error.errno])\n"
    )
    chief = job("chief", code, primary=True)
    pod = chief["spec"]["template"]["spec"]
    claim = {"persistentVolumeClaim": {"claimName": "claim"}}
    pod["volumes"] = [{"name": name, **(claim if name == "data" else {"configMap": {"name": "files"}})}]
    container = pod["containers"][0]
    container["volumeMounts"] = [{"name": name, "mountPath": "/opt/place", **mount}]
    container["env"] = [{"name": "PLACE", "value": "/opt/place"}]
    machine.run(chief, {"kind": "ConfigMap", "metadata": {"name": "files"}, "data": {"key": "text"}})
    assert machine.texts("chief") == ["EROFS"]
