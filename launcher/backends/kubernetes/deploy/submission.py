"""Creates a run's objects, or finds that they exist."""

from __future__ import annotations

import copy
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from launcher.backends.base import PROGRAM, Plan
from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Applied, Client, Object
from launcher.backends.kubernetes.api_server.object_diff import altered, differences, indented, wanted
from launcher.backends.kubernetes.api_server.parallel import together
from launcher.backends.kubernetes.api_server.resources import kind_of, owner_reference
from launcher.backends.kubernetes.deploy import deletion
from launcher.backends.kubernetes.preflight.requirements import check_requirements, queues
from launcher.backends.kubernetes.preflight.versions import check_version
from launcher.backends.kubernetes.state import jobsets
from launcher.backends.run_facts import submitted, trains_anew
from launcher.errors import BackendError, ConflictError, LauncherError
from launcher.object_names import QUEUE_LABEL, RUN_LABEL, SPEC_ANNOTATION
from launcher.plan import runtime_archive
from launcher.status import condition, elastic, labels_of
from worker.contract.run_config import RunConfig

_QUOTA_SECONDS: Final = 10.0
_SERVERS_OWN: Final = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")


class Submission:
    """One plan that is submitted to the cluster."""

    def __init__(self, client: Client, plan: Plan) -> None:
        self._client = client
        self._run = plan.run
        self._namespace = plan.namespace
        self._options = client.connection.options(plan.namespace)
        self._objects = [copy.deepcopy(dict(item)) for item in plan.objects]
        self._notes: list[str] = []
        self._warnings: dict[str, None] = {}

    def submit(self, *, replace: bool) -> str:
        """Creates the run, keeps the one that exists, or replaces it. Returns lines for the user. See
        `base.Backend.submit`.
        """
        selector = f"{RUN_LABEL}={self._run}"
        # All requests at once. Some are useless if the run exists, but later ones would cost another round
        # trip.
        first: list[Callable[[], Any]] = [
            partial(check_version, self._client),
            self._live,
            partial(self._client.list, "Pod", self._namespace, selector, metadata_only=True),
            partial(check_requirements, self._client, self._objects),
            *self._attempts(),
        ]
        _, live, (pods, _), _, *answers = together(first)
        if live is not None and not replace and not _over(live):
            self._goes_on(live)
        elif live is None and not pods and all(map(_is_new, answers)):
            self._make(self._absent(answers))
        else:
            live = self._in_another_form(live, replace=replace)
            if live is not None:
                self._check_elsewhere()
            self._clear(live)
            self._make(self._rehearse_in_its_place())
        return "\n".join([*self._notes, *self._warnings])

    def rehearse(self, *, replace: bool) -> list[str]:
        """What `submit` would do, by the server's own check: a line for each object, and remarks."""
        check_version(self._client)
        check_requirements(self._client, self._objects)
        live = self._live()
        if live is not None and not replace and not _over(live):
            self._align(live)
            lines = [_would_change(item, changes) for item, changes in self._compare(live)]
        elif self._in_another_form(live, replace=replace) is not None:
            self._check_elsewhere()
            lines = [f"{_name(item)} would be replaced" for item in self._objects]
        else:
            absent = self._rehearse()
            lines = [
                f"{_name(item)} " + ("would be created" if _name(item) in absent else "is there already")
                for item in self._objects
            ]
        return [*lines, *self._notes, *self._warnings]

    def _live(self) -> Object | None:
        """The primary Job or JobSet of that name; None if there is none. Raises ConflictError if it does not
        belong to this run.
        """
        first = self._objects[0]
        live = self._client.get(kind_of(first), self._namespace, first["metadata"]["name"])
        if live is not None:
            self._check_ours(live, first["kind"])
        return live

    def _in_another_form(self, live: Object | None, *, replace: bool) -> Object | None:
        """The run that exists, in this form or the other one (Jobs or JobSet). Raises ConflictError if one in
        the other form goes on and is not to be replaced.
        """
        if live is not None:
            return live
        other = jobsets.other_form(self._client, self._objects[0], self._run)
        if other is not None and not replace and not _over(other):
            forms = ("a JobSet", "Jobs") if self._objects[0]["kind"] == "JobSet" else ("Jobs", "a JobSet")
            raise self._conflict([f"it is to be {forms[0]} and is there as {forms[1]}"])
        return other

    def _check_ours(self, live: Object, kind: str) -> None:
        if labels_of(live).get(RUN_LABEL) != self._run:
            raise ConflictError(
                f"there is a {kind} {live['metadata']['name']} in namespace {self._namespace} "
                f"that does not belong to a run {self._run}",
                "Give the run another name (metadata.name), or another namespace.",
            )

    def _clear(self, live: Object | None) -> None:
        """Deletes the run that has ended or is to be replaced, or the rest of a run whose primary Job was
        deleted: its Jobs have the same names, and would be taken for the new ones.
        """
        objects = deletion.items(self._client, self._run, self._namespace)
        if all(item.kept for item in objects):
            return
        objects = deletion.keep_claims(self._client, self._namespace, objects)
        deletion.remove(self._client, self._run, self._namespace, objects)
        if live is not None and not live["metadata"].get("deletionTimestamp"):
            end = _over(live)
            was = f"had {end}" if end else "went on"
            anew = trains_anew(live, self._objects[0]) if end == "succeeded" else ""
            self._notes.append(
                f"run {self._run}, which {was}, is deleted and replaced" + (f"; {anew}" if anew else "")
            )

    def _rehearse(self) -> set[str]:
        """Lets the server check every object before the first is made: rights, admission, names in use.
        Returns the names of those that are not there yet.
        """
        return self._absent(together(self._attempts()))

    def _rehearse_in_its_place(self) -> set[str]:
        """Checks the objects after another run was deleted. That run's quota is released a moment later, so a
        refusal for quota is checked again.
        """
        until = time.monotonic() + _QUOTA_SECONDS
        while True:
            try:
                return self._rehearse()
            except ApiError as error:
                if not error.over_quota or time.monotonic() > until:
                    raise
                time.sleep(0.5)

    def _absent(self, answers: Sequence[Applied | ApiError]) -> set[str]:
        pairs = zip(self._objects, answers, strict=True)
        return {_name(item) for item, answer in pairs if self._judged(item, answer) is None}

    def _attempts(self) -> list[Callable[[], Applied | ApiError]]:
        """What the server would say to each object."""

        def attempt(item: Object) -> Applied | ApiError:
            try:
                return self._client.apply(item, dry_run=True)
            except ApiError as error:
                return error

        return [partial(attempt, item) for item in self._objects]

    def _check_elsewhere(self) -> None:
        """Raises what the server would refuse, before the run that is to be replaced is deleted. The objects
        are checked under other names: under their own the server would compare them with those that exist.
        """

        def attempt(item: Object) -> None:
            name = item["metadata"]["name"]
            other = f"tf-launcher-{uuid.uuid4().hex[:12]}"
            try:
                self._client.apply({**item, "metadata": {**item["metadata"], "name": other}}, dry_run=True)
            except ApiError as error:
                if error.over_quota:
                    return  # the old run still exists, and takes up quota
                error.message = error.message.replace(other, name)
                raise

        together([partial(attempt, item) for item in self._objects])

    def _judged(self, item: Object, answer: Applied | ApiError) -> Object | None:
        """What the existing object would become; None if there is none. Raises what the server refuses."""
        if isinstance(answer, ApiError):
            if answer.status not in (403, 409, 422) or answer.no_right:
                raise answer
            live = self._client.get(kind_of(item), self._namespace, item["metadata"]["name"])
            if live is None:
                raise answer
            self._check_ours(live, item["kind"])
            raise self._refused(item, live, answer) from answer
        for warning in answer.warnings:
            self._warnings[f"warning: {_name(item)}: {warning}"] = None
        if answer.created:
            if queues([answer.body]) != queues([item]):
                raise BackendError(
                    f"Kueue would admit {_name(item)} by itself, and not the run as a whole",
                    "It does so in a namespace with a LocalQueue called default, and where it manages Jobs "
                    "without a queue: ask the administrator for JobSet, or use another namespace.",
                )
            changed = [line for line in altered(item, answer.body) if not line.startswith("metadata.")]
            if changed:
                self._notes.append(f"note: the cluster changes {_name(item)}:\n{indented(changed)}")
            return None
        live = self._client.get(kind_of(item), self._namespace, item["metadata"]["name"])
        self._check_ours(live or answer.body, item["kind"])
        return answer.body

    def _refused(self, item: Object, live: Object, error: ApiError) -> LauncherError:
        if item["kind"] == "PersistentVolumeClaim":
            lines = list(wanted({"spec": live.get("spec")}, {"spec": item.get("spec")}))
            return ConflictError(
                f"{_name(item)} is there from an earlier run, and the cluster refuses to change it: "
                f"{error.words}" + (f"\n{indented(lines)}" if lines else ""),
                f"Ask for what it is in spec.storage, or delete it, and with it what it holds: "
                f"`kubectl delete pvc {item['metadata']['name']} -n {self._namespace}`.",
            )
        if error.status == 403:
            return error
        lines = list(wanted({"spec": live.get("spec")}, {"spec": item.get("spec")})) or [error.words]
        return self._conflict([f"{_name(item)}: {line}" for line in lines])

    def _conflict(self, lines: Sequence[str]) -> ConflictError:
        return ConflictError(
            f"run {self._run} is running, and this cannot be changed meanwhile:\n{indented(lines)}",
            "Submit it with --replace, which ends the run and starts it anew from its backup; or give this "
            "one another name (metadata.name).",
        )

    def _make(self, absent: set[str]) -> None:
        """Creates all objects. If one fails, deletes those that were created.

        What pods mount or ask for comes before the first Job: a kubelet that misses it waits before it looks
        again. The Job owns it, so that is added when there is one.
        """
        primary, *others = self._objects
        jobs = [item for item in others if item["kind"] == "Job"]
        needed = [item for item in others if item["kind"] != "Job"]
        tried = needed
        try:
            together([partial(self._client.apply, item) for item in needed])
            tried = [*needed, primary]
            made = self._client.apply(primary).body
            for item in others:
                _give_owner(item, made)
            tried += jobs
            last: list[Callable[[], Any]] = [partial(self._client.apply, item) for item in jobs]
            last += [partial(self._take_over, item) for item in needed if _is_owned(item)]
            together(last)
        except BaseException as error:
            self._client.patience.restart()  # the removal has a time of its own
            self._undo([item for item in tried if _name(item) in absent], error)
            raise

    def _take_over(self, item: Object) -> None:
        metadata = item["metadata"]
        owners = {"metadata": {"ownerReferences": metadata["ownerReferences"]}}
        self._client.merge(kind_of(item), self._namespace, metadata["name"], owners)

    def _undo(self, made: Sequence[Object], cause: BaseException) -> None:
        """An object may have been created although its answer was lost, so each is looked up."""
        try:
            for item in reversed(made):
                live = self._client.get(kind_of(item), self._namespace, item["metadata"]["name"])
                if live is not None:
                    uid = live["metadata"]["uid"]
                    self._client.delete(kind_of(item), self._namespace, item["metadata"]["name"], uid)
        except BackendError as error:
            if isinstance(cause, LauncherError):
                cause.message += (
                    f"; what was made of the run could not be removed again ({error.message.splitlines()[0]})"
                )
                cause.hint = f"`{PROGRAM} delete {self._run}{self._options}` removes it. {cause.hint}"
        else:
            if isinstance(cause, LauncherError) and made:
                cause.message += "; what had been made of the run was removed again"

    def _goes_on(self, live: Object) -> None:
        """Updates the existing objects, as far as that is allowed while the run goes on."""
        self._align(live)
        compared = list(self._compare(live))
        changed = [f"{_name(item)}: {line}" for item, lines in compared for line in lines]
        for item, lines in compared:
            if lines:
                self._client.apply(item)
        if changed:
            self._notes.append(f"run {self._run} is running already; changed:\n{indented(changed)}")
        else:
            self._notes.append(f"run {self._run} is running already, and is what was submitted")
        if (queue := labels_of(self._objects[0]).get(QUEUE_LABEL)) is not None:
            self._notes.append(f"queue {queue} says when it is started and stopped")
        elif live["spec"].get("suspend"):
            arguments = self._run + self._options
            self._notes.append(f"it is suspended; resume it with: {PROGRAM} resume {arguments}")

    def _align(self, live: Object) -> None:
        """The object without what may differ between submissions of one file: whether it is suspended, how
        many elastic workers it has now, the submission's id, and the launcher's version with its runtime,
        which the run keeps.
        """
        for item in self._objects[1:]:
            _give_owner(item, live)
        for item in self._objects:
            if item["kind"] in ("Job", "JobSet"):
                name = item["metadata"]["name"]
                there = live if item is self._objects[0] else self._client.get("Job", self._namespace, name)
                if there is not None:
                    item["spec"]["suspend"] = bool(there["spec"].get("suspend"))
                    if elastic(there) is not None and elastic(item) is not None:
                        item["spec"] |= {name: there["spec"][name] for name in ("completions", "parallelism")}
            elif item["kind"] == "ConfigMap":
                there = self._client.get("ConfigMap", self._namespace, item["metadata"]["name"])
                _take_run_id(item, there or {})
                _take_runtime(item, there or {})

    def _compare(self, live: Object) -> Iterator[tuple[Object, list[str]]]:
        """Each object and what submitting it would change. Raises ConflictError for a change that is not
        allowed.
        """
        specs = list(_spec_differences(live, self._objects[0]))
        answers = []
        for item, answer in zip(self._objects, together(self._attempts()), strict=True):
            try:
                answers.append(self._judged(item, answer))
            except ConflictError as error:
                # As fields of the file, if those differ.
                raise (self._conflict(specs) if specs else error) from error
        for item, after in zip(self._objects, answers, strict=True):
            if after is None:
                yield item, ["is made again"]
                continue
            before = self._client.get(kind_of(item), self._namespace, item["metadata"]["name"])
            lines = [
                line
                for line in differences(_comparable(before or {}), _comparable(after))
                if SPEC_ANNOTATION not in line
            ]
            if lines and item["kind"] == "ConfigMap":
                # Otherwise a task that is started again would get another program than the others.
                raise self._conflict(specs or [f"{_name(item)}: {line}" for line in lines])
            yield item, lines


def _name(item: Mapping[str, Any]) -> str:
    return f"{item['kind']} {item['metadata']['name']}"


def _is_new(answer: Applied | ApiError) -> bool:
    return isinstance(answer, Applied) and answer.created


def _would_change(item: Object, changes: Sequence[str]) -> str:
    return f"{_name(item)} " + (
        f"would be changed: {'; '.join(changes)}" if changes else "is there, unchanged"
    )


def _over(job: Mapping[str, Any]) -> str:
    """How the run of this primary Job, or JobSet, has ended, "" while it goes on."""
    words = {"Complete": "succeeded", "Completed": "succeeded", "Failed": "failed"}
    if (decisive := condition(job, *words)) is not None:
        return words[decisive["type"]]
    return "been deleted" if job["metadata"].get("deletionTimestamp") else ""


def _give_owner(item: Object, primary: Mapping[str, Any]) -> None:
    """Makes the primary Job the owner of the object, so that it is deleted with it. A claim is not owned: a
    Job is also deleted by its time to live, and what a stopped or failed run has trained must stay.
    """
    if _is_owned(item):
        item["metadata"]["ownerReferences"] = [owner_reference(primary["kind"], primary)]


def _is_owned(item: Mapping[str, Any]) -> bool:
    return bool(item["kind"] != "PersistentVolumeClaim")


def _take_run_id(item: Object, live: Mapping[str, Any]) -> None:
    for key, text in (item.get("data") or {}).items():
        there = (live.get("data") or {}).get(key)
        try:
            config, other = RunConfig.from_json(text), RunConfig.from_json(there or "")
        except ValueError:
            continue
        document = {**json.loads(config.to_json()), "run_id": other.run_id, "version": other.version}
        item["data"][key] = RunConfig.from_json(json.dumps(document)).to_json()


def _take_runtime(item: Object, live: Mapping[str, Any]) -> None:
    there = (live.get("binaryData") or {}).get(runtime_archive.KEY)
    if there is not None and runtime_archive.KEY in (item.get("binaryData") or {}):
        item["binaryData"][runtime_archive.KEY] = there


def _spec_differences(live: Object, planned: Object) -> Iterator[str]:
    """The difference in fields of the file that was submitted."""
    before, after = submitted(live), submitted(planned)
    if before is not None and after is not None:
        yield from differences(_with_defaults(before, after), _with_defaults(after, before))


def _with_defaults(given: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    """The file, which lacks fields that have their defaults, with those that the `other` file gives."""
    from launcher.config.spec import TrainingCluster

    try:
        cluster = TrainingCluster.model_validate_json(json.dumps(given), by_alias=True, by_name=False)
    except ValueError:
        return given  # another version's
    return _completed(given, other, cluster.model_dump(mode="json", by_alias=True))


def _completed(
    given: Mapping[str, Any], other: Mapping[str, Any], full: Mapping[str, Any]
) -> Mapping[str, Any]:
    filled = dict(given)
    for key, value in other.items():
        inner = full.get(key)
        if key not in given and isinstance(inner, bool | int | float | str):
            filled[key] = inner
        elif all(isinstance(each, Mapping) for each in (value, inner, given.get(key, {}))):
            filled[key] = _completed(given.get(key, {}), value, full[key])
    return filled


def _comparable(item: Mapping[str, Any]) -> Object:
    metadata = {key: value for key, value in item.get("metadata", {}).items() if key not in _SERVERS_OWN}
    return {**{key: value for key, value in item.items() if key != "status"}, "metadata": metadata}
