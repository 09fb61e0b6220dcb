"""`run` trains a script without a file."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.cli import arguments as shared
from launcher.cli import from_file
from launcher.cli.commands import cmd_submit
from launcher.cli.strict_parser import StrictParser, count

if TYPE_CHECKING:
    from launcher.validation.loader import Loaded


def arguments(parser: StrictParser) -> None:
    """What it takes."""
    parser.usage = "%(prog)s SCRIPT [options] [-- ARGUMENTS]"
    parser.add_argument(
        "script", metavar="SCRIPT", help="a Keras script or a notebook, which is trained as it is"
    )
    parser.set_defaults(read=_read, rest=())
    parser.add_argument(
        "--workers", type=count, metavar="N", help="several train together (default: one task)"
    )
    parser.add_argument("--ps", type=count, metavar="N", help="with N parameter servers, by ParameterServer")
    parser.add_argument(
        "--strategy",
        metavar="NAME",
        help="one of spec.strategy (default: ParameterServer with --ps, MultiWorkerMirrored with several "
        "workers, else Mirrored)",
    )
    parser.add_argument("--evaluator", action="store_true", help="score each checkpoint beside the training")
    parser.add_argument("--gpus", type=count, metavar="N", help="NVIDIA GPUs of each task that trains")
    parser.add_argument("--image", help="an image with TensorFlow (default: the launcher's own)")
    parser.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="LINE",
        dest="packages",
        help="what the script needs beside the image, such as scikit-learn==1.7.0; may be repeated",
    )
    parser.add_argument(
        "--name", dest="run_name", metavar="NAME", help="the run's name (default: the script's)"
    )
    parser.add_argument(
        "--source", dest="folder", metavar="FOLDER", help="a folder that travels with the script"
    )
    shared.overrides(parser)
    parser.add_argument("--print", action="store_true", help="print the cluster.yaml, and start nothing")
    cmd_submit.place(parser)


def run(options: Namespace) -> int:
    """Submits the file that the command line stands for, or prints it."""
    options.owned_by = []
    if not options.print:
        return cmd_submit.run(options)
    from launcher.plan import serialization

    (loaded,) = from_file.load(options)
    if loaded.document is not None:
        print(serialization.as_yaml([loaded.document.value]), end="")
    if loaded.directory != Path.cwd():
        print(f"note: its paths begin at {loaded.directory}: save it there", file=sys.stderr)
    return 0


def _read(options: Namespace) -> list[Loaded]:
    """Returns the run that the options ask for. Raises SpecError."""
    from launcher import api
    from launcher.errors import SpecError
    from launcher.validation import source

    fields: dict[str, Any] = {
        "name": options.run_name,
        "source": options.folder,
        "args": options.rest,
        "strategy": options.strategy,
        "image": options.image,
    }
    if options.packages:
        fields["program"] = {"packages": options.packages}
    trains: dict[str, Any] = {} if options.gpus is None else {"resources": {"nvidia.com/gpu": options.gpus}}
    if options.workers is not None:
        fields["worker"] = {"replicas": options.workers, **trains}
    elif trains:
        fields["worker" if options.ps or options.strategy == "ParameterServer" else "chief"] = trains
    if options.ps is not None:
        fields["ps"] = {"replicas": options.ps}
    if options.evaluator:
        fields["evaluator"] = {}
    one = api.loaded(options.script, options.overrides, fields)
    if problems := source.problems(one):
        raise SpecError(problems)
    return [one]
