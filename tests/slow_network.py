"""Tasks on machines of their own: network namespaces on one bridge, of which some have a slow link."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import pytest

_SUBNET = "10.231.77"
_QUEUE = ("burst", "32kbit", "latency", "50ms")


@contextlib.contextmanager
def machines(count: int) -> Iterator[list[str]]:
    """Makes so many namespaces, and yields their names; the first has the address `address(0)`, and so on.
    Skips the test where that is not possible.
    """
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("needs root, ip and tc")
    prefix = f"tfl{os.getpid() % 100_000}"
    names = [f"{prefix}-{number}" for number in range(count)]
    outer = f"{prefix}-br"
    made = subprocess.run(["ip", "netns", "add", outer], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    try:
        inside(outer, "ip", "link", "add", "bridge", "type", "bridge")
        inside(outer, "ip", "link", "set", "bridge", "up")
        for number, name in enumerate(names):
            _run("ip", "netns", "add", name)
            inside(outer, "ip", "link", "add", f"port{number}", "type", "veth", "peer", "eth0", "netns", name)
            inside(outer, "ip", "link", "set", f"port{number}", "master", "bridge", "up")
            inside(name, "ip", "address", "add", f"{address(number)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                inside(name, "ip", "link", "set", device, "up")
        yield names
    finally:
        for name in (*names, outer):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def address(number: int) -> str:
    """Returns the IP address of a machine."""
    return f"{_SUBNET}.{number + 1}"


def limit(machine: str, rate: str) -> None:
    """Limits what the machine sends, to a rate such as `50mbit`."""
    inside(machine, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, *_QUEUE)


def limit_port(machines: Sequence[str], number: int, rate: str) -> None:
    """The same of what the machine of this number receives."""
    outer = f"{machines[0].rpartition('-')[0]}-br"
    device = ("dev", f"port{number}", "root")
    inside(outer, "tc", "qdisc", "add", *device, "tbf", "rate", rate, *_QUEUE)


def command(machine: str, arguments: Sequence[str]) -> list[str]:
    """Returns the command that runs on the machine."""
    return ["ip", "netns", "exec", machine, *arguments]


def inside(machine: str, *arguments: str) -> None:
    """Runs a command on the machine."""
    _run(*command(machine, arguments))


def _run(*arguments: str) -> None:
    subprocess.run(arguments, check=True, capture_output=True)
