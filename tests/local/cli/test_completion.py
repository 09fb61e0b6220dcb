"""Completion in real shells, with existing runs. The tests of a shell that is not installed are skipped."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.command_line import ENDS, CommandLine

INSTALLED = Path(sys.executable).with_name("tf-launcher")


@pytest.fixture
def runs(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A command line with two runs, and with tf-launcher on the PATH."""
    monkeypatch.setenv("PATH", f"{INSTALLED.parent}{os.pathsep}{os.environ['PATH']}")
    for name in ("mnist-one", "mnist-two"):
        assert command.run(name, worker={"command": ENDS}).code == 0
    Path("cluster.yaml").write_text("")
    return command


def needs(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} on this machine")
    return path


def script(command: CommandLine, shell: str) -> str:
    path = Path(f"completion.{shell}")
    path.write_text(command.good("completion", shell))
    return str(path)


CASES = [
    ("sub", ["submit"]),
    ("status ", ["mnist-one", "mnist-two"]),
    ("status mnist-t", ["mnist-two"]),
    ("delete mnist-one mnist-", ["mnist-one", "mnist-two"]),
    ("cp mnist-o", ["mnist-one:"]),
    ("status mnist-one --out", ["--output"]),
    ("status mnist-one -o ", ["json", "name", "wide", "yaml"]),
    (
        "logs mnist-one --role ",
        ["chief", "data-worker", "dispatcher", "evaluator", "extra-worker", "ps", "worker"],
    ),
    ("logs mnist-one wor", ["worker"]),
    ("completion ", ["bash", "fish", "zsh"]),
    ("help comp", ["completion"]),
    ("submit clu", ["cluster.yaml"]),
    ("nothing ", []),
]


def test_fish(runs: CommandLine) -> None:
    fish, path = needs("fish"), script(runs, "fish")
    for typed, offered in CASES:
        code = f"source {path}; complete -C 'tf-launcher {typed}'"
        done = subprocess.run(
            [fish, "-N", "-c", code], capture_output=True, text=True, timeout=60, check=True
        )
        assert sorted(line.partition("\t")[0] for line in done.stdout.splitlines()) == offered, typed


def test_bash(runs: CommandLine) -> None:
    """The words are split as bash splits them, where an = is a word of its own."""
    bash, path = needs("bash"), script(runs, "bash")
    for typed, offered in [*CASES, ("status mnist-one --output = j", ["json"])]:
        if offered == ["cluster.yaml"]:
            continue  # bash itself completes files
        words = " ".join(f"'{word}'" for word in typed.split(" "))
        code = (
            f"source {path}; COMP_WORDS=(tf-launcher {words}); "
            'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tf_launcher; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        call = [bash, "--norc", "--noprofile", "-c", code]
        done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=True)
        assert (sorted(done.stdout.split()), done.stderr) == (offered, ""), typed


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_in_a_terminal(runs: CommandLine, shell: str) -> None:
    """Returns the line after the Tab key."""
    path = Path(script(runs, shell)).resolve()
    calls = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}
    setup = {"bash": "", "zsh": "autoload -U compinit; compinit -u -D; "}
    with Shell([needs(shell), *calls[shell]]) as terminal:
        terminal.type(f"{setup[shell]}source {path}; PS1='$ '; echo rea''dy\n")
        terminal.until("ready\n")
        terminal.until("$ ")
        for typed, line in (
            ("status mnist-t", "status mnist-two "),
            ("cp mnist-o", "cp mnist-one:"),
            ("sub", "submit "),
            ("submit clu", "submit cluster.yaml "),
        ):
            terminal.text = ""
            terminal.type(f"\x15tf-launcher {typed}\tZ")  # ^U clears the line
            terminal.until(f"tf-launcher {line}Z")


class Shell:
    """A shell in a terminal."""

    def __init__(self, call: list[str]) -> None:
        self.text = ""
        controller, terminal = pty.openpty()
        self._controller = controller
        environment = {**os.environ, "TERM": "dumb", "COLUMNS": "300", "INPUTRC": "/dev/null"}
        self._process = subprocess.Popen(
            call, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, start_new_session=True
        )
        os.close(terminal)

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(30)
        os.close(self._controller)

    def type(self, text: str) -> None:
        os.write(self._controller, text.encode())

    def pieces(self, seconds: float) -> Iterator[str]:
        """Yields output until none has come for `seconds`."""
        while select.select([self._controller], [], [], seconds)[0]:
            try:
                yield os.read(self._controller, 65536).decode(errors="replace").replace("\r", "")
            except OSError:
                return

    def until(self, text: str) -> None:
        """Waits until the terminal shows the text, ignoring the cursor's movements."""
        end = time.monotonic() + 60
        while text not in self.shown and time.monotonic() < end:
            for piece in self.pieces(0.2):
                self.text += piece
                if text in self.shown:
                    return
        assert text in self.shown

    @property
    def shown(self) -> str:
        """Returns the text without colours; characters behind a moved cursor are overwritten."""
        written: list[str] = []
        for character in re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])", "", self.text):
            if character == "\b":
                del written[-1:]
            elif character != "\a":
                written.append(character)
        return "".join(written)


def test_nothing_is_said_in_the_middle_of_a_line(runs: CommandLine) -> None:
    """Such an error is a kubeconfig that cannot be read: the runs of this machine are offered
    nevertheless.
    """
    Path(os.environ["KUBECONFIG"]).write_text("nonsense")
    ran = runs("__complete", "status", "")
    assert (ran.code, ran.out, ran.err) == (0, "mnist-one\tthis machine\nmnist-two\tthis machine\n", "")
    for words in ([], ["status", "a", "--context", ""], ["\ud800"], ["--", "-"]):
        ran = runs("__complete", *words)
        assert (ran.code, ran.err) == (0, "")


def test_a_context_that_a_shell_would_carry_out_is_not_offered(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A kubeconfig may come from anybody."""
    names = ["good", "arn:aws:eks:eu-1:12:cluster/x", "me@host", "$(touch x)", "`id`", "a b", "a;b", "a\nb"]
    names += [
        "\x1b]52;c;aGk=\x07",
        "x\u202e",
        "größe",
        "a'b",
        'a"b',
        "~",
        "*",
        "a\tb",
        "|b",
        "&",
        "a\\b",
        "!!",
    ]
    config = {"apiVersion": "v1", "kind": "Config", "contexts": [{"name": name} for name in names]}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    assert command.good("__complete", "status", "--context", "").splitlines() == names[:3]
