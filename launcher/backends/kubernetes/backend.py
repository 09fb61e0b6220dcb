"""The Kubernetes backend, as the command line sees it."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from launcher.backends import run_facts
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
from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client, Object
from launcher.backends.kubernetes.api_server.connection import connect
from launcher.backends.kubernetes.api_server.malformed_objects import understood, understood_one_by_one
from launcher.backends.kubernetes.deploy import deletion
from launcher.backends.kubernetes.deploy.submission import Submission
from launcher.backends.patience import Patience
from launcher.backends.run_facts import clean_policy, no_model_directory, submitted
from launcher.errors import BackendError, ConflictError, NotFoundError
from launcher.object_names import ROLE_LABEL, RUN_LABEL
from worker.contract import orders
from worker.contract.task_names import EXTRA_WORKER

if TYPE_CHECKING:
    from launcher.backends.kubernetes.run_end.enforcement import CleanUpSettings
    from launcher.backends.kubernetes.state.root_object import RootObject
    from launcher.status import RunStatus, TaskStatus

_ANSWER_SECONDS: Final = 20.0
"""Between two lines of a task, which come each second; a node may be slow."""
_SCALE_TRIES: Final = 20
"""While its pods start, a Job's status changes a few times a second."""


class KubernetesBackend:
    """Runs on a Kubernetes cluster. See `base.Backend`; unlike there, a run goes on when this process ends.

    `kubeconfig` and `context` choose the cluster as kubectl's options do; nothing is read or asked before
    the first use.
    """

    def __init__(
        self,
        kubeconfig: str | None = None,
        context: str | None = None,
        settings: CleanUpSettings | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._settings = settings
        self._patience = patience or Patience()

    @cached_property
    def _client(self) -> Client:
        return Client(connect(self._kubeconfig, self._context), self._patience)

    @cached_property
    def _clean_up(self) -> CleanUpSettings:
        # Here and below: `submit` must not wait for imports that it does not need.
        from launcher.backends.kubernetes.run_end.enforcement import CleanUpSettings

        return self._settings or CleanUpSettings()

    @property
    def host(self) -> str:
        """The URL of the cluster's API server."""
        return self._client.connection.host

    @property
    def namespace(self) -> str:
        """See `base.Backend.namespace`. The context's own."""
        return self._client.connection.namespace

    def options(self, namespace: str) -> str:
        """See `base.Backend.options`."""
        return self._client.connection.options(namespace)

    @property
    def place(self) -> Place:
        """See `base.Backend.place`."""
        return Place("kubernetes", self._client.connection.context_name)

    def prepare(self) -> None:
        """See `base.Backend.prepare`. Finds out early that there is no cluster to submit to, and opens
        connections.
        """
        self._client.sign_in()
        threading.Thread(target=self._client.warm_up, daemon=True).start()

    @understood
    def submit(self, plan: Plan, *, detach: bool, replace: bool = False, owners: Sequence[str] = ()) -> str:
        """See `base.Backend.submit`. Returns what the user should know, a line each.

        Where the run is there and goes on: when nothing has changed, nothing is done; what may change while
        it runs is changed; all else raises ConflictError, unless it is to be replaced. One that has ended is
        replaced. For `owners` see `owner_references.submit`.
        """
        fitting, without = self._without_nodes(self._fitting(plan), replace=replace)
        if owners:
            from launcher.backends.kubernetes.deploy import owner_references

            return owner_references.submit(self._client, fitting, owners)
        message = Submission(self._client, fitting).submit(replace=replace)
        return "\n".join(filter(None, [message, without, self._left_alone(fitting) if detach else ""]))

    def _without_nodes(self, plan: Plan, *, replace: bool) -> tuple[Plan, str]:
        """The plan without the nodes that the run of this name has found far off, and a sentence about them.
        A run that goes on stays as it is.
        """
        from launcher.backends.kubernetes.deploy import excluded_nodes
        from launcher.backends.kubernetes.observe import following
        from launcher.backends.kubernetes.run_end import stopping
        from launcher.backends.kubernetes.state import jobsets
        from launcher.backends.kubernetes.state.root_object import RootObject

        if not excluded_nodes.is_wanted(plan.objects[0]):
            return plan, ""
        try:
            _, primary, jobset = self._jobs_and_jobset(plan.run, plan.namespace)
        except NotFoundError:
            return plan, ""
        root = jobset or primary
        reasons = dict.fromkeys(excluded_nodes.kept(root), "")
        is_over = stopping.is_over(primary) if jobset is None else bool(jobsets.end(jobset)[0])
        if replace or is_over:
            status = following.read_status(self._client, plan.namespace, RootObject.of(root))
            reasons |= excluded_nodes.far_off(status)
        objects = excluded_nodes.without(plan.objects, list(reasons))
        return dataclasses.replace(plan, objects=objects), _excluded(reasons)

    def _left_alone(self, plan: Plan) -> str:
        """A sentence that names the Jobs which nothing stops at the run's end unless a command follows the
        run; "" if there are none, as with a JobSet.
        """
        from launcher.status import leaves

        jobs = [item for item in plan.objects if item["kind"] == "Job"]
        names = [job["metadata"]["name"] for job in jobs[1:] if not leaves(job)]
        if not names or clean_policy(jobs[0]) == "None":
            return ""
        command = f"`{PROGRAM} wait {plan.run}{self.options(plan.namespace)}`"
        return f"note: {', '.join(names)} may not end by themselves: {command} stops them at the run's end"

    @understood
    def dry_run(self, plan: Plan, *, replace: bool = False) -> list[str]:
        """See `base.Backend.dry_run`."""
        fitting, without = self._without_nodes(self._fitting(plan), replace=replace)
        return [*Submission(self._client, fitting).rehearse(replace=replace), *filter(None, [without])]

    def _fitting(self, plan: Plan) -> Plan:
        """The plan as a JobSet, if it has one and the cluster knows that kind."""
        if plan.as_jobset is not None and self._client.knows("JobSet"):
            return plan.as_jobset
        return plan

    @understood
    def status(self, run: str, namespace: str) -> RunStatus:
        """See `base.Backend.status`."""
        from launcher.backends.kubernetes.observe import following

        return following.read_status(self._client, namespace, self._root(run, namespace))

    @understood
    def runs(self, namespace: str | None = None, *, progress: bool = False) -> list[RunStatus]:
        """See `base.Backend.runs`. Who may not look into all namespaces sees the context's."""
        from launcher.backends.kubernetes.observe import following
        from launcher.backends.kubernetes.state import jobsets
        from launcher.backends.kubernetes.state.clock_skew import local_status
        from launcher.backends.kubernetes.state.root_object import RootObject
        from launcher.backends.kubernetes.state.run_state import find_primary, slim_job, slim_pod

        try:
            jobs, _ = self._client.list("Job", namespace, RUN_LABEL)
        except ApiError as error:
            if namespace is not None or not error.no_right:
                raise
            return self.runs(self.namespace, progress=progress)
        run_states = []
        sets = jobsets.listed(self._client, namespace)
        pods, _ = self._client.list("Pod", namespace, RUN_LABEL) if jobs else ([], "")
        primaries = [job for job in jobs if find_primary([job]) is not None and not jobsets.owner_of(job)]
        for item in [*primaries, *sets]:
            run_state = RootObject.of(item).run_state()
            if item in sets:
                run_state.replace("JobSet", [jobsets.slim_jobset(item)])
            run_state.replace("Job", map(slim_job, _of_run(jobs, item)))
            run_state.replace("Pod", map(slim_pod, _of_run(pods, item)))
            run_states.append((item["metadata"]["namespace"], run_state))
        if progress:
            statuses = following.with_progress(self._client, run_states)
        else:
            statuses = [run_state.status({}) for _, run_state in run_states]
        statuses = [local_status(status, self._client.ahead) for status in statuses]
        return sorted(statuses, key=lambda status: (status.namespace, status.run))

    @understood
    def names(self, namespace: str) -> list[str]:
        """See `base.Backend.names`."""
        jobs, _ = self._client.list("Job", namespace, RUN_LABEL, metadata_only=True)
        return sorted({job["metadata"]["labels"][RUN_LABEL] for job in jobs})

    @understood_one_by_one
    def follow(self, run: str, namespace: str) -> Iterator[Update]:
        """See `base.Backend.follow`."""
        from launcher.backends.kubernetes.observe import following

        return following.follow(self._client, namespace, self._root(run, namespace), self._clean_up)

    @understood_one_by_one
    def logs(self, run: str, namespace: str, selection: Selection, *, follow: bool) -> Iterator[LogLine]:
        """See `base.Backend.logs`. Of all attempts whose pods are still there."""
        from launcher.backends.kubernetes.observe import following

        root = self._root(run, namespace)
        return following.logs(self._client, namespace, root, selection, self._clean_up, until_end=follow)

    @understood
    def tensorboard(self, run: str, namespace: str, port: int = 0) -> Board:
        """See `base.Backend.tensorboard`. By a tunnel to the run's own."""
        from launcher.backends import bucket_files
        from launcher.backends.kubernetes import tensorboard

        _, primary, _ = self._jobs_and_jobset(run, namespace)
        model_dir = run_facts.model_directory(primary)
        if bucket_files.is_bucket(model_dir):
            from launcher.backends.board_process import BoardProcess

            return BoardProcess(run, model_dir, port, run_facts.storage(primary))
        return tensorboard.open_tunnel(self._client, run, namespace, primary, port)

    @understood
    def copy(self, run: str, namespace: str, path: str, target: str, seconds: float) -> Path:
        """See `base.Backend.copy`. From a claim by a pod of its own, which is removed at the end."""
        from launcher.backends import bucket_files, copied_files
        from launcher.backends.kubernetes.model_files import copying

        _, primary, jobset = self._jobs_and_jobset(run, namespace)
        model_dir = run_facts.model_directory(primary)
        if not model_dir:
            raise no_model_directory(run)
        mount = _mount(primary, model_dir)
        if bucket_files.is_bucket(model_dir):
            inner = copied_files.relative(path, (model_dir,))
            storage = run_facts.storage(primary)
            return bucket_files.copied(model_dir, storage, run, inner, target)
        if mount is None:
            raise ConflictError(
                f"the files of run {run} are at {model_dir}, which is no volume of its pods",
                "Copy them from there, as with `gcloud storage cp -r`.",
            )
        inner = copied_files.relative(path, (model_dir,))
        written = copied_files.target(target, Path(inner).name or run)
        kind = "Job" if jobset is None else "JobSet"
        origin = copying.Origin(run, kind, jobset or primary, primary, mount, model_dir.rstrip("/"), inner)
        copying.copy(self._client, origin, written, seconds)
        return written

    def history(self, run: str, namespace: str) -> History:
        """See `base.Backend.history`. Of the pods that are still there."""
        return next(self.histories(run, namespace))

    @understood_one_by_one
    def histories(self, run: str, namespace: str) -> Iterator[History]:
        """See `base.Backend.histories`. Of the pods that are still there."""
        from launcher.backends.kubernetes.observe import history

        _, primary, jobset = self._jobs_and_jobset(run, namespace)
        spec = submitted(jobset or primary, "spec") or submitted(primary, "spec") or {}
        return history.histories(self._client, namespace, self._root(run, namespace), spec)

    def kill(self, run: str, namespace: str, task: str) -> None:
        """Not here: the launcher asks for no right to delete pods. Raises BackendError, which says how those
        who have it do it.
        """
        from launcher.status import INDEX_KEY

        role, _, index = task.rpartition("-")
        raise BackendError(
            "only tasks on this machine can be killed",
            f"A pod is deleted by: kubectl -n {namespace} delete pod --grace-period=0 -l "
            f"{RUN_LABEL}={run},{ROLE_LABEL}={role},{INDEX_KEY}={index}",
        )

    @understood
    def scale(self, run: str, namespace: str, workers: int, role: str = "worker") -> int:
        """See `base.Backend.scale`. One patch of both numbers: the server refuses completions alone, and
        parallelism alone would end any pods. The Job's resourceVersion makes it the only one of two.
        """
        from launcher.backends import scalable_roles

        options = self.options(namespace)
        seen: int | None = None
        for attempt in range(_SCALE_TRIES):
            change = scalable_roles.change(run, self._jobs(run, namespace)[0], role, workers, options)
            job, before = change.job, change.before
            if seen is not None and seen != before:
                raise scalable_roles.outrun(run, role, before, options)
            if before == workers:
                return before
            patch = {
                "metadata": {"resourceVersion": job["metadata"]["resourceVersion"]},
                "spec": {"completions": change.completions, "parallelism": change.completions},
            }
            try:
                self._client.merge("Job", namespace, job["metadata"]["name"], patch)
            except ApiError as error:
                # A change of the Job's status is a conflict, too.
                if error.status != 409 or attempt == _SCALE_TRIES - 1:
                    raise
                seen = before
            else:
                return before
        raise AssertionError("the last try returns or raises")

    @understood
    def suspend(self, run: str, namespace: str) -> None:
        """See `base.Backend.suspend`."""
        self._set_suspended(run, namespace, suspended=True)

    @understood
    def resume(self, run: str, namespace: str) -> str:
        """See `base.Backend.resume`."""
        return self._set_suspended(run, namespace, suspended=False)

    @contextlib.contextmanager
    def supervisor(self, run: str, namespace: str, task: TaskStatus) -> Iterator[socket.socket]:
        """See `base.Backend.supervisor`. By a port that is forwarded to the loopback of the task's pod."""
        from urllib.parse import urlsplit

        from launcher.backends.kubernetes.api_server.port_forward import Tunnel

        with Tunnel(self._client, namespace, lambda: task.pod, orders.PORT, 0) as tunnel:
            port = urlsplit(tunnel.url).port or 0
            with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS) as connection:
                yield connection

    @understood
    def stop(self, run: str, namespace: str, *, at_once: bool = False) -> None:
        """See `base.Backend.stop`. Raises ConflictError for a run that is suspended."""
        from launcher.backends.kubernetes.run_end import stopping

        jobs, primary = self._jobs(run, namespace)
        if primary["spec"].get("suspend") and not stopping.is_over(primary):
            raise ConflictError(
                f"run {run} is suspended, so there is nothing to stop",
                f"End and remove it with: {PROGRAM} delete {run}{self.options(namespace)}",
            )
        stopping.stop(self._client, jobs, "Stopped", "The run was stopped: interrupted")
        if at_once:
            self._client.delete_all("Pod", namespace, f"{RUN_LABEL}={run}", grace=0)

    @understood
    def clean(self, run: str, namespace: str) -> str:
        """See `base.Backend.clean`. With `cleanPolicy: All` the pods go, and with them their logs."""
        from launcher.backends.kubernetes.run_end import stopping
        from launcher.backends.kubernetes.state import kueue
        from launcher.backends.kubernetes.state.root_object import RootObject

        try:
            jobs, primary, jobset = self._jobs_and_jobset(run, namespace)
        except NotFoundError:
            return ""  # its time to live is over
        if not all(stopping.is_over(job) for job in jobs):
            return ""
        group = RootObject.of(jobset or primary).group
        message = kueue.free_quota(self._client, namespace, group) if group else ""
        if clean_policy(primary) != "All":
            return message
        self._client.delete_all("Pod", namespace, f"{RUN_LABEL}={run}")
        return f"run {run}: its pods are deleted, as its cleanPolicy says; `status` still shows how it ended"

    @understood
    def delete(self, run: str, namespace: str) -> str:
        """See `base.Backend.delete`. Waits until all is gone but a claim that is to be kept."""
        objects = deletion.items(self._client, run, namespace)
        if all(item.kept for item in objects):
            raise self._not_found(run, namespace)
        deletion.remove(self._client, run, namespace, objects)
        claims = [item.name for item in objects if item.kept]
        if not claims:
            return ""
        return (
            f"what it has trained stays, on PersistentVolumeClaim {', '.join(claims)}: "
            f"`kubectl delete pvc {' '.join(claims)} -n {namespace}` deletes that too"
        )

    @understood
    def claims_to_delete(self, run: str, namespace: str) -> list[str]:
        """See `base.Backend.claims_to_delete`."""
        claims = deletion.items(self._client, run, namespace, ["PersistentVolumeClaim"])
        return [str(item) for item in claims if not item.kept]

    @understood_one_by_one
    def events(self, run: str, namespace: str, *, follow: bool) -> Iterator[RunEvent]:
        """See `base.Backend.events`."""
        from launcher.backends.kubernetes.observe import events

        return events.of_run(self._client, namespace, self._root(run, namespace), until_end=follow)

    @understood
    def examine(self, namespace: str, objects: Sequence[Mapping[str, Any]] | None = None) -> list[Finding]:
        """Checks whether runs with these `objects`, or any run if they are None, can be submitted to the
        namespace. Raises BackendError where there is no cluster.
        """
        from launcher.backends.kubernetes.preflight import doctor

        return doctor.examine(self._client, namespace, objects)

    @understood
    def count_nodes(self) -> int:
        """How many nodes are ready for new pods. Raises BackendError for a user who may not list nodes."""
        from launcher.status import condition

        try:
            nodes, _ = self._client.list("Node", None)
        except ApiError as error:
            if error.no_right:
                raise BackendError(
                    "you have no right to list nodes", "Say how many are to be measured: --nodes 8."
                ) from error
            raise
        ready = [node for node in nodes if condition(node, "Ready") and not node["spec"].get("unschedulable")]
        if not ready:
            raise BackendError("no node of the cluster is ready for pods", "`kubectl get nodes` shows them.")
        return len(ready)

    @understood
    def places(self, run: str, namespace: str) -> Mapping[str, str]:
        """See `base.Backend.places`."""
        _, primary = self._jobs(run, namespace)
        model_dir = run_facts.model_directory(primary)
        if not model_dir:
            return {}
        claim = _claim(primary, model_dir)
        places = {"model directory": f"{model_dir} on PersistentVolumeClaim {claim}" if claim else model_dir}
        if submitted(primary, "spec", "tensorboard") is not None:
            places["tensorboard"] = run_facts.board_command(run, self.options(namespace))
        return places

    def _jobs(self, run: str, namespace: str) -> tuple[list[Object], Object]:
        """All of the run's Jobs, and the primary one. Raises NotFoundError."""
        jobs, primary, _ = self._jobs_and_jobset(run, namespace)
        return jobs, primary

    def _jobs_and_jobset(self, run: str, namespace: str) -> tuple[list[Object], Object, Object | None]:
        """All of the run's Jobs, the primary one, and the JobSet whose parts they are. Raises NotFoundError.

        The Jobs that a JobSet's controller has not made are given as it would make them.
        """
        from launcher.backends.kubernetes.state import jobsets
        from launcher.backends.kubernetes.state.run_state import find_primary

        jobs, _ = self._client.list("Job", namespace, f"{RUN_LABEL}={run}")
        primary = find_primary(jobs)
        if primary is not None and not jobsets.owner_of(primary):
            return jobs, primary, None
        for jobset in jobsets.listed(self._client, namespace, run):
            names = {job["metadata"]["name"]: job for job in jobs}
            jobs = [names.get(job["metadata"]["name"], job) for job in jobsets.jobs_of(jobset)]
            return jobs, jobs[0], jobset
        if primary is not None:
            return jobs, primary, None  # of a JobSet that we may not see
        raise self._not_found(run, namespace)

    def _root(self, run: str, namespace: str) -> RootObject:
        from launcher.backends.kubernetes.state.root_object import RootObject

        _, primary, jobset = self._jobs_and_jobset(run, namespace)
        return RootObject.of(jobset or primary)

    def _not_found(self, run: str, namespace: str) -> NotFoundError:
        connection = self._client.connection
        return NotFoundError(
            f"there is no run {run} in namespace {namespace} of the cluster {connection.host}",
            f"`{PROGRAM} list --backend kubernetes` shows those there are; {connection.origin} says which "
            "cluster it is.",
        )

    def _set_suspended(self, run: str, namespace: str, *, suspended: bool) -> str:
        """Returns what the user should know."""
        from launcher.backends.kubernetes.deploy import excluded_nodes
        from launcher.backends.kubernetes.run_end import stopping
        from launcher.backends.kubernetes.state import jobsets, kueue
        from launcher.backends.kubernetes.state.root_object import RootObject
        from launcher.status import labels_of

        jobs, primary, jobset = self._jobs_and_jobset(run, namespace)
        if stopping.is_over(primary) or (jobset is not None and jobsets.end(jobset)[0]):
            raise run_facts.over(run, suspended=suspended)
        root = RootObject.of(jobset or primary)
        without = ""
        if excluded_nodes.is_wanted(jobset or primary):
            if suspended:
                self._keep_far_off(root, jobset or primary)
            else:
                without = self._move_elsewhere(jobset or primary, jobs if jobset is None else [jobset])
        # Kueue itself starts and stops what it admits, and would undo this.
        if root.queue and kueue.set_active(self._client, namespace, root.workload, active=not suspended):
            jobs = [job for job in jobs if labels_of(job).get(ROLE_LABEL) == EXTRA_WORKER]
        elif jobset is not None:
            self._client.merge("JobSet", namespace, run, {"spec": {"suspend": suspended}})
            return without
        for job in jobs:
            if not stopping.is_over(job) and bool(job["spec"].get("suspend")) != suspended:
                name = job["metadata"]["name"]
                self._client.merge("Job", namespace, name, {"spec": {"suspend": suspended}})
        return without

    def _keep_far_off(self, root: RootObject, item: Object) -> None:
        """Keeps the nodes that a resumption leaves out, before their pods go."""
        from launcher.backends.kubernetes.deploy import excluded_nodes
        from launcher.backends.kubernetes.observe import following

        metadata = item["metadata"]
        status = following.read_status(self._client, metadata["namespace"], root)
        if nodes := excluded_nodes.far_off(status):
            annotations = excluded_nodes.annotation([*excluded_nodes.kept(item), *nodes])
            patch = {"metadata": {"annotations": annotations}}
            self._client.merge(root.kind, metadata["namespace"], metadata["name"], patch)

    def _move_elsewhere(self, root: Object, holders: Sequence[Object]) -> str:
        """Has the pods of suspended Jobs, or of their JobSet, scheduled to other nodes than before. Returns a
        sentence about it.
        """
        from launcher.backends.kubernetes.deploy import excluded_nodes
        from launcher.backends.kubernetes.run_end import stopping

        nodes = excluded_nodes.kept(root)
        if not nodes:
            return ""
        try:
            for item in holders:
                if item["spec"].get("suspend") and not stopping.is_over(item):
                    self._client.merge(*excluded_nodes.move(item, nodes))
        except ApiError as error:
            if error.status != 422:
                raise
            return (
                f"note: {', '.join(nodes)} could not be left out, since this cluster does not move a Job "
                "that has run (Kubernetes 1.36 does): submit the file with --replace, which leaves them out"
            )
        return _excluded(dict.fromkeys(nodes, ""))


def _excluded(reasons: Mapping[str, str]) -> str:
    """A sentence about the nodes that are left out, each with the reason where that is known; "" of none."""
    named = [f"{node} (it {reason})" if reason else node for node, reason in reasons.items()]
    return f"note: left out, as far off from the others: node {', '.join(named)}" if named else ""


def _of_run(items: list[Object], primary: Object) -> list[Object]:
    run, namespace = primary["metadata"]["labels"][RUN_LABEL], primary["metadata"]["namespace"]
    return [
        item
        for item in items
        if item["metadata"]["labels"][RUN_LABEL] == run and item["metadata"]["namespace"] == namespace
    ]


def _claim(primary: Object, model_dir: str) -> str | None:
    """The claim in which the primary has the model directory."""
    volumes = primary["spec"]["template"]["spec"].get("volumes") or ()
    mount = _mount(primary, model_dir)
    claims = [
        (volume.get("persistentVolumeClaim") or {}).get("claimName")
        for volume in volumes
        if mount is not None and volume["name"] == mount["name"]
    ]
    return claims[0] if claims else None


def _mount(primary: Object, model_dir: str) -> Object | None:
    """Where the primary has the directory."""
    for mount in primary["spec"]["template"]["spec"]["containers"][0].get("volumeMounts") or ():
        path = mount["mountPath"].rstrip("/")
        if model_dir == path or model_dir.startswith(f"{path}/"):
            volume_mount: Object = mount
            return volume_mount
    return None
