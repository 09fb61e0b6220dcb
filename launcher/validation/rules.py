"""The rules of a valid file that concern several fields. Pure: a cluster in, `(path, message)` out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Final

from launcher import object_names
from launcher.config import role_fields
from launcher.config.spec import (
    Program,
    RemoteSource,
    Requirements,
    RoleTemplate,
    Spec,
    StrategyOptions,
    TensorBoard,
    TrainingCluster,
    WorkerRole,
    requirements,
)
from launcher.config.yaml_parser import FieldPath
from launcher.lists_and_counts import did_you_mean, listed
from launcher.plan import buckets, gang_scheduling, jobset, roles, storage, topology
from launcher.plan.roles import ResolvedRole
from launcher.plan.topology import Topology
from launcher.validation import kubernetes_fragments, parameter_names, pod_template
from worker.contract import orders
from worker.contract.environment import Env
from worker.contract.notebook_lines import NOTEBOOK
from worker.contract.parameters import SCRIPT_PARAMETERS, parameter_problems
from worker.contract.strategies import PARTITIONERS, STRATEGIES, Kind
from worker.contract.task_names import pod_name

CONFIG_MAP_BYTES: Final = 1 << 20
"""The limit of a ConfigMap."""
SPEC_BYTES: Final = 200_000
"""All annotations of an object together may have 262,144 bytes; one of them carries the spec."""

Violation = tuple[FieldPath, str]


def broken(cluster: TrainingCluster) -> list[Violation]:
    """Returns every rule that the cluster breaks."""
    spec = cluster.spec
    planned = topology.build(cluster)
    violations = [
        *_replicas(spec),
        *_options(planned),
        *_custom(spec),
        *_program(planned),
        *_evaluation(spec),
    ]
    violations += [
        *_checkpoints(spec),
        *_packages(planned),
        *_fetched_source(planned),
        *_mode(planned),
        *_data_service(planned),
        *_elastic(planned),
    ]
    violations += gang_scheduling.broken(planned)
    violations += _monitoring(planned)
    violations += _tracking(planned)
    violations += _precheck(planned)
    if spec.tensorboard is not None:
        violations += _resources(spec.tensorboard, ("spec", "tensorboard"))
        violations += kubernetes_fragments.of_role(spec.tensorboard, ("spec", "tensorboard"))
    templates = _templates(planned)
    violations += templates
    if not any("podTemplate" in path for path, _ in templates):
        violations += [*_mounts(planned), *_batch(planned), *storage.place(planned).problems()]
        violations += _other_ports(planned)
    if not violations:
        violations += _limits(planned)
    return violations


def notices(cluster: TrainingCluster, *, local: bool = False) -> list[str]:
    """Returns notices about effects of the file that a reader might not expect. With `local`, those about a
    cluster are left out.
    """
    sentences = [] if local else list(storage.place(topology.build(cluster)).notices())
    spec = cluster.spec
    if spec.data_service is not None:
        sentences += _about_data_service(spec)
    if spec.mode != "Train" and spec.evaluator is not None and spec.evaluator.replicas:
        sentences.append(f"spec.evaluator: none is started, since mode: {spec.mode} trains nothing")
    if spec.program is not None and spec.program.entrypoint is not None and spec.program.shipped is None:
        sentences += parameter_names.notices(spec.program.parameters)
    sentences += _plain_commands(cluster)
    if _keeps_nothing(spec):
        sentences.append(
            "spec.modelDir: not given, so the run keeps no model and no checkpoint, and one whose tasks are "
            "all lost begins anew; modelDir: /model keeps them"
        )
    return sentences


def _plain_commands(cluster: TrainingCluster) -> Iterator[str]:
    """Yields notices about commands that run without the runtime, which would tell a program's error from a
    lost task.
    """
    spec = cluster.spec
    if roles.is_custom(spec) or not spec.run_policy.backoff_limit:
        return
    for role in topology.build(cluster).roles:
        if not role.uses_runtime:
            yield (
                f"{role.name}: its command is retried after a Python error (exit code 1), too; by the "
                "runtime, with args: [--, SCRIPT] in its place, a script fails at once"
            )


def _keeps_nothing(spec: Spec) -> bool:
    """Returns whether the trained model is lost. A script may save it by itself."""
    return (
        spec.trains_program and spec.mode == "Train" and spec.model_dir is None and not roles.is_custom(spec)
    )


def _replicas(spec: Spec) -> Iterator[Violation]:
    strategy, known = spec.strategy, STRATEGIES[spec.strategy]
    for name in ("chief", "evaluator"):
        role = getattr(spec, name)
        if role is not None and role.replicas > 1:
            yield ("spec", name, "replicas"), f"expected 1: a run has one {name}"
    if known.kind is Kind.COORDINATED:
        for name in known.servers:
            role = getattr(spec, name)
            if role is None:
                servers = " and one ".join(known.servers)
                yield ("spec", name), f"missing: {strategy} needs at least one {servers}"
            elif role.replicas < 1:
                yield ("spec", name, "replicas"), f"expected at least 1: {strategy} needs a {name}"
        if spec.chief is not None and spec.chief.replicas < 1:
            yield ("spec", "chief", "replicas"), f"expected 1: under {strategy} the chief coordinates"
        return
    chief = spec.chief.replicas if spec.chief is not None else 0
    workers = spec.worker.replicas if spec.worker is not None else 0
    if known.kind is Kind.OWN_COMMAND:
        if chief + workers < 1:
            message = "a chief or at least one worker is needed: its success is the run's"
            yield ("spec", "worker"), message
        return
    if spec.ps is not None and spec.ps.replicas > 0 and "ps" not in known.losses:
        yield ("spec", "ps"), f"{strategy} has no parameter servers: remove it, or use ParameterServer"
    if known.kind is Kind.COLLECTIVE:
        if chief + workers < 1:
            message = f"{strategy} needs at least one worker, or a chief and workers"
            yield ("spec", "worker"), message
    elif chief + workers > 1:
        message = (
            f"{strategy} trains in one process: give a chief or one worker, not {chief + workers} tasks; "
            "over several machines use MultiWorkerMirrored or ParameterServer"
        )
        yield ("spec", "worker") if spec.worker is not None else ("spec", "chief"), message
    elif chief + workers == 0 and (spec.chief is not None or spec.worker is not None):
        where = "chief" if spec.chief is not None else "worker"
        yield ("spec", where, "replicas"), "expected 1: someone must train"


def _elastic(planned: Topology) -> Iterator[Violation]:
    """Yields what is wrong with minReplicas and maxReplicas."""
    spec = planned.cluster.spec
    worker = spec.worker
    if worker is None:
        return
    here: FieldPath = ("spec", "worker")
    least, most = worker.min_replicas, worker.max_replicas
    if least is None:
        if most is not None:
            message = "the number of workers is fixed without minReplicas: give that too, or remove this"
            yield (*here, "maxReplicas"), message
        return
    if why := _fixed(spec):
        yield (*here, "minReplicas"), f"{why}: remove it"
        return
    if least > worker.replicas:
        message = (
            f"expected at most replicas, {worker.replicas}: the run would wait for workers that never come"
        )
        yield (*here, "minReplicas"), message
    if least == worker.replicas < (most or 0) and roles.gang(spec) == "Kueue":
        message = (
            f"expected less than replicas, {worker.replicas}: Kueue admits so many together, and the others "
            "one by one"
        )
        yield (*here, "minReplicas"), message
    if most is not None and most < worker.replicas:
        yield (*here, "maxReplicas"), f"expected at least replicas, {worker.replicas}"
    if spec.sparse_cluster_spec is False:
        message = "workers that come and go cannot all know each other: remove it"
        yield ("spec", "sparseClusterSpec"), message
    for role in planned.roles:
        if role.name in ("chief", "worker") and role.runs_script:
            message = (
                f"the {role.name} has a command or args, and a script keeps to the workers in its TF_CONFIG: "
                "give a program, or remove minReplicas"
            )
            yield (*here, "minReplicas"), message
            break
    if STRATEGIES[spec.strategy].kind is Kind.COLLECTIVE:
        yield from _elastic_collective(spec, worker)


def _batch(planned: Topology) -> Iterator[Violation]:
    """Yields a batch that the replicas cannot divide, where their number is certain: without GPUs."""
    spec = planned.cluster.spec
    if spec.mode != "Train" or planned.elastic is not None or spec.program is None:
        return
    if STRATEGIES[spec.strategy].on_slice:
        return
    trains = [role for role in planned.roles if role.name in ("chief", "worker")]
    size = spec.program.parameters.get("globalBatchSize")
    is_coordinated = STRATEGIES[spec.strategy].kind is Kind.COORDINATED
    if spec.program.entrypoint is None or is_coordinated or any(role.gpus for role in trains):
        return
    options = spec.strategy_options
    devices = len(options.devices or ()) or options.logical_cpus or 1
    replicas = devices * sum(role.replicas for role in trains)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1 or not size % replicas:
        return
    lower = size - size % replicas
    choices = " or ".join(str(each) for each in (lower, lower + replicas) if each)
    message = f"{size} cannot be divided by {replicas} replicas; use {choices}"
    yield ("spec", "program", "parameters", "globalBatchSize"), message


def _fixed(spec: Spec) -> str:
    """Why the number of workers cannot change, "" if it can."""
    if roles.is_custom(spec):
        return "Custom runs the image's own command, which keeps to the workers in its TF_CONFIG"
    if STRATEGIES[spec.strategy].kind is Kind.ONE_TASK:
        return f"{spec.strategy} trains in one process"
    if spec.mode != "Train":
        return f"only a training lets workers come and go, and the mode is {spec.mode}"
    return ""


def _elastic_collective(spec: Spec, worker: WorkerRole) -> Iterator[Violation]:
    """Yields what elastic workers need of MultiWorkerMirrored: who goes on takes over from a copy in memory,
    or a checkpoint.
    """
    if spec.chief is None or not spec.chief.replicas:
        message = (
            "missing: with minReplicas a chief leads the workers, since none of them is sure to stay; give "
            "chief: {}, and one worker less"
        )
        yield ("spec", "chief"), message
    if spec.model_dir is None and not spec.run_policy.restarts_in_place:
        message = (
            "missing: with minReplicas the tasks go on from a checkpoint there, such as modelDir: /model, "
            "since with runPolicy.restartsInPlace: 0 no copy in memory outlives a loss"
        )
        yield ("spec", "modelDir"), message
    parameters = spec.program.parameters if spec.program is not None else {}
    given: FieldPath = ("spec", "program", "parameters")
    if parameters.get("batchSizePerReplica") is not None:
        message = (
            "with minReplicas the global batch stays what it is, whoever takes part: give globalBatchSize"
        )
        yield (*given, "batchSizePerReplica"), message
    size, most = parameters.get("globalBatchSize"), (worker.max_replicas or worker.replicas) + 1
    if isinstance(size, int) and not isinstance(size, bool) and 0 < size < most:
        message = (
            f"expected at least {most}: an example for the chief and each worker there may be (maxReplicas)"
        )
        yield (*given, "globalBatchSize"), message
    if spec.strategy_options.auto_shard in ("FILE", "OFF"):
        message = (
            f"with {spec.strategy_options.auto_shard} each worker has data of its own, and with minReplicas "
            "it may leave within an epoch: use DATA, or leave it out"
        )
        yield ("spec", "strategyOptions", "autoShard"), message


_NEEDED_BY: Final = {"MaxSize": "max_shard_bytes", "FixedShards": "num_shards"}
"""The option that a partitioner cannot do without; TensorFlow has defaults for the others."""


_CHIPS_OF_A_HOST: Final = {2: 8, 3: 4}
"""By the dimensions of a slice's topology: v5e and v6e have hosts of up to 2x4 chips, v4 and v5p of 2x2x1.
https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
"""


def _options(planned: Topology) -> Iterator[Violation]:
    spec = planned.cluster.spec
    options, known = spec.strategy_options, STRATEGIES[spec.strategy]
    scripts = [role.name for role in planned.roles[:1] if role.runs_script]
    for name in sorted(options.model_fields_set):
        here: FieldPath = ("spec", "strategyOptions", _alias(options, name))
        if name not in known.options:
            owners = [owner for owner, strategy in STRATEGIES.items() if name in strategy.options]
            message = (
                f"it is an option of {' and '.join(owners)}, and the strategy is {spec.strategy}: remove it"
            )
            yield here, message
        elif scripts and not known.for_pods:
            message = (
                f"it has no effect on a script, and the {scripts[0]} runs one: build the strategy with it in "
                "the script, and remove it here, or give a program"
            )
            yield here, message
    if "partitioner" in known.options:
        yield from _partitioner(options)
    yield from _twice(options.devices or (), ("spec", "strategyOptions", "devices"))
    if options.num_packs is not None and options.cross_device_ops not in ("Nccl", "HierarchicalCopy"):
        message = "packs are made by crossDeviceOps: Nccl or HierarchicalCopy; give that too"
        yield ("spec", "strategyOptions", "numPacks"), message
    if "logical_gpus" in known.options and (options.logical_gpus or 1) > 1:
        yield from _shared_gpus(options)
    if known.on_slice:
        yield from _slice(spec)


def _shared_gpus(options: StrategyOptions) -> Iterator[Violation]:
    """Yields what several devices of one GPU lack, or cannot do."""
    if options.gpu_memory_mb is None:
        message = "each device takes a part of the GPU's memory; give gpuMemoryMB too"
        yield ("spec", "strategyOptions", "logicalGpus"), message
    for name, other in (("cross_device_ops", "HierarchicalCopy"), ("communication", "RING")):
        if str(getattr(options, name)).upper() == "NCCL":
            message = (
                f"NCCL connects GPUs, and not the devices of one (logicalGpus): use {other}, or leave it out"
            )
            yield ("spec", "strategyOptions", _alias(options, name)), message


def _slice(spec: Spec) -> Iterator[Violation]:
    """Yields what is wrong with the TPUs that the task asks for."""
    if not _asks_for_tpu(spec):
        message = (
            "missing: TPU needs accelerator and topology, such as tpu-v5-lite-podslice and 2x4, or "
            f"resources with {roles.TPU_RESOURCE} in the task that trains"
        )
        yield ("spec", "strategyOptions"), message
    if (shape := spec.strategy_options.topology) is not None:
        sides = [int(side) for side in shape.split("x")]
        if math.prod(sides) > (most := _CHIPS_OF_A_HOST[len(sides)]):
            message = (
                f"a slice of {shape} has {math.prod(sides)} chips on several hosts, each of which needs a "
                f"pod of its own, and TPU trains in one task: give a slice of one host, of at most {most} "
                f"chips, such as {'2x4' if len(sides) == 2 else '2x2x1'}"
            )
            yield ("spec", "strategyOptions", "topology"), message


def _partitioner(options: StrategyOptions) -> Iterator[Violation]:
    chosen = options.partitioner or "MinSize"
    given = {name for taken in PARTITIONERS.values() for name in taken} & options.model_fields_set
    for name in sorted(given - set(PARTITIONERS[chosen])):
        owners = " and ".join(owner for owner, taken in PARTITIONERS.items() if name in taken)
        which = chosen if options.partitioner else f"{chosen}, as none is given"
        message = (
            f"it is a parameter of {owners}, and the partitioner is {which}: remove it, or give the other"
        )
        yield ("spec", "strategyOptions", _alias(options, name)), message
    needed = _NEEDED_BY.get(chosen)
    if needed is not None and getattr(options, needed) is None:
        message = f"{chosen} needs {_alias(options, needed)}; give that too"
        yield ("spec", "strategyOptions", "partitioner"), message


def _alias(options: StrategyOptions, name: str) -> str:
    return type(options).model_fields[name].alias or name


def _custom(spec: Spec) -> Iterator[Violation]:
    """Yields what only Custom allows, and what it does not allow."""
    if roles.is_custom(spec):
        if spec.program is not None and spec.trains_program:
            message = (
                "Custom runs the image's own command: remove it, or say which strategy the program is for"
            )
            yield _trained(spec.program), message
        if spec.runtime is not None:
            yield ("spec", "runtime"), "Custom runs the image's own command, and no runtime: remove it"
        if spec.chief is not None and spec.chief.replicas and spec.strategy_options.success_policy:
            message = "a chief's success is the run's: remove it"
            yield ("spec", "strategyOptions", "successPolicy"), message
        for name, role in topology.templates(spec):
            if role is not None and role.allow_cpu is not None:
                message = "it is the worker runtime's, and Custom runs the image's own command: remove it"
                yield ("spec", name, "allowCpu"), message
        return
    for name, template in topology.templates(spec):
        for field in ("port", "restart_policy"):
            if template is not None and getattr(template, field) is not None:
                alias = type(template).model_fields[field].alias or field
                message = f"it is Custom's, and the strategy is {spec.strategy}: remove it"
                yield ("spec", name, alias), message


def _asks_for_tpu(spec: Spec) -> bool:
    options = spec.strategy_options
    if options.accelerator is not None and options.topology is not None:
        return True
    trains = next((role for role in (spec.chief, spec.worker) if role is not None and role.replicas), None)
    if trains is None:
        return False
    return roles.TPU_RESOURCE in requirements(roles.given_resources(spec, trains)).get("limits", {})


def _program(planned: Topology) -> Iterator[Violation]:
    spec = planned.cluster.spec
    program = spec.program
    if program is not None and program.trained is not None and spec.command is not None:
        what = "an entrypoint" if program.entrypoint is not None else "a script"
        message = f"give {what} or a command, not both: a program is run by the worker runtime"
        yield ("spec", "command"), message
    if program is not None and program.trained is None and program.source is None:
        yield ("spec", "program"), "give an entrypoint or a script, or a source for a command to run"
    if program is not None and program.trained is not None:
        for name, message in parameter_problems(program.parameters):
            yield ("spec", "program", "parameters", name), message
    if program is not None and (program.script is not None or program.args):
        yield from _script(planned, program)
    if not spec.trains_program and not roles.is_custom(spec):
        for role in planned.roles:
            if _needs_entrypoint(planned, role):
                at: FieldPath = ("spec", "program") if program is None else ("spec", "program", "entrypoint")
                yield at, f"required unless {role.name}.command is set"
                return


def _trained(program: Program) -> FieldPath:
    """Returns the field that says what the runtime trains."""
    return ("spec", "program", "entrypoint" if program.entrypoint is not None else "script")


def _script(planned: Topology, program: Program) -> Iterator[Violation]:
    """Yields what a script cannot have beside it."""
    spec = planned.cluster.spec
    if program.script is None:
        message = "they are a script's, and there is none: give script, or put them into parameters"
        yield ("spec", "program", "args"), message
        return
    if program.entrypoint is not None:
        yield ("spec", "program", "script"), "give an entrypoint or a script, not both"
    for name in program.parameters:
        if name not in SCRIPT_PARAMETERS:
            message = (
                f"a script is passed none but {listed(SCRIPT_PARAMETERS)}: its fit() says how it is trained; "
                "use args for what it reads from sys.argv"
            )
            yield ("spec", "program", "parameters", name), message
    if spec.mode != "Train":
        message = (
            f"mode: {spec.mode} takes a program's methods; a script calls evaluate() and predict() itself"
        )
        yield ("spec", "mode"), message
    if buckets.scheme(spec.model_dir) is not None:
        message = "a script writes files beside its checkpoints: give a path, such as /model"
        yield ("spec", "modelDir"), message
    if spec.evaluation.method == "SidecarEvaluator":
        yield ("spec", "evaluation", "method"), "it takes a program's methods: use Loop for a script"
    if planned.elastic is not None and STRATEGIES[spec.strategy].kind is Kind.COLLECTIVE:
        message = f"under {spec.strategy} a script has a fixed number of workers: remove it"
        yield ("spec", "worker", "minReplicas"), message


def _needs_entrypoint(planned: Topology, role: ResolvedRole) -> bool:
    spec = planned.cluster.spec
    if role.name in ("ps", *STRATEGIES[spec.strategy].servers):
        # Workers serve the coordinator, unless no task trains at all.
        return spec.program is None and all(other.command is None for other in planned.roles)
    return not role.runs_script


def _packages(planned: Topology) -> Iterator[Violation]:
    """Yields why the packages that a program asks for would not be installed where it runs."""
    spec = planned.cluster.spec
    program, here = spec.program, ("spec", "program", "packages")
    if program is None:
        return
    if not program.packages:
        if program.packages_cache is not None:
            yield ("spec", "program", "packagesCache"), "there are no packages to install: remove it"
        return
    if roles.is_custom(spec):
        yield here, "Custom runs the image's own command, and no runtime to install them: remove it"
        return
    for role in planned.roles:
        if role.packages is None:
            continue
        if not role.uses_runtime:
            message = (
                f"the runtime installs them, and {role.name}.command runs without it: give args: "
                "[--, SCRIPT] in its place"
            )
            yield here, message
        if program.packages_cache is not None and not _is_mounted(role, program.packages_cache):
            message = f"no volumeMount of the {role.name} has it: mount a volume of yours there"
            yield ("spec", "program", "packagesCache"), message


def _is_mounted(role: ResolvedRole, path: str) -> bool:
    return any(
        roles.covers(mount["mountPath"], path) and not mount.get("readOnly") for mount in role.pod_mounts
    )


def _fetched_source(planned: Topology) -> Iterator[Violation]:
    """Yields why a source that the tasks are to fetch would not be there."""
    spec = planned.cluster.spec
    program, here = spec.program, ("spec", "program", "source")
    if program is None or not isinstance(program.source, RemoteSource):
        return
    if roles.is_custom(spec):
        yield here, "Custom runs the image's own command, and no runtime to fetch it: give a file or a folder"
        return
    for role in planned.roles:
        if role.runs_code and not role.uses_runtime:
            message = (
                f"the runtime fetches it, and {role.name}.command runs without it: give args: [--, SCRIPT] "
                "in its place"
            )
            yield here, message
    if program.script is not None and program.script.endswith(NOTEBOOK):
        message = "a notebook becomes a script before the run: give a source that is a file or a folder"
        yield ("spec", "program", "script"), message


def _evaluation(spec: Spec) -> Iterator[Violation]:
    has_evaluator = spec.evaluator is not None and spec.evaluator.replicas > 0
    for name in sorted(spec.evaluation.model_fields_set & {"method", "checkpoints"}):
        if not has_evaluator:
            yield ("spec", "evaluation", name), "it is the evaluator's, and there is none: give evaluator: {}"
    if spec.evaluation.method == "SidecarEvaluator" and spec.program is not None and spec.program.keras == 3:
        yield (
            ("spec", "evaluation", "method"),
            "Keras 3, as program.keras says, has no SidecarEvaluator: use Loop",
        )
    if spec.evaluation.exact and (has_evaluator or STRATEGIES[spec.strategy].kind is not Kind.COORDINATED):
        message = (
            "an evaluator visits every sample once as it is: remove exact"
            if has_evaluator
            else f"under {spec.strategy} every sample is visited once as it is: remove it"
        )
        yield ("spec", "evaluation", "exact"), message


def _checkpoints(spec: Spec) -> Iterator[Violation]:
    given, here = spec.checkpoints, ("spec", "checkpoints")
    if not given.model_fields_set:
        return
    if not spec.trains_program or spec.mode != "Train":
        yield here, "only the training of a program is saved by the runtime: remove it"
    elif spec.model_dir is None:
        yield here, "there is no place for checkpoints: give spec.modelDir"
    parameters = spec.program.parameters if spec.program is not None else {}
    for name, older, value in (
        ("everyEpochs", "checkpointEpochs", given.every_epochs),
        ("keep", "keepCheckpoints", given.keep),
    ):
        if value is not None and parameters.get(older, value) != value:
            message = (
                f"{value}, and program.parameters.{older} says {parameters[older]}, which means the same"
            )
            yield (*here, name), f"{message}: remove one of the two"
    best, evaluator = given.keep_best, spec.evaluator
    is_own = evaluator is not None and (evaluator.command is not None or evaluator.args is not None)
    if best is not None and best.metric.startswith("val_") and is_own:
        message = "the evaluator is a script, which tells the training nothing: give a metric of the training"
        yield (*here, "keepBest", "metric"), message


def _data_service(planned: Topology) -> Iterator[Violation]:
    """Yields why a run cannot have the data service that the file asks for."""
    spec = planned.cluster.spec
    service, here = spec.data_service, ("spec", "dataService")
    if service is None:
        return
    if roles.is_custom(spec) or spec.program is None or spec.program.entrypoint is None:
        yield (
            here,
            "data workers carry out train_dataset() of a program's entrypoint, and there is none: remove it",
        )
        return
    for field in role_fields.rules(RoleTemplate):
        if field.rule.of_program and getattr(service, field.name) is not None:
            message = "the tasks of the data service run the worker runtime's own code: remove it"
            yield (*here, field.alias), message
    for role in planned.roles:
        if role.runs_script and role.name not in roles.DATA_ROLES:
            yield here, f"the {role.name} has a command or args, and a script reads its own data: remove it"
            return
    if service.share_across_workers is not None and not STRATEGIES[spec.strategy].several:
        message = (
            f"under {spec.strategy} one task reads the data, and there is none to share it with: remove it"
        )
        yield (*here, "shareAcrossWorkers"), message
    if spec.strategy_options.auto_shard is not None:
        message = (
            "the data service shares the data out: say so by dataService.shareAcrossWorkers, and remove it"
        )
        yield ("spec", "strategyOptions", "autoShard"), message
    if STRATEGIES[spec.strategy].kind is Kind.COLLECTIVE and planned.elastic is not None:
        message = "elastic workers of a collective read the data by themselves: remove it, or minReplicas"
        yield here, message


def _about_data_service(spec: Spec) -> Iterator[str]:
    if spec.mode != "Train":
        yield f"spec.dataService: none is started, since mode: {spec.mode} trains nothing"
    elif spec.model_dir is None or "://" in spec.model_dir:
        yield (
            "spec.dataService: the dispatcher has no lasting place for its journal, so the training starts "
            "again from its last checkpoint when that pod is replaced; a modelDir in a volume has one"
        )


def _monitoring(planned: Topology) -> Iterator[Violation]:
    """Yields why a run cannot serve the metrics that the file asks for."""
    monitoring, here = planned.cluster.spec.monitoring, ("spec", "monitoring")
    if monitoring is None:
        return
    if not any(role.uses_runtime for role in planned.roles):
        yield here, "the worker runtime serves metrics, and the tasks run commands without it: remove it"
    if not monitoring.scrapers:
        yield (*here, "from"), "expected at least one entry: nobody could reach the port"
    for role in planned.roles:
        if role.uses_runtime and monitoring.port in (role.port, orders.PORT):
            listener = "TensorFlow" if monitoring.port == role.port else "supervisor"
            message = f"each task's {listener} listens on {monitoring.port}: choose another port"
            yield (*here, "port"), message
            return


def _tracking(planned: Topology) -> Iterator[Violation]:
    """Yields why nobody would log to the tracker."""
    spec = planned.cluster.spec
    if spec.tracking is not None and not planned.role(planned.primary).uses_runtime:
        message = (
            f"the worker runtime logs to it, and the {planned.primary} runs a command without it: remove it"
        )
        yield ("spec", "tracking"), message


def _precheck(planned: Topology) -> Iterator[Violation]:
    """Yields why nobody would measure anything."""
    if planned.cluster.spec.prechecks and not any(role.uses_runtime for role in planned.roles):
        message = "the worker runtime measures, and the tasks run commands without it: remove it"
        yield ("spec", "precheck"), message


def _templates(planned: Topology) -> list[Violation]:
    """Returns what is wrong with the roles and `spec.template`, each path once."""
    spec = planned.cluster.spec
    messages: dict[FieldPath, str] = {}
    given = [
        (("spec", name), template) for name, template in topology.templates(spec) if template is not None
    ]
    for here, template in given:
        messages |= {path: message for path, message in _template(template, here) if path not in messages}
    can_be_merged = not any("podTemplate" in path for path in messages)
    for here, template in given:
        for path, message in kubernetes_fragments.of_role(template, here):
            messages.setdefault(path, message)
    for path, message in kubernetes_fragments.of_pods(planned) if can_be_merged else ():
        messages.setdefault(path, message)
    return list(messages.items())


def _mode(planned: Topology) -> Iterator[Violation]:
    """Yields fields that only a training has, and fields that only the other modes have."""
    spec = planned.cluster.spec
    mode, here = spec.mode, ("spec", "mode")
    if mode == "Train":
        if spec.checkpoint is not None:
            message = (
                "it is what mode: Evaluate or Predict loads; a training resumes from its newest: remove it"
            )
            yield ("spec", "checkpoint"), message
        return
    if mode not in STRATEGIES[spec.strategy].modes:
        custom = roles.is_custom(spec)
        why = "runs the images' own commands" if custom else "only trains"
        other = "another strategy" if custom else "another strategy, on CPUs or GPUs"
        yield here, f"{spec.strategy} {why}: use Train, or {other}"
        return
    if spec.model_dir is None:
        message = f"missing: mode: {mode} reads a checkpoint there, such as modelDir: /model"
        yield ("spec", "modelDir"), message
    for role in planned.roles:
        if role.runs_script:
            message = f"the {role.name} has a command or args, and a script decides by itself what it does"
            yield here, f"{message}: use Train, or give a program"
            return


def _template(template: RoleTemplate, here: FieldPath) -> Iterator[Violation]:
    """Yields what is wrong with a role, or with `spec.template`, by itself."""
    yield from _environment(template, here)
    yield from _resources(template, here)
    yield from pod_template.broken(template.pod_template, (*here, "podTemplate"))
    yield from _twice([volume["name"] for volume in template.volumes], (*here, "volumes"), "name")
    for index, volume in enumerate(template.volumes):
        if not object_names.is_dns_1123(volume["name"]) or volume["name"].startswith("launcher-"):
            message = "expected lower-case letters, digits and '-', not beginning with 'launcher-'"
            yield (*here, "volumes", index, "name"), message
    paths = [mount.mount_path for mount in template.volume_mounts]
    yield from _twice(paths, (*here, "volumeMounts"), "mountPath")
    for index, path in enumerate(paths):
        if any(roles.covers(reserved, path) for reserved in storage.RESERVED_PATHS):
            yield (*here, "volumeMounts", index, "mountPath"), f"{path} is the launcher's own: choose another"


def _twice(values: Sequence[str], here: FieldPath, *field: str) -> Iterator[Violation]:
    for index, value in enumerate(values):
        if value in values[:index]:
            yield (*here, index, *field), f"{value} is given twice: keep one"


def _mounts(planned: Topology) -> Iterator[Violation]:
    """Yields mounts of missing volumes. Their podTemplates are valid."""
    spec = planned.cluster.spec
    for role in planned.roles:
        volumes = role.pod_volumes
        known = f"; the volumes are {', '.join(sorted(volumes))}" if volumes else ""
        role_template = dict(topology.templates(spec))[role.field]
        for mount in role.given.volume_mounts:
            if mount.name not in volumes:
                is_own = role_template is not None and mount in role_template.volume_mounts
                given = role_template if role_template is not None and is_own else spec.template
                where = role.field if is_own else "template"
                index = given.volume_mounts.index(mount)
                message = f"there is no volume {mount.name} for the {role.name}{known}"
                yield ("spec", where, "volumeMounts", index, "name"), message


def _other_ports(planned: Topology) -> Iterator[Violation]:
    """Yields a port for metrics that another container of a pod has. Their podTemplates are valid."""
    monitoring = planned.cluster.spec.monitoring
    for role in planned.roles if monitoring is not None else ():
        for container in role.pod["spec"]["containers"]:
            taken = {port["containerPort"] for port in container.get("ports") or ()}
            if monitoring is not None and monitoring.port in taken:
                message = f"the {role.name}'s container {container['name']} has it: choose another port"
                yield ("spec", "monitoring", "port"), message
                return


_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")


def _resources(template: RoleTemplate | TensorBoard, here: FieldPath) -> Iterator[Violation]:
    at: FieldPath = (*here, "resources")
    full = template.resources if isinstance(template.resources, Requirements) else None
    flat = {} if isinstance(template.resources, Requirements) else template.resources
    given = (
        [((*at,), flat)]
        if full is None
        else [((*at, "requests"), full.requests), ((*at, "limits"), full.limits)]
    )
    for place, resources in given:
        for name, value in resources.items():
            if "/" in name:
                if not value.isdigit():
                    yield (*place, name), f"expected an integer: {name} is not divided, not {value}"
            elif name not in _STANDARD and not name.startswith("hugepages-"):
                hint = did_you_mean(name, _STANDARD)
                message = f"expected {', '.join(_STANDARD)} or vendor.example/device, not {name}{hint}"
                yield (*place, name), message
    for name, value in full.requests.items() if full is not None else ():
        if full is not None and "/" in name and full.limits.get(name) != value:
            yield (*at, "requests", name), f"expected the same under limits: {name} is not shared"


def _environment(template: RoleTemplate, here: FieldPath) -> Iterator[Violation]:
    seen: set[str] = set()
    for index, variable in enumerate(template.env):
        at = (*here, "env", index)
        if variable.name in Env.RESERVED or variable.name.startswith("TF_LAUNCHER_"):
            yield (*at, "name"), f"{variable.name} is set by the launcher in every pod: remove it"
        if variable.name in seen:
            yield (*at, "name"), f"{variable.name} is given twice: keep one"
        seen.add(variable.name)
        if variable.value is not None and variable.value_from is not None:
            yield at, "give value or valueFrom, not both"


def _limits(planned: Topology) -> Iterator[Violation]:
    cluster = planned.cluster
    pods = [pod_name(planned.run, role.name, role.max_replicas - 1) for role in planned.roles]
    longest = max(pods, key=len)
    if (over := len(longest) - object_names.LABEL_LENGTH) > 0:
        message = (
            f"the pod {longest} would have a name of {len(longest)} characters, and a hostname has at most "
            f"{object_names.LABEL_LENGTH}: shorten the run's name by {over}"
        )
        yield ("metadata", "name"), message
        return
    if roles.gang(cluster.spec) == "Kueue" and (
        message := jobset.name_too_long(dataclasses.replace(planned, jobset=True))
    ):
        yield ("metadata", "name"), message
        return
    longest = f"{planned.run}-tensorboard"
    if cluster.spec.tensorboard is not None and (over := len(longest) - object_names.LABEL_LENGTH) > 0:
        message = (
            f"the Service {longest} would have a name of {len(longest)} characters, and a Service's has at "
            f"most {object_names.LABEL_LENGTH}: shorten the run's name by {over}"
        )
        yield ("metadata", "name"), message
    for name in (role.name for role in planned.roles):
        size = planned.tf_config_bytes(name)
        if name not in planned.file_roles and size > topology.MAX_ENV_BYTES:
            message = (
                f"the {name}'s TF_CONFIG would have {size:,} bytes and an environment string holds 131,072: "
                "use fewer tasks or shorter names"
            )
            if STRATEGIES[cluster.spec.strategy].may_be_sparse and name in ("worker", "ps"):
                message += (
                    ", or sparseClusterSpec: true (in a TFJob enableDynamicWorker: true), if the script "
                )
                message += "does not count the workers in it"
            yield ("spec", name), message
        elif name in planned.file_roles and size > CONFIG_MAP_BYTES:
            message = (
                f"the list of all addresses has {size:,} bytes and a ConfigMap holds {CONFIG_MAP_BYTES:,}: "
                "use fewer tasks, or a shorter name of the run"
            )
            yield ("spec", name, "replicas"), message
            return
    if (size := len(cluster.model_dump_json(exclude_defaults=True).encode())) > SPEC_BYTES:
        message = (
            f"the whole has {size:,} bytes and an annotation, which keeps it, {SPEC_BYTES:,}: shorten it"
        )
        yield ("spec",), message
