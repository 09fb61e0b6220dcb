"""What is to be done about one TFJob now. Each call compares what there is with what is wanted, so a call too
many does nothing, and one that was cut off by a kill is made up for by the next.
"""

from __future__ import annotations

import copy
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from launcher import plan_of_file
from launcher.backends.kubernetes.api_server.api_errors import ApiError
from launcher.backends.kubernetes.api_server.client import Client
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.run_end.enforcement import CleanUp, CleanUpSettings
from launcher.backends.kubernetes.state.run_state import RunState
from launcher.controller import LEASE, conditions, leases
from launcher.controller.observed import TFJOB, Key, Object, Observed
from launcher.errors import ConflictError, LauncherError, SpecError
from launcher.object_names import DOMAIN
from launcher.status import ADMISSION, Phase, RunStatus, annotations_of, seconds
from launcher.tfjob import conversion, fields
from launcher.validation import loader

TAKEN_ANNOTATION: Final = f"{DOMAIN}/controller"
"""On a TFJob that a controller trains: its uid. It is set before the run is made."""
HOME_ANNOTATION: Final = f"{DOMAIN}/controller-namespace"
"""Set with it: the namespace of that controller's lease, which no other installation has. Earlier versions
did not set it.
"""

_LATER_SECONDS: Final = 30.0
"""Until a TFJob is looked at again that somebody else has to mend."""
_RULE_SECONDS: Final = 2.0
"""How often the rule for a run's end is asked while the run goes on; its limits are of 10 s and more."""
_LONGEST_MESSAGE: Final = 1000
"""Characters of an event's message; an API server takes 1,024."""

_log = logging.getLogger(__name__)


@dataclass
class _Known:
    """What is remembered of a TFJob between two calls, and may be lost."""

    clean_up: CleanUp
    warnings: set[str] = field(default_factory=set)
    """The warnings so far, which are not repeated."""
    cleaned: bool = False


class Reconciler:
    """Brings about what TFJobs ask for, one at a time by `see_to`. Two threads must not see to the same
    one.
    """

    def __init__(
        self,
        client: Client,
        backend: KubernetesBackend,
        observed: Observed,
        lease_namespace: str,
    ) -> None:
        self._client = client
        self._home = lease_namespace
        self._backend = backend
        self._observed = observed
        self._known: dict[Key, tuple[str, _Known]] = {}

    def see_to(self, key: Key) -> float | None:
        """Does what is to be done now. Returns after how many seconds the TFJob must be seen to again, None
        where only a change can give reason to. Raises LauncherError where the cluster refused.
        """
        job = self._observed.tfjob(key)
        if job is None:
            self._known.pop(key, None)
            return None
        policy = _policy(job)
        if _is_another_s(job):
            return None
        taker, is_over = _taken_by(job), conditions.is_over(_status(job))
        if taker not in (None, self._home):
            if taker and leases.is_led(self._client, LEASE, taker):
                return None if is_over else _LATER_SECONDS
            if not is_over:
                return 0.0 if self._take(key, job) else _RULE_SECONDS
        run = self._observed.run(key, job["metadata"]["uid"])
        if run is not None:
            return self._follow(key, job, policy, *run)
        if is_over:
            return self._remove_in_time(key, job, policy)
        return self._start(key, job, policy)

    def warn(self, key: Key, error: LauncherError) -> None:
        """Tells the TFJob's owner what has failed, once for each message."""
        job = self._observed.tfjob(key)
        if job is not None:
            self._tell_once(key, job, conditions.reason("NotStarted"), str(error))

    # ---- without a run

    def _start(self, key: Key, job: Object, policy: Mapping[str, Any]) -> float | None:
        status = _status(job)
        if problem := _obstacle(job):
            self._tell_once(key, job, conditions.reason("NotStarted"), problem)
            return _LATER_SECONDS
        now, suspended = time.time(), bool(policy.get("suspend"))
        try:
            # Whoever waits for a suspended TFJob hears at once that it is wrong.
            one = loader.check(_document(job), source=f"TFJob {key[1]}")
            plan = plan_of_file.plan(plan_of_file.placed(one, key[0], key[0]), uuid.uuid4().hex)
        except SpecError as error:
            self._write(key, job, conditions.refused(status, str(error), now))
            return None
        if _taken_by(job) is None and not self._take(key, job):
            return _RULE_SECONDS
        # Before the run is made: what the cluster refuses may be mended, and is tried again.
        self._write(key, job, conditions.waiting(status, key[1], suspended=suspended, now=now))
        if suspended:
            return None
        self._backend.submit(plan, detach=True, owners=[f"{TFJOB}/{key[1]}"])
        return _RULE_SECONDS

    def _take(self, key: Key, job: Object) -> bool:
        """Marks the TFJob as this installation's. Returns False where it was changed meanwhile: another one
        may have taken it.
        """
        metadata = job["metadata"]
        marks = {TAKEN_ANNOTATION: metadata["uid"], HOME_ANNOTATION: self._home}
        unchanged = {"resourceVersion": metadata["resourceVersion"], "annotations": marks}
        try:
            taken = self._client.merge(TFJOB, *key, {"metadata": unchanged})
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        self._observed.see(TFJOB, taken, gone=False)
        return True

    def _remove_in_time(self, key: Key, job: Object, policy: Mapping[str, Any]) -> float | None:
        """Deletes a TFJob that has ended when its time to live is over, and with it all that it owns."""
        ended = seconds(_status(job).get("completionTime"))
        lives = policy.get("ttlSecondsAfterFinished")
        if lives is None or ended is None:
            return None
        left = ended + float(lives) - time.time()
        if left > 0:
            return left
        self._client.delete(TFJOB, *key, job["metadata"]["uid"])
        return _LATER_SECONDS

    # ---- with a run

    def _follow(
        self, key: Key, job: Object, policy: Mapping[str, Any], state: RunState, run: RunStatus
    ) -> float | None:
        known = self._of(key, job)
        self._label(key, job)
        was_over = conditions.is_over(_status(job))
        if not was_over:
            self._suspend_or_resume(key, policy, run)
            after = conditions.of_run(_status(job), *key, run, _types(job), time.time())
            self._write(key, job, after)
        for notice in known.clean_up.see_to(run, state):
            self._tell_once(key, job, conditions.reason("Stopped"), notice)
        if not (run.ended or (was_over and known.clean_up.gave_up)):
            return _RULE_SECONDS
        if not known.cleaned and state.pods():
            self._backend.clean(key[1], key[0])
        known.cleaned = True
        return self._remove_in_time(key, job, policy) if was_over else _RULE_SECONDS

    def _suspend_or_resume(self, key: Key, policy: Mapping[str, Any], run: RunStatus) -> None:
        wanted, is_so = bool(policy.get("suspend")), run.phase is Phase.SUSPENDED
        try:
            if wanted and not is_so and run.phase in (Phase.PENDING, Phase.RUNNING):
                self._backend.suspend(key[1], key[0])
            elif is_so and not wanted and run.reason != ADMISSION:
                self._backend.resume(key[1], key[0])
        except ConflictError:
            pass  # it has ended meanwhile

    def _label(self, key: Key, job: Object) -> None:
        """Gives the pods those labels of the operator that a Job's template cannot have."""
        has_chief = any(role == "chief" for role in _types(job))
        for name, (role, index) in self._observed.unlabelled(key).items():
            labels = {
                f"{conversion.OPERATORS}replica-index": index,
                f"{conversion.OPERATORS}operator-name": "tfjob-controller",
            }
            if role == "worker" and index == "0" and not has_chief:
                labels[f"{conversion.OPERATORS}job-role"] = "master"
            try:
                self._client.merge("Pod", key[0], name, {"metadata": {"labels": labels}})
            except ApiError as error:
                if error.status != 404:
                    raise

    # ---- what is told

    def _write(self, key: Key, job: Object, after: Object) -> None:
        before = _status(job)
        if after == before:
            return
        after = {**after, "lastReconcileTime": conditions.time_of(time.time())}
        try:
            written = self._client.merge(TFJOB, *key, {"status": after}, part="status")
        except ApiError as error:
            if error.status == 404:
                return  # deleted meanwhile
            raise
        # The watch brings it later, and the next call must not say the same again.
        self._observed.see(TFJOB, written, gone=False)
        for reason, message in conditions.news(before, after):
            kind = "Warning" if "Failed" in reason or "Restarting" in reason else "Normal"
            self._event(key, job, kind, reason, message)

    def _tell_once(self, key: Key, job: Object, reason: str, message: str) -> None:
        warnings = self._of(key, job).warnings
        if message not in warnings:
            warnings.add(message)
            self._event(key, job, "Warning", reason, message)

    def _event(self, key: Key, job: Object, kind: str, reason: str, message: str) -> None:
        _log.info("%s/%s: %s: %s", *key, reason, message)
        metadata, stamp = job["metadata"], conditions.time_of(time.time())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": key[0], "name": f"{key[1][:200]}.{uuid.uuid4().hex[:16]}"},
            "involvedObject": {
                "apiVersion": conversion.VERSION,
                "kind": TFJOB,
                "namespace": key[0],
                "name": key[1],
                "uid": metadata["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message[:_LONGEST_MESSAGE],
            "source": {"component": "tf-launcher-controller"},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        try:
            self._client.create(event)
        except ApiError as error:  # such as in a namespace that is being deleted
            _log.warning("%s/%s: no event: %s", *key, error.message)

    def _of(self, key: Key, job: Object) -> _Known:
        uid = job["metadata"]["uid"]
        before = self._known.get(key)
        if before is None or before[0] != uid:
            before = self._known[key] = uid, _Known(CleanUp(self._client, CleanUpSettings()))
        return before[1]


def _obstacle(job: Object) -> str:
    """Returns why the TFJob is not taken, "" where nothing speaks against it."""
    theirs = [
        name for name in job["metadata"].get("finalizers") or () if name.startswith(conversion.OPERATORS)
    ]
    if theirs:
        return (
            f"it has the finalizer {theirs[0]} of the training-operator, so nobody could delete it; remove "
            f"that: kubectl -n {job['metadata']['namespace']} patch tfjob "
            f'{job["metadata"]["name"]} --type=merge -p \'{{"metadata":{{"finalizers":null}}}}\''
        )
    if _taken_by(job) is None and _status(job).get("conditions"):
        return (
            "another controller has begun it, so it is left alone: end the training-operator (kubectl -n "
            "kubeflow scale deployment training-operator --replicas=0), and make the TFJob anew"
        )
    return ""


def is_nobodys(job: Object) -> bool:
    """Returns whether the TFJob is this controller's to take, and was not taken."""
    return not (_is_another_s(job) or conditions.is_over(_status(job))) and _taken_by(job) is None


def _is_another_s(job: Object) -> bool:
    manager = _policy(job).get("managedBy")
    return bool(job["metadata"].get("deletionTimestamp")) or manager not in (None, "", conversion.MANAGER)


def _taken_by(job: Object) -> str | None:
    """Returns the namespace of the lease of the installation that has taken the TFJob: "" where an earlier
    version has, None where none has. A copy of another TFJob has that one's uid.
    """
    marks = annotations_of(job)
    is_taken = marks.get(TAKEN_ANNOTATION) == job["metadata"]["uid"]
    return marks.get(HOME_ANNOTATION, "") if is_taken else None


def _status(job: Object) -> Object:
    return job.get("status") or {}


def _policy(job: Object) -> Mapping[str, Any]:
    """Returns the run policy, with the fields that the first operators had beside it."""
    spec: Object = job.get("spec") or {}
    policy: Object = spec.get("runPolicy") or {}
    old = {name: spec[name] for name in fields.OLD_POLICY if spec.get(name) is not None}
    return {**old, **{name: value for name, value in policy.items() if value is not None}}


def _types(job: Object) -> Mapping[str, str]:
    """Returns the replica type of each role."""
    keys = conversion.roles(job["spec"].get("tfReplicaSpecs") or {})
    return {str(role): key for role, key in keys.items()}


def _document(job: Object) -> Object:
    """Returns the TFJob as it is submitted: without its time to live and its suspension, which are this
    controller's to carry out. The run's own Job must not go before its end was seen.
    """
    document = copy.deepcopy({name: job[name] for name in ("apiVersion", "kind", "metadata", "spec")})
    document["metadata"].pop("finalizers", None)
    for name in (TAKEN_ANNOTATION, HOME_ANNOTATION):
        (document["metadata"].get("annotations") or {}).pop(name, None)
    for holder in (document["spec"], document["spec"].get("runPolicy") or {}):
        for name in ("ttlSecondsAfterFinished", "suspend"):
            holder.pop(name, None)
    return document
