"""The commands: each calls functions and prints. Each imports what it needs, so that `--help` imports
nothing.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from launcher.errors import INTERRUPTED, BackendError, LauncherError, NotFoundError, Problem, SpecError
from launcher.object_names import PROGRAM

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from launcher.backends.base import Backend, Plan
    from launcher.backends.patience import Patience
    from launcher.validation.loader import Loaded


class UsageError(SpecError):
    """Some arguments contradict each other."""


def init(options: Namespace) -> int:
    """Writes the starter files."""
    from launcher import starter

    written = starter.write(options.directory)
    for path in written:
        print(f"wrote {path}")
    print(f"next: {PROGRAM} submit {written[0]} --backend local")
    return 0


def validate(options: Namespace) -> int:
    """Checks a file without doing anything."""
    from launcher import plan_of_file
    from launcher.plan import topology

    for loaded in _load(options):
        plan = plan_of_file.plan(loaded)
        planned = topology.build(loaded.cluster)
        counts = ", ".join(
            f"{role.replicas} {role.name}"
            + (f" ({role.min_replicas} to {role.max_replicas})" if role.elastic is not None else "")
            for role in planned.roles
        )
        if options.imports:
            _try_program(loaded, plan)
        print(f"{loaded.source}: {planned.run}: valid: {loaded.cluster.spec.strategy} with {counts}")
        if _has_program(loaded):
            tried = "was imported and has made a first step, with this machine's packages, on its CPU"
            told = tried if options.imports else "was not imported; `validate --import` tries it"
            print(f"{loaded.source}: {planned.run}: the program {told}")
    return 0


def _has_program(loaded: Loaded) -> bool:
    program = loaded.cluster.spec.program
    return program is not None and program.entrypoint is not None


def _try_program(loaded: Loaded, plan: Plan) -> None:
    from launcher import program_check

    if _has_program(loaded):
        print(f"{loaded.source}: trying the program, which takes some seconds", file=sys.stderr, flush=True)
    found, notices = program_check.problems(loaded, plan)
    for notice in notices:
        print(f"{loaded.source}: note: {notice}", file=sys.stderr)
    if found:
        raise SpecError(found)


def convert(options: Namespace) -> int:
    """Prints TFJobs as cluster.yaml files."""
    from launcher import tfjob
    from launcher.plan import serialization

    for loaded in _load(options):
        if loaded.conversion is None:
            said = "expected a TFJob: this is a TrainingCluster already"
            raise SpecError([Problem(loaded.source, 0, 0, "kind", said)])
        remarks = {(): tfjob.HEADER, **loaded.conversion.remarks}
        print(serialization.as_yaml_with_comments(loaded.conversion.value, remarks), end="")
    return 0


def render(options: Namespace) -> int:
    """Prints the Kubernetes objects."""
    from launcher import plan_of_file
    from launcher.plan import object_size, serialization

    objects = [
        item
        for loaded in _load(options)
        for item in plan_of_file.rendered(loaded, options.namespace, options.form)
    ]
    print(
        serialization.as_json(objects) if options.output == "json" else serialization.as_yaml(objects), end=""
    )
    for item in objects:
        if object_size.too_large_for_apply(item):
            said = "is too large for the annotation of a plain `kubectl apply`: add --server-side"
            print(f"note: {item['kind']} {item['metadata']['name']} {said}", file=sys.stderr)
    return 0


def _objects(options: Namespace) -> list[Mapping[str, Any]]:
    """Returns the objects of all runs in the file."""
    from launcher import plan_of_file

    placed = [plan_of_file.placed(loaded, options.namespace, "default") for loaded in _load(options)]
    return [item for loaded in placed for item in plan_of_file.plan(loaded).objects]


def submit(options: Namespace) -> int:
    """Starts a file's runs, one after the other; with --detach, all at once. Runs at the same time would
    share the cores.
    """
    if options.owned_by and options.backend != "kubernetes":
        raise _wrong_usage("--owned-by", "names objects of a cluster: leave out --backend")
    if options.allow_network and options.backend != "local":
        raise _wrong_usage("--allow-network", "is about runs on this machine: add --backend local")
    if options.dry_run:
        return _dry_run(options)
    from launcher.backends import backend_choice

    backend = backend_choice.named(
        options.backend, options.context, _patience(options), allow_network=options.allow_network
    )
    try:
        # The backend connects while the file is read.
        backend.prepare()
    except LauncherError:
        _load(options)  # errors in the file are reported first
        raise
    worst = 0
    for plan in _plans(options, backend.namespace):
        told = backend.submit(
            plan, detach=options.detach, replace=options.replace, owners=options.owned_by or ()
        )
        if told:
            print(told, file=sys.stderr)
        if options.detach:
            found = plan.run + backend.options(plan.namespace)
            print(f"run {plan.run} is submitted; see: {PROGRAM} status {found}")
        else:
            # A run on a cluster continues without this process. On this machine its tasks would use cores
            # after Ctrl-C.
            code = _follow(
                backend,
                plan.run,
                plan.namespace,
                stop_on_interrupt=options.backend == "local",
                printing=_script_role(plan),
            )
            worst = worst or code
            if code >= INTERRUPTED:
                break
    return worst


def _dry_run(options: Namespace) -> int:
    from launcher.backends import backend_choice

    if options.dry_run == "client":
        for plan in _plans(options, backend_choice.own_namespace(options.backend, options.context)):
            for item in plan.objects:
                print(f"{item['kind']} {item['metadata']['name']}")
            where = "on this machine" if options.backend == "local" else "in the cluster"
            print(
                f"run {plan.run}, namespace {plan.namespace}: a submission makes these objects {where}; "
                "nothing was done, and no program imported; `render` prints them"
            )
            if plan.as_jobset is not None and options.backend != "local":
                print(
                    "where the cluster has the kind JobSet, these Jobs become one JobSet: --dry-run=server "
                    "asks the cluster"
                )
        return 0
    if options.backend == "local":
        raise _wrong_usage("--dry-run=server", "asks a cluster, and --backend local has none: try client")
    backend = backend_choice.named("kubernetes", options.context, _patience(options))
    for plan in _plans(options, backend.namespace):
        for line in backend.dry_run(plan, replace=options.replace):
            print(line)
        print(
            f"run {plan.run}, namespace {plan.namespace}: the cluster accepts this; nothing was changed, "
            "and no program imported"
        )
    return 0


def _wrong_usage(option: str, message: str) -> UsageError:
    return UsageError([Problem(option, 0, 0, "", message)])


def _plans(options: Namespace, own_namespace: str) -> list[Plan]:
    """Returns the plans of all runs in the file, or raises before any is started."""
    import uuid

    from launcher import plan_of_file

    return [
        plan_of_file.plan(plan_of_file.placed(loaded, options.namespace, own_namespace), uuid.uuid4().hex)
        for loaded in _load(options)
    ]


def _file(options: Namespace) -> str:
    """Returns the path of the file. Raises SpecError where there is none, or more than one."""
    given = [path for path in (options.file, options.filename) if path is not None]
    if len(given) != 1:
        message = "expected a cluster.yaml, or - for standard input"
        raise _wrong_usage("FILE", message if not given else f"expected one file, not {' and '.join(given)}")
    return str(given[0])


def _load(options: Namespace) -> list[Loaded]:
    from launcher.validation import loader, rules, source

    loaded = loader.load(
        _file(options),
        options.overrides,
        allow_outside=options.allow_outside,
        further=source.problems,
    )
    for one in loaded:
        for notice in rules.notices(one.cluster, local=getattr(options, "backend", None) == "local"):
            print(f"{one.source}: note: {notice}", file=sys.stderr)
        if one.conversion is not None and options.command is not convert:
            said = f"a TFJob; `{PROGRAM} convert` says where it is not as with the training-operator"
            if one.conversion.generated and getattr(options, "owned_by", None):
                said = "expected a metadata.name: with --owned-by, the same again must be the same run"
                raise SpecError([Problem(one.source, 0, 0, "metadata.generateName", said)])
            for note in (said, *one.conversion.notes):
                print(f"{one.source}: note: {note}", file=sys.stderr)
    return loaded


def _follow(
    backend: Backend,
    run: str,
    namespace: str,
    *,
    stop_on_interrupt: bool,
    until_running: bool = False,
    timeout: float | None = None,
    printing: str = "",
) -> int:
    """Follows the run to its end and prints its summary; then cleans up."""
    # Imported here, once the tasks have been started.
    from launcher.cli import live_view

    code = live_view.watch(
        backend,
        run,
        namespace,
        stop_on_interrupt=stop_on_interrupt,
        until_running=until_running,
        timeout=timeout,
        printing=printing,
    )
    if code < INTERRUPTED and (told := backend.clean(run, namespace)):
        print(told, file=sys.stderr)
    return code


def _script_role(plan: Plan) -> str:
    """Returns the role whose first task runs the user's own script or command; "" where a program is trained,
    because the runtime reports the progress of a program.
    """
    from launcher.backends.base import submitted
    from launcher.object_names import ROLE_LABEL

    primary = plan.objects[0]
    if submitted(primary, "program", "entrypoint") is not None:
        return ""
    return str(primary["metadata"]["labels"][ROLE_LABEL])


def _patience(options: Namespace, unasked: float | None = None) -> Patience:
    """Returns the patience with an API server; the user is told when it does not answer. `unasked` is the
    limit in seconds where the user did not choose the cluster.
    """
    from launcher.backends.patience import SECONDS as PATIENCE_SECONDS
    from launcher.backends.patience import Patience

    seconds = PATIENCE_SECONDS if options.request_timeout is None else options.request_timeout
    if unasked is not None and (options.request_timeout, options.backend, options.context) == (None,) * 3:
        seconds = unasked
    return Patience(seconds, lambda text: print(text, file=sys.stderr, flush=True))


_YAML = (".yaml", ".yml")


def _sought(
    options: Namespace, name: str | None = None, namespace: str | None = None, *, claims: bool = False
) -> tuple[Backend, str]:
    """Returns the backend that has the run, and its namespace: those of the command line if given. With
    `claims`, what is left of a deleted run counts too.
    """
    from launcher.backends import backend_choice

    name = options.name if name is None else name
    namespace = options.namespace if namespace is None else namespace
    if name.endswith(_YAML):
        raise _wrong_usage("NAME", f"expected a run's name, which is metadata.name in the file, not {name}")
    try:
        return backend_choice.sought(
            name, namespace, options.backend, options.context, _patience(options), claims=claims
        )
    except NotFoundError as error:
        if hint := _meant(options, name, namespace):
            raise NotFoundError(error.message, f"{hint}\n{error.hint}") from None
        raise


def _meant(options: Namespace, name: str, namespace: str | None) -> str:
    """Returns what the name of a missing run may have meant: another run, or a task of one."""
    from launcher.backends import backend_choice
    from launcher.cli.strict_parser import nearest

    names: list[str] = []
    for backend in backend_choice.all_or(options.backend, options.context, _patience(options, 2.0)):
        with contextlib.suppress(BackendError):
            names += backend.names(namespace or backend.namespace)
    for run in names:
        if run in getattr(options, "tasks", ()):
            return f"The run's name comes first: `{PROGRAM} logs {run} {name}`."
        if name.startswith(f"{run}-"):
            return f"Is that a task of run {run}? `{PROGRAM} logs {run} {name}` shows what it prints."
    near = nearest(name, names)
    return f"Did you mean {near}?" if near else ""


def status(options: Namespace) -> int:
    """Shows a run as it is now, or until it ends."""
    backend, namespace = _sought(options)
    if options.output in ("json", "yaml", "name"):
        _print_status(options, backend, namespace)
        return 0
    from launcher.cli import console, run_table

    wide = options.output == "wide"
    if options.watch:
        found = run_table.watch_run(backend.follow(options.name, namespace), backend.place, wide=wide)
        if found is None or not sys.stdout.isatty():
            return 0
    else:
        found = backend.status(options.name, namespace)
    console.show_status(backend, found)
    if wide:
        run_table.show_tasks(found)
    return 0


def _print_status(options: Namespace, backend: Backend, namespace: str) -> None:
    """Prints the status as a document for programs; with --watch one document for each change, each JSON
    document on one line.
    """
    import time

    from launcher.cli import run_document, run_table

    followed = run_table.changes(backend.follow(options.name, namespace)) if options.watch else None
    for status in followed or [backend.status(options.name, namespace)]:
        if options.output == "name":
            print(status.run, flush=True)
            continue
        model = backend.places(status.run, status.namespace).get("model directory")
        document = run_document.of_run(status, backend.place, time.time(), model)
        _print_document(document, options.output, in_a_line=options.watch)


def _print_document(document: Mapping[str, Any], output: str, *, in_a_line: bool = False) -> None:
    import json

    from launcher.plan import serialization

    if output == "yaml":
        text = serialization.as_yaml([document])
        print(text if in_a_line else text.removeprefix("---\n"), end="", flush=True)
    else:
        print(json.dumps(document, indent=None if in_a_line else 2), flush=True)


def list_runs(options: Namespace) -> int:
    """Shows all runs of this machine and of the cluster, one line each. Reports a cluster that does not
    answer, and returns the exit code of BackendError.
    """
    import time

    from launcher.backends import backend_choice, label_selector
    from launcher.backends.checked_names import check_namespace

    check_namespace(options.namespace)
    selected = label_selector.parse(options.selector) if options.selector is not None else None
    backends = backend_choice.all_or(options.backend, options.context, _patience(options, _LISTED_SECONDS))
    failed: set[str] = set()

    def gather() -> list[run_table.Listed]:
        found = []
        for backend in backends:
            try:
                runs = backend.runs(options.namespace, progress=True)
                place = backend.place
            except BackendError as error:
                if len(backends) == 1:
                    raise
                if error.message not in failed:
                    failed.add(error.message)
                    print(f"error: the cluster's runs are not shown: {error.message}", file=sys.stderr)
                continue
            found += [
                run_table.Listed(run, place) for run in runs if selected is None or selected(run.labels)
            ]
        return found

    from launcher.cli import run_table

    places, wide = len(backends) > 1, options.output == "wide"
    if options.output in ("json", "yaml", "name"):
        for runs in run_table.repeated(gather) if options.watch else [gather()]:
            if options.output == "name":
                print("".join(f"{run.status.run}\n" for run in runs), end="", flush=True)
                continue
            from launcher.cli import run_document

            documents = [run_document.of_run(run.status, run.place, time.time()) for run in runs]
            _print_document(run_document.of_runs(documents), options.output, in_a_line=options.watch)
    elif options.watch:
        run_table.watch_list(gather, wide=wide, places=places)
    else:
        run_table.show_list(gather(), wide=wide, places=places)
    return BackendError.exit_code if failed else 0


_LISTED_SECONDS = 10.0
"""Limit for a cluster that the user did not name."""


def describe(options: Namespace) -> int:
    """Shows everything that is known of a run."""
    from launcher.cli import console, run_table

    backend, namespace = _sought(options)
    found = backend.status(options.name, namespace)
    run_table.show_facts(found, backend.place)
    if not found.ended:
        print()
    console.show_status(backend, found)
    run_table.show_tasks(found)
    if backend.place.backend == "kubernetes":
        run_table.show_events(list(backend.events(options.name, namespace, follow=False)))
    return 0


def logs(options: Namespace) -> int:
    """Prints the logs of the tasks."""
    from launcher import sentences
    from launcher.backends.base import Selection
    from launcher.cli import console

    if options.previous and options.follow:
        raise _wrong_usage("--previous", "shows what has ended, so there is nothing to follow: leave out -f")
    selection = Selection(
        roles=options.role,
        indexes=options.index,
        since=options.since,
        previous=options.previous,
        names=options.tasks,
        tail=options.tail,
    )
    backend, namespace = _sought(options)
    lines = backend.logs(options.name, namespace, selection, follow=options.follow)
    some, left_out = console.show_logs(lines, raw=options.raw, timestamps=options.timestamps)
    if not some and options.tail != 0:
        print(f"note: run {options.name}: {_nothing_printed(options)}", file=sys.stderr)
    if left_out:
        print(f"note: {sentences.left_out(left_out)}", file=sys.stderr)
    return 0


def _nothing_printed(options: Namespace) -> str:
    if options.previous:
        return "no task that is meant had a pod or a process before its latest one"
    when = " in that time" if options.since is not None else " yet"
    return f"what is meant has printed nothing{when}; `{PROGRAM} status {options.name}` says how it is"


def events(options: Namespace) -> int:
    """Shows the Kubernetes events of a run."""
    from launcher import sentences

    backend, namespace = _sought(options)
    for event in backend.events(options.name, namespace, follow=options.follow):
        print(sentences.event(event), flush=options.follow)
    return 0


def report(options: Namespace) -> int:
    """Writes an HTML report of a run."""
    from launcher.report import page

    backend, namespace = _sought(options)
    text = page.page_of(backend.history(options.name, namespace))
    target = options.output or f"{options.name}.html"
    if target == "-":
        # Bytes: the page says that it is UTF-8, whatever the terminal's encoding is.
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
    else:
        page.write(text, target)
        print(f"wrote {target}")
    return 0


def wait(options: Namespace) -> int:
    """Follows a run to its end, and returns its exit code."""
    backend, namespace = _sought(options)
    return _follow(
        backend,
        options.name,
        namespace,
        stop_on_interrupt=False,
        until_running=options.until == "running",
        timeout=options.timeout,
    )


def cp(options: Namespace) -> int:
    """Copies files of a run."""
    import signal

    name, colon, path = options.source.partition(":")
    if not colon:
        if ":" in options.target:
            said = f"cp copies from a run, not to one: expected NAME:PATH first, not {name}"
            raise _wrong_usage("NAME:PATH", said)
        run, _, below = name.partition("/")
        found = f"{run or 'mnist'}:{below or 'export'}"
        raise _wrong_usage("NAME:PATH", f"expected a run and a path below its modelDir, as in {found}")
    backend, namespace = _sought(options, name)
    # The pod that was made for the copy must be removed on SIGTERM too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    written = backend.copy(name, namespace, path, options.target, options.timeout)
    print(f"copied to {written}")
    return 0


def tensorboard(options: Namespace) -> int:
    """Serves TensorBoard on a local port, until Ctrl-C."""
    import signal

    backend, namespace = _sought(options)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with backend.tensorboard(options.name, namespace, options.port) as board:
            print(f"TensorBoard of run {options.name}: {board.url}", flush=True)
            print("Ctrl-C ends it; the run is left alone", file=sys.stderr)
            board.wait()
    except KeyboardInterrupt:
        pass
    return 0


def kill(options: Namespace) -> int:
    """Ends a task as a crash would."""
    backend, namespace = _sought(options)
    task = options.task if options.task.rpartition("-")[2].isdecimal() else f"{options.task}-0"
    backend.kill(options.name, namespace, task)
    found = options.name + backend.options(namespace)
    print(f"{task} of run {options.name} is killed; watch what becomes of it: {PROGRAM} wait {found}")
    return 0


def scale(options: Namespace) -> int:
    """Changes the number of workers, or of data workers."""
    from launcher.backends.scalable_roles import counted_tasks

    backend, namespace = _sought(options)
    before = backend.scale(options.name, namespace, options.workers, options.role)
    found = options.name + backend.options(namespace)
    if before == options.workers:
        print(
            f"run {options.name} is to have {counted_tasks(before, options.role)} already; "
            f"see: {PROGRAM} status {found}"
        )
    else:
        print(
            f"run {options.name} is to have {counted_tasks(options.workers, options.role)}, "
            f"{before} before; watch them come or go with: {PROGRAM} status {found} -w"
        )
    return 0


def suspend(options: Namespace) -> int:
    """Stops the tasks for now."""
    from launcher.status import Phase

    backend, namespace = _sought(options)
    already = backend.status(options.name, namespace).phase is Phase.SUSPENDED
    backend.suspend(options.name, namespace)
    found = options.name + backend.options(namespace)
    said = "was suspended already" if already else "is suspended"
    print(f"run {options.name} {said}; resume it with: {PROGRAM} resume {found}")
    return 0


def resume(options: Namespace) -> int:
    """Undoes `suspend`."""
    from launcher.status import Phase

    backend, namespace = _sought(options)
    running = backend.status(options.name, namespace).phase is Phase.RUNNING
    backend.resume(options.name, namespace)
    found = options.name + backend.options(namespace)
    said = "was not suspended" if running else "is resumed"
    print(f"run {options.name} {said}; watch it with: {PROGRAM} wait {found}")
    return 0


def delete(options: Namespace) -> int:
    """Ends and removes runs, one after the other. Returns the exit code of the first that failed."""
    worst = 0
    for name, namespace, backend in _doomed(options):
        try:
            if backend is None:
                backend, space = _sought(options, name, namespace, claims=True)
            else:
                space = namespace or backend.namespace
            code = _delete(backend, name, space, asks=not options.yes)
        except LauncherError as error:
            if not _several(options):
                raise
            print(f"error: {error.message}", file=sys.stderr)
            code = error.exit_code
        worst = worst or code
    return worst


def _delete(backend: Backend, run: str, namespace: str, *, asks: bool) -> int:
    """Deletes one run, unless the user is asked and says no."""
    from launcher.lists_and_counts import listed

    goes = backend.claims_to_delete(run, namespace)
    lost = f"what it has trained, in {listed(goes)}" if goes else ""
    if lost and asks and not _confirmed(f"This deletes run {run} and {lost}."):
        print(f"run {run} is left as it is", file=sys.stderr)
        return INTERRUPTED
    stays = backend.delete(run, namespace)
    told = f"; so is {lost}" if lost else f"; {stays}" if stays else ""
    print(f"run {run} is deleted{told}", flush=True)
    return 0


def _several(options: Namespace) -> bool:
    return bool(options.all or options.filename or len(options.names) > 1)


def _doomed(options: Namespace) -> list[tuple[str, str | None, Backend | None]]:
    """Returns the runs to delete: name, namespace if known, and backend if known. Raises SpecError."""
    from launcher.validation import loader

    given = [bool(options.names), options.all, options.filename is not None]
    if sum(given) != 1:
        said = (
            "one of the runs' names, --all and -f FILE"
            if any(given)
            else "the runs' names, or --all, or -f FILE"
        )
        raise _wrong_usage("delete", f"expected {said}")
    if options.all:
        return _all_of_a_place(options)
    if options.names:
        files = [name for name in options.names if name.endswith(_YAML)]
        if files:
            raise _wrong_usage("NAME", f"expected a run's name; the runs of a file go with -f {files[0]}")
        return [(name, options.namespace, None) for name in dict.fromkeys(options.names)]
    doomed: list[tuple[str, str | None, Backend | None]] = []
    for loaded in loader.load(options.filename, []):
        metadata = loaded.cluster.metadata
        space = metadata.namespace if "namespace" in metadata.model_fields_set else None
        if options.namespace not in (None, space or options.namespace):
            raise _wrong_usage("--namespace", f"the file says {space}: leave out one of them")
        doomed.append((metadata.name, space or options.namespace, None))
    return doomed


def _all_of_a_place(options: Namespace) -> list[tuple[str, str | None, Backend | None]]:
    """Returns all runs of one place. Where there are two places, the user must name one, since a deletion
    cannot be undone.
    """
    from launcher.backends import backend_choice

    named = options.backend or ("kubernetes" if options.context else None)
    if named is None and backend_choice.cluster_known():
        said = "whose runs: add --backend local, this machine's, or --backend kubernetes, the cluster's"
        raise _wrong_usage("--all", said)
    backend = backend_choice.named(named or "local", options.context, _patience(options))
    namespace = options.namespace or backend.namespace
    runs: list[tuple[str, str | None, Backend | None]] = [
        (status.run, status.namespace, backend) for status in backend.runs(namespace)
    ]
    if not runs:
        print(f"there are no runs in namespace {namespace}", file=sys.stderr)
    return runs


def _confirmed(warning: str) -> bool:
    """Returns whether the user agrees. It asks on a terminal only, because nobody can answer in a script."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    print(f"{warning} Delete it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def doctor(options: Namespace) -> int:
    """Checks a cluster; the exit code is BackendError's when a run cannot be submitted there."""
    from launcher import sentences
    from launcher.backends import backend_choice
    from launcher.backends.checked_names import check_namespace
    from launcher.backends.kubernetes.preflight import needed_rights, requirements
    from launcher.plan import serialization

    check_namespace(options.namespace)
    has_file = options.file is not None or options.filename is not None
    if options.overrides and not has_file:
        raise _wrong_usage("--set", "overrides a field of a file: name the file too")
    objects = _objects(options) if has_file else None
    extensions = (
        tuple(needed_rights.EXTENSION_RULES) if objects is None else requirements.extra_rights(objects)
    )
    if options.role:
        namespace = options.namespace or backend_choice.own_namespace("kubernetes", options.context)
        print(serialization.as_yaml([needed_rights.role(namespace, extensions)]), end="")
        return 0
    backend = backend_choice.named("kubernetes", options.context, _patience(options))
    namespace = options.namespace or backend.namespace
    found = backend.examine(namespace, objects)
    for line in sentences.findings(found):
        print(line)
    unmet = [finding.subject for finding in found if finding.verdict == "missing"]
    if any(subject.startswith("right to ") for subject in unmet):
        print(
            "\nThe least Role that is enough, for whoever may grant it (`doctor --role` prints it alone):\n"
        )
        print(serialization.as_yaml([needed_rights.role(namespace, extensions)]), end="")
    return BackendError.exit_code if unmet else 0


def schema(options: Namespace) -> int:
    """Prints a JSON Schema."""
    import json

    from launcher.config import schema as schemas

    if options.what == "cluster":
        print(schemas.as_json(), end="")
    else:
        from launcher.cli import run_document

        model = run_document.RunList if options.what == "list" else run_document.Run
        print(json.dumps(run_document.schema(model), indent=2))
    return 0


def completion(options: Namespace) -> int:
    """Prints the script that completes commands and names of runs in a shell."""
    from launcher.cli import completion

    print(completion.script(options.shell), end="")
    return 0


def version_text() -> str:
    """Returns the launcher's version."""
    from launcher import __version__

    return f"tf-launcher {__version__}"


def version(_: Namespace) -> int:
    """Prints the launcher's version."""
    print(version_text())
    return 0
