"""The local backend, as the command line sees it."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from launcher.backends import bucket_files, copied_files, folders, run_facts, scalable_roles
from launcher.backends.base import (
    PROGRAM,
    Board,
    Finding,
    History,
    LogLine,
    Place,
    Plan,
    RunEvent,
    Selection,
    Update,
)
from launcher.backends.checked_names import check_names
from launcher.backends.local import following, metrics, ports, preflight
from launcher.backends.local.expired_runs import sweep
from launcher.backends.local.pod.pods import PodTemplate
from launcher.backends.local.store import (
    BrokenRunError,
    RunDirectory,
    Submission,
    SupervisorSettings,
    default_root,
    exclusive,
    new_uid,
    run_directories,
)
from launcher.backends.local.supervisor import submitter_pipe
from launcher.backends.local.supervisor.job_status import is_decided
from launcher.backends.local.supervisor.orphans import end_keepers, kill_leftovers
from launcher.backends.local.supervisor.start import WaitingGuard
from launcher.backends.run_facts import no_model_directory, trains_anew
from launcher.errors import BackendError, ConflictError, NotFoundError
from launcher.lists_and_counts import listed
from launcher.plan.roles import TASK_VOLUME
from launcher.status import Phase, RunStatus, TaskStatus
from worker.contract import orders
from worker.contract.run_config import GRACE_SECONDS

_ANSWER_SECONDS: Final = 10.0
"""How long the supervisor may take to obey; it takes milliseconds."""

_KILL_SECONDS: Final = 30.0
"""How long killed processes may take to end, in addition to the pods' grace period."""


class LocalBackend:
    """Runs as processes of this machine. See `base.Backend`.

    `root` is where the runs are kept, by default under $XDG_STATE_HOME. With `allow_network` a run uses this
    machine's network, and otherwise one of its own.
    """

    def __init__(
        self,
        root: Path | None = None,
        settings: SupervisorSettings | None = None,
        *,
        allow_network: bool = False,
    ) -> None:
        self._allow_network = allow_network
        self._root = root or default_root()
        self._settings = settings or SupervisorSettings()
        self._guard: WaitingGuard | None = None

    @property
    def namespace(self) -> str:
        """See `base.Backend.namespace`."""
        return "default"

    def options(self, namespace: str) -> str:
        """See `base.Backend.options`."""
        return "" if namespace == self.namespace else f" -n {namespace}"

    @property
    def place(self) -> Place:
        """See `base.Backend.place`."""
        return Place("local")

    def prepare(self) -> None:
        """Starts the guard for the next `submit`. Raises BackendError.

        It gets ready while the caller reads and renders the file.
        """
        if self._guard is None:
            self._guard = WaitingGuard()

    def submit(self, plan: Plan, *, detach: bool, replace: bool = False, owners: Sequence[str] = ()) -> str:
        """See `base.Backend.submit`. Raises BackendError where there are `owners`."""
        if owners:
            raise _no_cluster("has no objects that could own a run")
        check_names(plan.namespace, plan.run)
        self._sweep()
        directory = RunDirectory(self._root, plan.namespace, plan.run)
        try:
            if replace and directory.path.is_dir() and directory.send("stop"):
                lock = directory.acquire(timeout=self._longest_grace(directory) + _KILL_SECONDS)
            else:
                # A run that has ended releases its lock a moment later.
                lock = directory.acquire(timeout=_ANSWER_SECONDS if _has_ended(directory) else 0.5)
        except OSError as error:
            raise self._unwritable(error) from error
        if lock is None:
            raise ConflictError(
                f"run {plan.run} is still running",
                f"See `{PROGRAM} status {plan.run}`; --replace ends it and resumes from its backup, "
                f"`{PROGRAM} delete {plan.run}` removes it; or give this one another name (metadata.name).",
            )
        try:
            kill_leftovers(directory)
            with exclusive(self._root / "ports.lock"):
                submission = self._submission(plan)
                preflight.check(directory, submission)
                anew = _trains_anew(directory, plan)
                directory.create(submission)
            try:
                forbidden = self._start(directory, lock, detach=detach)
            except BackendError:
                directory.remove()
                raise
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            directory.unlock(lock)
        messages = [anew, preflight.left_out(submission), self._reachable(forbidden)]
        if metrics.addresses(submission):
            messages.append(
                f"metrics: {metrics.targets_path(directory)} names the tasks' ports for Prometheus"
            )
        return "\n".join(filter(None, messages))

    def dry_run(self, plan: Plan, *, replace: bool = False) -> list[str]:
        """Raises BackendError: there is no server to ask."""
        raise _no_cluster("has no server that checks objects")

    def examine(self, namespace: str, objects: Sequence[Mapping[str, Any]] | None = None) -> list[Finding]:
        """Raises BackendError: a run on this machine needs nothing else."""
        raise _no_cluster("has nothing to examine")

    def status(self, run: str, namespace: str) -> RunStatus:
        """See `base.Backend.status`."""
        check_names(namespace, run)
        return following.read_status(self._directory(run, namespace))

    def runs(self, namespace: str | None = None, *, progress: bool = False) -> list[RunStatus]:
        """See `base.Backend.runs`. Always with all records."""
        check_names(namespace)
        self._sweep()
        statuses = []
        for directory in run_directories(self._root, namespace):
            try:
                statuses.append(following.read_status(directory))
            except NotFoundError:  # removed meanwhile
                continue
        return statuses

    def names(self, namespace: str) -> list[str]:
        """See `base.Backend.names`."""
        check_names(namespace)
        return [directory.run for directory in run_directories(self._root, namespace)]

    def follow(self, run: str, namespace: str) -> Iterator[Update]:
        """See `base.Backend.follow`."""
        return following.follow(self._directory(run, namespace))

    def logs(self, run: str, namespace: str, selection: Selection, *, follow: bool) -> Iterator[LogLine]:
        """See `base.Backend.logs`."""
        self._sweep()
        return following.follow_logs(self._directory(run, namespace), selection, until_end=follow)

    def events(self, run: str, namespace: str, *, follow: bool) -> Iterator[RunEvent]:
        """See `base.Backend.events`. Nobody but the tasks themselves says anything here."""
        self._directory(run, namespace)
        raise BackendError(
            f"run {run} is on this machine, where there is no cluster to say anything about it",
            f"`{PROGRAM} status {run}` says how its tasks are, `{PROGRAM} logs {run}` what they print.",
        )

    def tensorboard(self, run: str, namespace: str, port: int = 0) -> Board:
        """See `base.Backend.tensorboard`. Starts one, whether the run's spec asks for it or not."""
        from launcher.backends.board_process import BoardProcess

        directory = self.places(run, namespace).get("model directory")
        if directory is None:
            raise ConflictError(
                f"run {run} has no model directory that TensorBoard could show",
                "Submit it with a `modelDir` in its spec, such as /model.",
            )
        return BoardProcess(run, directory, port, run_facts.storage(self._primary(run, namespace)))

    def copy(self, run: str, namespace: str, path: str, target: str, seconds: float) -> Path:
        """See `base.Backend.copy`."""
        directory = self.places(run, namespace).get("model directory")
        if directory is None:
            raise no_model_directory(run)
        primary = self._primary(run, namespace)
        inner = copied_files.relative(path, (directory, run_facts.model_directory(primary)))
        if bucket_files.is_bucket(directory):
            return bucket_files.copied(directory, run_facts.storage(primary), run, inner, target)
        source = Path(directory, inner)
        if not copied_files.is_there(source, Path(directory)):
            there = next(folder for folder in source.parents if folder.is_dir())
            names = sorted(each.name for each in there.iterdir()) if inner else []
            raise copied_files.nothing_at(inner, names)
        written = copied_files.target(target, Path(inner).name or run)
        with copied_files.made(written) as temporary:
            copied_files.copy(source, temporary)
        return written

    def _primary(self, run: str, namespace: str) -> dict[str, Any]:
        """The Job that bears the run's file. An empty one where nothing is left of it."""
        submission = self._directory(run, namespace).submission()
        jobs = submission.of_kind("Job") if submission is not None else []
        return jobs[0] if jobs else {}

    def history(self, run: str, namespace: str) -> History:
        """See `base.Backend.history`. Nobody but the tasks themselves says anything here."""
        return next(self.histories(run, namespace))

    def histories(self, run: str, namespace: str) -> Iterator[History]:
        """See `base.Backend.histories`."""
        self._sweep()
        return following.histories(self._directory(run, namespace))

    def kill(self, run: str, namespace: str, task: str) -> None:
        """See `base.Backend.kill`."""
        directory = self._directory(run, namespace)
        tasks = {f"{each.role}-{each.index}": each for each in following.read_status(directory).tasks}
        if task not in tasks:
            hint = f"Its tasks: {', '.join(tasks)}." if tasks else "None of its tasks has started."
            raise NotFoundError(f"run {run} has no task {task}", hint)
        task_status = tasks[task]
        if task_status.phase is not Phase.RUNNING or not directory.send(f"crash:{task_status.name}"):
            why = _WHY_NOT_RUNNING.get(task_status.phase, "It has just ended.")
            raise ConflictError(f"{task} of run {run} is not running", why)

    def scale(self, run: str, namespace: str, workers: int, role: str = "worker") -> int:
        """See `base.Backend.scale`."""
        directory, options = self._directory(run, namespace), self.options(namespace)
        change = scalable_roles.change(run, following.read_jobs(directory), role, workers, options)
        before, generation = change.before, _generation(change.job)
        if before == workers:
            return before
        if not directory.send(f"scale:{change.job['metadata']['name']}:{change.completions}:{generation}"):
            raise scalable_roles.ended(run)
        until = time.monotonic() + _ANSWER_SECONDS
        while _generation(change.job) == generation:
            if time.monotonic() >= until:
                raise self._silent(directory)
            time.sleep(0.02)
            change = scalable_roles.change(run, following.read_jobs(directory), role, workers, options)
        if change.before != workers:
            raise scalable_roles.outrun(run, role, change.before, options)
        return before

    def suspend(self, run: str, namespace: str) -> None:
        """See `base.Backend.suspend`."""
        self._set_suspended(run, namespace, suspended=True)

    def resume(self, run: str, namespace: str) -> str:
        """See `base.Backend.resume`."""
        self._set_suspended(run, namespace, suspended=False)
        return ""

    @contextlib.contextmanager
    def supervisor(self, run: str, namespace: str, task: TaskStatus) -> Iterator[socket.socket]:
        """See `base.Backend.supervisor`. By a socket in the task's directory."""
        folder = self._directory(run, namespace).volume(task.name, TASK_VOLUME)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            try:
                with orders.socket_path(folder) as path:
                    connection.connect(path)
            except OSError as error:
                raise BackendError(
                    f"{task.role}-{task.index} of run {run} takes no orders ({error.strerror or error})",
                    "It has just ended, or does not run the launcher's runtime of this version.",
                ) from error
            yield connection

    def stop(self, run: str, namespace: str, *, at_once: bool = False) -> None:
        """See `base.Backend.stop`."""
        self._directory(run, namespace).send("kill" if at_once else "interrupt")

    def clean(self, run: str, namespace: str) -> str:
        """See `base.Backend.clean`. The supervisor has left nothing running, and records are kept."""
        return ""

    def delete(self, run: str, namespace: str) -> str:
        """See `base.Backend.delete`. Waits until every process is gone."""
        directory = self._directory(run, namespace)
        self._sweep()
        goes, stays = (self._claims(directory, deleted=deleted) for deleted in (True, False))
        grace = self._longest_grace(directory)
        if not directory.send("stop"):
            end_keepers(directory)
        with directory.held(grace + _KILL_SECONDS) as lock:
            if lock is None:
                hint = f"`{PROGRAM} status {run}` shows which of its tasks is left"
                raise BackendError(f"run {run} does not end", f"{hint}; see {directory.log_path} too.")
            try:
                kill_leftovers(directory)
                for path in goes:  # while the run is there that says so
                    folders.remove(Path(path))
                metrics.targets_path(directory).unlink(missing_ok=True)
                directory.remove()
            except OSError as error:
                raise self._unwritable(error) from error
        return f"what it has trained stays, in {listed(stays)}" if stays else ""

    def claims_to_delete(self, run: str, namespace: str) -> list[str]:
        """See `base.Backend.claims_to_delete`. Folders."""
        check_names(namespace, run)
        try:
            return self._claims(RunDirectory(self._root, namespace, run), deleted=True)
        except OSError as error:
            raise self._unwritable(error) from error

    def _claims(self, directory: RunDirectory, *, deleted: bool) -> list[str]:
        """The folders of the run's claims that are there; of a broken run nobody knows."""
        try:
            submission = directory.submission()
        except BrokenRunError:
            return []
        names = submission.claims(deleted=deleted) if submission is not None else []
        return [str(path) for name in names if (path := directory.claim(name)).is_dir()]

    def places(self, run: str, namespace: str) -> Mapping[str, str]:
        """See `base.Backend.places`."""
        directory = self._directory(run, namespace)
        try:
            submission = directory.submission()
        except BrokenRunError:
            return {"files": str(directory.path)}
        places = {}
        if submission is not None and (model := _model_directory(directory, submission)):
            places["model directory"] = model
        if submission is not None and submission.of_kind("Deployment"):
            places["tensorboard"] = run_facts.board_command(run, self.options(namespace))
        places["logs"] = str(directory.path / "pods")
        return places

    def _directory(self, run: str, namespace: str) -> RunDirectory:
        check_names(namespace, run)
        directory = RunDirectory(self._root, namespace, run)
        try:
            # Path.is_dir() of Python 3.13 calls a folder that may not be read none.
            there = stat.S_ISDIR(directory.path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            there = False
        except OSError as error:
            raise self._unwritable(error) from error
        if not there:
            left = directory.claim(f"{run}-model")
            raise NotFoundError(
                f"there is no run {run} in namespace {namespace} on this machine",
                f"`{PROGRAM} list` shows those there are."
                + (f" What an earlier run of that name has trained is in {left}." if left.is_dir() else ""),
            )
        return directory

    def _submission(self, plan: Plan) -> Submission:
        taken: set[int] = set()
        for other in run_directories(self._root):
            try:
                submission = other.submission()
            except BrokenRunError:
                continue  # its ports are seen to be in use there
            if submission is not None and other.alive():
                taken.update(int(local.rpartition(":")[2]) for local in submission.addresses.values())
        chosen = ports.choose(len(plan.addresses), taken)
        return Submission(
            run=plan.run,
            namespace=plan.namespace,
            uid=new_uid(),
            submitted=time.time(),
            objects=list(plan.objects),
            addresses={
                address: f"127.0.0.1:{port}" for address, port in zip(plan.addresses, chosen, strict=True)
            },
            settings=self._settings,
        )

    def _reachable(self, forbidden: str) -> str:
        """A sentence on who can reach the run's tasks."""
        open_to = "whoever reaches this machine's ports can read and write your files"
        if self._allow_network:
            return f"network: this machine's own; {open_to} while the run is running"
        if forbidden:
            return (
                f"warning: the run has no network of its own, since this machine forbids it ({forbidden}): "
                f"{open_to} through TensorFlow's servers; --allow-network takes it so"
            )
        return "network: the run's own, closed to others; data comes by HTTP(S) only, see --allow-network"

    def _start(self, directory: RunDirectory, lock: int, *, detach: bool) -> str:
        self.prepare()
        guard, self._guard = self._guard, None
        control = directory.open_control()
        lifeline = None if detach else submitter_pipe.new()
        try:
            if guard is None:
                raise BackendError("the run's supervisor cannot be started: there is none")
            return guard.give(directory, lock, control, lifeline, allow_network=self._allow_network)
        finally:
            os.close(control)
            if lifeline is not None:
                os.close(lifeline)

    def _set_suspended(self, run: str, namespace: str, *, suspended: bool) -> None:
        directory = self._directory(run, namespace)
        state = directory.state()
        sent = not (state and state["ended"]) and directory.send("suspend" if suspended else "resume")
        until = time.monotonic() + _ANSWER_SECONDS
        while sent and time.monotonic() < until:
            state = directory.state()
            if state is not None:
                # A Job that is about to end is not suspended any more.
                left = [job["spec"] for job in state["jobs"] if not is_decided(job)]
                if left and all(bool(spec.get("suspend")) == suspended for spec in left):
                    return
                if state["ended"]:
                    if not suspended:
                        return  # resumed, and at once over
                    break
            time.sleep(0.02)
        else:
            if sent:
                raise self._silent(directory)
        raise run_facts.over(run, suspended=suspended)

    @staticmethod
    def _silent(directory: RunDirectory) -> BackendError:
        return BackendError(
            f"run {directory.run} does not answer", f"{directory.log_path} may say why; it may still obey."
        )

    def _longest_grace(self, directory: RunDirectory) -> float:
        try:
            submission = directory.submission()
        except BrokenRunError:
            return GRACE_SECONDS
        jobs = submission.of_kind("Job") if submission is not None else []
        specs = [job["spec"]["template"]["spec"] for job in jobs]
        graces = [spec.get("terminationGracePeriodSeconds") for spec in specs]
        return float(max((GRACE_SECONDS if grace is None else grace for grace in graces), default=0))

    def _sweep(self) -> None:
        try:
            sweep(self._root)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> BackendError:
        where = f" ({error.filename})" if error.filename else ""
        return BackendError(
            f"cannot keep the run's files under {self._root}: {error.strerror or error}{where}",
            "Free some space, or set XDG_STATE_HOME to a directory that you can read and write.",
        )


_WHY_NOT_RUNNING: Final = {
    Phase.PENDING: "It has not started yet.",
    Phase.SUSPENDED: "It is suspended with its run.",
    Phase.SUCCEEDED: "It has succeeded.",
    Phase.FAILED: "It has failed.",
}


def _generation(job: Mapping[str, Any]) -> int:
    """How often the Job was changed; before the supervisor's first word it was not."""
    return int(job["metadata"].get("generation") or 1)


def _no_cluster(what: str) -> BackendError:
    return BackendError(
        f"this machine is no cluster: it {what}", "Leave out --backend local to ask a cluster."
    )


def _trains_anew(directory: RunDirectory, plan: Plan) -> str:
    """What becomes of the model of a run of this name that has succeeded; "" where there is none."""
    try:
        status = following.read_status(directory)
        before = directory.submission()
    except (NotFoundError, BrokenRunError):
        return ""
    if before is None or status.phase is not Phase.SUCCEEDED:
        return ""
    anew = trains_anew(before.of_kind("Job")[0], plan.objects[0])
    return f"run {plan.run} has succeeded before; {anew}" if anew else ""


def _has_ended(directory: RunDirectory) -> bool:
    try:
        return bool((directory.state() or {"ended": False})["ended"])
    except BrokenRunError:
        return True  # nothing else is known


def _model_directory(directory: RunDirectory, submission: Submission) -> str | None:
    """The model directory, as the first task of the primary role sees it."""
    config = run_facts.run_config(submission.objects)
    if config is None or not config.model_dir:
        return None
    template = PodTemplate(directory, submission, submission.of_kind("Job")[0])
    return template.translation(0).path(config.model_dir) or config.model_dir
