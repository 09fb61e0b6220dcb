"""`cp` of a run on a cluster: a real API server accepts its pod, the pod's own program runs, and nothing
stays.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.backends import copied_files
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.model_files import copying
from launcher.backends.kubernetes.preflight import needed_rights
from launcher.cli import parser
from launcher.errors import BackendError, ConflictError, LauncherError
from tests.api.kubelet import STARTED, Kubelet, bind, node
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import RUN, plan
from tests.api.users import user

CONTENT = bytes(range(256)) * 20_000


def copy_pods(api: Api, namespace: str) -> list[dict[str, Any]]:
    return [pod for pod in api.list("Pod", namespace) if "tf-launcher.dev/copy" in pod["metadata"]["labels"]]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def set_phase(api: Api, pod: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
    metadata = pod["metadata"]
    path = f"api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    current_pod = api.request("GET", path).body
    container = {
        "name": "copy",
        "image": "i",
        "imageID": "i",
        "ready": True,
        "restartCount": 0,
        "state": state,
    }
    current_pod["status"] |= {"phase": phase, "containerStatuses": [container]}
    assert api.request("PUT", f"{path}/status", current_pod).status == 200


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The files that the run has left on its claim."""
    path = tmp_path / "claim"
    (path / "export" / "variables").mkdir(parents=True)
    (path / "export" / "saved_model.pb").write_bytes(CONTENT)
    (path / "export" / "variables" / "index").write_text("x")
    (path / "export" / "out").symlink_to("/etc/passwd")
    return path


@contextmanager
def cluster(
    api: Api, kubelet: Kubelet, directory: Path, model: Path, broken: Callable[[bytes], bytes] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Runs the program of each pod that copies, as a node would, but with the claim's folder as its mount,
    and on a port of this machine. `broken` changes what the program sends.
    """
    port, name = free_port(), f"node-{kubelet.namespace}"
    seen: list[dict[str, Any]] = []
    over = threading.Event()

    def play() -> None:
        while not over.wait(0.05):
            for pod in copy_pods(api, kubelet.namespace):
                if pod["metadata"]["uid"] not in [each["metadata"]["uid"] for each in seen]:
                    seen.append(pod)
                    bind(api, pod, name)
                    program, root, path, _, idle = pod["spec"]["containers"][0]["command"][2:]
                    assert root == "/model"
                    set_phase(api, pod, "Running", {"running": {"startedAt": STARTED}})
                    if broken is None:
                        given = [program, str(model), path, str(port), idle]
                        subprocess.run([sys.executable, "-c", *given], timeout=60, check=True)
                    else:
                        send(port, broken)
                    kubelet_done(api, pod)

    with node(api, directory, name, forwards=port):
        thread = threading.Thread(target=play)
        thread.start()
        try:
            yield seen
        finally:
            over.set()
            thread.join(60)


def kubelet_done(api: Api, pod: dict[str, Any]) -> None:
    """Ends the pod, as a kubelet does once it is deleted."""
    metadata = pod["metadata"]
    path = f"api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

    def deleted() -> bool:
        answer = api.request("GET", path)
        return answer.status == 404 or "deletionTimestamp" in answer.body["metadata"]

    assert wait_for(deleted)
    api.request("DELETE", path, gracePeriodSeconds="0")


def send(port: int, broken: Callable[[bytes], bytes]) -> None:
    """Serves changed bytes on the port."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w|") as tar:
        whole = tarfile.TarInfo("content/saved_model.pb")
        whole.size = len(CONTENT)
        tar.addfile(folder())
        tar.addfile(whole, io.BytesIO(CONTENT))
        tar.addfile(tarfile.TarInfo("complete"))
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(60)
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as request:
                if request.readline():
                    connection.sendall(broken(content.getvalue()))
                    return


def test_from_the_claim(
    api: Api,
    backend: KubernetesBackend,
    kubelet: Kubelet,
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Runs the command with the least rights, in a namespace that enforces "restricted"."""
    space = kubelet.namespace
    backend.submit(plan(tmp_path, space), detach=True)
    kubeconfig = user(api, space, needed_rights.rules(["cp"]), tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with cluster(api, kubelet, tmp_path, model) as seen:
        assert parser.main(["cp", f"{RUN}:export", "./model", "-n", space]) == 0
        assert capsys.readouterr().out == "copied to model\n"
        written = {str(path.relative_to("model")) for path in Path("model").rglob("*")}
        assert written == {"saved_model.pb", "variables", "variables/index"}
        assert Path("model/saved_model.pb").read_bytes() == CONTENT
        assert wait_for(lambda: not copy_pods(api, space)), "the pod is removed"

        assert parser.main(["cp", f"{RUN}:export/saved_model.pb", "one.pb", "-n", space]) == 0
        assert Path("one.pb").read_bytes() == CONTENT
        capsys.readouterr()
        assert parser.main(["cp", f"{RUN}:exprot", "two", "-n", space]) == 4
        message = "error: the run's model directory has no exprot\nThere is: export.\n"
        assert capsys.readouterr().err == message
        assert parser.main(["cp", f"{RUN}:export", "one.pb", "-n", space]) == 4
        assert "one.pb is there already" in capsys.readouterr().err
        assert wait_for(lambda: not copy_pods(api, space))
    assert not Path("two").exists()
    assert len(seen) == 3, "where the target is there no pod is made"
    pod = seen[0]
    spec = pod["spec"]
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["readOnly"] for mount in container["volumeMounts"]] == [True]
    assert spec["volumes"] == [
        {"name": "launcher-model", "persistentVolumeClaim": {"claimName": f"{RUN}-model"}}
    ]
    assert spec["activeDeadlineSeconds"] == 3600
    assert [owner["name"] for owner in pod["metadata"]["ownerReferences"]] == [f"{RUN}-chief"]
    assert "tf-launcher.dev/run" not in pod["metadata"]["labels"], "it is none of the run's"


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "cut off in a file": lambda tar: b'{"found": "folder"}\n' + tar[:100_000],
    "cut off between files": lambda tar: b'{"found": "folder"}\n' + tar[:512],
    "without its last member": lambda tar: b'{"found": "folder"}\n' + tar.replace(b"complete", b"content/"),
    "a path that leads out": lambda tar: b'{"found": "folder"}\n' + outside("content/../../../evil"),
    "an absolute path": lambda tar: b'{"found": "folder"}\n' + outside("/tmp/evil"),
    "no tar": lambda _: b'{"found": "folder"}\n' + b"x" * 10_000,
    "no answer": lambda _: b"hello\n",
    "nothing": lambda _: b'{"found": "folder"}\n',
}


MEMBERS: dict[str, dict[str, Any]] = {
    "a link": {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
    "a hard link": {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"},
    "a hard link within": {"type": tarfile.LNKTYPE, "linkname": "content"},
    "a device": {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3},
    "a disk": {"type": tarfile.BLKTYPE, "devmajor": 8, "devminor": 0},
    "a pipe": {"type": tarfile.FIFOTYPE},
    "another kind": {"type": b"Z"},
    "a file that sets the user": {"mode": 0o6777, "uid": 0},
    "an odd time": {"mtime": -(10**12)},
}
NAMES = ["content/a\nb", "content/\x1b[2J", "content//a", "content/./a", "content/" + "a" * 300, "content"]
NAMES += [
    "content/a/b/c",
    "content/" + "d/" * 3000,
    "/content/a",
    "../content/a",
    "",
    ".",
    "..",
    "content/..",
]
NAMES += ["content/\udcff", "other", "complete/a", "content\\..\\..\\a", "content/" + "a/../" * 9 + "b"]


@pytest.mark.parametrize("member", MEMBERS)
def test_only_files_and_folders_are_unpacked(tmp_path: Path, member: str) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w|") as tar:
        odd = tarfile.TarInfo("content/odd")
        for name, value in MEMBERS[member].items():
            setattr(odd, name, value)
        for each in (folder(), odd, tarfile.TarInfo("complete")):
            tar.addfile(each)
    content.seek(0)
    copying.unpack(content, tmp_path / "model")
    for path in (tmp_path / "model").iterdir():
        assert stat.S_ISREG(path.lstat().st_mode)
        assert path.lstat().st_nlink == 1
        assert not path.lstat().st_mode & 0o7000


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_nothing_is_unpacked_elsewhere(tmp_path: Path, name: str) -> None:
    target = tmp_path / "in" / "model"
    target.parent.mkdir()
    # As `_receive` calls it, which turns all else into one message.
    with (
        contextlib.suppress(LauncherError),
        copying._understood(),
        copied_files.made(target) as temporary,
    ):
        copying.unpack(io.BytesIO(outside(name)), temporary)
    assert list(tmp_path.iterdir()) == [target.parent]
    assert list(target.parent.iterdir()) in ([], [target])


def outside(name: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w|") as tar:
        for each in (folder(), tarfile.TarInfo(name), tarfile.TarInfo("complete")):
            tar.addfile(each)
    return content.getvalue()


def folder() -> tarfile.TarInfo:
    entry = tarfile.TarInfo("content")
    entry.type = tarfile.DIRTYPE
    return entry


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_not_whole_is_not_there(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path, model: Path, how: str
) -> None:
    space = kubelet.namespace
    backend.submit(plan(tmp_path, space), detach=True)
    there = tmp_path / "there"
    there.mkdir()
    with (
        cluster(api, kubelet, tmp_path, model, BROKEN[how]),
        pytest.raises(BackendError, match=r"the connection broke|none of the run's|the copy is not whole"),
    ):
        backend.copy(RUN, space, "export", str(there / "model"), 60.0)
    assert list(there.iterdir()) == []
    assert not (tmp_path / "evil").exists()
    assert wait_for(lambda: not copy_pods(api, space))


def test_why_the_pod_is_not_up(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = kubelet.namespace
    backend.submit(plan(tmp_path, space), detach=True)
    target = str(tmp_path / "model")
    with pytest.raises(BackendError, match=r"not up after 0 s: Pending"):
        backend.copy(RUN, space, "export", target, 0.0)
    assert not copy_pods(api, space)
    create = Client.create

    def failing(client: Client, item: dict[str, Any]) -> dict[str, Any]:
        made = create(client, item)
        words = 'exec: "python": executable file not found in $PATH'
        terminated = {"exitCode": 128, "reason": "StartError", "message": words}
        set_phase(api, made, "Failed", {"terminated": terminated})
        return made

    monkeypatch.setattr(Client, "create", failing)
    with pytest.raises(BackendError, match=r"has ended: StartError: exec: .python.: executable file not"):
        backend.copy(RUN, space, "export", target, 60.0)
    assert not copy_pods(api, space)


def test_who_may_make_no_pod_is_told(
    api: Api, backend: KubernetesBackend, namespace: str, tmp_path: Path
) -> None:
    backend.submit(plan(tmp_path, namespace), detach=True)
    other = KubernetesBackend(str(user(api, namespace, needed_rights.RULES, tmp_path)))
    with pytest.raises(BackendError, match=r"may not create pods in namespace"):
        other.copy(RUN, namespace, "export", str(tmp_path / "model"), 60.0)


def test_a_model_that_is_elsewhere(backend: KubernetesBackend, namespace: str, tmp_path: Path) -> None:
    backend.submit(plan(tmp_path, namespace, "spec.modelDir=gs://bucket/run"), detach=True)
    with pytest.raises(ConflictError, match="are at gs://bucket/run, which is no volume"):
        backend.copy(RUN, namespace, "export", str(tmp_path / "model"), 60.0)


def test_beside_the_pods_that_have_the_claim(
    api: Api, backend: KubernetesBackend, kubelet: Kubelet, tmp_path: Path
) -> None:
    """Only one node can mount the claim: while the run's pods live, the pod must be on their node."""
    space = kubelet.namespace
    backend.submit(plan(tmp_path, space), detach=True)
    kubelet.start("chief")
    made: list[dict[str, Any]] = []
    seen = threading.Thread(
        target=lambda: made.extend(wait_for(lambda: copy_pods(api, space)) or []), daemon=True
    )
    seen.start()
    with pytest.raises(BackendError, match="not up"):
        backend.copy(RUN, space, "export", str(tmp_path / "model"), 3.0)
    seen.join(60)
    (term,) = made[0]["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {"tf-launcher.dev/run": RUN}
    assert json.dumps(term).count("hostname") == 1
