"""What a script writes outside of what stays is told, once for each folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_WRITES = """
import os, sys, tempfile
from pathlib import Path
from worker.script import lost_files

kept, lost, temporary = map(Path, sys.argv[1:])
lost_files.tell([kept], print)
for folder in (kept, lost, temporary):
    (folder / "in" / ".cache").mkdir(parents=True)
    for name in ("a.txt", "in/b.txt", "in/c.txt", "in/.cache/d.txt"):
        (folder / name).write_text("")
        (folder / name).read_text()
os.chdir(kept)
Path("relative.txt").write_text("")
os.close(os.open("by_number", os.O_CREAT))
tempfile.TemporaryFile().close()  # opens the temporary folder itself
"""


def test_folders_that_are_lost_are_told(tmp_path: Path) -> None:
    kept, lost, temporary = (tmp_path / name for name in ("kept", "lost", "temporary"))
    for folder in (kept, lost, temporary):
        folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", _WRITES, *map(str, (kept, lost, temporary))]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    sentences = [line.partition(",")[0] for line in done.stdout.splitlines()]
    assert sentences == [f"the script writes {lost / name}" for name in ("a.txt", "in/b.txt")]
