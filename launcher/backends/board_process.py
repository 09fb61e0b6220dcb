"""TensorBoard on this machine, as a process that ends with this one."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from launcher.backends.base import Board
from launcher.backends.bucket_files import BucketFiles, LogsMirror, is_bucket
from launcher.errors import BackendError
from launcher.plan.tensorboard import MODULE, arguments

_START_SECONDS: Final = 120.0
_LEAVE_SECONDS: Final = 5.0
_LAST_LINES: Final = 5


# The kernel closes its standard input when this process ends, whatever the cause.
_PROGRAM: Final = f"""
import os, runpy, sys, threading
threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
runpy.run_module({MODULE!r}, run_name="__main__", alter_sys=True)
"""


class BoardProcess(Board):
    """Shows a directory, of a bucket a copy of its logs; see `base.Board`. `port` is 0 for any that is free;
    `storage` is the spec's.

    Raises BackendError where TensorBoard is not installed, does not start, or the port is in use.
    """

    def __init__(self, run: str, directory: str, port: int, storage: Mapping[str, Any] | None = None) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise BackendError(
                f"TensorBoard is not installed for {sys.executable}",
                "Install it: `python -m pip install tensorboard`, or tf-launcher with its `worker` extra.",
            )
        self._logs: LogsMirror | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if is_bucket(directory):
            # TensorFlow, by which TensorBoard reads, cannot.
            self._folder = tempfile.TemporaryDirectory(prefix="tf-launcher-logs-")
            self._logs = LogsMirror(BucketFiles(directory, storage or {}), Path(self._folder.name))
            directory = self._folder.name
        port = _free(port)
        self.url = f"http://127.0.0.1:{port}/"
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        # A session of its own: Ctrl-C is for the launcher, which then ends it.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments(directory, run, port), "--host=127.0.0.1"],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.close()
            raise

    def wait(self) -> None:
        """See `base.Board.wait`."""
        while self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        raise self._ended()

    def close(self) -> None:
        """See `base.Board.close`."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()
        if self._logs is not None:
            self._logs.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _wait_until_it_answers(self) -> None:
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None:
                raise self._ended()
            if time.monotonic() > until:
                raise BackendError(
                    f"TensorBoard does not answer {_START_SECONDS:.0f} s after its start", self._last_words()
                )
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            # Without a proxy, since it is on this machine.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(self.url, timeout=5.0) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def _ended(self) -> BackendError:
        code = self._process.returncode
        return BackendError(f"TensorBoard has ended with exit code {code}", self._last_words())

    def _last_words(self) -> str:
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").splitlines()
        return "\n".join(line for line in lines[-_LAST_LINES:] if line.strip())


def _free(port: int) -> int:
    """The port. Raises BackendError if it is in use."""
    try:
        with socket.create_server(("127.0.0.1", port)) as server:
            return int(server.getsockname()[1])
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise BackendError(f"port {port} of this machine: {reason}", "Name another.") from error
