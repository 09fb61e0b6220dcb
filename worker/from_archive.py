"""The `__main__` of the runtime that travels with a run: `python3 worker.zip` is `python -m worker`.

It unpacks the archive into the task's own directory and runs the runtime from those files. AutoGraph and
tracebacks read files, and these stay unchanged if the archive is replaced. Python 3.6 can read this module,
so that an image with too old a Python gets one message.
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
"""The value of `worker.contract.exit_codes.ExitCode`, which an older Python cannot import."""
MODULES = "modules.zip"
"""That of `worker.contract.environment`, which is in this file."""


def main() -> int:
    """Returns the exit code, or ends the process with it."""
    if sys.version_info[:2] < OLDEST:
        have, need = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST))
        message = f"python3 of the image is Python {have}, and the worker runtime needs {need} or newer"
        return _refused(message)
    try:
        directory = _unpack(sys.path[0])
    except OSError as error:
        return _refused(f"the worker runtime cannot be unpacked: {error}")
    _prepare_environment()
    sys.path[0] = directory
    from worker import runtime

    # `python -m` adds the folder too. It is added after the import, so that a worker.py of the image is not
    # imported.
    sys.path.insert(0, str(Path.cwd()))
    return runtime.main(sys.argv[1:])


def _unpack(archive: str) -> str:
    directory = Path(os.environ.get("TF_LAUNCHER_TASK_DIR") or tempfile.mkdtemp(), "runtime")
    with zipfile.ZipFile(archive) as opened, zipfile.ZipFile(io.BytesIO(opened.read(MODULES))) as modules:
        modules.extractall(str(directory))
    return str(directory)


def _prepare_environment() -> None:
    """Sets the environment variables that the launcher's own image sets: output is not buffered, and
    libraries have a home that they can write to. The home of a user without a name is the root directory.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    if not os.access(os.environ.get("HOME", "/"), os.W_OK):
        os.environ["HOME"] = tempfile.gettempdir()


def _refused(message: str) -> int:
    """Prints a failure as `worker.contract.records.emit` does, and returns its exit code."""
    task = os.environ.get("HOSTNAME", "")
    head = {"tf-launcher": 1, "event": "failed", "task": task, "time": round(time.time(), 3)}
    fields = {"message": message, "traceback": "", "exit_code": PROGRAM_ERROR}
    print(json.dumps({**head, **fields}, separators=(",", ":")))
    return PROGRAM_ERROR


if __name__ == "__main__":
    sys.exit(main())
