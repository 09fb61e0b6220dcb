"""argparse's parser with better errors: the error with a suggestion first, then where to find help."""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from launcher.lists_and_counts import did_you_mean, nearest

WRONG_USAGE = 2
"""The exit code, which SpecError has too."""


class StrictParser(argparse.ArgumentParser):
    """Refuses unknown words, and suggests the nearest known one."""

    implied: Mapping[str, tuple[str, Sequence[str]]] = MappingProxyType({})
    """Option -> its value if the next word is none of its values. argparse would take a FILE for
    the value.
    """

    elsewhere: Mapping[str, str] = MappingProxyType({})
    """Commands of other programs -> the launcher's."""

    with_rest: Sequence[str] = ()
    """Commands whose words behind `--` are another program's, and become `rest`."""

    def __init__(self, **options: Any) -> None:
        # A shortened option changes its meaning when a longer one comes: --name was --namespace.
        super().__init__(**options, allow_abbrev=False)

    def parse_args(  # type: ignore[override] # one signature in place of the overloads
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        """See `argparse.ArgumentParser.parse_args`."""
        words = list(sys.argv[1:] if args is None else args)
        for number, word in enumerate(words):
            value, values = self.implied.get(word, ("", ()))
            if value and not set(words[number + 1 : number + 2]) & set(values):
                words[number] = f"{word}={value}"
        takes_rest = words[:1] != [] and words[0] in self.with_rest and "--" in words
        end = words.index("--") if takes_rest else len(words)
        options, unknown = self.parse_known_args(words[:end], namespace)
        if takes_rest:
            options.rest = words[end + 1 :]
        used: StrictParser = getattr(options, "parser", self)
        several = next((each for each in used._actions if each.nargs == "*"), None)
        if several is not None and not any(word.startswith("-") for word in unknown):
            # argparse counts positional arguments after an option as too many.
            setattr(options, several.dest, [*getattr(options, several.dest), *unknown])
        elif unknown:
            used.refuse(unknown)
        return options

    @property
    def commands(self) -> dict[str, str]:
        """Returns each command's description by name."""
        return {each.dest: each.help or "" for each in self._commands._choices_actions}

    @property
    def options(self) -> dict[str, argparse.Action]:
        """Returns the options by each of their names."""
        return {name: action for action in self._actions for name in action.option_strings}

    @property
    def positionals(self) -> list[argparse.Action]:
        """Returns the positional arguments in order."""
        return [action for action in self._actions if not action.option_strings]

    @property
    def _commands(self) -> argparse._SubParsersAction[StrictParser]:
        return next(each for each in self._actions if isinstance(each, argparse._SubParsersAction))

    def of_command(self, name: str) -> StrictParser:
        """Returns the parser of one command. Exits as `error` does where the command does not exist."""
        try:
            self._check_value(self._commands, name)
        except argparse.ArgumentError as error:
            self.error(str(error))
        return self._commands.choices[name]

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Exits with an error about the first word that no argument takes."""
        word = next((each for each in unknown if each.startswith("-")), unknown[0])
        name, equals, value = word.partition("=")
        if not name.startswith("-"):
            self.error(f"one argument too many: {word}")
        known = [option for action in self._actions for option in action.option_strings]
        longer = [option for option in known if option.startswith(name)] if name.startswith("--") else []
        near = longer[0] if len(longer) == 1 else nearest(name, known)
        meant = f"; did you mean {near}{equals}{value}?" if near else ""
        if name == "--name" and "--set" in known:
            meant = f"; did you mean --set metadata.name={value or 'NAME'}?"
        if self.get_default("rest") is not None:
            meant += "; what the script is to take stands behind --"
        self.error(f"there is no option {name}{meant}")

    def error(self, message: str) -> NoReturn:
        """Prints one message, and where help is; exits with WRONG_USAGE."""
        message = re.sub(r"^argument COMMAND: ", "", message)
        message = re.sub(r"^the following arguments are required: ", "missing: ", message)
        print(f"error: {message}\n`{self.prog} --help` says what there is", file=sys.stderr)
        raise SystemExit(WRONG_USAGE)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Of an option `--` is no value: argparse would make a list of it, of no type."""
        if action.option_strings and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "expected one argument")
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Checks an argument with choices, and the command itself."""
        choices = None if action.choices is None else list(action.choices)
        if choices is None or value in choices:
            return
        near = self.elsewhere.get(str(value)) or nearest(str(value), choices)
        is_command = isinstance(action, argparse._SubParsersAction)
        what = f"there is no command {value}" if is_command else f"{value!r} is none of {', '.join(choices)}"
        raise argparse.ArgumentError(action, what + (f"; did you mean {near}?" if near else ""))


class LateParser:
    """The parser of a command, which is made when it is first used: to make all of them takes a tenth of the
    time of `--help`. `fill` gives it its arguments, `options` are StrictParser's.
    """

    def __init__(self, *, fill: Callable[[StrictParser], None], **options: Any) -> None:
        self._fill = fill
        self._options = options

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    @functools.cached_property
    def _parser(self) -> StrictParser:
        made = StrictParser(**self._options)
        self._fill(made)
        return made


_LONGEST = 1e9
"""Seconds: about 30 years."""
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)([smhd]?)")


def duration(text: str) -> float:
    """Parses a duration to seconds: `30`, `30s`, `10m`, `1h30m`."""
    parts = _PART.findall(text)
    whole = "".join(number + unit for number, unit in parts) == text
    # A number without a unit must be the only one.
    sound = bool(parts) and whole and (len(parts) == 1 or all(unit for _, unit in parts))
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts) if sound else -1.0
    if not 0 <= seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time, such as 30s, 10m or 2h")
    return seconds


def port(text: str) -> int:
    """Parses a port of this machine."""
    if not (text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a port, such as 6006")
    return int(text)


def count(text: str) -> int:
    """Parses a number from 0 on."""
    if not text.isdecimal() or len(text) > 12:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer, such as 20")
    return int(text)


def listed(kind: Callable[[str], Any], choices: Sequence[str] = ()) -> Callable[[str], list[Any]]:
    """Returns a type of one or several values, separated by commas. Each must be in `choices`, if there are
    any.
    """

    def read(text: str) -> list[Any]:
        words = [word.strip() for word in text.split(",")]
        for word in words:
            if choices and word not in choices:
                meant = did_you_mean(word, choices)
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(choices)}{meant}")
        return [kind(word) for word in words]

    return read
