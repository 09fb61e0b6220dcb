"""Arguments that several commands take."""

from __future__ import annotations

import argparse

from launcher.cli.strict_parser import StrictParser, duration
from launcher.cli.strict_parser import port as port_number

BACKENDS = ("kubernetes", "local")
FORMS = ("json", "yaml", "wide", "name")


def file(parser: StrictParser, text: str = "a cluster.yaml or TFJob, or - for standard input") -> None:
    """Of a command on a file's runs."""
    parser.add_argument("file", metavar="FILE", help=text, nargs="?")
    parser.add_argument("-f", "--filename", metavar="FILE", help="the same, as kubectl has it")
    overrides(parser)
    parser.add_argument(
        "--allow-outside",
        action="store_true",
        help="take a program.source outside the file's folder, by links too: you trust the file",
    )


def overrides(parser: StrictParser) -> None:
    """Of a command on a file's runs, or a script's."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="overrides",
        help="override a field by its whole path, which begins with spec. or metadata., as in "
        "spec.worker.replicas=4",
    )


def run(parser: StrictParser) -> None:
    """Of a command on one run."""
    parser.add_argument("name", metavar="NAME", help="the run's name")
    place(parser)


def tasks(parser: StrictParser) -> None:
    """Of a command on some of a run's tasks."""
    parser.add_argument(
        "tasks",
        nargs="*",
        default=[],
        metavar="TASK",
        help="these only: a role (worker), a task (worker-1) or a pod's name (default: all)",
    )


def namespace(parser: argparse._ActionsContainer, text: str) -> None:
    """Of a command on a namespace; `text` says what it is for."""
    parser.add_argument("-n", "--namespace", help=text)


def context(parser: argparse.ArgumentParser) -> None:
    """Of a command that may ask a cluster."""
    parser.add_argument("--context", help="the kubeconfig's context (default: its current one)")
    parser.add_argument(
        "--request-timeout",
        type=duration,
        default=None,
        metavar="TIME",
        help="how long to wait for the API server's answers, all in all; 0 is without end (default: 60s)",
    )


def place(parser: argparse.ArgumentParser) -> None:
    """Of a command that looks for runs."""
    namespace(parser, "its namespace (default: the context's own, and `default` on this machine)")
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        help="where to look (default: on this machine, then in the current context's cluster)",
    )
    context(parser)


def port(parser: argparse.ArgumentParser) -> None:
    """Of a command that serves pages."""
    parser.add_argument(
        "--port", type=port_number, default=0, metavar="N", help="on this machine (default: any that is free)"
    )


def output(parser: argparse.ArgumentParser, wide: str) -> None:
    """Of a command that prints runs; `wide` says what `-o wide` adds."""
    parser.add_argument(
        "-o",
        "--output",
        choices=FORMS,
        help=f"json or yaml, as docs/reference/output.md describes them; wide: {wide}; name: only the name",
    )
