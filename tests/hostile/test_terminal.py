"""Text from outside cannot control a terminal: control characters become visible. Tests may only add to the
table.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from launcher.backends.base import LogLine
from launcher.cli import console
from launcher.terminal import Guarded, visible
from tests.hostile.servers import GOOD, ROOT, Respond, answering, kubeconfig, server

COMMANDS = {
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "clipboard, ended otherwise": "\x1b]52;c;ZXZpbA==\x1b\\",
    "title": "\x1b]0;title\x07",
    "link": "\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\",
    "clear": "\x1b[2J\x1b[H",
    "cursor": "\x1b[5A\x1b[2K",
    "report": "\x1b[6n\x1b[c\x1b[>q",
    "alternate screen": "\x1b[?1049h",
    "mouse": "\x1b[?1000h",
    "keys": "\x1b[?2004h\x1b=",
    "reset": "\x1bc",
    "device control": "\x1bP$qm\x1b\\",
    "application": "\x1b_Gi=1;AAAA\x1b\\",
    "privacy": "\x1b^x\x1b\\",
    "one-byte CSI": "\x9b2J",
    "one-byte OSC": "\x9d52;c;ZXZpbA==\x9c",
    "one-byte DCS": "\x90q\x9c",
    "carriage return": "evil\rgood",
    "backspace": "evil\b\b\b\bgood",
    "bell": "\a\a\a",
    "form feed": "\f\v",
    "shift": "\x0e\x0f",
    "delete": "\x7f",
    "NUL": "\0",
    "override": "\u202egnp.exe",
    "embedding": "\u202aa\u202bb\u202c",
    "isolate": "\u2066a\u2067b\u2068c\u2069",
    "mark": "\u200e\u200f\u061c",
    "separators": "a\u2028b\u2029c",
    "tags": "a\U000e0041\U000e007f",
    "half a letter": "\ud800",
    "half a sequence": "\x1b[",
    "a sequence with a line end": "\x1b[3\n1m",
    "colours in between": "\x1b\x1b[0m]52;c;ZXZpbA==\x07",
}
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


@pytest.mark.parametrize("text", COMMANDS.values(), ids=COMMANDS)
def test_it_is_made_visible(text: str) -> None:
    assert FORBIDDEN.search(visible(f"before {text} after")) is None
    assert visible(text) != ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m\ttab\r\n", "red\ttab\n"),
        ("\x1b]0;t\x07", "\\x1b]0;t\\x07"),
        ("größe 5 µs 日本語 🎉 עברית", "größe 5 µs 日本語 🎉 עברית"),
        ("10%\r20%", "10%\\r20%"),
        ("\u202e\U000e0041", "\\u202e\\U000e0041"),
    ],
)
def test_how(text: str, expected: str) -> None:
    assert visible(text) == expected


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("text", COMMANDS.values(), ids=COMMANDS)
def test_logs(text: str, raw: bool) -> None:
    """On a terminal the characters are made visible, elsewhere they are unchanged."""
    line = LogLine("worker", 0, 0, text, None)
    terminal, pipe = Terminal(), io.StringIO()
    console.show_logs([line], raw=raw, out=Console(file=terminal, force_terminal=True, color_system=None))
    assert FORBIDDEN.search(terminal.getvalue()) is None
    console.show_logs([line], raw=raw, out=console.console(pipe))
    if raw:
        assert pipe.getvalue() == f"{text}\n"


@pytest.mark.parametrize("text", COMMANDS.values(), ids=COMMANDS)
def test_a_guard(text: str) -> None:
    terminal, pipe = Terminal(), io.StringIO()
    print(text, file=Guarded(terminal, own_words=False))
    assert FORBIDDEN.search(terminal.getvalue()) is None
    print(text, file=Guarded(pipe, own_words=False))
    assert pipe.getvalue() == f"{text}\n"


def run_on_a_terminal(directory: Path, *arguments: str) -> str:
    """Returns all output on a terminal, standard error included."""
    controller, terminal = pty.openpty()
    environment = {**os.environ, "KUBECONFIG": str(directory / "kubeconfig"), "PYTHONPATH": str(ROOT)}
    environment |= {"XDG_STATE_HOME": str(directory / "state"), "TERM": "xterm-256color", "COLUMNS": "300"}
    command = [sys.executable, "-m", "launcher", *arguments]
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    ) as process:
        os.close(terminal)
        output = b""
        while select.select([controller], [], [], 60)[0]:
            try:
                piece = os.read(controller, 1 << 16)
            except OSError:  # a terminal ends with this error
                break
            if not piece:
                break
            output += piece
        assert process.wait(60) != 70
    os.close(controller)
    return output.decode(errors="surrogateescape")


EVERYTHING = "".join(each for each in COMMANDS.values() if "\ud800" not in each)
LABELS = {"tf-launcher.dev/run": "my-run", "tf-launcher.dev/role": "chief"}


def hostile() -> Respond:
    """A cluster in which every text is hostile."""
    evil = EVERYTHING
    job: dict[str, Any] = {
        "metadata": {
            "name": "my-run-chief",
            "namespace": f"default{evil}",
            "uid": "u1",
            "labels": {**LABELS, "tf-launcher.dev/run": "my-run", "tf-launcher.dev/role": "chief"},
            "annotations": {
                "tf-launcher.dev/primary": "true",
                "tf-launcher.dev/spec": json.dumps({"spec": {"modelDir": f"/{evil}", "runPolicy": {}}}),
            },
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"completions": 1, "template": {"spec": {"containers": [{"name": "tensorflow"}]}}},
        "status": {
            "failed": 1,
            "startTime": "2026-01-01T00:00:01Z",
            "conditions": [{"type": "Failed", "status": "True", "reason": evil, "message": evil}],
        },
    }
    ended = {"exitCode": 1, "reason": evil, "message": evil, "finishedAt": "2026-01-01T00:00:03Z"}
    pod = {
        "metadata": {
            "name": "my-run-chief-0-abcde",
            "uid": "p1",
            "labels": {
                **LABELS,
                "batch.kubernetes.io/job-name": "my-run-chief",
                "batch.kubernetes.io/job-completion-index": "0",
            },
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"uid": "u1"}],
        },
        "spec": {"nodeName": f"node{evil}"},
        "status": {
            "phase": "Failed",
            "containerStatuses": [{"name": "tensorflow", "state": {"terminated": ended}}],
        },
    }
    event = {
        "metadata": {"name": "e", "uid": "e", "creationTimestamp": "2026-01-01T00:00:05Z"},
        "involvedObject": {"kind": "Job", "name": "my-run-chief", "uid": "u1"},
        "type": "Warning",
        "reason": evil,
        "message": evil,
        "lastTimestamp": "2026-01-01T00:00:05Z",
    }
    record = {
        "tf-launcher": 1,
        "event": evil,
        "task": "my-run-chief-0",
        "time": 1,
        "path": evil,
        "message": evil,
    }
    lines = [evil, json.dumps(record), json.dumps({**record, "event": "exported"})]
    log = "".join(f"2026-01-01T00:00:0{number}Z {line}\n" for number, line in enumerate(lines))
    kinds = {"jobs": job, "pods": pod, "events": event}

    def respond(handler: Any) -> None:
        kind = handler.path.partition("?")[0].rpartition("/")[2]
        if kind == "log":
            answering(log.encode())(handler)
        elif kind in kinds and handler.command == "GET" and "watch=" not in handler.path:
            document = {"metadata": {"resourceVersion": "7"}, "items": [kinds[kind]]}
            answering(json.dumps(document).encode())(handler)
        else:
            answering(
                json.dumps({"message": evil, "details": {"kind": "namespaces", "name": evil}}).encode(), 404
            )(handler)

    return respond


ON_TERMINAL = [
    ["status", "my-run", "--backend", "kubernetes"],
    ["list", "--backend", "kubernetes"],
    ["logs", "my-run", "--backend", "kubernetes"],
    ["logs", "my-run", "--backend", "kubernetes", "--raw"],
    ["events", "my-run"],
    ["wait", "my-run", "--backend", "kubernetes"],
    ["doctor"],
    ["submit", GOOD, "--detach"],
    ["status", "--backend", f"kube{COMMANDS['clear']}", "x"],
    ["validate", GOOD, "--set", f"spec.{COMMANDS['clipboard']}={COMMANDS['title']}"],
    ["validate", f"/nowhere/{COMMANDS['clear']}"],
    ["list", "--context", f"other{COMMANDS['title']}"],
]
OWN = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\x1b\[2K|\x1b\[1A|\r")
"""rich's own sequences: colours, hiding the cursor, and moving up over a table that is redrawn."""


@pytest.mark.parametrize("command", ON_TERMINAL, ids=lambda command: ascii(" ".join(command))[:60])
def test_a_command(tmp_path: Path, command: list[str]) -> None:
    with server(hostile()) as api:
        kubeconfig(tmp_path, f"http://127.0.0.1:{api.port}")
        output = run_on_a_terminal(tmp_path, *command)
    rest = OWN.sub("", output)
    assert output
    assert FORBIDDEN.search(rest) is None, ascii(rest)
    for sign in ("\x1b[2J", "\x1b[?1049h", "\x1b]52"):
        assert sign not in output
