"""What a process finds out of the limit on its container's memory, in a real cgroup of this machine."""

from __future__ import annotations

from pathlib import Path

from tests.worker.process.container import cgroup, inside, write

LIMIT = 256 << 20
FILES = ("memory.max", "memory.limit_in_bytes")


def test_the_limit_and_what_is_used_of_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(64 << 20))
    code = f"""
from worker.process import memory
open({str(tmp_path / "file")!r}, "rb").read(); had = bytearray(100 << 20)
print((memory.of_container(), memory.limit()))
"""
    with cgroup("memory") as folder:
        write(folder, *((name, str(LIMIT)) for name in FILES))
        printed = inside(folder, code)
    (used, most), limit = printed
    assert most == limit == LIMIT
    # What Linux keeps of the file does not count: it takes that back.
    assert 100 << 20 < used < 150 << 20
