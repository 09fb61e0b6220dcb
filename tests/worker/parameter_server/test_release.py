"""The chief's last act: it has told the servers to leave when `release` returns, since it ends then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.worker.cluster import PATIENCE_SECONDS, ROOT

RELEASES = 20

_CHIEF = """
import os, socket, sys
from pathlib import Path
import tensorflow as tf
from worker.parameter_server.release import release
from worker.contract.run_config import RunConfig
from worker.process.watch import Watch
from worker.reporting import Reporter
from worker.task import Task

sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
chief, worker, ps = [f"localhost:{opened.getsockname()[1]}" for opened in sockets]
for opened in sockets:
    opened.close()
servers = [
    tf.distribute.Server({"worker": [worker], "ps": [ps]}, job_name=role, task_index=0, protocol="grpc")
    for role in ("worker", "ps")
]
config = RunConfig(
    run="r", strategy="ParameterServer", replicas={"chief": 1, "worker": 1, "ps": 1},
    starting_deadline_seconds=9, stall_seconds=9, chief_lost_seconds=9,
)
members = {"chief": {0: chief}, "worker": {0: worker}, "ps": {0: ps}}
task = Task(config, "chief", 0, members, sys.argv[1], None)
places = [Path(task.file_of(task.pod(r, 0), "released")) for r in ("worker", "ps")]
for number in range(int(sys.argv[2])):
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
    release(task, f"done {number}", Reporter(task.name), Watch(), 0, connected=number > 0)
    found = [place.read_text() if place.exists() else "nothing" for place in places]
    print("found", *found, sep="|", flush=True)
os._exit(0)
"""


def test_the_files_are_there_when_the_release_returns(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _CHIEF, f"{tmp_path}/r-chief-0", str(RELEASES)],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    lines = ended.stdout.splitlines()
    outcomes = [line for line in lines if line.startswith("found|")]
    assert outcomes == [f"found|done {n}|done {n}" for n in range(RELEASES)], (
        ended.stdout + ended.stderr[-2000:]
    )
    records = [json.loads(line) for line in lines if line.startswith("{")]
    assert [record["unreachable"] for record in records if record["event"] == "released"] == [[]] * RELEASES
