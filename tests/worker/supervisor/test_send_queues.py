"""Data that wait to be sent: from Linux' own table, and a real training over a slow link."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.task_records import bottlenecks
from tests import slow_network
from worker.contract.environment import Env
from worker.contract.records import Event, Record
from worker.contract.run_config import RunConfig
from worker.peers.tcp_tables import ip_address
from worker.supervisor.send_queues import SendQueues

PROGRAMS = Path(__file__).parent.parent / "programs"
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


@pytest.mark.parametrize(
    ("hexadecimal", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("034DE70A", "10.231.77.3"),
        ("0000000000000000FFFF0000034DE70A", "10.231.77.3"),
        ("00000000000000000000000001000000", "::1"),
    ],
)
def test_addresses_as_linux_prints_them(hexadecimal: str, address: str) -> None:
    assert ip_address(hexadecimal) == address


def test_a_connection_of_this_process_is_in_the_table() -> None:
    """The other side does not read."""
    queues = SendQueues({"demo-worker-1": "127.0.0.1:2222", "demo-worker-2": "127.0.0.2:2222"})
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = socket.create_connection(server.getsockname())
        with connection, server.accept()[0]:
            queues.look(1.0)
            assert queues.seconds() == {}
            connection.settimeout(0.5)
            with contextlib.suppress(TimeoutError):
                connection.sendall(bytes(1 << 26))
            queues.look(0.1)
            queues.look(0.2)
    assert queues.seconds() == {"demo-worker-1": pytest.approx(0.3)}


def test_only_full_queues_to_peers_count(tmp_path: Path) -> None:
    rows = [
        "0: 014DE70A:08AE 034DE70A:C350 01 00010000:00000000 01:00000014 00000000 0 0 1",
        "1: 014DE70A:08AE 024DE70A:C350 01 00000100:00000000 01:00000014 00000000 0 0 2",  # a few bytes
        "2: 014DE70A:C351 0A00000A:01BB 01 00010000:00000000 01:00000014 00000000 0 0 3",  # a bucket
        "3: 014DE70A:C352 034DE70A:08AE 04 00010000:00000000 01:00000014 00000000 0 0 4",  # is closed
    ]
    table = tmp_path / "tcp"
    table.write_text(HEAD + "\n".join(rows) + "\n")
    peers = {f"demo-worker-{number}": f"10.231.77.{number + 1}:2222" for number in range(4)}
    queues = SendQueues(peers, (table, tmp_path / "tcp6"))
    queues.look(0.5)
    assert queues.seconds() == {"demo-worker-2": 0.5}


@pytest.mark.thorough
@pytest.mark.nightly
@pytest.mark.parametrize("direction", ["sends", "receives"])
def test_a_training_over_a_slow_link_names_the_connection(tmp_path: Path, direction: str) -> None:
    """Worker 2 sends, or receives, 50 Mbit/s; a step's sums are 4 MB."""
    with slow_network.machines(3) as machines:
        if direction == "sends":
            slow_network.limit(machines[2], "50mbit")
        else:
            slow_network.limit_port(machines, 2, "50mbit")
        cluster = {"worker": [f"{slow_network.address(number)}:2222" for number in range(3)]}
        config = RunConfig(
            run="demo",
            strategy="MultiWorkerMirrored",
            replicas={"worker": 3},
            starting_deadline_seconds=90,
            stall_seconds=90,
            chief_lost_seconds=90,
            entrypoint="tiny:Tiny",
            parameters={"width": 200_000, "globalBatchSize": 30, "epochs": 5},
        )
        (tmp_path / "run.json").write_text(config.to_json())
        tasks = []
        for number, machine in enumerate(machines):
            (tmp_path / str(number)).mkdir()
            task = {"cluster": cluster, "task": {"type": "worker", "index": number}}
            environment = {name: value for name, value in os.environ.items() if name != Env.LOCAL} | {
                Env.CONFIG: str(tmp_path / "run.json"),
                Env.TF_CONFIG: json.dumps(task),
                Env.ROLE: "worker",
                Env.SOURCE: str(PROGRAMS),
                Env.TASK_DIR: str(tmp_path / str(number)),
            }
            command = slow_network.command(machine, [sys.executable, "-m", "worker"])
            tasks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        outputs = [task.communicate(timeout=300)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0, 0], outputs
    parsed = [Record.parse(line) for output in outputs for line in output.splitlines()]
    spent = [record for record in parsed if record is not None and record.event == Event.SPENT]
    bottleneck = bottlenecks.of_records(spent)
    assert bottleneck is not None
    assert "has data waiting to be sent to" in bottleneck.text
    assert "demo-worker-2" in (bottleneck.task if direction == "sends" else bottleneck.other)
