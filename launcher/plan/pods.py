"""Works out what a role's Job and pods hold, as plain values that the templates print."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic.alias_generators import to_camel

from launcher import object_names
from launcher.config.role_fields import in_kubernetes
from launcher.config.spec import EnvVar, RemoteSource
from launcher.plan import buckets, gang_scheduling, job_failures, roles, runtime_archive, storage
from launcher.plan.program_files import ProgramFiles
from launcher.plan.roles import (
    CONFIG_PATH,
    COPIES_PATH,
    PACKAGES_PATH,
    PARTS_PATH,
    RUNTIME_PATH,
    SHM_PATH,
    SOURCE_PATH,
    TASK_PATH,
    TASK_VOLUME,
    TMP_PATH,
    ResolvedRole,
    present,
)
from launcher.plan.topology import INDEX, Topology
from worker.contract.environment import ARCHIVE, GIT_KEYS, GRPC_FAIL_FAST, HUGE_PAGES, Env
from worker.contract.run_config import GRACE_SECONDS, DataService, FetchedSource, Precheck, RunConfig
from worker.contract.strategies import STRATEGIES
from worker.contract.task_names import DATA_WORKER, DISPATCHER, EXTRA_WORKER, task_type

RUN_FILE: Final = "run.json"
CLUSTER_FILE: Final = "cluster.json"

PART_KEY: Final = "part"
"""Of a ConfigMap with a part of the source's archive."""
PACKAGES_VOLUME: Final = "launcher-packages"
COPIES_VOLUME: Final = "launcher-copies"
METRICS_PORT: Final = "metrics"
"""The port's name, by which a PodMonitor finds it."""

SHM_SIZE: Final = "1Gi"
"""Shared memory of a role with GPUs, where containers have 64 MiB. NCCL's own advice:
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#docker"""

# A sidecar that goes on when the program has ended keeps its pod, and so the run, from ending; and one that
# takes over the pod's traffic is in the way of the peers' gRPC. Istio prefers the label to the annotation.
_NO_SIDECARS: Final = (
    ("labels", "sidecar.istio.io/inject", "false"),
    ("annotations", "sidecar.istio.io/inject", "false"),
    ("annotations", "linkerd.io/inject", "disabled"),
)

Object = dict[str, Any]


# What a Job, its pods and the program's container hold, ready to be printed. Lists and maps are Kubernetes'
# own, in its order of fields. `fields` are those that are not in every manifest.


@dataclass(frozen=True)
class ContainerPlan:
    """What a task runs."""

    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: list[Object]
    ports: list[Object]
    read_only_root: bool
    volume_mounts: list[Object]
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class PodPlan:
    """Where a task runs, and with what volumes."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    volumes: list[Object]
    fields: Mapping[str, Any]
    container: ContainerPlan


@dataclass(frozen=True)
class JobPlan:
    """One role's tasks: how many, and when they are tried again."""

    name: str
    replicas: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    retries: Mapping[str, Any]
    failure_rules: list[Object]
    fields: Mapping[str, Any]
    pod: PodPlan


def labels(topology: Topology, role: str | None = None) -> dict[str, str]:
    """The labels of every object of the run, and with `role` those of its Job and pods. The launcher's
    override the user's, which could otherwise take an object out of its run.
    """
    ours = {
        "app.kubernetes.io/name": "tf-launcher",
        "app.kubernetes.io/instance": topology.run,
        "app.kubernetes.io/managed-by": "tf-launcher",
        object_names.RUN_LABEL: topology.run,
    }
    if role is not None:
        ours |= {"app.kubernetes.io/component": role, object_names.ROLE_LABEL: role}
    return {**topology.cluster.metadata.labels, **ours}


def service_ports(topology: Topology) -> list[Object]:
    """Where the tasks listen. A headless Service leads to all ports; these are for information."""
    numbers = sorted({role.port for role in topology.roles})
    return [
        {"name": "tensorflow" if len(numbers) == 1 else f"tensorflow-{number}", "number": number}
        for number in numbers
    ]


def selector(topology: Topology) -> dict[str, str]:
    """Matches the pods of the run, and no others in its namespace."""
    return {object_names.RUN_LABEL: topology.run}


@dataclass(frozen=True)
class MonitoringPlan:
    """Who reaches the metrics' port, and the `labels` and `endpoint` of a PodMonitor, where there is one."""

    port: int
    scrapers: list[Object]
    has_pod_monitor: bool
    labels: Mapping[str, str]
    endpoint: Object


def monitoring_plan(topology: Topology) -> MonitoringPlan | None:
    """None where the file asks for no metrics."""
    monitoring = topology.cluster.spec.monitoring
    if monitoring is None:
        return None
    given = monitoring.pod_monitor
    seconds = given.interval_seconds if given is not None else None
    return MonitoringPlan(
        port=monitoring.port,
        scrapers=[peer.model_dump(exclude_none=True) for peer in monitoring.scrapers],
        has_pod_monitor=given is not None,
        labels={**(given.labels if given is not None else {}), **labels(topology)},
        endpoint={"port": METRICS_PORT} | ({} if seconds is None else {"interval": f"{seconds}s"}),
    )


def run_config(topology: Topology, run_id: str, source: ProgramFiles | None = None) -> RunConfig:
    """What every task of the run reads."""
    spec = topology.cluster.spec
    strategy, policy = STRATEGIES[spec.strategy], spec.run_policy
    graces = {role.name: role.grace_seconds for role in topology.roles}
    return RunConfig(
        run=topology.run,
        run_id=run_id,
        mode=spec.mode,
        checkpoint=spec.checkpoint,
        strategy=spec.strategy,
        strategy_options=spec.strategy_options.model_dump(exclude_none=True),
        evaluation=spec.evaluation.model_dump(exclude_defaults=True),
        entrypoint=spec.program.entrypoint if spec.program else None,
        script=spec.program.script_file if spec.program else None,
        args=spec.program.args if spec.program else (),
        keras=spec.program.keras if spec.program else None,
        parameters=spec.program.parameters if spec.program else {},
        model_dir=spec.model_dir,
        replicas=_replicas(topology),
        # Under TPU a claim is one for chips.
        gpus={role.name: role.gpus for role in topology.roles if role.gpus and not strategy.on_slice},
        allow_cpu=[role.name for role in topology.roles if role.given.allow_cpu],
        travels=[role.name for role in topology.roles if role.uses_runtime and role.travels],
        # A task that trains alone opens no port.
        chief_address=None if topology.alone else topology.address(topology.primary, 0),
        starting_deadline_seconds=policy.starting_deadline_seconds,
        stall_seconds=policy.stall_seconds,
        chief_lost_seconds=policy.chief_lost_seconds,
        restarts_in_place=policy.restarts_in_place,
        grace_seconds={name: grace for name, grace in graces.items() if grace != GRACE_SECONDS},
        data_service=_data_service(topology),
        scripts=[role.name for role in topology.roles if role.runs_script],
        packages=spec.program.packages if spec.program else (),
        source=_fetched(topology, source),
        evaluator_memory=next((role.memory for role in topology.roles if role.name == "evaluator"), 0),
        ps_memory=next((role.memory for role in topology.roles if role.name == "ps"), 0),
        checkpoints=spec.checkpoints.model_dump(exclude_none=True),
        tracking=spec.tracking.model_dump(exclude_none=True) if spec.tracking else {},
        cpu_requests={role.name: role.cpu_request for role in topology.roles if role.cpu_request},
        precheck=_precheck(topology),
        first_extra_worker=topology.first_extra_worker,
    )


def _replicas(topology: Topology) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for role in topology.roles:
        counts[task_type(role.name)] += role.replicas
    return dict(counts)


def _precheck(topology: Topology) -> Precheck | None:
    if topology.cluster.spec.prechecks is None:
        return None
    return Precheck(topology.training_cluster)


def _fetched(topology: Topology, source: ProgramFiles | None) -> FetchedSource | None:
    """Where the tasks get the source from that is not mounted, None where it is."""
    if source is not None and not source.is_mounted:
        return FetchedSource("parts", source.digest)
    program = topology.cluster.spec.program
    given = program.source if program is not None else None
    if not isinstance(given, RemoteSource):
        return None
    if given.git is not None:
        return FetchedSource("git", given.git.commit, given.git.url, given.git.path or "")
    if given.archive is not None:
        return FetchedSource("archive", given.archive.sha256, given.archive.url, given.archive.path or "")
    return None


_SHARDING: Final = {"Dynamic": "DYNAMIC", "Off": "OFF", "FileOrData": "FILE_OR_DATA"}
"""What TensorFlow calls them."""


def _data_service(topology: Topology) -> DataService | None:
    service = topology.cluster.spec.data_service
    if service is None or DISPATCHER not in topology.addresses:
        return None
    replicas, workers = topology.role(DATA_WORKER).replicas, topology.addresses[DATA_WORKER]
    return DataService(
        dispatcher=topology.addresses[DISPATCHER][0],
        workers=workers[:replicas],
        more=workers[replicas:],
        primary=topology.address(topology.primary, 0),
        sharding=_SHARDING[service.sharding],
        shared=service.share_across_workers is not False,
    )


def job_plan(topology: Topology, role: ResolvedRole, source: ProgramFiles | None) -> JobPlan:
    """The Job of one role."""
    annotations = {**topology.cluster.metadata.annotations, **role.given.job_metadata.annotations}
    if role.name == topology.primary:
        annotations[object_names.PRIMARY_ANNOTATION] = "true"
        annotations[object_names.SPEC_ANNOTATION] = topology.cluster.model_dump_json(exclude_defaults=True)
    elif role.elastic is not None:
        elastic = topology.elastic if role.name == "worker" and topology.elastic else role.elastic
        annotations[object_names.ELASTIC_ANNOTATION] = elastic.to_json()
    elif role.name == EXTRA_WORKER:
        annotations[object_names.NEEDED_ANNOTATION] = "false"
    elif roles.is_custom(topology.cluster.spec):
        needed = not job_failures.goes_on_without(topology, role)
        annotations[object_names.NEEDED_ANNOTATION] = "true" if needed else "false"
    return JobPlan(
        name=topology.job_name(role.name),
        replicas=role.replicas,
        labels={**role.given.job_metadata.labels, **labels(topology, role.name)},
        annotations=annotations,
        retries=job_failures.retries(topology, role),
        failure_rules=job_failures.rules(topology, role),
        fields=_job_fields(topology, role),
        pod=_pod_plan(topology, role, source),
    )


def _pod_plan(topology: Topology, role: ResolvedRole, source: ProgramFiles | None) -> PodPlan:
    metadata = _pod_metadata(topology, role)
    mounts, volumes = _volumes(topology, role, source)
    return PodPlan(
        labels=metadata["labels"],
        annotations=metadata["annotations"],
        volumes=volumes,
        fields=_pod_fields(topology, role),
        container=_container_plan(topology, role, source, mounts),
    )


def _container_plan(
    topology: Topology, role: ResolvedRole, source: ProgramFiles | None, mounts: list[Object]
) -> ContainerPlan:
    custom = roles.is_custom(topology.cluster.spec)
    return ContainerPlan(
        image=role.image,
        command=tuple(map(escaped, _command(role))),
        args=tuple(map(escaped, role.args)),
        env=_env(topology, role, source),
        ports=_ports(topology, role),
        # An image that is to run as it is may write wherever its files let user 65532 write.
        read_only_root=not custom,
        volume_mounts=mounts,
        fields=others(
            ContainerPlan,
            role.fields("container")
            | {"workingDir": role.given.working_dir or _script_directory(topology, role, source)},
        ),
    )


def _ports(topology: Topology, role: ResolvedRole) -> list[Object]:
    name = "tfjob-port" if roles.is_custom(topology.cluster.spec) else "tensorflow"
    ports: list[Object] = [{"name": name, "containerPort": role.port, "protocol": "TCP"}]
    monitoring = topology.cluster.spec.monitoring
    if monitoring is not None and role.uses_runtime:
        ports.append({"name": METRICS_PORT, "containerPort": monitoring.port, "protocol": "TCP"})
    return ports


def needs_archive(role: ResolvedRole, source: ProgramFiles | None) -> bool:
    """Whether the role's pods have the runtime that travels: they start it, or their script imports it."""
    if not role.travels:
        return False
    return role.uses_runtime or role.runtime == "Travels" or runtime_archive.is_imported(source)


def _command(role: ResolvedRole) -> tuple[str, ...]:
    if not role.uses_runtime:
        return role.command or ()
    started = roles.TRAVELLING_COMMAND if role.travels else roles.RUNTIME_COMMAND
    return started + (role.command or ())[len(roles.RUNTIME_COMMAND) :]


def _pod_metadata(topology: Topology, role: ResolvedRole) -> dict[str, dict[str, str]]:
    """Labels and annotations of the pods. Those that disable sidecars are left to the user, if given."""
    given = topology.cluster.metadata
    role_metadata = role.pod_metadata
    names = {
        *given.labels,
        *given.annotations,
        *(role_metadata.get("labels") or ()),
        *(role_metadata.get("annotations") or ()),
    }
    member = gang_scheduling.membership(topology, role.name)
    metadata = {
        "labels": labels(topology, role.name) | member[0],
        "annotations": {**given.annotations, **member[1]},
    }
    if role.name in storage.place(topology).on_one_node:
        metadata["labels"][object_names.NODE_LABEL] = topology.run
    return without_sidecars(metadata, names)


def without_sidecars(
    metadata: dict[str, dict[str, str]], given: Collection[str]
) -> dict[str, dict[str, str]]:
    """Adds the labels and annotations that disable sidecars, unless `given` has them."""
    for kind, key, value in _NO_SIDECARS:
        if key not in given:
            metadata[kind][key] = value
    return metadata


def escaped(text: str) -> str:
    """So that Kubernetes' expansion of `$(NAME)` in commands, arguments and environment gives the text back.

    It turns `$$` into `$` everywhere, references or not, and reads a byte behind a lone `$` as a character of
    its own (third_party/forked/golang/expansion/expand.go).
    """
    return text.replace("$", "$$")


def _script_directory(topology: Topology, role: ResolvedRole, source: ProgramFiles | None) -> str | None:
    """The working directory in which a command finds the program's files."""
    return SOURCE_PATH if role.runs_script and _has_source(topology, role, source) else None


def _has_source(topology: Topology, role: ResolvedRole, source: ProgramFiles | None) -> bool:
    """Whether the role's tasks have the source's folder. One that is fetched is fetched where it is used."""
    return source is not None if _fetched(topology, source) is None else role.runs_code


def others(plan: type[Any], fields: Object) -> Object:
    """The fields that are not empty, and that the plan has no attribute for."""
    attributes = {to_camel(attribute.name) for attribute in dataclasses.fields(plan)}
    return {name: value for name, value in present(fields).items() if name not in attributes}


def _job_fields(topology: Topology, role: ResolvedRole) -> dict[str, Any]:
    spec = topology.cluster.spec
    policy = spec.run_policy
    primary = role.name == topology.primary
    # The JobSet itself has these fields; and Kueue starts what it admits.
    suspend = policy.suspend and roles.gang(spec) != "Kueue"
    fields: Object = {} if topology.jobset else {"suspend": suspend}
    # Tasks of other images do not notice that the primary was stopped, so each Job has the deadline.
    if primary or roles.is_custom(spec):
        fields |= present({"activeDeadlineSeconds": policy.active_deadline_seconds})
    if primary and not topology.jobset:
        fields |= present({"ttlSecondsAfterFinished": policy.ttl_seconds_after_finished})
    several = role.replicas > 1
    if primary and roles.is_custom(spec) and several and spec.strategy_options.success_policy != "AllWorkers":
        fields["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
    return fields


def _pod_fields(topology: Topology, role: ResolvedRole) -> dict[str, Any]:
    spec = topology.cluster.spec
    return others(
        PodPlan,
        {
            **in_kubernetes(spec.scheduling, "pod"),
            "schedulerName": gang_scheduling.scheduler_name(spec),
            "schedulingGates": gang_scheduling.gates(topology),
            "schedulingGroup": gang_scheduling.scheduling_group(topology, role.name),
            "shareProcessNamespace": _shares_processes(role) or None,
            **role.fields("pod"),
            "affinity": storage.affinity(topology, role),
        },
    )


def _shares_processes(role: ResolvedRole) -> bool:
    """Whether the pod has one process namespace. Otherwise the task is process 1, which does not get SIGTERM
    before it has a handler: a pod that is deleted while it starts would be there for its whole grace period.
    A container of the user's beside it keeps a namespace of its own.
    """
    return role.uses_runtime and len(role.pod["spec"]["containers"]) == 1


def _env(topology: Topology, role: ResolvedRole, source: ProgramFiles | None) -> list[Object]:
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    variables: list[Object] = [
        # It must come first: TF_CONFIG refers to it, and Kubernetes resolves only references to earlier
        # variables.
        {"name": Env.TASK_INDEX, "valueFrom": {"fieldRef": {"fieldPath": index}}},
    ]
    if role.name in topology.file_roles:
        variables.append({"name": Env.CLUSTER_FILE, "value": f"{CONFIG_PATH}/{CLUSTER_FILE}"})
    elif (tf_config := topology.tf_config(role.name)) is not None:
        variables.append({"name": Env.TF_CONFIG, "value": tf_config})
    variables += [
        {"name": Env.ROLE, "value": role.name},
        {"name": Env.CONFIG, "value": f"{CONFIG_PATH}/{RUN_FILE}"},
        {"name": Env.TASK_DIR, "value": TASK_PATH},
    ]
    if role.keeps_copies:
        variables.append({"name": Env.COPIES_DIR, "value": COPIES_PATH})
    if (elastic := topology.elastic) is not None:
        variables.append({"name": Env.ELASTIC_WORKERS, "value": elastic.to_json()})
    if (address := topology.metrics_address(role.name, INDEX)) is not None:
        variables.append({"name": Env.METRICS, "value": address})
    if _has_source(topology, role, source):
        variables.append({"name": Env.SOURCE, "value": SOURCE_PATH})
        if source is not None and source.parts:
            variables.append({"name": Env.SOURCE_PARTS, "value": ":".join(_part_paths(source))})
        variables += _git_credentials(topology)
    if role.packages is not None:
        variables.append({"name": Env.PACKAGES, "value": escaped(role.packages)})
    role_variables = [entry(variable) for variable in role.env]
    task_variables = [*_for_buckets(topology, role), *_for_programs(topology, role)]
    return [
        *variables,
        *task_variables,
        *_of_the_process(topology, role),
        *_module_path(role, source),
        *role_variables,
    ]


def part_name(run: str, number: int) -> str:
    """The name of the ConfigMap with this part of the source's archive."""
    return f"{run}-source-{number:02}"


def _part_paths(source: ProgramFiles) -> list[str]:
    return [f"{PARTS_PATH}/{number:02}/{PART_KEY}" for number in range(len(source.parts))]


def _git_credentials(topology: Topology) -> list[Object]:
    program = topology.cluster.spec.program
    given = program.source if program is not None else None
    if not isinstance(given, RemoteSource) or given.git is None or given.git.secret_name is None:
        return []
    secret = given.git.secret_name
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for name, key in zip(GIT_KEYS, ("username", "password"), strict=True)
    ]


def _for_buckets(topology: Topology, role: ResolvedRole) -> list[Object]:
    """How the role's tasks reach a bucket. Variables that the user gives are left to the user."""
    fetches = role.runs_code and buckets.has_source(topology.cluster.spec)
    if not fetches and not buckets.mirrors(topology, role) and not buckets.prefetches(topology, role):
        return []
    given = {variable.name for variable in role.env}
    return [each for each in buckets.variables(topology) if each["name"] not in given]


def _for_programs(topology: Topology, role: ResolvedRole) -> list[Object]:
    """Where the role's tasks are to write, and what a script is told by variables where a program gets it as
    an argument. An image that is to run as it is gets nothing of it.
    """
    spec = topology.cluster.spec
    program = spec.program
    if roles.is_custom(spec):
        return []
    values: dict[str, str] = {}
    if spec.model_dir is not None and (role.runs_script or role.touches_model_dir):
        values["MODEL_DIR"] = spec.model_dir
    if role.runs_script:
        parameters = program.parameters if program is not None else {}
        if isinstance(data := parameters.get("dataDir"), str):
            values["DATA_DIR"] = data
        if program is not None:
            values["TF_LAUNCHER_PARAMETERS"] = json.dumps(parameters, sort_keys=True)
            if program.keras is not None:
                values["TF_USE_LEGACY_KERAS"] = "1" if program.keras == 2 else "0"
    given = {variable.name for variable in role.env}
    return [{"name": name, "value": escaped(value)} for name, value in values.items() if name not in given]


def _module_path(role: ResolvedRole, source: ProgramFiles | None) -> list[Object]:
    """Where a script that the runtime does not start finds it. The image's own PYTHONPATH is lost then: so it
    is set for no other script, and not where the user sets it.
    """
    if role.uses_runtime or not needs_archive(role, source):
        return []
    if any(variable.name == "PYTHONPATH" for variable in role.env):
        return []
    return [{"name": "PYTHONPATH", "value": ARCHIVE}]


def _of_the_process(topology: Topology, role: ResolvedRole) -> list[Object]:
    """Variables that a process reads when it starts, unless the file has them. Images of other frameworks get
    none; the runtime sets that of TensorFlow's servers by itself.
    """
    if roles.is_custom(topology.cluster.spec):
        return []
    variables = [HUGE_PAGES] if role.uses_runtime else [HUGE_PAGES, GRPC_FAIL_FAST]
    given = {variable.name for variable in role.env}
    return [{"name": name, "value": value} for name, value in variables if name not in given]


def entry(variable: EnvVar) -> Object:
    """The variable in Kubernetes' form. Its value is escaped, so that the task gets what is in the file."""
    if variable.value_from is not None:
        return {"name": variable.name, "valueFrom": variable.value_from}
    return {"name": variable.name, "value": escaped(variable.value or "")}


def _volumes(
    topology: Topology, role: ResolvedRole, source: ProgramFiles | None
) -> tuple[list[Object], list[Object]]:
    run = topology.run
    role_mounts = role.fields("container")["volumeMounts"]
    mounts: list[Object] = [
        {"name": "launcher-config", "mountPath": CONFIG_PATH, "readOnly": True},
        {"name": TASK_VOLUME, "mountPath": TASK_PATH},
    ]
    volumes: list[Object] = [
        {"name": "launcher-config", "configMap": {"name": f"{run}-config"}},
        {"name": TASK_VOLUME, "emptyDir": {}},
    ]
    if role.keeps_copies:
        # It counts towards the pod's own limit of memory, so it needs no limit of its own.
        mounts.append({"name": COPIES_VOLUME, "mountPath": COPIES_PATH})
        volumes.append({"name": COPIES_VOLUME, "emptyDir": {"medium": "Memory"}})
    if _fetched(topology, source) is not None:
        if role.runs_code:
            mounts.append({"name": "launcher-source", "mountPath": SOURCE_PATH})
            volumes.append({"name": "launcher-source", "emptyDir": {}})
            for number in range(len(source.parts) if source is not None else 0):
                name = f"launcher-part-{number:02}"
                mounts.append({"name": name, "mountPath": f"{PARTS_PATH}/{number:02}", "readOnly": True})
                volumes.append({"name": name, "configMap": {"name": part_name(run, number)}})
    elif source is not None:
        mounts.append({"name": "launcher-source", "mountPath": SOURCE_PATH, "readOnly": True})
        volumes.append(
            {"name": "launcher-source", "configMap": {"name": f"{run}-source", "items": source_items(source)}}
        )
    if needs_archive(role, source):
        mounts.append({"name": "launcher-runtime", "mountPath": RUNTIME_PATH, "readOnly": True})
        volumes.append({"name": "launcher-runtime", "configMap": {"name": f"{run}-runtime"}})
    if role.packages == PACKAGES_PATH:
        mounts.append({"name": PACKAGES_VOLUME, "mountPath": PACKAGES_PATH})
        volumes.append({"name": PACKAGES_VOLUME, "emptyDir": {}})
    taken = {str(mount["mountPath"]).rstrip("/") for mount in role.pod_mounts}
    if TMP_PATH not in taken and not roles.is_custom(topology.cluster.spec):
        # The root file system is read-only, and TensorFlow does not start without a writable /tmp.
        mounts.append({"name": "launcher-tmp", "mountPath": TMP_PATH})
        volumes.append({"name": "launcher-tmp", "emptyDir": {}})
    if role.gpus and SHM_PATH not in taken:
        mounts.append({"name": "launcher-shm", "mountPath": SHM_PATH})
        memory = {"medium": "Memory", "sizeLimit": SHM_SIZE}
        volumes.append({"name": "launcher-shm", "emptyDir": memory})
    claim = storage.place(topology).claim
    if claim is not None and role.touches_model_dir:
        mounts.append({"name": "launcher-model", "mountPath": topology.cluster.spec.model_dir})
        volumes.append({"name": "launcher-model", "persistentVolumeClaim": {"claimName": claim}})
    return mounts + role_mounts, volumes + role.fields("pod")["volumes"]


def source_items(source: ProgramFiles) -> list[Object]:
    """Key and path of every file: a ConfigMap's keys cannot hold a `/`, or most of Unicode."""
    return [{"key": source_key(index), "path": path} for index, path in enumerate(source.files)]


def source_key(index: int) -> str:
    """The ConfigMap key of the file with this number."""
    return f"file-{index}"
