"""The commands as functions: what `import launcher` offers. Nothing prints; what is wrong is raised."""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args

from launcher import functions, planning, tfjob
from launcher.backends import choice, label_selector
from launcher.backends.base import Finding
from launcher.backends.names import check_namespace
from launcher.config.spec import TrainingCluster
from launcher.errors import Problem, SpecError
from launcher.plan import serialization
from launcher.run import Run
from launcher.validation import loader, rules
from launcher.validation.loader import Loaded

BackendName = Literal["kubernetes", "local"]
Form = Literal["jobs", "jobset"]
What = Union[TrainingCluster, Loaded, Mapping[str, Any], str, "os.PathLike[str]", Callable[..., Any]]
"""The path of a cluster.yaml or TFJob; what would stand there, as a mapping or as models; or a class or a
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
    """The Kubernetes objects of one run, the primary Job first, or the JobSet with all roles where `form`
    says so. Does nothing else: no cluster is asked.

    `what`, `overrides` and `fields` are those of `submit`. `namespace` is where the run is to live, if `what`
    does not say (default: `default`). Raises SpecError.

        kinds = [item["kind"] for item in launcher.render("cluster.yaml")]
    """
    _check_choice("form", form, Form)
    loaded = planning.placed(_loaded(what, overrides, fields), namespace, "default")
    return [dict(item) for item in planning.plan(loaded, as_jobset=form == "jobset").objects]


def convert(what: str | os.PathLike[str] | Mapping[str, Any], *, overrides: Sequence[str] = ()) -> str:
    """A TFJob, by its path or as a mapping, as the text of the equivalent cluster.yaml, with a comment where
    it behaves otherwise than with Kubeflow's operator. Raises SpecError, also where it is no TFJob.
    """
    loaded = _loaded(what, overrides, {})
    if loaded.conversion is None:
        raise SpecError([Problem(loaded.source, 0, 0, "kind", "expected a TFJob: this is none")])
    remarks = {(): tfjob.HEADER, **loaded.conversion.remarks}
    return serialization.as_yaml_with_comments(loaded.conversion.value, remarks)


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

    `what` is the path of a cluster.yaml or of a TFJob, a mapping of what would stand there, a
    TrainingCluster, an entry of `load`, or a class or a function that trains. `overrides` are fields with
    values in YAML, as in `["spec.worker.replicas=4"]`. `namespace` is where the run is to live, if `what`
    does not say (default: that of the kubeconfig's `context`, itself by default the current one). With
    `replace` a run of this name that is running is ended, and the new one resumes from its backup. Without
    `detach`, a run on this machine ends when this process does; with `allow_network` its tasks have this
    machine's network, and not one of the run's own.

    A class or a function is found again, in every task, by its module's name: it ships its module's file or,
    if `source` names it, the folder that the module is imported from. A class is a program, as in
    `spec.program.entrypoint`: model, train_dataset and so on, for the worker runtime to train. A function is
    the training itself: it builds its strategy and is called with `parameters`, by name, in each task that
    trains, but only in the chief under ParameterServer. `fields` are then `name` (default: made of the
    function's), `source`, `parameters`, and those of `spec` in Python's spelling (`model_dir`), with what is
    below them as in the file:

        run = launcher.submit(
            train,
            strategy="MultiWorkerMirrored",
            worker={"replicas": 4, "resources": {"nvidia.com/gpu": 1}},
            parameters={"epochs": 3},
        )

    Raises SpecError with all that is wrong, ConflictError when the name is in use, and BackendError.
    """
    loaded = _loaded(what, overrides, fields)
    _check_choice("backend", backend, BackendName)
    if allow_network and backend != "local":
        raise _refused("allow_network", "is about runs on this machine: expected backend='local'")
    chosen = choice.named(backend, context, allow_network=allow_network)
    notes = rules.notices(loaded.cluster, local=backend == "local")
    notes += loaded.conversion.notes if loaded.conversion is not None else []
    plan = planning.plan(planning.placed(loaded, namespace, chosen.namespace), uuid.uuid4().hex)
    told = chosen.submit(plan, detach=detach, replace=replace)
    return Run(plan.run, plan.namespace, chosen, (*notes, *told.splitlines()))


def find(
    name: str,
    *,
    namespace: str | None = None,
    backend: BackendName | None = None,
    context: str | None = None,
) -> Run:
    """A run that was submitted before, from anywhere. Left out, `backend` is this machine and then the
    cluster, and `namespace` its own. Raises NotFoundError.
    """
    _check_choice("backend", backend, BackendName)
    chosen, space = choice.sought(name, namespace, backend, context)
    chosen.status(name, space)
    return Run(name, space, chosen)


def runs(
    *,
    namespace: str | None = None,
    backend: BackendName | None = None,
    context: str | None = None,
    selector: str | None = None,
) -> list[Run]:
    """All runs, or one namespace's, by place, namespace and name: those of this machine, then those of the
    current context's cluster, unless `backend` or `context` names one place. `selector` takes those whose
    labels it selects, as in `team=vision`. Raises BackendError, and SpecError for what is no selector.
    """
    _check_choice("backend", backend, BackendName)
    check_namespace(namespace, "namespace")
    selected = label_selector.parse(selector, "selector") if selector is not None else None
    return [
        Run(status.run, status.namespace, chosen)
        for chosen in choice.all_or(backend, context)
        for status in chosen.runs(namespace)
        if selected is None or selected(status.labels)
    ]


def doctor(
    what: What | None = None,
    *,
    namespace: str | None = None,
    context: str | None = None,
    overrides: Sequence[str] = (),
    **fields: Any,
) -> list[Finding]:
    """What a cluster has, and lacks, of what a run needs: any run, or the one that `submit` would make of the
    same arguments. Raises BackendError where there is no cluster to ask, and SpecError.
    """
    check_namespace(namespace, "namespace")
    objects = None if what is None else render(what, namespace=namespace, overrides=overrides, **fields)
    cluster = choice.named("kubernetes", context)
    return cluster.examine(namespace or cluster.namespace, objects)


def _loaded(what: Any, overrides: Sequence[str], fields: Mapping[str, Any]) -> Loaded:
    """One valid run. Raises SpecError."""
    if isinstance(overrides, str):
        raise _refused("overrides", f'expected a list, as in ["{overrides}"]')
    if callable(what):
        document, directory = functions.cluster(what, fields)
        checked = loader.check(document, overrides, directory=directory, source=functions.called(what))
        # Whoever runs its code may send it, too.
        return dataclasses.replace(checked, allow_outside=True)
    if fields:
        raise _refused(", ".join(fields), "only a class or a function takes fields: use overrides")
    if isinstance(what, Loaded):
        checked = loader.check(what.cluster, overrides, directory=what.directory, source=what.source)
        return dataclasses.replace(checked, conversion=what.conversion, allow_outside=what.allow_outside)
    if isinstance(what, TrainingCluster | Mapping):
        return loader.check(what, overrides)
    if not isinstance(what, str | os.PathLike):
        said = "expected a path, a mapping, a TrainingCluster, or a class or a function"
        raise _refused("", f"{said}, not {type(what).__name__}")
    loaded = loader.load(what, overrides)
    if len(loaded) > 1:
        said = f"it holds {len(loaded)} runs: take them one by one, from load()"
        raise SpecError([Problem(loaded[0].source, 0, 0, "", said)])
    return loaded[0]


def _check_choice(argument: str, given: str | None, choices: Any) -> None:
    if given not in (None, *get_args(choices)):
        raise _refused(argument, f"expected {' or '.join(get_args(choices))}, not {given}")


def _refused(argument: str, message: str) -> SpecError:
    return SpecError([Problem("launcher", 0, 0, argument, message)])
