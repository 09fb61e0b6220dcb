"""Completes the command line: commands, options, their values, and the names of runs.

The scripts for bash, zsh and fish, in `completion_scripts/`, pass the words that are typed, and offer the
lines that are printed. Each line is a candidate, a tab and a description. The line `:files` asks for files.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from launcher.cli.strict_parser import StrictParser
from launcher.object_names import ROLES
from launcher.terminal import visible

COMMAND: Final = "__complete"
"""The command that the scripts call. `--help` does not list it."""

SHELLS: Final = ("bash", "zsh", "fish")
INSTALL: Final = """\
to have it in each new shell:
  bash  echo 'source <(tf-launcher completion bash)' >> ~/.bashrc
  zsh   echo 'source <(tf-launcher completion zsh)' >> ~/.zshrc   (below compinit)
  fish  tf-launcher completion fish > ~/.config/fish/completions/tf-launcher.fish
"""

_FILES: Final = ":files"
_PLAIN: Final = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
"""What a shell takes as it is. A context of somebody's kubeconfig may be called `$(rm x)`, or have lines."""
_CLUSTER_SECONDS: Final = 2.0
"""Limit for a cluster to name its runs: the user has pressed a key, and waits."""

Candidate = tuple[str, str]


def script(shell: str) -> str:
    """Returns the script for one of SHELLS."""
    from importlib.resources import files  # takes a tenth of the time of --help

    return files("launcher.cli.completion_scripts").joinpath(f"tf-launcher.{shell}").read_text("utf-8")


def answer(top: StrictParser, words: Sequence[str]) -> None:
    """Prints candidates for the last word, which may be "". It prints no errors: they would appear in the
    middle of the line that the user types.
    """
    with contextlib.suppress(Exception):
        for word, text in _candidates(top, list(words) or [""]):
            if _PLAIN.fullmatch(word):
                print(f"{word}\t{visible(text)}" if text else word)


def _candidates(top: StrictParser, words: list[str]) -> Iterator[Candidate]:
    *before, current = _joined(words)
    parser = top
    if before and not before[0].startswith("-"):
        if before[0] not in dict(_commands(top)):
            return
        parser = top.of_command(before.pop(0))
    given = _Given(parser, before)
    option, equals, _ = current.partition("=")
    if given.awaiting is not None:
        yield from _starting(current, _values(top, given.awaiting, given))
    elif equals and option in parser.options:
        candidates = _values(top, parser.options[option], given)
        yield from _starting(current, ((f"{option}={each}", text) for each, text in candidates))
    elif current.startswith("-"):
        yield from _starting(current, _options(parser, given))
    elif parser is top:
        yield from _starting(current, _commands(top))
    elif (positional := given.positional) is not None:
        yield from _starting(current, _values(top, positional, given))


def _joined(words: list[str]) -> list[str]:
    """Joins what Bash splits: it passes `--role=worker` as three words."""
    joined: list[str] = []
    for word in words:
        if joined and (word == "=" or joined[-1].endswith("=")) and joined[-1].startswith("--"):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


class _Given:
    """The words before the one that is completed."""

    def __init__(self, parser: StrictParser, words: Sequence[str]) -> None:
        self.values: dict[str, str] = {}
        """Values of options, by destination."""
        self.options: set[str] = set()
        self.awaiting: argparse.Action | None = None
        """The option whose value comes next."""
        plain = 0
        for word in words:
            name, equals, value = word.partition("=")
            action = parser.options.get(name)
            if self.awaiting is not None:
                self.values[self.awaiting.dest] = word
                self.awaiting = None
            elif action is not None:
                self.options.add(action.dest)
                if equals:
                    self.values[action.dest] = value
                elif action.nargs != 0 and name not in parser.implied:
                    self.awaiting = action
            else:
                plain += 1
        positionals = parser.positionals
        several = positionals[-1] if positionals and positionals[-1].nargs == "*" else None
        self.positional = positionals[plain] if plain < len(positionals) else several


def _starting(current: str, candidates: Iterator[Candidate]) -> Iterator[Candidate]:
    return (each for each in candidates if each[0] == _FILES or each[0].startswith(current))


def _commands(top: StrictParser) -> Iterator[Candidate]:
    yield from top.commands.items()


def _options(parser: StrictParser, given: _Given) -> Iterator[Candidate]:
    for name, action in parser.options.items():
        again = isinstance(action, argparse._AppendAction)
        if name.startswith("--") and (again or action.dest not in given.options):
            yield name, _first(action.help)


def _first(text: str | None) -> str:
    """Returns a help text's first sentence, on one line."""
    return (text or "").partition(" (")[0].partition(":")[0].replace("%(default)s", "").strip()


def _values(top: StrictParser, action: argparse.Action, given: _Given) -> Iterator[Candidate]:
    """Yields the candidates for an option or a positional argument."""
    if action.choices is not None:
        yield from ((str(choice), "") for choice in action.choices)
        return
    completer = _BY_DESTINATION.get(action.dest)
    if action.dest == "topic":
        yield from _commands(top)
    elif completer is not None:
        yield from completer(given.values)


def _files(_: Mapping[str, str]) -> Iterator[Candidate]:
    yield _FILES, ""


def _runs(given: Mapping[str, str]) -> Iterator[Candidate]:
    """Yields the runs of this machine and the cluster, or of the given place."""
    from launcher.backends import backend_choice
    from launcher.backends.patience import Patience

    for backend in backend_choice.all_or(
        given.get("backend"), given.get("context"), Patience(_CLUSTER_SECONDS)
    ):
        # If the cluster does not answer, the runs of this machine are offered nevertheless.
        with contextlib.suppress(Exception):
            for name in backend.names(given.get("namespace") or backend.namespace):
                yield name, str(backend.place)


def _sources(given: Mapping[str, str]) -> Iterator[Candidate]:
    yield from ((f"{name}:", text) for name, text in _runs(given))


def _roles(_: Mapping[str, str]) -> Iterator[Candidate]:
    yield from ((role, "") for role in ROLES)


def _contexts(_: Mapping[str, str]) -> Iterator[Candidate]:
    from launcher.backends import backend_choice

    yield from ((name, "") for name in backend_choice.contexts())


_BY_DESTINATION: Final[Mapping[str, Callable[[Mapping[str, str]], Iterator[Candidate]]]] = {
    "name": _runs,
    "names": _runs,
    "source": _sources,
    "tasks": _roles,
    "role": _roles,
    "context": _contexts,
    "file": _files,
    "folder": _files,
    "script": _files,
    "filename": _files,
    "output": _files,
    "target": _files,
    "directory": _files,
}
