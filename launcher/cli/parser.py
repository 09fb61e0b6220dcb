"""The command line: its words, and its exit codes. What they do is in `launcher.cli.commands`."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from launcher import terminal
from launcher.cli import commands
from launcher.errors import INTERRUPTED, LauncherError, SpecError

BACKENDS = ("kubernetes", "local")
INTERNAL_ERROR = 70

_EPILOG = """\
exit codes:
  0  done; the run succeeded          4  the run's state forbids it
  1  the run failed                   5  the backend cannot be reached, or refused
  2  the file or the usage is wrong  70  an error in the launcher itself
  3  there is no such run           130  interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns its exit code; every LauncherError becomes one message."""
    # Looking for pydantic's plugins costs twice what Python's own start does, and there are none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")
    # A tenth of the time to the first request is the collector's, which finds nothing in modules and models.
    gc.set_threshold(200_000)
    with terminal.guarded(debug=bool(os.environ.get("TF_LAUNCHER_DEBUG"))):
        return _run(parser().parse_args(arguments))


def _run(options: argparse.Namespace) -> int:
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        code = command(options)
        sys.stdout.flush()
        return code
    except SpecError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        count = len(error.problems)
        print(f"error: {count} problem{'s' if count > 1 else ''}; nothing was done", file=sys.stderr)
        return error.exit_code
    except LauncherError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(error.hint, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. Python would complain again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the last resort
        if os.environ.get("TF_LAUNCHER_DEBUG"):
            # Printed here, where it passes the guard.
            traceback.print_exc()
            return INTERNAL_ERROR
        print(f"error in the launcher itself: {type(error).__name__}: {error}", file=sys.stderr)
        print("TF_LAUNCHER_DEBUG=1 shows where; please report it", file=sys.stderr)
        return INTERNAL_ERROR


def parser() -> argparse.ArgumentParser:
    """Every command with its arguments."""
    from launcher import __version__

    top = argparse.ArgumentParser(
        prog="python -m launcher",
        description="Trains a TensorFlow model on many machines, from one cluster.yaml.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"tf-launcher {__version__}")
    subparsers = top.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = subparsers.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        added.set_defaults(command=command)
        return added

    def add_file(
        added: argparse.ArgumentParser,
        text: str = "a cluster.yaml or TFJob, or - for standard input",
        *,
        required: bool = True,
    ) -> None:
        added.add_argument("file", metavar="FILE", help=text, nargs=None if required else "?")
        added.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="FIELD=VALUE",
            dest="overrides",
            help="override a field, as in spec.worker.replicas=4",
        )
        added.add_argument(
            "--allow-outside",
            action="store_true",
            help="take a program.source outside the file's folder, by links too: you trust the file",
        )

    def add_namespace(added: argparse.ArgumentParser, text: str) -> None:
        added.add_argument("-n", "--namespace", help=text)

    def add_context(added: argparse.ArgumentParser) -> None:
        added.add_argument("--context", help="the kubeconfig's context (default: its current one)")
        added.add_argument(
            "--request-timeout",
            type=_duration,
            default=60.0,
            metavar="TIME",
            help="how long to wait for the API server's answers, all in all; 0 is without end (default: 60s)",
        )

    def add_run(added: argparse.ArgumentParser) -> None:
        added.add_argument("name", metavar="NAME", help="the run's name")
        add_namespace(added, "its namespace (default: the context's own, and `default` on this machine)")
        added.add_argument(
            "--backend", choices=BACKENDS, help="where to look (default: this machine, then Kubernetes)"
        )
        add_context(added)

    added = add("init", commands.init, "write a commented cluster.yaml and its program to start from")
    added.add_argument("directory", metavar="FOLDER", nargs="?", default=".", help="where (default: here)")

    added = add("validate", commands.validate, "check a file")
    add_file(added)
    added.add_argument(
        "--import",
        action="store_true",
        dest="imports",
        help="also import the program and make a first step, in a process of its own, on this machine's CPU",
    )

    added = add("convert", commands.convert, "print a TFJob as a cluster.yaml, and where it differs")
    add_file(added)

    added = add("render", commands.render, "print the Kubernetes objects of a file's runs")
    add_file(added)
    added.add_argument(
        "--as",
        choices=("jobs", "jobset"),
        default="jobs",
        dest="form",
        help="one Job a role, or one JobSet with the roles as its replicatedJobs (default: %(default)s)",
    )
    add_namespace(added, "where they are to live, if the file does not say (default: default)")
    added.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="(default: yaml)")

    added = add("submit", commands.submit, "start a file's runs and follow them to the end")
    add_file(added)
    add_namespace(added, "where they are to live, if the file does not say (default: the context's own)")
    added.add_argument("--backend", choices=BACKENDS, default="kubernetes", help="(default: %(default)s)")
    add_context(added)
    added.add_argument("--detach", action="store_true", help="return at once; the run goes on")
    added.add_argument(
        "--replace",
        action="store_true",
        help="end a run of this name that goes on; the new one resumes from its backup",
    )
    added.add_argument(
        "--owned-by",
        action="append",
        default=[],
        metavar="KIND/NAME",
        help="the run goes when this Job or ConfigMap is gone, the last of them where there are several; a "
        "run of theirs is replaced, or followed if it is the same (Kubernetes; the Helm chart's own)",
    )
    added.add_argument(
        "--allow-network",
        action="store_true",
        help="with --backend local: the tasks have this machine's network, and are reached through it",
    )
    added.add_argument(
        "--dry-run",
        choices=("client", "server"),
        help="only say what would be done: client asks nobody, server has the cluster check every object",
    )

    added = add("status", commands.status, "show a run")
    add_run(added)

    added = add("list", commands.list_runs, "show all runs, of this machine or with --backend kubernetes")
    add_namespace(added, "of this namespace only (default: all)")
    added.add_argument("--backend", choices=BACKENDS, help="where (default: on this machine)")
    add_context(added)

    added = add("logs", commands.logs, "show what a run's tasks print")
    add_run(added)
    added.add_argument("-f", "--follow", action="store_true", help="go on until the run ends")
    added.add_argument("--role", choices=("chief", "worker", "ps", "evaluator"), help="this role only")
    added.add_argument("--index", type=int, metavar="N", help="this task of each role only")
    added.add_argument(
        "--since", type=_duration, metavar="TIME", help="the last 30s, 10m or 2h only (Kubernetes)"
    )
    added.add_argument(
        "--previous", action="store_true", help="of the pods that a task had before its latest one only"
    )
    added.add_argument("--raw", action="store_true", help="as the tasks print it, without prefixes")

    added = add(
        "events", commands.events, "show what the cluster says about a run, oldest first (Kubernetes)"
    )
    added.add_argument("name", metavar="NAME", help="the run's name")
    add_namespace(added, "its namespace (default: the context's own)")
    add_context(added)
    added.add_argument("-f", "--follow", action="store_true", help="go on until the run ends")

    added = add("report", commands.report, "write a picture of a run: one HTML page, for a browser")
    add_run(added)
    added.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="where, replacing what is there; - is standard output",
    )

    added = add("wait", commands.wait, "wait for a run to end; the exit code is the run's")
    add_run(added)
    added.add_argument(
        "--for",
        choices=("running", "succeeded"),
        default="succeeded",
        dest="until",
        help="until every task runs, or to the end (default: %(default)s)",
    )
    added.add_argument("--timeout", type=_duration, metavar="TIME", help="give up after so long")

    added = add(
        "tensorboard", commands.tensorboard, "open a run's TensorBoard in reach of a browser, until Ctrl-C"
    )
    add_run(added)
    added.add_argument(
        "--port", type=_port, default=0, metavar="N", help="on this machine (default: any that is free)"
    )

    added = add("suspend", commands.suspend, "stop a run's tasks for now")
    add_run(added)
    added = add("resume", commands.resume, "go on with a suspended run, from its last backup")
    add_run(added)
    added = add("delete", commands.delete, "end a run and remove what is left of it")
    add_run(added)
    added.add_argument(
        "--yes", action="store_true", help="do not ask, on a terminal, where the model goes with the run"
    )

    added = add("doctor", commands.doctor, "check whether the cluster can carry out a run (Kubernetes)")
    add_file(added, "the cluster.yaml whose runs are meant (default: any run)", required=False)
    add_namespace(added, "where (default: the context's own)")
    add_context(added)
    added.add_argument(
        "--role",
        action="store_true",
        help="only print the least Role that is enough, for `kubectl apply -f -`",
    )

    add("schema", commands.schema, "print the file's JSON Schema, for an editor")
    return top


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a port, such as 6006")
    return int(text)


_LONGEST = 1e9
"""Seconds, which are 30 years."""
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _duration(text: str) -> float:
    """Seconds."""
    number = text.rstrip("smhd")
    try:
        found = float(number) * _UNITS[text[len(number) :]]
    except (ValueError, KeyError):
        found = -1.0
    if not 0 <= found <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time, such as 30s, 10m or 2h")
    return found
