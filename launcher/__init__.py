"""Trains a TensorFlow model on many machines, from one cluster.yaml.

    cluster.yaml -> spec -> topology -> manifests -> backend -> status
    (text)          (what    (who: tasks,  (what the   (kubernetes  (what is
                     the user addresses,    cluster     | local)     going on)
                     wants)   TF_CONFIG)    is told)

It runs one way: each arrow is one function, `loader.load`, `topology.build`, `rendering.render`,
`Backend.submit` and `status.fold`, and each noun is one module. What comes out of an arrow is a value
that can be printed, compared and tested before anything is done.

The commands are functions here too, and a `Run` is what they give:

    import launcher

    run = launcher.submit("cluster.yaml", backend="local")
    print(run.wait().phase, run.places())

All that they raise is a `LauncherError`. The package never imports TensorFlow.
"""

import sys

if sys.argv[:1] == ["-m"] and not getattr(sys.flags, "safe_path", False):
    # At this point `python -m launcher` begins, and Python has put the current folder first on the module
    # path. An argparse.py or typing.py in that folder would be imported. The folder is removed; if the
    # launcher itself is in it, as in a checkout, it is appended as the last one. Nothing may be imported
    # before this.
    _folder = sys.path.pop(0)
    if __file__.rpartition("/")[0].rpartition("/")[0] == _folder:
        sys.path.append(_folder)

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launcher.api import convert, doctor, find, render, runs, submit, verify
    from launcher.backends.base import Board, Finding, LogLine, RunEvent
    from launcher.config.spec import TrainingCluster
    from launcher.errors import BackendError, ConflictError, LauncherError, NotFoundError, Problem, SpecError
    from launcher.plan.topology import build
    from launcher.run import Run
    from launcher.status import Phase, RoleStatus, RunStatus, TaskStatus
    from launcher.task_orders import Profile, Stacks
    from launcher.task_records.measurements import Measurement
    from launcher.validation.loader import Loaded, load
    from launcher.verification.verdict import Difference, Verdict

_NAMES = {
    "launcher.api": ("convert", "doctor", "find", "render", "runs", "submit", "verify"),
    "launcher.backends.base": ("Board", "Finding", "LogLine", "RunEvent"),
    "launcher.errors": (
        "BackendError",
        "ConflictError",
        "LauncherError",
        "NotFoundError",
        "Problem",
        "SpecError",
    ),
    "launcher.validation.loader": ("Loaded", "load"),
    "launcher.run": ("Run",),
    "launcher.config.spec": ("TrainingCluster",),
    "launcher.status": ("Phase", "RoleStatus", "RunStatus", "TaskStatus"),
    "launcher.task_orders": ("Profile", "Stacks"),
    "launcher.task_records.measurements": ("Measurement",),
    "launcher.plan.topology": ("build",),
    "launcher.verification.verdict": ("Difference", "Verdict"),
}

__all__ = [
    "BackendError",
    "Board",
    "ConflictError",
    "Difference",
    "Finding",
    "LauncherError",
    "Loaded",
    "LogLine",
    "Measurement",
    "NotFoundError",
    "Phase",
    "Problem",
    "Profile",
    "RoleStatus",
    "Run",
    "RunEvent",
    "RunStatus",
    "SpecError",
    "Stacks",
    "TaskStatus",
    "TrainingCluster",
    "Verdict",
    "__version__",
    "build",
    "convert",
    "doctor",
    "find",
    "load",
    "render",
    "runs",
    "submit",
    "verify",
]

__version__ = "0.2.0"


if not TYPE_CHECKING:  # a type checker would find any name in it

    def __getattr__(name: str) -> Any:
        # Import at first use: `--help` must not wait for pydantic.
        from importlib import import_module

        for module, names in _NAMES.items():
            if name in names:
                attribute = globals()[name] = getattr(import_module(module), name)
                return attribute
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
