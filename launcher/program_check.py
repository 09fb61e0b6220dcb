"""Runs a run's program up to its first step, in a process of its own, on this machine's CPU.

The process runs `worker.check` with what a pod would get: the program's files, the run's configuration, and
the variables of the task that trains. Packages and files are this machine's, not those of an image or a
volume; the Python is that of the tasks of the local backend.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import IO, Final

from launcher.backends.base import Plan
from launcher.backends.local.pod.pods import PYTHON_VARIABLE, tasks_python
from launcher.backends.run_facts import run_config
from launcher.errors import Problem, SpecError
from launcher.plan import topology
from launcher.task_records.task_output import is_chatter
from launcher.validation import source
from launcher.validation.loader import Loaded
from worker.contract.environment import Env
from worker.contract.records import Done, Failed, Notice, Record

SECONDS: Final = 300.0
"""Limit of the process. TensorFlow's import takes up to 20 s on a busy machine, and the trace of a large
model's first step takes minutes.
"""
_DRAIN_SECONDS: Final = 2.0
"""For the last of what was printed to be read, once the process has ended."""
_LAST_LINES: Final = 10
_MOST_NOTICES: Final = 20
_LONGEST_LINE: Final = 1 << 20
"""Bytes. A longer line is cut into several."""
_SHOWN: Final = 2_000
"""Characters of a line that was printed."""


@dataclass(frozen=True)
class Outcome:
    """What the process has reported. `failure` is a sentence, "" for none; `details` are the user's lines of
    code, or the end of the output.
    """

    notices: Sequence[str] = ()
    failure: str = ""
    details: str = ""


def problems(loaded: Loaded, plan: Plan, seconds: float = SECONDS) -> tuple[list[Problem], Sequence[str]]:
    """Returns what is wrong with the program of a run, and further notices. Both are empty for a run without
    an entrypoint. Raises SpecError where this machine has no TensorFlow.
    """
    config = run_config(plan.objects)
    if config is None or not config.entrypoint:
        return [], ()
    python = check_python("--import")
    files = source.read(loaded)
    with tempfile.TemporaryDirectory(prefix="tf-launcher-") as folder:
        root = Path(folder)
        places = {"MODEL_DIR": str(root / "model")} if config.model_dir is not None else {}
        environment = {
            **os.environ,
            **places,
            **_variables(loaded),
            "PYTHONPATH": runtime_path(root / "runtime"),
        }
        for name in Env.RESERVED:
            environment.pop(name, None)
        environment[Env.LOCAL] = folder
        environment["PYTHONUNBUFFERED"] = "1"  # what it prints before it crashes is read, too
        environment[Env.TASK_DIR] = str(root / "task")
        if config.source is not None:
            environment[Env.SOURCE] = str(root / "source")
            config = dataclasses.replace(config, source=config.source if files is None else None)
        environment[Env.PACKAGES] = str(root / "packages")
        environment[Env.CONFIG] = str(root / "run.json")
        (root / "run.json").write_text(config.to_json(), encoding="utf-8")
        if files is not None:
            environment[Env.SOURCE] = str(root / "source")
            for name, content in files.files.items():
                path = root / "source" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        outcome = _run([str(Path(python).absolute()), "-m", "worker.check"], environment, root, seconds)
    if not outcome.failure:
        return [], outcome.notices
    field, _, message = outcome.failure.partition(": ")
    is_field = field.startswith("spec.") and " " not in field
    place = tuple(field.split(".")) if is_field else ("spec", "program")
    text = "\n".join(
        filter(None, [message if is_field else outcome.failure, indent(outcome.details.rstrip("\n"), "  ")])
    )
    return [loaded.problem(place, text)], outcome.notices


def check_python(asked: str) -> str:
    """Returns the path of the tasks' Python. Raises SpecError, about what was `asked`, where it lacks
    TensorFlow, as far as that can be seen from here.
    """
    python = shutil.which(tasks_python())
    if python is None:
        raise _refused(asked, f"{PYTHON_VARIABLE} names {tasks_python()}, which is no program")
    if tasks_python() == sys.executable and importlib.util.find_spec("tensorflow") is None:
        raise _refused(
            asked,
            f"there is no TensorFlow in {sys.prefix}, whose packages would stand for the image's; "
            f"{PYTHON_VARIABLE} may name a Python that has it",
        )
    return python


def _variables(loaded: Loaded) -> dict[str, str]:
    """Returns those variables of the task that trains whose value is in the file."""
    role = topology.build(loaded.cluster).roles[0]
    return {variable.name: variable.value for variable in role.env if variable.value is not None}


def runtime_path(folder: Path) -> str:
    """Returns a module path with the worker package of this launcher, and none of its other packages, which
    may be those of another Python. `folder` is made for it.
    """
    spec = importlib.util.find_spec("worker")
    if spec is not None and spec.origin is not None:
        folder.mkdir()
        (folder / "worker").symlink_to(Path(spec.origin).parent)
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def _refused(asked: str, message: str) -> SpecError:
    return SpecError([Problem(asked, 0, 0, "", message)])


def _run(command: Sequence[str], environment: dict[str, str], folder: Path, seconds: float) -> Outcome:
    """Ends the process, and what it has started, when it is at its end, the time is over, or this one is
    interrupted.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    printed = _Printed()
    # Beside us: what the process has started may keep the pipe open, in a session of its own even.
    reader = threading.Thread(target=printed.read, args=[process.stdout], daemon=True)
    reader.start()
    try:
        code: int | None = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    reader.join(_DRAIN_SECONDS)
    notices, lines = list(printed.notices), "\n".join(printed.lines)
    if printed.failed is not None:
        return Outcome(notices, printed.failed.message, printed.failed.traceback)
    if code is None:
        late = f"the program was not at the end of its first step after {seconds:.0f} s"
        return Outcome(notices, late, lines)
    if code != 0 or not printed.done:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return Outcome(notices, f"the process that tried the program {how}", lines)
    return Outcome(notices)


class _Printed:
    """What the process has said, and the end of what it has printed, however much that is."""

    def __init__(self) -> None:
        self.notices: deque[str] = deque(maxlen=_MOST_NOTICES)
        self.lines: deque[str] = deque(maxlen=_LAST_LINES)
        self.failed: Failed | None = None
        self.done = False

    def read(self, stream: IO[bytes]) -> None:
        """Until nobody has it open any more."""
        with stream:
            while content := stream.readline(_LONGEST_LINE):
                line = content.decode(errors="replace").rstrip("\r\n")
                line, record = Record.split(line)
                reported = None if record is None else record.content
                if isinstance(reported, Failed):
                    self.failed = self.failed or reported
                elif isinstance(reported, Notice):
                    self.notices.append(reported.message)
                elif isinstance(reported, Done):
                    self.done = True
                if (line or record is None) and not is_chatter(line):
                    self.lines.append(line[:_SHOWN])
