"""`python3 worker.zip`, the runtime that travels with a run, is `python -m worker`: this is its `__main__`.

Unpacks the archive into the task's own directory and runs the runtime from there: as files, which AutoGraph
and tracebacks read, and which stay as they are should the archive be replaced. Python 3.6 reads this module,
so that an image that is too old gets one message.
"""

import io
import json
import os
import sys
import tempfile
import time
import zipfile
from pathlib import Path

OLDEST = (3, 9)
PROGRAM_ERROR = 70
"""As in `worker.contract.ExitCode`, which an older Python cannot import."""


def main() -> int:
    """Returns the exit code, or leaves with it."""
    if sys.version_info[:2] < OLDEST:
        have, need = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST))
        said = f"python3 of the image is Python {have}, and the worker runtime needs {need} or newer"
        return _refused(said)
    try:
        directory = _unpack(sys.path[0])
    except OSError as error:
        return _refused(f"the worker runtime cannot be unpacked: {error}")
    _prepare_environment()
    sys.path[0] = directory
    from worker import runtime

    # As `python -m` has it, now that the runtime is imported: a worker.py of the image is in nobody's way.
    sys.path.insert(0, str(Path.cwd()))
    return runtime.main(sys.argv[1:])


def _unpack(archive: str) -> str:
    directory = Path(os.environ.get("TF_LAUNCHER_TASK_DIR") or tempfile.mkdtemp(), "runtime")
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(str(directory))
    return str(directory)


def _prepare_environment() -> None:
    """What the launcher's own image has as environment: output is read while it is news, and libraries find a
    home that they can write to. A user without a name has the root directory.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    if not os.access(os.environ.get("HOME", "/"), os.W_OK):
        os.environ["HOME"] = tempfile.gettempdir()


def _refused(message: str) -> int:
    """As `worker.contract.emit` prints a failure."""
    task = os.environ.get("HOSTNAME", "")
    head = {"tf-launcher": 1, "event": "failed", "task": task, "time": round(time.time(), 3)}
    fields = {"message": message, "traceback": "", "exit_code": PROGRAM_ERROR}
    print(json.dumps({**head, **fields}, separators=(",", ":")))
    return PROGRAM_ERROR


if __name__ == "__main__":
    sys.exit(main())
