"""The command line: parse, call, print. Each command imports what it needs, `--help` imports nothing."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from launcher.errors import INTERRUPTED, LauncherError, SpecError

if TYPE_CHECKING:
    from launcher.backends.base import Backend
    from launcher.loading import Loaded

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
    options = parser().parse_args(arguments)
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
    except Exception as error:
        if os.environ.get("TF_LAUNCHER_DEBUG"):
            raise
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
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        added.set_defaults(command=command)
        return added

    def add_file(added: argparse.ArgumentParser) -> None:
        added.add_argument("file", metavar="FILE", help="a cluster.yaml, or - for standard input")
        added.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="FIELD=VALUE",
            dest="overrides",
            help="override a field, as in spec.worker.replicas=4",
        )

    def add_run(added: argparse.ArgumentParser) -> None:
        added.add_argument("name", metavar="NAME", help="the run's name")
        added.add_argument(
            "-n", "--namespace", default="default", help="its namespace (default: %(default)s)"
        )
        added.add_argument(
            "--backend", choices=BACKENDS, help="where to look (default: this machine, then Kubernetes)"
        )

    added = add("init", _init, "write a commented cluster.yaml and its program to start from")
    added.add_argument("directory", metavar="FOLDER", nargs="?", default=".", help="where (default: here)")

    added = add("validate", _validate, "check a file")
    add_file(added)

    added = add("render", _render, "print the Kubernetes objects of a file's runs")
    add_file(added)
    added.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="(default: yaml)")

    added = add("submit", _submit, "start a file's runs and follow them to the end")
    add_file(added)
    added.add_argument("--backend", choices=BACKENDS, default="kubernetes", help="(default: %(default)s)")
    added.add_argument("--detach", action="store_true", help="return at once; the run goes on")

    added = add("status", _status, "show a run")
    add_run(added)

    added = add("list", _list, "show all runs")
    added.add_argument("--backend", choices=BACKENDS, default="local", help="where (default: %(default)s)")

    added = add("logs", _logs, "show what a run's tasks print")
    add_run(added)
    added.add_argument("-f", "--follow", action="store_true", help="go on until the run ends")
    added.add_argument("--role", choices=("chief", "worker", "ps", "evaluator"), help="this role only")
    added.add_argument("--index", type=int, metavar="N", help="this task of each role only")
    added.add_argument("--raw", action="store_true", help="as the tasks print it, without prefixes")

    added = add("wait", _wait, "wait for a run to end; the exit code is the run's")
    add_run(added)
    added.add_argument("--timeout", type=float, metavar="SECONDS", help="give up after so long")

    added = add("suspend", _suspend, "stop a run's tasks for now")
    add_run(added)
    added = add("resume", _resume, "go on with a suspended run, from its last backup")
    add_run(added)
    added = add("delete", _delete, "end a run and remove what is left of it")
    add_run(added)

    add("schema", _schema, "print the file's JSON Schema, for an editor")
    return top


def _load(options: argparse.Namespace) -> list[Loaded]:
    from launcher import loading, rules

    loaded = loading.load(options.file, options.overrides)
    for one in loaded:
        for notice in rules.notices(one.cluster):
            print(f"{one.source}: note: {notice}", file=sys.stderr)
    return loaded


def _init(options: argparse.Namespace) -> int:
    from launcher import starter

    written = starter.write(options.directory)
    for path in written:
        print(f"wrote {path}")
    print(f"next: python -m launcher submit {written[0]} --backend local")
    return 0


def _validate(options: argparse.Namespace) -> int:
    from launcher import planning, topology

    for loaded in _load(options):
        planning.plan(loaded)
        planned = topology.build(loaded.cluster)
        counts = ", ".join(f"{role.replicas} {name}" for name, role in planned.roles)
        print(f"{loaded.source}: {planned.run}: valid: {loaded.cluster.spec.strategy} with {counts}")
    return 0


def _render(options: argparse.Namespace) -> int:
    from launcher import planning, printing

    objects = [item for loaded in _load(options) for item in planning.plan(loaded).objects]
    print(printing.as_json(objects) if options.output == "json" else printing.as_yaml(objects), end="")
    return 0


def _submit(options: argparse.Namespace) -> int:
    import uuid

    from launcher.backends import choice

    backend = choice.named(options.backend)
    # The machinery starts while the file is read.
    backend.prepare()
    from launcher import planning

    plans = [planning.plan(loaded, uuid.uuid4().hex) for loaded in _load(options)]
    worst = 0
    # One after the other, unless they are let go: a machine's cores are not shared out by anyone.
    for plan in plans:
        left_out = backend.submit(plan, detach=options.detach)
        if left_out:
            print(left_out, file=sys.stderr)
        if options.detach:
            space = "" if plan.namespace == "default" else f" -n {plan.namespace}"
            print(f"run {plan.run} goes on; see: python -m launcher status {plan.run}{space}")
        else:
            # Not before the tasks are on their way.
            from launcher import display

            # A cluster goes on without us; this machine's tasks would be in the way of whoever stopped us.
            stop = options.backend == "local"
            code = display.watch(backend, plan.run, plan.namespace, stop_on_interrupt=stop)
            worst = worst or code
            if code >= INTERRUPTED:
                break
    return worst


def _sought(options: argparse.Namespace) -> Backend:
    from launcher.backends import choice

    if options.backend is not None:
        return choice.named(options.backend)
    return choice.holding(options.name, options.namespace)


def _status(options: argparse.Namespace) -> int:
    from launcher import display

    backend = _sought(options)
    display.show_status(backend, backend.status(options.name, options.namespace))
    return 0


def _list(options: argparse.Namespace) -> int:
    from launcher import display
    from launcher.backends import choice

    display.show_list(choice.named(options.backend).runs(None))
    return 0


def _logs(options: argparse.Namespace) -> int:
    from launcher import display
    from launcher.backends.base import Selection

    roles = () if options.role is None else (options.role,)
    indexes = () if options.index is None else (options.index,)
    lines = _sought(options).logs(
        options.name, options.namespace, Selection(roles, indexes), follow=options.follow
    )
    display.show_logs(lines, raw=options.raw)
    return 0


def _wait(options: argparse.Namespace) -> int:
    from launcher import display

    backend = _sought(options)
    return display.watch(
        backend, options.name, options.namespace, stop_on_interrupt=False, timeout=options.timeout
    )


def _suspend(options: argparse.Namespace) -> int:
    _sought(options).suspend(options.name, options.namespace)
    print(f"run {options.name} is suspended; resume it with: python -m launcher resume {options.name}")
    return 0


def _resume(options: argparse.Namespace) -> int:
    _sought(options).resume(options.name, options.namespace)
    print(f"run {options.name} goes on; watch it with: python -m launcher wait {options.name}")
    return 0


def _delete(options: argparse.Namespace) -> int:
    _sought(options).delete(options.name, options.namespace)
    print(f"run {options.name} is deleted")
    return 0


def _schema(options: argparse.Namespace) -> int:
    from launcher import schema

    print(schema.as_json(), end="")
    return 0
