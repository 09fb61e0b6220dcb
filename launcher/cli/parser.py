"""The command line: its parser and exit codes. What a command takes and does is in `commands`."""

from __future__ import annotations

import argparse
import errno
import functools
import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, cast

from launcher import terminal
from launcher.cli import completion, prerequisites
from launcher.cli.commands import BARE, COMMANDS, VERSION, cmd_help
from launcher.cli.strict_parser import LateParser, StrictParser
from launcher.cli.usage import UsageError
from launcher.errors import INTERRUPTED, LauncherError, SpecError
from launcher.object_names import PROGRAM

INTERNAL_ERROR = 70

WHERE = """\
A command looks for a run on this machine, then in the cluster of the kubeconfig's
current context. --backend local or kubernetes looks there alone, --context in that
cluster. The namespace is that of -n, else the context's own; on this machine it is
`default`. `list` and `ui` show the runs of both. Only `submit` must be told where: it
starts a run in the cluster, unless it has --backend local.
"""

EXIT_CODES = {
    0: "done; the run succeeded",
    1: "the run failed",
    2: "the file or the usage is wrong, or this Python lacks a package",
    3: "there is no such run, or no such task of it; verify: the trainings differ",
    4: "the run's state forbids it",
    5: "the backend cannot be reached, or refused",
    INTERNAL_ERROR: "an error in the launcher itself",
    INTERRUPTED: "interrupted by Ctrl-C",
}


_ELSEWHERE = {
    **dict.fromkeys(("apply", "create", "start", "up"), "submit"),
    **dict.fromkeys(("ls", "ps"), "list"),
    "get": "list or status",
    **dict.fromkeys(("down", "rm", "remove", "uninstall"), "delete"),
    **dict.fromkeys(("pause", "stop"), "suspend"),
    **dict.fromkeys(("dashboard", "serve"), "ui"),
    "config": "render",
    "edit": "submit --replace",
    "port-forward": "tensorboard",
    "rollout": "status",
    "unpause": "resume",
    "attach": "logs",
    "cancel": "delete",
    "explain": "schema",
    "inspect": "describe",
    "install": "submit",
    "lint": "validate",
    "template": "render",
    "top": "status",
    "upgrade": "submit",
}
"""Commands of kubectl, docker and helm, and the launcher's commands of the same purpose."""


def _epilog() -> str:
    where = WHERE.replace("\n", "\n  ").rstrip()
    codes = "\n".join(f"{code:>5}  {text}" for code, text in EXIT_CODES.items())
    return f"where a command looks:\n  {where}\n\nexit codes:\n{codes}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns its exit code; every LauncherError becomes one message."""
    # The search for pydantic's plugins takes twice the time of Python's own start, and there are none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")
    # Garbage collection takes a tenth of the time to the first request, and finds nothing in modules and
    # models.
    gc.set_threshold(200_000)
    with terminal.guarded(debug=bool(os.environ.get("TF_LAUNCHER_DEBUG"))):
        given = sys.argv[1:] if arguments is None else arguments
        if completion.COMMAND in given[:1]:
            completion.answer(parser(), given[1:])
            return 0
        return _run(parser().parse_args(given), given)


def _run(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        if options.command not in BARE:
            prerequisites.check(arguments)
        code = run(options)
        sys.stdout.flush()
        return code
    except UsageError as error:
        print(f"error: {error.message}", file=sys.stderr)
        print(f"`{options.parser.prog} --help` says what there is", file=sys.stderr)
        return error.exit_code
    except SpecError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        count = len(error.problems)
        done = " found" if options.command == "validate" else "; nothing was done"
        print(f"error: {count} problem{'s' if count > 1 else ''}{done}", file=sys.stderr)
        return error.exit_code
    except LauncherError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(error.hint, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough.
        _write_to_nobody()
        return 0
    except Exception as error:  # noqa: BLE001 - the last resort
        if isinstance(error, OSError) and error.errno in _NOT_WRITTEN and error.filename is None:
            _write_to_nobody()
            print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
            return LauncherError.exit_code
        if os.environ.get("TF_LAUNCHER_DEBUG"):
            import traceback

            # Printed here, while the guard against secrets is active.
            traceback.print_exc()
            return INTERNAL_ERROR
        print(f"error in the launcher itself: {type(error).__name__}: {error}", file=sys.stderr)
        print("TF_LAUNCHER_DEBUG=1 shows where; please report it", file=sys.stderr)
        return INTERNAL_ERROR


_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What standard output says that is a file on a full disk, or on none any more."""


def _write_to_nobody() -> None:
    """What is still to be written to standard output: Python would complain again at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser() -> StrictParser:
    """Returns the parser of every command with its arguments."""
    top = StrictParser(
        prog=PROGRAM,
        description="Trains a TensorFlow model on many machines, from one cluster.yaml.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.implied = {"--dry-run": ("client", ("client", "server"))}
    top.elsewhere = _ELSEWHERE
    top.with_rest = ("run",)
    top.set_defaults(command="help", run=cmd_help.run, topic=None, top=top)
    top.add_argument("--version", action="version", version=VERSION)
    subparsers = top.add_subparsers(metavar="COMMAND", parser_class=cast("Any", LateParser))
    for name, text in COMMANDS.items():
        fill = functools.partial(_fill, top, name)
        subparsers.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", fill=fill)
    return top


def _fill(top: StrictParser, name: str, parser: StrictParser) -> None:
    """Gives a command's parser what the command takes and does."""
    module = import_module(f"launcher.cli.commands.cmd_{name}")
    parser.set_defaults(command=name, run=module.run, parser=parser, top=top)
    module.arguments(parser)
