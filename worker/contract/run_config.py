"""The documents behind `Env.CONFIG`, one for all tasks of a run, and `Env.ELASTIC_WORKERS`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Final

from worker.contract.environment import Env
from worker.contract.json_values import count
from worker.contract.strategies import STRATEGIES, Kind
from worker.contract.task_names import EXTRA_WORKER, pod_name
from worker.contract.version import VERSION

GRACE_SECONDS: Final = 30
"""Seconds from SIGTERM to SIGKILL: Kubernetes' default of a pod's terminationGracePeriodSeconds."""

RESTART_SECONDS: Final = 600
"""The time within which `RunConfig.restarts_in_place` counts."""


@dataclass(frozen=True)
class ElasticWorkers:
    """How many workers an elastic run may have: it trains with `min` or more, `max` is the greatest number
    that can be set, and `replicas` the number at its submission. 1 <= min <= replicas <= max. A TF_CONFIG
    with the whole cluster lists the addresses of `max` workers.
    """

    min: int
    max: int
    replicas: int

    def to_json(self) -> str:
        """Returns the value of `Env.ELASTIC_WORKERS`."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ElasticWorkers:
        """Reads the output of `to_json`. Raises ValueError for any other text. It ignores fields of later
        versions.
        """
        try:
            document = json.loads(text)
            workers = cls(*(count(document[each.name]) for each in fields(cls)))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not what the launcher writes of elastic workers: {text}") from error
        if not 1 <= workers.min <= workers.replicas <= workers.max:
            raise ValueError(f"expected 1 <= min <= replicas <= max of elastic workers, got {text}")
        return workers


def elastic_workers(environment: Mapping[str, str]) -> ElasticWorkers | None:
    """Reads `Env.ELASTIC_WORKERS`. Returns None for a run that is not elastic. Raises ValueError where the
    variable has another text than the launcher's.
    """
    text = environment.get(Env.ELASTIC_WORKERS)
    return None if text is None else ElasticWorkers.from_json(text)


@dataclass(frozen=True)
class DataService:
    """The run's data service. `dispatcher` and `workers` are `host:port`; `primary` is that of the task whose
    end is the run's end, which listens also where it trains alone. `sharding` is a name of TensorFlow's
    ShardingPolicy. `shared`: the tasks that train share one pass over the data. `more` are the data workers
    that `scale` may add.
    """

    dispatcher: str
    workers: Sequence[str]
    primary: str
    sharding: str
    shared: bool
    more: Sequence[str] = ()


@dataclass(frozen=True)
class Verification:
    """A training of `steps` steps that is noted, to be compared with another one: see
    `training.verification`. `without` are the random layers, and the batch normalization whose statistics
    are each replica's own, that are left out: RANDOM, STATISTICS. `perturbed`: its weights begin off by as
    much as float32 rounds.
    """

    RANDOM: ClassVar[str] = "random"
    STATISTICS: ClassVar[str] = "statistics"

    steps: int
    without: Collection[str] = ()
    perturbed: bool = False


@dataclass(frozen=True)
class Precheck:
    """Each task measures what its node can do, before it trains. `cluster` has the addresses of all tasks
    that train, by role: a task of a ParameterServer run has only its own in TF_CONFIG. `only`: the tasks end
    then, as for the command `doctor --nodes`.
    """

    cluster: Mapping[str, Sequence[str]]
    only: bool = False


@dataclass(frozen=True)
class FetchedSource:
    """Where a task gets the program's source from, and what it must be. `kind` is parts (of an archive, in
    ConfigMaps), archive or git; `digest` is the archive's SHA-256 or the commit. `path` is the folder in it,
    "" for all of it.
    """

    kind: str
    digest: str
    url: str = ""
    path: str = ""


_PARTS: Final[Mapping[str, type[Any]]] = {
    "data_service": DataService,
    "source": FetchedSource,
    "verification": Verification,
    "precheck": Precheck,
}
"""The fields that are documents of their own."""

_LEFT_OUT: Final = (
    "script",
    "args",
    "data_service",
    "scripts",
    "packages",
    "source",
    "verification",
    "tracking",
    "cpu_requests",
    "precheck",
    "first_extra_worker",
)
_FOR_CHECKPOINTS: Final = ("evaluator_memory", "ps_memory", "checkpoints")


@dataclass(frozen=True)
class RunConfig:
    """The run's configuration, the same for every task. The JSON names are the fields' own.

    `replicas` counts the tasks of each role: `{"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}`.
    `chief_address` is `host:port` of the task whose end is the run's end, None in a one-task run. `model_dir`
    is a path or a URL that `tf.io.gfile` opens. Durations are in seconds. `mode` is Train, Evaluate or
    Predict; the latter two read `checkpoint`, such as `ckpt-3`, or None for the newest. `strategy_options`
    and `evaluation` are the spec's, without the fields that the file leaves out. `keras` is 2 or 3, or None
    where the image decides. `script` is a path below the source, with the arguments `args`; a run has it or
    an `entrypoint`, or neither.

    `run_id` differs between two submissions of the same name. In what `launcher render` prints it is a
    digest, so that the same file is the same run. `gpus` has the GPUs that the pods of a role ask for, such
    as "nvidia.com/gpu: 8"; `allow_cpu` has the roles that may do without. `grace_seconds` has the seconds
    from SIGTERM to SIGKILL, of each role whose value is not GRACE_SECONDS. `version` is that of the launcher
    that made the run, "" in runs of launchers that did not record it. `travels` has the roles whose runtime
    goes with the run. A training process is started again in its pod at most `restarts_in_place` times within
    RESTART_SECONDS. `data_service` is None where the run has none. `scripts` has the roles whose tasks run a
    script in the place of the program. `packages` says what the program needs beside the image, by lines of
    pip's. `source` is None where a task has the program's source already. `evaluator_memory` and `ps_memory`
    are the limits of the evaluator and of each ps in bytes, 0 where it has none. `checkpoints` is the spec's,
    as `evaluation` is. `verification` is set in a run of the command `verify` only. `tracking` is the spec's.
    `cpu_requests` has the processors that the pods of a role request, where they request some. `precheck` is
    None where the tasks measure nothing. `first_extra_worker` is the number of the first worker that a queue
    admits by itself (EXTRA_WORKER), 0 where there are none.
    """

    run: str
    strategy: str
    replicas: Mapping[str, int]
    starting_deadline_seconds: int
    stall_seconds: int
    chief_lost_seconds: int
    run_id: str = ""
    mode: str = "Train"
    checkpoint: str | None = None
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    entrypoint: str | None = None
    script: str | None = None
    args: Sequence[str] = ()
    keras: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    model_dir: str | None = None
    gpus: Mapping[str, str] = field(default_factory=dict)
    allow_cpu: Collection[str] = ()
    chief_address: str | None = None
    grace_seconds: Mapping[str, int] = field(default_factory=dict)
    version: str = VERSION
    travels: Collection[str] = ()
    restarts_in_place: int = 0
    data_service: DataService | None = None
    scripts: Collection[str] = ()
    evaluator_memory: int = 0
    packages: Sequence[str] = ()
    source: FetchedSource | None = None
    ps_memory: int = 0
    checkpoints: Mapping[str, Any] = field(default_factory=dict)
    verification: Verification | None = None
    tracking: Mapping[str, Any] = field(default_factory=dict)
    cpu_requests: Mapping[str, float] = field(default_factory=dict)
    precheck: Precheck | None = None
    first_extra_worker: int = 0

    def pod_name(self, task_type: str, index: int) -> str:
        """Returns the pod name of a task of TF_CONFIG's cluster."""
        extra = index - self.first_extra_worker
        if task_type == "worker" and self.first_extra_worker and extra >= 0:
            return pod_name(self.run, EXTRA_WORKER, extra)
        return pod_name(self.run, task_type, index)

    @property
    def trained(self) -> str | None:
        """Returns what the runtime trains: the entrypoint, or the script."""
        return self.entrypoint or self.script

    @property
    def scores_program(self) -> bool:
        """Returns whether an evaluator scores the program, and no script does in its place."""
        return self.replicas.get("evaluator", 0) > 0 and "evaluator" not in self.scripts

    @property
    def is_coordinated(self) -> bool:
        """Returns whether a chief gives out the steps, and the other tasks are its servers."""
        return _kind(self.strategy) is Kind.COORDINATED

    @property
    def is_collective(self) -> bool:
        """Returns whether all tasks take each step together."""
        return _kind(self.strategy) is Kind.COLLECTIVE

    def to_json(self) -> str:
        """Returns one line with sorted keys, so that the same run gives the same ConfigMap."""
        document = asdict(self)
        for name in (*_LEFT_OUT, *_FOR_CHECKPOINTS):
            if not document[name]:
                del document[name]
        return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """Reads the output of `to_json`. Raises ValueError for any other text. It ignores unknown fields of
        another version, so that `version` can be read first.
        """
        try:
            document = json.loads(text)
            known = {f.name for f in fields(cls)}
            given = {name: value for name, value in document.items() if name in known}
            for name, kind in _PARTS.items():
                if given.get(name) is not None:
                    given[name] = kind(**given[name])
            return cls(**{"version": "", **given})
        except (AttributeError, TypeError) as error:
            raise ValueError(f"not a run configuration: {error}") from error


def _kind(strategy: str) -> Kind | None:
    """Returns None for a strategy of another version."""
    entry = STRATEGIES.get(strategy)
    return None if entry is None else entry.kind
