"""The runs of the file that the command line names."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from launcher.cli.usage import wrong_usage
from launcher.errors import Problem, SpecError
from launcher.object_names import PROGRAM

if TYPE_CHECKING:
    from launcher.backends.base import Plan
    from launcher.validation.loader import Loaded


def plans(options: Namespace, own_namespace: str) -> list[Plan]:
    """Returns the plans of all runs in the file, or raises before any is started."""
    from launcher import plan_of_file

    return [plan_of_file.submission(loaded, options.namespace, own_namespace) for loaded in load(options)]


def _file(options: Namespace) -> str:
    """Returns the path of the file. Raises SpecError where there is none, or more than one."""
    given = [path for path in (options.file, options.filename) if path is not None]
    if len(given) != 1:
        message = "expected a cluster.yaml, or - for standard input"
        raise wrong_usage("FILE", message if not given else f"expected one file, not {' and '.join(given)}")
    return str(given[0])


def _read(options: Namespace) -> list[Loaded]:
    from launcher.validation import loader, source

    return loader.load(
        _file(options),
        options.overrides,
        allow_outside=options.allow_outside,
        further=source.problems,
    )


def load(options: Namespace) -> list[Loaded]:
    """Returns the runs of the file, and prints what its reader may not expect. Raises SpecError."""
    from launcher.validation import rules, source

    read: Callable[[Namespace], list[Loaded]] = getattr(options, "read", _read)
    loaded = read(options)
    for one in loaded:
        local = getattr(options, "backend", None) == "local"
        for notice in [*rules.notices(one.cluster, local=local), *source.notices(one)]:
            print(f"{one.source}: note: {notice}", file=sys.stderr)
        if one.conversion is not None and options.command != "convert":
            message = f"a TFJob; `{PROGRAM} convert` says where it is not as with the training-operator"
            if one.conversion.generated and getattr(options, "owned_by", None):
                message = "expected a metadata.name: with --owned-by, the same again must be the same run"
                raise SpecError([Problem(one.source, 0, 0, "metadata.generateName", message)])
            for note in (message, *one.conversion.notes):
                print(f"{one.source}: note: {note}", file=sys.stderr)
    return loaded
