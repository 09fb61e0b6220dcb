"""Drives a headless Chromium by the DevTools protocol over a pipe, and reads what a user would
see of a page.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS: Final = 60.0
"""Limit for any step of a test."""

# The browser needs its pipe at descriptors 3 and 4, which may be in use here.
_EXEC: Final = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """Shows one page at a time; see `open`."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._rest = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []
        self._session = ""

    def open(self, url: str, width: int = 1280, height: int = 900, *, scheme: str = "light") -> None:
        """Loads the page in a window of this size, with this preferred colour scheme."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Accessibility"):
            self._call(f"{domain}.enable")
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._events.clear()
        self._call("Page.navigate", url=url)
        self._until("Page.loadEventFired")

    def click(self, selector: str) -> None:
        """Clicks on what leads to another page, and waits for it."""
        self._events.clear()
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
        self._until("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression in the page."""
        evaluation = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in evaluation, evaluation
        return evaluation["result"].get("value")

    @property
    def text(self) -> str:
        """Returns the visible text, with spaces and line ends as one space."""
        return " ".join(str(self.evaluate("document.body.innerText")).split())

    @property
    def requests(self) -> list[str]:
        """Returns the addresses that the page has requested since it was opened."""
        self.evaluate("0")  # a round trip, after which all earlier events have been reported
        sent = [event for event in self._events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    @property
    def complaints(self) -> list[str]:
        """Returns the browser's own messages about the page."""
        self.evaluate("0")
        return [e["params"]["entry"]["text"] for e in self._events if e["method"] == "Log.entryAdded"]

    def accessible(self, role: str) -> list[str]:
        """Returns the accessible names of the elements of a role."""
        nodes = self._call("Accessibility.getFullAXTree")["nodes"]
        return [
            node["name"]["value"]
            for node in nodes
            if not node["ignored"] and node.get("role", {}).get("value") == role and node.get("name")
        ]

    def screenshot(self, path: Path) -> None:
        """Writes the whole page as a PNG."""
        capture = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(capture["data"]))

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self._events.append(answer)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _until(self, event: str) -> None:
        while all(known["method"] != event for known in self._events):
            self._events.append(self._next())

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            content = os.read(self._read, 1 << 16) if ready else b""
            assert content, "the browser does not answer"
            self._rest += content
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


def executable() -> str:
    """Returns the path of the browser. Skips the test where there is none."""
    named = os.environ.get("LAUNCHER_TEST_BROWSER")
    path = named or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(
            f"no browser: none of {', '.join(NAMES)} is on the PATH, and LAUNCHER_TEST_BROWSER is unset"
        )
    return path


@contextmanager
def browser(directory: Path) -> Iterator[Browser]:
    """Starts a browser with its profile in the directory, and ends it with the block. Skips where there is
    none.
    """
    program = executable()
    ours_read, its_write = os.pipe()
    its_read, ours_write = os.pipe()
    flags = [
        "--headless=new",
        "--remote-debugging-pipe",
        "--no-first-run",
        "--disable-gpu",
        "--hide-scrollbars",
    ]
    flags += [f"--user-data-dir={directory / 'profile'}", "--disable-dev-shm-usage"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium refuses to use its sandbox as root
    command = [sys.executable, "-c", _EXEC, str(its_read), str(its_write), program, *flags]
    with (directory / "browser.log").open("wb") as log:
        process = subprocess.Popen(command, pass_fds=(its_read, its_write), stdout=log, stderr=log)
    os.close(its_read)
    os.close(its_write)
    try:
        yield Browser(ours_read, ours_write)
    finally:
        os.close(ours_write)  # the browser ends when its pipe is closed
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(ours_read)
