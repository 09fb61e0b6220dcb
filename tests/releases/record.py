"""Records what a launcher makes, for the tests of the launchers that come after it.

    python -m tests.releases.record CHECKOUT    of a release's commit; writes tests/releases/VERSION/

Each file in tests/releases/files is submitted, by the launcher of that checkout, to a real API server. What
it sends is kept, as VERSION/NAME.json. VERSION/local is the state folder of two runs on this machine: one
that has ended, and one whose files were copied while it went on, as they are after a power failure.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.control_plane import control_plane
from tests.api.conftest import installed
from tests.api.plain_requests import Api, wait_for

HERE: Final = Path(__file__).parent
FILES: Final = HERE / "files"
NAMESPACE: Final = "default"
SECONDS: Final = 60
NO_PROCESS: Final = 2**22 + 1
"""Above the highest number that Linux gives."""

# Runs in the process of that launcher: what `apply` is given is what the server gets.
RECORDER: Final = """\
import copy, json, sys
from launcher.backends.kubernetes.api_server.client import Client
from launcher.cli import parser

sent = []
apply = Client.apply

def recorded(client, item, **options):
    if not options.get("dry_run"):
        sent.append(copy.deepcopy(item))
    return apply(client, item, **options)

Client.apply = recorded
output, *arguments = sys.argv[1:]
code = parser.main(arguments)
with open(output, "w") as file:
    json.dump(sent, file)
raise SystemExit(code)
"""


def main() -> int:
    """Writes the folder of the version that the checkout has."""
    parser = argparse.ArgumentParser(prog="python -m tests.releases.record")
    parser.add_argument("checkout", type=Path, help="a working tree of the release's commit")
    checkout = parser.parse_args().checkout.resolve()
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        environment = {**os.environ, "PYTHONPATH": str(checkout), "XDG_STATE_HOME": str(work / "state")}
        version = _run(["-c", "import launcher; print(launcher.__version__)"], environment, work).strip()
        target = HERE / version
        target.mkdir(exist_ok=True)
        _objects(target, environment, work)
        _local(target / "local", environment, work)
    print(f"wrote {target.relative_to(Path.cwd())}")
    return 0


def _run(arguments: list[str], environment: dict[str, str], work: Path, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=work,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode != code:
        raise SystemExit(f"{arguments}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _objects(target: Path, environment: dict[str, str], work: Path) -> None:
    (work / "control-plane").mkdir()
    with control_plane(work / "control-plane") as started, installed(Api(started.kubeconfig), *CRDS):
        api = Api(started.kubeconfig)
        queue = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "team-a"},
            "spec": {"clusterQueue": "all"},
        }
        path = f"apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/localqueues"
        made = api.request("POST", path, queue)
        assert made.status == 201, made.body
        for file in sorted(FILES.glob("*.yaml")):
            sent = work / "sent.json"
            command = ["-c", RECORDER, str(sent), "submit", str(file), "--detach", "-n", NAMESPACE]
            _run(
                [*command, "--backend", "kubernetes"],
                {**environment, "KUBECONFIG": str(api.kubeconfig)},
                work,
            )
            text = json.dumps(_without_uids(json.loads(sent.read_text())), indent=1, sort_keys=True)
            (target / f"{file.stem}.json").write_text(text + "\n")


CRDS: Final = ("kueue.x-k8s.io_workloads", "kueue.x-k8s.io_localqueues", "jobset.x-k8s.io_jobsets")


def _without_uids(items: list[dict[str, object]]) -> list[dict[str, object]]:
    """The first object owns those that have an owner; a uid is of one server only."""
    for item in items:
        metadata = item["metadata"]
        assert isinstance(metadata, dict)
        for owner in metadata.get("ownerReferences", ()):
            owner["uid"] = ""
    return items


def _local(target: Path, environment: dict[str, str], work: Path) -> None:
    command = ["-m", "launcher", "submit", "--backend", "local"]
    _run([*command, str(FILES / "local" / "ended.yaml")], environment, work)
    _run([*command, "--detach", str(FILES / "local" / "interrupted.yaml")], environment, work)
    runs = work / "state" / "tf-launcher" / "runs" / "default"
    try:
        # Then its files stay as they are, and nobody else is told.
        assert wait_for(lambda: _both_run(runs / "interrupted" / "state.json"))
        copy = work / "copy"
        shutil.copytree(work / "state", copy, ignore=shutil.ignore_patterns("control", "*.lock", "reserve"))
    finally:
        _run(["-m", "launcher", "delete", "interrupted", "--backend", "local"], environment, work)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(copy / "tf-launcher", target)
    for state in target.rglob("state.json"):
        _forget_processes(state)


def _forget_processes(state: Path) -> None:
    """Nobody is to look for these processes on another machine: no process has such a number."""
    document = json.loads(state.read_text())
    document["supervisor"] = NO_PROCESS
    for pod in document["pods"]:
        annotations = pod["metadata"]["annotations"]
        if "tf-launcher.dev/process" in annotations:
            annotations["tf-launcher.dev/process"] = f"{NO_PROCESS} 1"
    state.write_text(json.dumps(document, indent=1) + "\n")


def _both_run(state: Path) -> bool:
    if not state.is_file():
        return False
    pods = json.loads(state.read_text())["pods"]
    return [pod["status"]["phase"] for pod in pods] == ["Running"] * 2


if __name__ == "__main__":
    raise SystemExit(main())
