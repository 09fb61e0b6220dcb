"""Runs a script as this process's main program."""

from __future__ import annotations

import argparse
import atexit
import runpy
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worker.contract.exit_codes import ExitCode
from worker.failures import Failure, frames, program_error

_FIRST_RETRYABLE = 128
"""TFJob's convention for exit codes: a task with 128 or above is retried; below, the program is wrong."""


def execute(script: str, arguments: Sequence[str], *, is_module: bool = False) -> Any:
    """Runs the script at a path, or a module by its name, as `python` does. Returns what must be kept. An
    exit with code 0 is an end as any other.
    """
    sys.argv[:] = [script, *arguments]
    runner = runpy.run_module if is_module else runpy.run_path
    options: dict[str, Any] = {"alter_sys": True} if is_module else {}
    try:
        return runner(script, run_name="__main__", **options)
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
        return None


def lead_module_path(directory: str) -> None:
    """Puts the script's folder first on the module path, as `python SCRIPT` does, in place of the directory
    in which `python -m worker` was started.
    """
    if sys.path and sys.path[0] in ("", str(Path.cwd())):
        sys.path[0] = directory
    else:
        sys.path.insert(0, directory)


def of_exit(error: SystemExit, name: str, roots: Sequence[Path]) -> tuple[int, Failure]:
    """Returns the exit code, and the failure that it stands for, of a script that has called `sys.exit`."""
    if not isinstance(error.code, int):
        failure = program_error(f"{name}: {error.code}", frames(error, roots))
        return failure.exit_code, failure
    code = error.code & 0xFF
    refused = _refused_arguments(error)
    message = f"{name} called sys.exit({error.code})"
    if refused:
        message = f"{name} takes other arguments: {refused}"
    if code == ExitCode.RETRYABLE or code >= _FIRST_RETRYABLE:
        return code, Failure(f"{message}: retried", ExitCode.RETRYABLE)
    return ExitCode.PROGRAM_ERROR, program_error(message, frames(error, roots))


def _refused_arguments(error: SystemExit) -> str:
    """Returns what argparse has printed of the script's arguments, "" where it did not end the script."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is argparse.ArgumentParser.error.__code__:
            return str(frame.f_locals["message"])
    return ""


def leave_python() -> None:
    """Does what the interpreter does at its end, because this process leaves by `os._exit`, which
    skips it.
    """
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    atexit._run_exitfuncs()
