"""The command line: its commands, options and exit codes. `launcher.cli.commands` carries them out."""

from __future__ import annotations

import argparse
import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence

from launcher import terminal
from launcher.cli import commands, completion, prerequisites
from launcher.cli.strict_parser import StrictParser, count, duration, listed, port
from launcher.errors import INTERRUPTED, LauncherError, SpecError
from launcher.naming import PROGRAM

BACKENDS = ("kubernetes", "local")
INTERNAL_ERROR = 70

DATA_WORKER = "data-worker"
ROLES = ("chief", "worker", "ps", "evaluator", "dispatcher", DATA_WORKER)
FORMS = ("json", "yaml", "wide", "name")

WHERE = """\
A command looks for a run on this machine, then in the cluster of the kubeconfig's
current context. --backend local or kubernetes looks there alone, --context in that
cluster. The namespace is that of -n, else the context's own; on this machine it is
`default`. `list` shows the runs of both. Only `submit` must be told where: it starts a
run in the cluster, unless it has --backend local.
"""

EXIT_CODES = {
    0: "done; the run succeeded",
    1: "the run failed",
    2: "the file or the usage is wrong, or this Python lacks a package",
    3: "there is no such run, or no such task of it",
    4: "the run's state forbids it",
    5: "the backend cannot be reached, or refused",
    INTERNAL_ERROR: "an error in the launcher itself",
    INTERRUPTED: "interrupted by Ctrl-C",
}


_ELSEWHERE = {
    **dict.fromkeys(("apply", "create", "run", "start", "up"), "submit"),
    **dict.fromkeys(("ls", "ps"), "list"),
    "get": "list or status",
    **dict.fromkeys(("down", "rm", "remove", "uninstall"), "delete"),
    **dict.fromkeys(("pause", "stop"), "suspend"),
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
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        if not options.bare:
            prerequisites.check(arguments)
        code = command(options)
        sys.stdout.flush()
        return code
    except commands.UsageError as error:
        print(f"error: {error.message}", file=sys.stderr)
        print(f"`{options.parser.prog} --help` says what there is", file=sys.stderr)
        return error.exit_code
    except SpecError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        count = len(error.problems)
        done = " found" if command is commands.validate else "; nothing was done"
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
    top.set_defaults(command=lambda _: _help(top), bare=True)
    top.add_argument("--version", action="version", version=commands.version_text())
    subparsers = top.add_subparsers(metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str) -> StrictParser:
        added: StrictParser = subparsers.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + "."
        )
        added.set_defaults(command=command, parser=added, bare=False)
        return added

    added = add("init", commands.init, "write a commented cluster.yaml and its program to start from")
    added.add_argument("directory", metavar="FOLDER", nargs="?", default=".", help="where (default: here)")

    added = add("validate", commands.validate, "check a file")
    _add_file(added)
    added.add_argument(
        "--import",
        action="store_true",
        dest="imports",
        help="also import the program and make a first step, in a process of its own, on this machine's CPU",
    )

    added = add("convert", commands.convert, "print a TFJob as a cluster.yaml, and where it differs")
    _add_file(added)

    added = add("render", commands.render, "print the Kubernetes objects of a file's runs")
    _add_file(added)
    added.add_argument(
        "--as",
        choices=("jobs", "jobset"),
        default="jobs",
        dest="form",
        help="one Job a role, or one JobSet with the roles as its replicatedJobs (default: %(default)s)",
    )
    _add_namespace(added, "where they are to live, if the file does not say (default: kubectl's)")
    added.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="(default: yaml)")

    added = add("submit", commands.submit, "start a file's runs and follow them to the end")
    _add_file(added)
    _add_namespace(added, "where they are to live, if the file does not say (default: the context's own)")
    added.add_argument(
        "--backend",
        choices=BACKENDS,
        default="kubernetes",
        help="a cluster or this machine (default: %(default)s)",
    )
    _add_context(added)
    added.add_argument("--detach", action="store_true", help="return at once; the run keeps running")
    added.add_argument(
        "--replace",
        action="store_true",
        help="end a run of this name that is running; the new one resumes from its backup",
    )
    added.add_argument(
        "--owned-by",
        action="append",
        default=[],
        metavar="KIND/NAME",
        help="make this Job or ConfigMap the run's owner: Kubernetes deletes the run when its last owner is "
        "deleted. A run with the same owner is replaced, or followed if nothing has changed (Kubernetes; the "
        "Helm chart uses it)",
    )
    added.add_argument(
        "--allow-network",
        action="store_true",
        help="with --backend local: the tasks have this machine's network, and are reached through it",
    )
    added.add_argument(
        "--dry-run",
        choices=("client", "server"),
        metavar="client|server",
        help="only say what would be done: client (the same as --dry-run alone) asks nobody, server has the "
        "cluster check every object",
    )

    added = add("status", commands.status, "show a run")
    _add_run(added)
    _add_output(added, "its tasks too, with their nodes and pods")
    added.add_argument("-w", "--watch", action="store_true", help="again with each change, until it ends")

    added = add("list", commands.list_runs, "show all runs, of this machine and of the cluster")
    scope = added.add_mutually_exclusive_group()
    _add_namespace(scope, "of this namespace only")
    scope.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        help="of all namespaces (the default where you may list them; else the context's own)",
    )
    added.add_argument(
        "-l",
        "--selector",
        metavar="LABELS",
        help="with these labels (metadata.labels), as in team=vision or 'team in (vision, speech),!old'",
    )
    added.add_argument(
        "--backend", choices=BACKENDS, help="of one place only (default: this machine and the cluster)"
    )
    _add_context(added)
    _add_output(added, "the tasks, the context and the labels too")
    added.add_argument("-w", "--watch", action="store_true", help="again with each change, until Ctrl-C")

    added = add("describe", commands.describe, "show all that is known of a run, with its latest events")
    _add_run(added)

    added = add("logs", commands.logs, "show what a run's tasks print")
    _add_run(added)
    added.add_argument(
        "tasks",
        nargs="*",
        default=[],
        metavar="TASK",
        help="these only: a role (worker), a task (worker-1) or a pod's name (default: all)",
    )
    added.add_argument("-f", "--follow", action="store_true", help="continue until the run ends")
    added.add_argument(
        "--role",
        action="extend",
        type=listed(str, ROLES),
        default=[],
        metavar="ROLE",
        help=f"this role only, or several: {', '.join(ROLES)}",
    )
    added.add_argument(
        "--index",
        action="extend",
        type=listed(count),
        default=[],
        metavar="N",
        help="this task of each role only, or several: 0,2",
    )
    added.add_argument("--since", type=duration, metavar="TIME", help="the last 30s, 10m or 2h only")
    added.add_argument("--tail", type=count, metavar="N", help="of each task the last N lines only")
    added.add_argument(
        "--timestamps",
        action="store_true",
        help="when each line was printed (on this machine within a second)",
    )
    added.add_argument(
        "--previous",
        action="store_true",
        help="of the pods and processes that a task had before its latest one only",
    )
    added.add_argument(
        "--raw",
        action="store_true",
        help="all lines as the tasks print them, without prefixes, what TensorFlow prints at its start too",
    )

    added = add("events", commands.events, "show the Kubernetes events of a run, oldest first")
    _add_run(added)
    added.add_argument("-f", "--follow", action="store_true", help="continue until the run ends")

    added = add("report", commands.report, "write an HTML report of a run, for a browser")
    _add_run(added)
    added.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where, replacing what is there; - is standard output (default: NAME.html)",
    )

    added = add("wait", commands.wait, "wait for a run to end; the exit code is the run's")
    _add_run(added)
    added.add_argument(
        "--for",
        choices=("running", "succeeded"),
        default="succeeded",
        dest="until",
        help="until every task runs, or to the end (default: %(default)s)",
    )
    added.add_argument(
        "--timeout", type=duration, metavar="TIME", help="give up after 30s, 10m or 2h, with exit code 4"
    )

    added = add("cp", commands.cp, "copy a run's files to this machine: its checkpoints, its exported model")
    added.add_argument(
        "source",
        metavar="NAME:PATH",
        help="the run, and a path below its modelDir, as in mnist:export; NAME: is all of it",
    )
    added.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        default=".",
        help="the file or folder to write; in a folder that is there, under its own name (default: here)",
    )
    added.add_argument(
        "--timeout",
        type=duration,
        default=300.0,
        metavar="TIME",
        help="how long the pod that copies may take to come up (Kubernetes; default: 5m)",
    )
    _add_place(added)

    added = add("tensorboard", commands.tensorboard, "open a run's TensorBoard on a local port, until Ctrl-C")
    _add_run(added)
    added.add_argument(
        "--port", type=port, default=0, metavar="N", help="on this machine (default: any that is free)"
    )

    added = add("kill", commands.kill, "end a task by SIGKILL, to see its run survive that (this machine)")
    _add_run(added)
    added.add_argument("task", metavar="TASK", help="such as worker-1; a role alone is its first task")
    said = "change the number of an elastic run's workers, or of data workers, while it runs"
    added = add("scale", commands.scale, said)
    _add_run(added)
    added.add_argument(
        "--role",
        choices=("worker", DATA_WORKER),
        default="worker",
        metavar="ROLE",
        help=f"worker (the default), or {DATA_WORKER}, of spec.dataService",
    )
    added.add_argument(
        "--workers",
        type=count,
        required=True,
        metavar="N",
        help="from minReplicas to maxReplicas; of data workers up to four times those of its file, or 16",
    )
    added = add("suspend", commands.suspend, "stop a run's tasks for now")
    _add_run(added)
    added = add("resume", commands.resume, "continue a suspended run from its last backup")
    _add_run(added)

    added = add("delete", commands.delete, "end runs and remove what is left of them")
    added.add_argument("names", metavar="NAME", nargs="*", default=[], help="the runs' names")
    added.add_argument(
        "--all", action="store_true", help="all runs of the namespace, in the place that --backend names"
    )
    added.add_argument(
        "-f", "--filename", metavar="FILE", help="the runs of this cluster.yaml; - is standard input"
    )
    added.add_argument(
        "--yes", action="store_true", help="do not ask, on a terminal, where the model goes with the run"
    )
    _add_place(added)

    added = add("doctor", commands.doctor, "check whether the cluster can carry out a run (Kubernetes)")
    _add_file(added, "the cluster.yaml whose runs are meant (default: any run)")
    _add_namespace(added, "where (default: the context's own)")
    _add_context(added)
    added.add_argument(
        "--role",
        action="store_true",
        help="only print the least Role that is enough, for `kubectl apply -f -`",
    )

    added = add("schema", commands.schema, "print a JSON Schema")
    added.add_argument(
        "what",
        nargs="?",
        choices=("cluster", "status", "list"),
        default="cluster",
        help="of cluster.yaml, for an editor, or of what `status` or `list` print with -o json "
        "(default: %(default)s)",
    )

    added = add("completion", commands.completion, "print a script that completes commands and runs' names")
    shells = "|".join(completion.SHELLS)
    added.add_argument("shell", metavar=shells, choices=completion.SHELLS, help="the shell that reads it")
    added.epilog = completion.INSTALL
    added.formatter_class = argparse.RawDescriptionHelpFormatter

    added = add("help", lambda options: _help(top, options.topic), "show the help of a command")
    added.add_argument("topic", metavar="COMMAND", nargs="?", help="which one (default: all)")
    added.set_defaults(bare=True)
    added = add("version", commands.version, "print the version")
    added.set_defaults(bare=True)
    return top


def _help(top: StrictParser, topic: str | None = None) -> int:
    if topic is None:
        top.print_help()
    else:
        top.of_command(topic).print_help()
    return 0


def _add_file(
    added: argparse.ArgumentParser, text: str = "a cluster.yaml or TFJob, or - for standard input"
) -> None:
    added.add_argument("file", metavar="FILE", help=text, nargs="?")
    added.add_argument("-f", "--filename", metavar="FILE", help="the same, as kubectl has it")
    added.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="overrides",
        help="override a field by its whole path, which begins with spec. or metadata., as in "
        "spec.worker.replicas=4",
    )
    added.add_argument(
        "--allow-outside",
        action="store_true",
        help="take a program.source outside the file's folder, by links too: you trust the file",
    )


def _add_namespace(added: argparse._ActionsContainer, text: str) -> None:
    added.add_argument("-n", "--namespace", help=text)


def _add_context(added: argparse.ArgumentParser) -> None:
    added.add_argument("--context", help="the kubeconfig's context (default: its current one)")
    added.add_argument(
        "--request-timeout",
        type=duration,
        default=None,
        metavar="TIME",
        help="how long to wait for the API server's answers, all in all; 0 is without end (default: 60s)",
    )


def _add_place(added: argparse.ArgumentParser) -> None:
    _add_namespace(added, "its namespace (default: the context's own, and `default` on this machine)")
    added.add_argument(
        "--backend",
        choices=BACKENDS,
        help="where to look (default: on this machine, then in the current context's cluster)",
    )
    _add_context(added)


def _add_run(added: argparse.ArgumentParser) -> None:
    added.add_argument("name", metavar="NAME", help="the run's name")
    _add_place(added)


def _add_output(added: argparse.ArgumentParser, wide: str) -> None:
    added.add_argument(
        "-o",
        "--output",
        choices=FORMS,
        help=f"json or yaml, as docs/reference.md describes them; wide: {wide}; name: only the name",
    )
