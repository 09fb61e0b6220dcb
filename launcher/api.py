"""The commands as functions, which `import launcher` offers. They print nothing, and raise their errors."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union, get_args

from launcher import file_from_python, file_from_script, plan_of_file, tfjob
from launcher.backends import backend_choice, label_selector
from launcher.backends.base import Backend, Finding, Plan
from launcher.backends.checked_names import check_names
from launcher.config.spec import TrainingCluster
from launcher.errors import Problem, SpecError
from launcher.plan import serialization
from launcher.run import Run
from launcher.validation import loader, rules, source
from launcher.validation.loader import Loaded

if TYPE_CHECKING:
    from launcher.verification.verdict import Verdict

BackendName = Literal["kubernetes", "local"]
Form = Literal["jobs", "jobset"]
Layers = Literal["random", "statistics"]
What = Union[TrainingCluster, Loaded, Mapping[str, Any], str, "os.PathLike[str]", Callable[..., Any]]
"""The path of a cluster.yaml or TFJob; the content of one, as a mapping or as models; or a class or a
function.
"""


def render(
    what: What,
    *,
    form: Form = "jobs",
    namespace: str | None = None,
    overrides: Sequence[str] = (),
    **fields: Any,
) -> list[dict[str, Any]]:
    """Returns the Kubernetes objects of one run, the primary Job first, or the JobSet with all roles where
    `form` says so. It contacts no cluster.

    `what`, `overrides` and `fields` are those of `submit`. `namespace` is the run's namespace if `what` gives
    none (default: `default`). Raises SpecError.

        kinds = [item["kind"] for item in launcher.render("cluster.yaml")]
    """
    _check_choice("form", form, Form)
    placed = plan_of_file.placed(loaded(what, overrides, fields), namespace, "default")
    return [dict(item) for item in plan_of_file.plan(placed, as_jobset=form == "jobset").objects]


def convert(what: str | os.PathLike[str] | Mapping[str, Any], *, overrides: Sequence[str] = ()) -> str:
    """Converts a TFJob, given by its path or as a mapping, to the text of the equivalent cluster.yaml. The
    text has a comment for each difference from Kubeflow's operator. Raises SpecError, also where it is no
    TFJob.
    """
    return converted(loaded(what, overrides, {}))


def converted(file: Loaded) -> str:
    """Returns the text of the cluster.yaml that a TFJob, as it was loaded, is equivalent to. Raises SpecError
    where it is no TFJob.
    """
    if file.conversion is None:
        message = "expected a TFJob: this is a TrainingCluster already"
        raise SpecError([Problem(file.source, 0, 0, "kind", message)])
    remarks = {(): tfjob.HEADER, **file.conversion.remarks}
    return serialization.as_yaml_with_comments(file.conversion.value, remarks)


def submit(
    what: What,
    *,
    backend: BackendName = "kubernetes",
    context: str | None = None,
    namespace: str | None = None,
    overrides: Sequence[str] = (),
    replace: bool = False,
    detach: bool = True,
    allow_network: bool = False,
    **fields: Any,
) -> Run:
    """Starts one run and returns at once.

    `what` is the path of a cluster.yaml or of a TFJob, a mapping with the content of one, a TrainingCluster,
    an entry of `load`, or a class or a function that trains. `overrides` are fields with values in YAML, such
    as `["spec.worker.replicas=4"]`. `namespace` is the run's namespace if `what` gives none (default: that of
    the kubeconfig's `context`, which is by default the current one). With `replace`, a run of this name that
    is running is ended, and the new run resumes from its backup. Without `detach`, a run on this machine ends
    when this process does. With `allow_network`, its tasks use this machine's network instead of a network of
    the run's own.

    Every task imports a class or a function by the name of its module. The run ships the module's file or, if
    `source` is given, that folder, from which the module must be imported. A class is a program, as in
    `spec.program.entrypoint`: it defines model, train_dataset and so on, and the worker runtime trains it. A
    function is the training itself: it builds its strategy. Each task that trains calls it with `parameters`,
    by name; under ParameterServer only the chief does. `fields` are then `name` (default: derived from the
    function's), `source`, `parameters`, and the fields of `spec` in Python's spelling (`model_dir`), whose
    values have the form that they have in the file:

        run = launcher.submit(
            train,
            strategy="MultiWorkerMirrored",
            worker={"replicas": 4, "resources": {"nvidia.com/gpu": 1}},
            parameters={"epochs": 3},
        )

    Raises SpecError with all that is wrong, ConflictError when the name is in use, and BackendError.
    """
    one = loaded(what, overrides, fields)
    _check_choice("backend", backend, BackendName)
    if allow_network and backend != "local":
        raise _refused("allow_network", "is about runs on this machine: expected backend='local'")
    chosen = backend_choice.named(backend, context, allow_network=allow_network)
    notes = rules.notices(one.cluster, local=backend == "local") + source.notices(one)
    notes += one.conversion.notes if one.conversion is not None else []
    plan = plan_of_file.submission(one, namespace, chosen.namespace)
    return start(plan, chosen, detach=detach, replace=replace, notes=notes)


def start(
    plan: Plan,
    backend: Backend,
    *,
    detach: bool,
    replace: bool,
    owners: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Run:
    """Submits a plan, with the arguments of `Backend.submit`. The run's notes are those of its submission
    behind `notes`.
    """
    submission_notes = backend.submit(plan, detach=detach, replace=replace, owners=owners)
    return Run(plan.run, plan.namespace, backend, (*notes, *submission_notes.splitlines()))


def verify(
    what: What,
    *,
    steps: int = 20,
    workers: int = 2,
    without: Sequence[str] = (),
    overrides: Sequence[str] = (),
    allow_network: bool = False,
    **fields: Any,
) -> Verdict:
    """Trains a few steps in one process, and by the strategy, on this machine, and compares the two.

    `what`, `overrides`, `allow_network` and `fields` are those of `submit`. `workers` is how many workers, or
    devices of one task, are tried at most. `without` leaves out what differs by design: `"random"` layers, or
    the `"statistics"` that batch normalization takes of each replica's own examples. Nothing is left of it.

        verdict = launcher.verify("cluster.yaml")
        assert verdict.agrees, verdict.causes

    Raises SpecError, also for a run that trains nothing that one process could train, BackendError, and
    LauncherError where a training fails.
    """
    from launcher import verification

    one = loaded(what, overrides, fields)
    for each in without:
        _check_choice("without", each, Layers)
    return verification.verify(
        one, steps=steps, workers=workers, without=without, allow_network=allow_network
    )


def find(
    name: str,
    *,
    namespace: str | None = None,
    backend: BackendName | None = None,
    context: str | None = None,
) -> Run:
    """Returns a run that was submitted before, by any process. The default of `backend` is this machine, then
    the cluster; the default of `namespace` is the backend's own. Raises NotFoundError.
    """
    _check_choice("backend", backend, BackendName)
    chosen, space = backend_choice.sought(name, namespace, backend, context)
    chosen.status(name, space)
    return Run(name, space, chosen)


def runs(
    *,
    namespace: str | None = None,
    backend: BackendName | None = None,
    context: str | None = None,
    selector: str | None = None,
) -> list[Run]:
    """Returns all runs, or those of one namespace, sorted by place, namespace and name: first those of this
    machine, then those of the current context's cluster, unless `backend` or `context` names one place.
    `selector` is a label selector, such as `team=vision`. Raises BackendError, and SpecError for an invalid
    selector.
    """
    _check_choice("backend", backend, BackendName)
    check_names(namespace, source="namespace")
    selected = label_selector.parse(selector, "selector") if selector is not None else None
    return [
        Run(status.run, status.namespace, chosen)
        for chosen, status in backend_choice.runs(
            backend_choice.all_or(backend, context), namespace, selected
        )
    ]


def doctor(
    what: What | None = None,
    *,
    namespace: str | None = None,
    context: str | None = None,
    overrides: Sequence[str] = (),
    **fields: Any,
) -> list[Finding]:
    """Returns what a cluster has, and lacks, of the things that a run needs: any run, or the run that
    `submit` would start with the same arguments. Raises BackendError where no cluster answers, and SpecError.
    """
    check_names(namespace, source="namespace")
    objects = None if what is None else render(what, namespace=namespace, overrides=overrides, **fields)
    cluster = backend_choice.named("kubernetes", context)
    return cluster.examine(namespace or cluster.namespace, objects)


def loaded(what: Any, overrides: Sequence[str], fields: Mapping[str, Any]) -> Loaded:
    """Returns one valid run; the arguments are those of `submit`. Raises SpecError."""
    if isinstance(overrides, str):
        raise _refused("overrides", f'expected a list, as in ["{overrides}"]')
    if callable(what):
        document, directory = file_from_python.cluster(what, fields)
        checked = loader.check(document, overrides, directory=directory, source=file_from_python.called(what))
        # The caller runs this code already, so it may be shipped from any folder.
        return dataclasses.replace(checked, allow_outside=True)
    if file_from_script.is_script(what):
        document, directory = file_from_script.cluster(what, fields)
        checked = loader.check(document, overrides, directory=directory, source=os.fspath(what))
        return dataclasses.replace(checked, allow_outside=True)
    if fields:
        message = "only a script, a class or a function takes fields: use overrides"
        raise _refused(", ".join(fields), message)
    if isinstance(what, Loaded):
        checked = loader.check(what.cluster, overrides, directory=what.directory, source=what.source)
        return dataclasses.replace(checked, conversion=what.conversion, allow_outside=what.allow_outside)
    if isinstance(what, TrainingCluster | Mapping):
        return loader.check(what, overrides)
    if not isinstance(what, str | os.PathLike):
        message = "expected a path, a mapping, a TrainingCluster, or a class or a function"
        raise _refused("", f"{message}, not {type(what).__name__}")
    loaded_runs = loader.load(what, overrides)
    if len(loaded_runs) > 1:
        message = f"it holds {len(loaded_runs)} runs: take them one by one, from load()"
        raise SpecError([Problem(loaded_runs[0].source, 0, 0, "", message)])
    return loaded_runs[0]


def _check_choice(argument: str, given: str | None, choices: Any) -> None:
    if given not in (None, *get_args(choices)):
        raise _refused(argument, f"expected {' or '.join(get_args(choices))}, not {given}")


def _refused(argument: str, message: str) -> SpecError:
    return SpecError([Problem("launcher", 0, 0, argument, message)])
