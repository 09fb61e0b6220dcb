"""What each command takes: a function for each fills its parser."""

from __future__ import annotations

import argparse

from launcher.cli import completion
from launcher.cli.strict_parser import StrictParser, count, duration, listed, port
from launcher.object_names import ROLES

BACKENDS = ("kubernetes", "local")
DATA_WORKER = "data-worker"
FORMS = ("json", "yaml", "wide", "name")


def file(parser: StrictParser, text: str = "a cluster.yaml or TFJob, or - for standard input") -> None:
    """Of a command on a file's runs."""
    parser.add_argument("file", metavar="FILE", help=text, nargs="?")
    parser.add_argument("-f", "--filename", metavar="FILE", help="the same, as kubectl has it")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="overrides",
        help="override a field by its whole path, which begins with spec. or metadata., as in "
        "spec.worker.replicas=4",
    )
    parser.add_argument(
        "--allow-outside",
        action="store_true",
        help="take a program.source outside the file's folder, by links too: you trust the file",
    )


def run(parser: StrictParser) -> None:
    """Of a command on one run."""
    parser.add_argument("name", metavar="NAME", help="the run's name")
    _add_place(parser)


def init(parser: StrictParser) -> None:
    """Of `init`."""
    parser.add_argument("directory", metavar="FOLDER", nargs="?", default=".", help="where (default: here)")


def validate(parser: StrictParser) -> None:
    """Of `validate`."""
    file(parser)
    parser.add_argument(
        "--import",
        action="store_true",
        dest="imports",
        help="also import the program and make a first step, in a process of its own, on this machine's CPU",
    )


def render(parser: StrictParser) -> None:
    """Of `render`."""
    file(parser)
    parser.add_argument(
        "--as",
        choices=("jobs", "jobset"),
        default="jobs",
        dest="form",
        help="one Job a role, or one JobSet with the roles as its replicatedJobs (default: %(default)s)",
    )
    _add_namespace(parser, "where they are to live, if the file does not say (default: kubectl's)")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="(default: yaml)")


def submit(parser: StrictParser) -> None:
    """Of `submit`."""
    file(parser)
    _add_namespace(parser, "where they are to live, if the file does not say (default: the context's own)")
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="kubernetes",
        help="a cluster or this machine (default: %(default)s)",
    )
    _add_context(parser)
    parser.add_argument("--detach", action="store_true", help="return at once; the run keeps running")
    parser.add_argument(
        "--replace",
        action="store_true",
        help="end a run of this name that is running; the new one resumes from its backup",
    )
    parser.add_argument(
        "--owned-by",
        action="append",
        default=[],
        metavar="KIND/NAME",
        help="make this Job or ConfigMap the run's owner: Kubernetes deletes the run when its last owner is "
        "deleted. A run with the same owner is replaced, or followed if nothing has changed (Kubernetes; the "
        "Helm chart uses it)",
    )
    parser.add_argument(
        "--allow-network",
        action="store_true",
        help="with --backend local: the tasks have this machine's network, and are reached through it",
    )
    parser.add_argument(
        "--dry-run",
        choices=("client", "server"),
        metavar="client|server",
        help="only say what would be done: client (the same as --dry-run alone) asks nobody, server has the "
        "cluster check every object",
    )


def status(parser: StrictParser) -> None:
    """Of `status`."""
    run(parser)
    _add_output(parser, "its tasks too, with their nodes and pods")
    parser.add_argument("-w", "--watch", action="store_true", help="again with each change, until it ends")


def list_runs(parser: StrictParser) -> None:
    """Of `list`."""
    scope = parser.add_mutually_exclusive_group()
    _add_namespace(scope, "of this namespace only")
    scope.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        help="of all namespaces (the default where you may list them; else the context's own)",
    )
    parser.add_argument(
        "-l",
        "--selector",
        metavar="LABELS",
        help="with these labels (metadata.labels), as in team=vision or 'team in (vision, speech),!old'",
    )
    parser.add_argument(
        "--backend", choices=BACKENDS, help="of one place only (default: this machine and the cluster)"
    )
    _add_context(parser)
    _add_output(parser, "the tasks, the context and the labels too")
    parser.add_argument("-w", "--watch", action="store_true", help="again with each change, until Ctrl-C")


def logs(parser: StrictParser) -> None:
    """Of `logs`."""
    run(parser)
    parser.add_argument(
        "tasks",
        nargs="*",
        default=[],
        metavar="TASK",
        help="these only: a role (worker), a task (worker-1) or a pod's name (default: all)",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="continue until the run ends")
    parser.add_argument(
        "--role",
        action="extend",
        type=listed(str, ROLES),
        default=[],
        metavar="ROLE",
        help=f"this role only, or several: {', '.join(ROLES)}",
    )
    parser.add_argument(
        "--index",
        action="extend",
        type=listed(count),
        default=[],
        metavar="N",
        help="this task of each role only, or several: 0,2",
    )
    parser.add_argument("--since", type=duration, metavar="TIME", help="the last 30s, 10m or 2h only")
    parser.add_argument("--tail", type=count, metavar="N", help="of each task the last N lines only")
    parser.add_argument(
        "--timestamps",
        action="store_true",
        help="when each line was printed (on this machine within a second)",
    )
    parser.add_argument(
        "--previous",
        action="store_true",
        help="of the pods and processes that a task had before its latest one only",
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="all lines as the tasks print them, without prefixes, what TensorFlow prints at its start too",
    )


def events(parser: StrictParser) -> None:
    """Of `events`."""
    run(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="continue until the run ends")


def report(parser: StrictParser) -> None:
    """Of `report`."""
    run(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where, replacing what is there; - is standard output (default: NAME.html)",
    )


def wait(parser: StrictParser) -> None:
    """Of `wait`."""
    run(parser)
    parser.add_argument(
        "--for",
        choices=("running", "succeeded"),
        default="succeeded",
        dest="until",
        help="until every task runs, or to the end (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout", type=duration, metavar="TIME", help="give up after 30s, 10m or 2h, with exit code 4"
    )


def cp(parser: StrictParser) -> None:
    """Of `cp`."""
    parser.add_argument(
        "source",
        metavar="NAME:PATH",
        help="the run, and a path below its modelDir, as in mnist:export; NAME: is all of it",
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        default=".",
        help="the file or folder to write; in a folder that is there, under its own name (default: here)",
    )
    parser.add_argument(
        "--timeout",
        type=duration,
        default=300.0,
        metavar="TIME",
        help="how long the pod that copies may take to come up (Kubernetes; default: 5m)",
    )
    _add_place(parser)


def tensorboard(parser: StrictParser) -> None:
    """Of `tensorboard`."""
    run(parser)
    parser.add_argument(
        "--port", type=port, default=0, metavar="N", help="on this machine (default: any that is free)"
    )


def kill(parser: StrictParser) -> None:
    """Of `kill`."""
    run(parser)
    parser.add_argument("task", metavar="TASK", help="such as worker-1; a role alone is its first task")


def scale(parser: StrictParser) -> None:
    """Of `scale`."""
    run(parser)
    parser.add_argument(
        "--role",
        choices=("worker", DATA_WORKER),
        default="worker",
        metavar="ROLE",
        help=f"worker (the default), or {DATA_WORKER}, of spec.dataService",
    )
    parser.add_argument(
        "--workers",
        type=count,
        required=True,
        metavar="N",
        help="from minReplicas to maxReplicas; of data workers up to four times those of its file, or 16",
    )


def delete(parser: StrictParser) -> None:
    """Of `delete`."""
    parser.add_argument("names", metavar="NAME", nargs="*", default=[], help="the runs' names")
    parser.add_argument(
        "--all", action="store_true", help="all runs of the namespace, in the place that --backend names"
    )
    parser.add_argument(
        "-f", "--filename", metavar="FILE", help="the runs of this cluster.yaml; - is standard input"
    )
    parser.add_argument(
        "--yes", action="store_true", help="do not ask, on a terminal, where the model goes with the run"
    )
    _add_place(parser)


def doctor(parser: StrictParser) -> None:
    """Of `doctor`."""
    file(parser, "the cluster.yaml whose runs are meant (default: any run)")
    _add_namespace(parser, "where (default: the context's own)")
    _add_context(parser)
    parser.add_argument(
        "--role",
        action="store_true",
        help="only print the least Role that is enough, for `kubectl apply -f -`",
    )


def schema(parser: StrictParser) -> None:
    """Of `schema`."""
    parser.add_argument(
        "what",
        nargs="?",
        choices=("cluster", "status", "list"),
        default="cluster",
        help="of cluster.yaml, for an editor, or of what `status` or `list` print with -o json "
        "(default: %(default)s)",
    )


def shell(parser: StrictParser) -> None:
    """Of `completion`."""
    shells = "|".join(completion.SHELLS)
    parser.add_argument("shell", metavar=shells, choices=completion.SHELLS, help="the shell that reads it")
    parser.epilog = completion.INSTALL
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def topic(parser: StrictParser) -> None:
    """Of `help`."""
    parser.add_argument("topic", metavar="COMMAND", nargs="?", help="which one (default: all)")


def _add_namespace(parser: argparse._ActionsContainer, text: str) -> None:
    parser.add_argument("-n", "--namespace", help=text)


def _add_context(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--context", help="the kubeconfig's context (default: its current one)")
    parser.add_argument(
        "--request-timeout",
        type=duration,
        default=None,
        metavar="TIME",
        help="how long to wait for the API server's answers, all in all; 0 is without end (default: 60s)",
    )


def _add_place(parser: argparse.ArgumentParser) -> None:
    _add_namespace(parser, "its namespace (default: the context's own, and `default` on this machine)")
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        help="where to look (default: on this machine, then in the current context's cluster)",
    )
    _add_context(parser)


def _add_output(parser: argparse.ArgumentParser, wide: str) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=FORMS,
        help=f"json or yaml, as docs/reference.md describes them; wide: {wide}; name: only the name",
    )
