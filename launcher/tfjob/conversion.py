"""Converts a TFJob to a TrainingCluster of strategy Custom, and finds where the two differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from launcher.config.spec import API_VERSION, RoleName
from launcher.config.yaml_parser import FieldPath
from launcher.lists_and_counts import did_you_mean, listed
from launcher.object_names import CONTAINER, QUEUE_LABEL
from launcher.tfjob import fields, holders, metadata, remarks, templates

GROUP: Final = "kubeflow.org/"
VERSION: Final = "kubeflow.org/v1"
_BETA: Final = "kubeflow.org/v1beta2"
VERSIONS: Final = (VERSION, _BETA)

_ROLES: Final[Mapping[str, RoleName]] = {
    "Chief": "chief",
    "Master": "chief",
    "Worker": "worker",
    "PS": "ps",
    "Evaluator": "evaluator",
}
_BY_NAME: Final = {name.lower(): role for name, role in _ROLES.items()}
"""The operator takes the types in any spelling."""
_REPLICAS: Final = ("spec", "tfReplicaSpecs")
_POLICY: Final = ("spec", "runPolicy")
_GANG: Final = (*_POLICY, "schedulingPolicy")
_GANGS: Final = {
    "scheduler-plugins-scheduler": "Coscheduling",
    "volcano": "Volcano",
    "default-scheduler": "Kubernetes",
}
"""By the pods' schedulerName; the first that a pod names."""
OPERATORS: Final = "training.kubeflow.org/"
"""The prefix of the training-operator's labels and finalizers."""
MANAGER: Final = "kubeflow.org/training-operator"
"""The `managedBy` of those TFJobs that the training-operator took."""

Object = dict[str, Any]


@dataclass
class Conversion:
    """The result. `value` is the TrainingCluster. `origins` maps its paths to paths of the TFJob. `remarks`
    are the differences from the operator; `problems` have paths of the TFJob.
    """

    value: Object = field(default_factory=dict)
    origins: dict[FieldPath, FieldPath] = field(default_factory=dict)
    remarks: dict[FieldPath, str] = field(default_factory=dict)
    problems: list[tuple[FieldPath, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """The fields of the file that were changed or left out, for a reader who does not see `remarks`."""
    generated: bool = False
    """Whether the run's name was made from generateName, so that each reading gives another."""


def is_kubeflow(value: Mapping[str, Any]) -> bool:
    """Returns whether it is a TFJob, another object of Kubeflow's that may be meant as one, or an object that
    contains one.
    """
    return (
        value.get("kind") == "TFJob"
        or str(value.get("apiVersion")).startswith(GROUP)
        or holders.held(value, ("TrainingCluster",)) is not None
    )


def convert(value: Mapping[str, Any]) -> Conversion:
    """Returns the TFJob as a TrainingCluster, as far as it is valid."""
    conversion = Conversion()
    inside = holders.held(value, ("TFJob",))
    if wrong := [inside] if inside is not None else list(_version(value)):
        conversion.problems = wrong
        return conversion
    conversion.problems = fields.problems(value)
    _Converter(fields.without(value, conversion.problems), conversion).run()
    return conversion


def roles(given: Iterable[str]) -> dict[RoleName, str]:
    """Returns the replica type of each role, in the spelling that the operator gave it."""
    names = {name.lower(): name for name in _ROLES}
    return {_BY_NAME[key.lower()]: names[key.lower()] for key in given if key.lower() in names}


def _version(value: Mapping[str, Any]) -> Iterator[tuple[FieldPath, str]]:
    version, kind = value.get("apiVersion"), value.get("kind")
    if kind != "TFJob":
        message = f"expected TFJob, not {kind}" if kind else "missing: expected TFJob"
        yield ("kind",), f"{message}: of Kubeflow's jobs this one is TensorFlow's"
    elif version not in VERSIONS:
        message = f"expected {VERSION}, not {version}" if version else f"missing: expected {VERSION}"
        if str(version).startswith(GROUP):
            message += ": its fields are others; write it as a TFJob of v1"
        yield ("apiVersion",), message


class _Converter:
    """Converts one TFJob. `job` has only known fields of the right types."""

    def __init__(self, job: Object, conversion: Conversion) -> None:
        self._conversion = conversion
        self._version = job.get("apiVersion")
        self._status = job.get("status")
        self._metadata: Object = job.get("metadata") or {}
        self._run = metadata.of_run(self._metadata)
        self._spec: Object = job.get("spec") or {}
        self._policy: Object = self._spec.get("runPolicy") or {}
        self._specs: dict[RoleName, Object] = {}
        self._types: dict[RoleName, str] = {}
        """The TFJob's own key of each role, in its spelling."""

    def run(self) -> None:
        self._take_old_policy()
        self._choose_roles()
        spec: Object = {"strategy": "Custom"}
        if options := self._strategy_options():
            spec["strategyOptions"] = options
        if self._spec.get("enableDynamicWorker"):
            spec["sparseClusterSpec"] = True
            self._remark(("spec", "sparseClusterSpec"), remarks.SPARSE)
        for role in dict.fromkeys(_ROLES.values()):
            if role in self._types:
                spec[role] = self._role(role)
            else:
                self._origin(("spec", role), _REPLICAS)
        spec["runPolicy"] = self._run_policy()
        if scheduling := self._scheduling():
            spec["scheduling"] = scheduling
        self._conversion.value = {
            "apiVersion": API_VERSION,
            "kind": "TrainingCluster",
            "metadata": self._run_metadata(),
            "spec": spec,
        }

    def _origin(self, path: FieldPath, origin: FieldPath) -> None:
        self._conversion.origins[path] = origin

    def _problem(self, path: FieldPath, message: str) -> None:
        self._conversion.problems.append((path, message))

    def _remark(self, path: FieldPath, text: str) -> None:
        before = self._conversion.remarks.get(path)
        self._conversion.remarks[path] = f"{before.rstrip()}\n{text}" if before else text

    def _choice(self, path: FieldPath, given: Any, choices: Sequence[str], default: str) -> str:
        """Returns the value, or the operator's default where it is missing or wrong."""
        if given in choices or not given:
            return given or default
        hint = did_you_mean(str(given), choices)
        self._problem(path, f"expected {listed(choices, last='or')}, not {given}{hint}")
        return default

    # ---- metadata

    def _run_metadata(self) -> Object:
        run = self._run
        for name, message in run.problems:
            self._problem(("metadata", name), message)
        if run.generated:
            self._origin(("metadata", "name"), ("metadata", "generateName"))
            self._note(("metadata", "name"), remarks.GENERATED.format(run.generated))
            self._conversion.generated = True
        if dropped := [*run.dropped, *(["status"] if self._status else [])]:
            self._note(("metadata",), remarks.DROPPED.format(", ".join(dropped)))
        if self._version == _BETA:
            self._note(("metadata",), remarks.BETA)
        return run.fields

    def _note(self, path: FieldPath, text: str) -> None:
        self._remark(path, text)
        self._conversion.notes.append(text.strip().replace("\n", " "))

    # ---- roles

    def _choose_roles(self) -> None:
        given = self._spec.get("tfReplicaSpecs") or {}
        for key, spec in given.items():
            here: FieldPath = (*_REPLICAS, key)
            role = _BY_NAME.get(key.lower())
            if role is None:
                expected = f"expected {listed(list(_ROLES), last='or')}{did_you_mean(key, _ROLES)}"
                self._problem(here, f"unknown replica type; {expected}")
                continue
            if role in self._types:
                message = f"there is a {self._types[role]} already, and they are the same: keep one"
                self._problem(here, message)
                continue
            self._types[role] = key
            self._specs[role] = spec or {}

    def _role(self, role: RoleName) -> Object:
        key = self._types[role]
        given = self._specs[role]
        here: FieldPath = (*_REPLICAS, key)
        at: FieldPath = ("spec", role)
        self._origin(at, here)
        if role == "chief" and given.get("replicas") == 0:
            self._problem((*here, "replicas"), "expected 1: its success is the run's")
        role_fields: Object = {}
        if given.get("replicas") not in (None, 1):
            role_fields["replicas"] = given["replicas"]
        template = fields.without_nulls(given.get("template") or {})
        lifted = self._template(role, template, (*here, "template"))
        role_fields |= lifted.fields
        for path, origin in lifted.origins.items():
            self._origin((*at, *path), (*here, "template", *origin))
        role_fields["restartPolicy"] = self._restart_policy(role, given, here)
        if role == "evaluator":
            self._remark(at, remarks.EVALUATOR)
        if key.lower() == "master":
            self._remark(at, remarks.MASTER)
        return role_fields

    def _template(self, role: RoleName, template: Object, here: FieldPath) -> templates.RoleFields:
        containers = (template.get("spec") or {}).get("containers") or []
        at: FieldPath = (*here, "spec", "containers")
        names = [str(container.get("name")) for container in containers]
        if CONTAINER not in names:
            shown = f"; there is {', '.join(names)}" if names else ""
            if all(path != at for path, _ in self._conversion.problems):
                message = f"expected a container named {CONTAINER}, the one that TF_CONFIG is for{shown}"
                self._problem(at, message)
            return templates.RoleFields()
        for index, container in enumerate(containers):
            if not container.get("image"):
                self._problem((*at, index, "image"), "missing: it must be given")
        if twice := list(templates.given_twice(template, here)):
            self._conversion.problems += twice
            return templates.RoleFields()
        if template["spec"].get("restartPolicy"):
            self._remark(("spec", role, "restartPolicy"), remarks.POD_RESTART_POLICY)
        labels = {
            f"{OPERATORS}job-name": str(self._run.fields.get("name") or ""),
            f"{OPERATORS}replica-type": self._types[role].lower(),
            **({f"{OPERATORS}job-role": "master"} if role == "chief" else {}),
        }
        return templates.lift(template, labels)

    def _restart_policy(self, role: RoleName, given: Object, here: FieldPath) -> str:
        choices = ("Always", "OnFailure", "Never", "ExitCode")
        policy = self._choice((*here, "restartPolicy"), given.get("restartPolicy"), choices, "Never")
        at: FieldPath = ("spec", role, "restartPolicy")
        if policy == "Always":
            self._remark(at, remarks.ALWAYS)
        if policy in ("Always", "OnFailure"):
            self._remark(at, remarks.REPLACED)
        return "OnFailure" if policy == "Always" else policy

    # ---- when the run ends

    def _strategy_options(self) -> Object:
        options: Object = {}
        here: FieldPath = ("spec", "successPolicy")
        policy = self._choice(here, self._spec.get("successPolicy"), ("AllWorkers",), "")
        workers = self._specs.get("worker", {}).get("replicas")
        if self._types.get("chief", "").lower() == "master":
            options["chiefTaskType"] = "master"
        if policy and "chief" in self._types:
            self._remark(("spec", "chief"), remarks.ALL_WORKERS)
        elif policy:
            options["successPolicy"] = policy
        elif "chief" not in self._types and workers not in (None, 1):
            self._remark(("spec", "worker"), remarks.FIRST_WORKER)
        return options

    def _take_old_policy(self) -> None:
        """Takes those fields beside tfReplicaSpecs that runPolicy does not have."""
        given = {name: self._spec[name] for name in fields.OLD_POLICY if self._spec.get(name) is not None}
        taken = [name for name in given if self._policy.get(name) is None]
        passed = [name for name in given if name not in taken and given[name] != self._policy[name]]
        self._policy = {**self._policy, **{name: given[name] for name in taken}}
        at: FieldPath = ("spec", "runPolicy")
        self._origin(at, _POLICY)
        for name in (*fields.OLD_POLICY, "cleanPolicy"):
            field_name = "cleanPodPolicy" if name == "cleanPolicy" else name
            holder = ("spec",) if field_name in taken else _POLICY
            self._origin((*at, name), (*holder, field_name))
        if taken and self._version != _BETA:
            self._note(at, remarks.OLD_POLICY.format(", ".join(taken)))
        if passed:
            self._note(at, remarks.PASSED_OVER.format(", ".join(f"spec.{name}" for name in passed)))

    def _run_policy(self) -> Object:
        policy = self._policy
        at: FieldPath = ("spec", "runPolicy")
        given_as: FieldPath = (*at, "cleanPolicy")
        here = self._conversion.origins[given_as]
        clean = self._choice(here, policy.get("cleanPodPolicy"), ("None", "Running", "All"), "None")
        run_policy: Object = {"backoffLimit": policy.get("backoffLimit")}
        for name in ("activeDeadlineSeconds", "suspend"):
            if policy.get(name) is not None:
                run_policy[name] = policy[name]
        run_policy["ttlSecondsAfterFinished"] = policy.get("ttlSecondsAfterFinished")
        run_policy["cleanPolicy"] = clean
        self._remark((*at, "cleanPolicy"), remarks.LEFT if clean == "None" else remarks.CLEANED)
        if run_policy["backoffLimit"] is not None:
            self._remark((*at, "backoffLimit"), remarks.BACKOFF_LIMIT)
        if (manager := policy.get("managedBy") or MANAGER) != MANAGER:
            message = f"expected {MANAGER}, not {manager}: leave it out, to have the run here"
            self._problem((*_POLICY, "managedBy"), message)
        return run_policy

    # ---- who starts it

    def _scheduling(self) -> Object:
        policy: Object = self._policy.get("schedulingPolicy") or {}
        given: Object = {name: value for name, value in policy.items() if value}
        at: FieldPath = ("spec", "scheduling")
        self._origin(at, _GANG)
        self._origin((*at, "minMember"), (*_GANG, "minAvailable"))
        self._origin((*at, "priorityClassName"), (*_GANG, "priorityClass"))
        self._origin((*at, "gang"), _GANG)
        scheduling: Object = {}
        queue = (self._metadata.get("labels") or {}).get(QUEUE_LABEL)
        if queue is not None:
            self._origin((*at, "queue"), ("metadata", "labels", QUEUE_LABEL))
            scheduling = {"queue": queue, "gang": "Kueue"}
        elif given:
            scheduling["gang"] = self._gang()
            self._remark((*at, "gang"), remarks.GANG)
            scheduling |= {name: given[name] for name in ("queue", "minResources") if name in given}
            if "minAvailable" in given:
                scheduling["minMember"] = self._min_member(given["minAvailable"])
            if scheduling["gang"] == "Coscheduling" and "scheduleTimeoutSeconds" in given:
                scheduling["scheduleTimeoutSeconds"] = given["scheduleTimeoutSeconds"]
        if "priorityClass" in given:
            scheduling["priorityClassName"] = given["priorityClass"]
        return scheduling

    def _gang(self) -> str:
        pods = [(spec.get("template") or {}).get("spec") or {} for spec in self._specs.values()]
        schedulers = {pod.get("schedulerName") for pod in pods}
        return next((gang for name, gang in _GANGS.items() if name in schedulers), "Volcano")

    def _min_member(self, wanted: int) -> int:
        """Returns the gang's size: the operator counts the evaluator too, which here is no member of the
        gang.
        """
        counts = {role: spec.get("replicas") for role, spec in self._specs.items()}
        everyone = sum(1 if count is None else count for count in counts.values())
        apart = "evaluator" in counts and counts["evaluator"] != 0
        return everyone - apart if wanted == everyone else wanted
