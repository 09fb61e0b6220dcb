"""Runs a run's program up to its first step, in a process of its own, on this machine's CPU.

The process runs `worker.check` with what a pod would get: the program's files, the run's configuration, and
the variables of the task that trains. Packages and files are this machine's, not those of an image or a
volume.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from launcher.backends.base import Plan
from launcher.errors import Problem, SpecError
from launcher.plan import topology
from launcher.task_output import is_chatter
from launcher.validation import source
from launcher.validation.loader import Loaded
from worker.contract import Done, Env, Failed, Notice, Record, RunConfig

SECONDS: Final = 300.0
"""Limit of the process. TensorFlow's import takes up to 20 s on a busy machine, and the trace of a large
model's first step takes minutes.
"""
_LAST_LINES: Final = 10


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
    config = _configuration(plan)
    if config is None or not config.entrypoint:
        return [], ()
    if importlib.util.find_spec("tensorflow") is None:
        said = f"there is no TensorFlow in {sys.prefix}, whose packages would stand for the image's"
        raise SpecError([Problem("--import", 0, 0, "", said)])
    files = source.read(loaded)
    with tempfile.TemporaryDirectory(prefix="tf-launcher-") as folder:
        root = Path(folder)
        environment = {**os.environ, **_variables(loaded), "PYTHONPATH": _python_path()}
        for name in Env.RESERVED:
            environment.pop(name, None)
        environment[Env.CONFIG] = str(root / "run.json")
        (root / "run.json").write_text(config.to_json(), encoding="utf-8")
        if files is not None:
            environment[Env.SOURCE] = str(root / "source")
            for name, content in files.files.items():
                path = root / "source" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        outcome = _run([sys.executable, "-m", "worker.check"], environment, root, seconds)
    if not outcome.failure:
        return [], outcome.notices
    field, _, said = outcome.failure.partition(": ")
    is_field = field.startswith("spec.") and " " not in field
    place = tuple(field.split(".")) if is_field else ("spec", "program")
    text = "\n".join(filter(None, [said if is_field else outcome.failure, _indented(outcome.details)]))
    return [loaded.problem(place, text)], outcome.notices


def _configuration(plan: Plan) -> RunConfig | None:
    for item in plan.objects:
        if item["kind"] == "ConfigMap":
            for text in (item.get("data") or {}).values():
                try:
                    return RunConfig.from_json(text)
                except ValueError:
                    continue
    return None


def _variables(loaded: Loaded) -> dict[str, str]:
    """Returns those variables of the task that trains whose value is in the file."""
    role = topology.build(loaded.cluster).roles[0]
    return {variable.name: variable.value for variable in role.env if variable.value is not None}


def _python_path() -> str:
    """Returns a module path with the worker package of this launcher."""
    spec = importlib.util.find_spec("worker")
    found = [str(Path(spec.origin).parents[1])] if spec is not None and spec.origin is not None else []
    return os.pathsep.join([*found, *filter(None, [os.environ.get("PYTHONPATH")])])


def _run(command: Sequence[str], environment: dict[str, str], folder: Path, seconds: float) -> Outcome:
    """Runs the process. Ends it, and all processes that it started, at the time limit or on an interrupt."""
    with (folder / "output").open("w+", errors="replace") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        lines = output.read().splitlines()
    records = [record for line in lines if (record := Record.parse(line)) is not None]
    said = [record.content for record in records]
    notices = [content.message for content in said if isinstance(content, Notice)]
    own = [line for line in lines if Record.parse(line) is None and not is_chatter(line)]
    printed = "\n".join(own[-_LAST_LINES:])
    for content in said:
        if isinstance(content, Failed):
            return Outcome(notices, content.message, content.traceback)
    if code is None:
        late = f"the program was not at the end of its first step after {seconds:.0f} s"
        return Outcome(notices, late, printed)
    if code != 0 or not any(isinstance(content, Done) for content in said):
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return Outcome(notices, f"the process that tried the program {how}", printed)
    return Outcome(notices)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
