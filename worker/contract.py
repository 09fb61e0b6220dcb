"""What the launcher and the worker runtime agree on, and nothing else.

Standard library only: the launcher imports this module, and the launcher never imports TensorFlow.

- `ExitCode`: what a task says by ending. The manifests' podFailurePolicy is made of these.
- `PARAMETERS`: what the runtime itself reads from `spec.program.parameters`.
- `Env`: the environment variables that the manifests set and the runtime reads.
- `RunConfig`: the document behind `Env.CONFIG`, one for all tasks of a run.
- `Record`: a line of progress on standard output, and a type for what each event says.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum
from typing import Any, Final, NamedTuple, Union

VERSION: Final = "0.2.0"
"""Of the launcher and of the worker runtime: they belong together, see `RunConfig.version`."""

ARCHIVE: Final = "/opt/tf-launcher/runtime/worker.zip"
"""The path at which a pod has the runtime that travels with a run. `python3 ARCHIVE` is `python
-m worker`.
"""

BUCKET_SCHEME: Final = "s3"
"""The scheme of URLs that TensorFlow cannot open, and the runtime can."""

PORT: Final = 2222
"""Every task's gRPC port. 2222 is customary for TensorFlow."""


DISPATCHER: Final = "dispatcher"
DATA_WORKER: Final = "data-worker"
"""The roles of the data service (`spec.dataService`)."""

GRACE_SECONDS: Final = 30
"""Seconds from SIGTERM to SIGKILL: Kubernetes' default of a pod's terminationGracePeriodSeconds."""


RESTART_SECONDS: Final = 600
"""The time within which `RunConfig.restarts_in_place` counts."""


GRPC_FAIL_FAST: Final = ("GRPC_FAIL_FAST", "use_caller")
"""A variable of TensorFlow's servers and clients, and its value: the loss of a task is an error at once, and
a task that is not up yet is waited for. With `false` a chief hangs on a lost ps, with `true` it fails too
early.
"""


BATCH_SIZES: Final = ("globalBatchSize", "batchSizePerReplica")
DATA_DIRECTORY: Final = "dataDir"
"""The program's parameter with its data. The runtime opens it where it is a URL that TensorFlow cannot."""
DATA_LIMIT: Final = "dataLimitGB"
DATA_LIMIT_GB: Final = 10
"""How much of it a task copies where DATA_LIMIT says nothing, in 10^9 bytes."""
ITERATIONS: Final = ("steps", "batches", "epoch")

PARAMETERS: Final = (
    "epochs",
    "stepsPerEpoch",
    *BATCH_SIZES,
    "stepsPerExecution",
    "checkpointEpochs",
    "keepCheckpoints",
    "iteration",
    DATA_LIMIT,
)
"""The names in `spec.program.parameters` that the runtime reads. All others belong to the program."""

_NEVER_NULL: Final = ("epochs", "checkpointEpochs", "keepCheckpoints", DATA_LIMIT)


def parameter_problems(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the name of each parameter of the runtime that is wrong, and a sentence that says why."""
    for name in PARAMETERS:
        value = parameters.get(name)
        if name not in parameters or (value is None and name not in _NEVER_NULL):
            continue
        if name == "iteration":
            if value not in ITERATIONS:
                yield name, f"expected {' or '.join(ITERATIONS)}, got {_shown(value)}"
        elif name == "stepsPerExecution" and value == "auto":
            continue
        elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
            expected = "an integer from 1" + (", or auto" if name == "stepsPerExecution" else "")
            yield name, f"expected {expected}, got {_shown(value)}"
    given = parameters.get("iteration")
    if given in ITERATIONS[1:] and parameters.get("stepsPerExecution") is not None:
        yield (
            "stepsPerExecution",
            f"iteration: {given} leaves no choice; remove it, or use iteration: {ITERATIONS[0]}",
        )
    first, second = BATCH_SIZES
    if all(parameters.get(name) is not None for name in BATCH_SIZES):
        yield second, f"give it or {first}, not both: {first} is this times the replicas"


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class ExitCode(IntEnum):
    """The exit codes of a task.

    The code 1 is left out on purpose: a container ends with it when its command cannot be executed (an
    environment string over 128 KiB, for instance), and so does any script that crashes.
    """

    DONE = 0
    """The task finished, or the chief released it."""
    PROGRAM_ERROR = 70
    """The program or its image is wrong: no TensorFlow, a Python that is too old, a runtime of another
    version than the launcher. A retry cannot help. EX_SOFTWARE of sysexits.h.
    """
    RETRYABLE = 75
    """A peer was lost, or nothing moved for `stall_seconds`. EX_TEMPFAIL of sysexits.h."""
    PREEMPTED = 143
    """The task left on SIGTERM (128 + 15), the code of a process without a handler. It is never 0: a Job
    would count a preempted worker as finished and not replace it.
    """


BUCKET_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The keys of the Secret that `storage.secretName` names, and the variables that tasks get them in. The last
one may be missing.
"""


class Env:
    """Names of environment variables. The launcher reserves all but TF_CONFIG."""

    TF_CONFIG: Final = "TF_CONFIG"
    """TensorFlow's variable: `{"cluster": {role: [address]}, "task": {"type": role, "index": int}}`."""
    TASK_INDEX: Final = "TASK_INDEX"
    """The pod's completion index; TF_CONFIG refers to it as `$(TASK_INDEX)`."""
    ROLE: Final = "TF_LAUNCHER_ROLE"
    """chief, worker, ps, evaluator, dispatcher or data-worker; it is set also where a task has no
    TF_CONFIG.
    """
    CONFIG: Final = "TF_LAUNCHER_CONFIG"
    """The path of the `RunConfig` document (JSON)."""
    CLUSTER_FILE: Final = "TF_LAUNCHER_CLUSTER_FILE"
    """The path of the cluster spec (JSON: the value of TF_CONFIG's "cluster"). It replaces TF_CONFIG where
    that would be too long for an environment string; ROLE and TASK_INDEX then name the task.
    """
    TASK_DIR: Final = "TF_LAUNCHER_TASK_DIR"
    """This task's private, writable directory; see `released_path`."""
    SOURCE: Final = "TF_LAUNCHER_SOURCE"
    """The directory of the program's source, which is put on the module path; unset without a source."""
    ELASTIC_WORKERS: Final = "TF_LAUNCHER_ELASTIC_WORKERS"
    """How many workers an elastic run may have, as JSON; unset in all other runs. See `ElasticWorkers`."""

    LOCAL: Final = "TF_LAUNCHER_LOCAL"
    """Set only where tasks are processes of this machine, where requests for resources have no effect. The
    value marks the run's processes for the launcher.
    """

    RESERVED: Final = frozenset(
        {TF_CONFIG, TASK_INDEX, ROLE, CONFIG, CLUSTER_FILE, TASK_DIR, SOURCE, ELASTIC_WORKERS}
    )


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
            found = cls(*(_count(document[each.name]) for each in fields(cls)))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not what the launcher writes of elastic workers: {text}") from error
        if not 1 <= found.min <= found.replicas <= found.max:
            raise ValueError(f"expected 1 <= min <= replicas <= max of elastic workers, got {text}")
        return found


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
class RunConfig:
    """The run's configuration, the same for every task. The JSON names are the fields' own.

    `replicas` counts the tasks of each role: `{"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}`.
    `chief_address` is `host:port` of the task whose end is the run's end, None in a one-task run. `model_dir`
    is a path or a URL that `tf.io.gfile` opens. Durations are in seconds. `mode` is Train, Evaluate or
    Predict; the latter two read `checkpoint`, such as `ckpt-3`, or None for the newest. `strategy_options`
    and `evaluation` are the spec's, without the fields that the file leaves out. `keras` is 2 or 3, or None
    where the image decides.

    `run_id` differs between two submissions of the same name. In what `launcher render` prints it is a
    digest, so that the same file is the same run. `gpus` has the GPUs that the pods of a role ask for, such
    as "nvidia.com/gpu: 8"; `allow_cpu` has the roles that may do without. `grace_seconds` has the seconds
    from SIGTERM to SIGKILL, of each role whose value is not GRACE_SECONDS. `version` is that of the launcher
    that made the run, "" in runs of launchers that did not record it. `travels` has the roles whose runtime
    goes with the run. A training process is started again in its pod at most `restarts_in_place` times within
    RESTART_SECONDS. `data_service` is None where the run has none. `scripts` has the roles whose tasks run a
    script in the place of the program.
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

    @property
    def scores_program(self) -> bool:
        """Returns whether an evaluator scores the program, and no script does in its place."""
        return self.replicas.get("evaluator", 0) > 0 and "evaluator" not in self.scripts

    def to_json(self) -> str:
        """Returns one line with sorted keys, so that the same run gives the same ConfigMap."""
        document = asdict(self)
        for name in ("data_service", "scripts"):
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
            if given.get("data_service") is not None:
                given["data_service"] = DataService(**given["data_service"])
            return cls(**{"version": "", **given})
        except (AttributeError, TypeError) as error:
            raise ValueError(f"not a run configuration: {error}") from error


def in_names(role: str) -> str:
    """Returns the role as a part of the names of its Job and pods. It has no hyphen: the data workers of a
    run `x` and the workers of a run `x-data` would have the same names otherwise.
    """
    return role.replace("-", "")


def pod_name(run: str, role: str, index: int) -> str:
    """Returns the stable hostname that an Indexed Job gives its pod."""
    return f"{run}-{in_names(role)}-{index}"


def released_path(task_dir: str, own: str, peer: str) -> str:
    """Returns the path of the file that tells `peer` to leave. Its text is the outcome.

    `task_dir` is the `Env.TASK_DIR` of the task that asks; `own` and `peer` are `pod_name`s. On Kubernetes
    every task has the same path on a disk of its own. Where tasks share a disk, the pod's name is a component
    of the path, and the peer's name replaces it.
    """
    return _peers_file(task_dir, own, peer, "released")


def leaving_path(task_dir: str, own: str, peer: str) -> str:
    """Returns the path of the file that says that the server `peer` got SIGTERM. Arguments as in
    `released_path`.
    """
    return _peers_file(task_dir, own, peer, "leaving")


def identity_path(task_dir: str, own: str, peer: str) -> str:
    """Returns the path of the file in which the server `peer` says what it runs. Arguments as in
    `released_path`.
    """
    return _peers_file(task_dir, own, peer, "identity")


def chief_path(task_dir: str, own: str, peer: str) -> str:
    """Returns the path of the file in which the server `peer` has the number of its chief's context.
    Arguments as in `released_path`.
    """
    return _peers_file(task_dir, own, peer, "chief")


def _peers_file(task_dir: str, own: str, peer: str, name: str) -> str:
    parts = [peer if part == own else part for part in task_dir.split("/")]
    return "/".join([*parts, name])


class Event:
    """The events of a `Record`. The type of the same name has the event's fields."""

    DOING: Final = "doing"
    WAITING: Final = "waiting"
    DEVICES: Final = "devices"
    READY: Final = "ready"
    MEMBERSHIP: Final = "membership"
    TRAINING: Final = "training"
    PROGRESS: Final = "progress"
    EVALUATION: Final = "evaluation"
    LOADED: Final = "loaded"
    PREDICTING: Final = "predicting"
    PREDICTED: Final = "predicted"
    EXPORTED: Final = "exported"
    NOTICE: Final = "notice"
    FAILED: Final = "failed"
    RESTARTED: Final = "restarted"
    RELEASED: Final = "released"
    DONE: Final = "done"


# NamedTuples: a dataclass takes five times as long to make, and `--help` imports all of these.

Seconds = float
"""Finite; an int is valid too."""

Number = float
"""A value that a model computes, which may be NaN or infinite. A line has those as text: "nan", "inf",
"-inf".
"""


class Doing(NamedTuple):
    """What the task does before the first step or after the last, such as `importing TensorFlow`. It lasts
    until the task's next record.
    """

    activity: str


class Waiting(NamedTuple):
    """The task has waited `seconds`, of at most `deadline`, for `tasks` (pod names) to answer. All answer if
    `tasks` is empty. `reasons` maps why they do not answer to the first pods; earlier versions leave it out.
    """

    tasks: Sequence[str]
    seconds: Seconds
    deadline: Seconds
    reasons: Mapping[str, Sequence[str]] = {}


@dataclass(frozen=True)
class Device:  # no NamedTuple: those have a method `count`
    """`count` devices of a `type` ("GPU", "CPU" or "TPU") and a model, such as "NVIDIA A100"."""

    type: str
    name: str
    count: int


class Devices(NamedTuple):
    """The devices that the task uses. `replicas` take the steps, in `tasks` tasks, as far as the task knows:
    a server knows only itself, and an evaluator has no replicas. `devices` are this task's own, `tensorflow`
    is a version. `lacking` names the GPUs that the task asked for and does not have, or is "". `runtime` says
    which version this runtime has and where it comes from; it is "" in a run of an earlier version.
    """

    replicas: int
    tasks: int
    devices: Sequence[Device]
    tensorflow: str
    lacking: str
    runtime: str = ""


class Ready(NamedTuple):
    """A worker's or ps's server is up; an evaluator looks for checkpoints."""


class MembershipRecord(NamedTuple):
    """The primary task says which workers of an elastic run take part from now on. `workers` are their
    numbers, ascending; `joined` and `left` are those that came and went since the record before. `reason` is
    a short text, such as `worker 2 answers`. `generation` counts the memberships of a collective from 0; it
    is None under a coordinator, which has no generations.
    """

    workers: Sequence[int]
    joined: Sequence[int]
    left: Sequence[int]
    reason: str
    generation: int | None


class Training(NamedTuple):
    """The training begins. `steps_per_epoch` is None if unknown. Earlier attempts did the first
    `initial_epoch` epochs.
    """

    epochs: int
    steps_per_epoch: int | None
    initial_epoch: int


class Progress(NamedTuple):
    """`step` of the `steps` (None: unknown) of `epoch` is done; epochs count from 1. `loss` is None if it is
    not known yet, and is not among the `metrics`. At an `epoch_end` the values are those of the epoch, and
    `learning_rate` is the optimizer's after its last step; it is None within an epoch, of an optimizer that
    has none, and in records of earlier versions.
    """

    epoch: int
    epochs: int
    step: int
    steps: int | None
    steps_per_second: Number
    loss: Number | None
    metrics: Mapping[str, Number]
    epoch_end: bool
    learning_rate: Number | None = None


class Evaluation(NamedTuple):
    """The scores of a checkpoint; "loss" is among the `metrics`. `epoch` is None if unknown."""

    checkpoint: str
    epoch: int | None
    metrics: Mapping[str, Number]


class Loaded(NamedTuple):
    """A checkpoint to evaluate or to predict with; `path` is its directory."""

    checkpoint: str
    path: str


class Predicting(NamedTuple):
    """Number of examples of the task's share that are done, those of earlier attempts included."""

    examples: int
    examples_per_second: Number


class Predicted(NamedTuple):
    """All predictions are written, to `parts` files in the directory `path`."""

    path: str
    examples: int
    parts: int


class Exported(NamedTuple):
    """The SavedModel is at `path`."""

    path: str


class Notice(NamedTuple):
    """A sentence that the user should read."""

    message: str


class Failed(NamedTuple):
    """The reason why the task fails, in one sentence. `traceback` has the frames of the user's own files, or
    is "".
    """

    message: str
    traceback: str
    exit_code: int


class Restarted(NamedTuple):
    """The training process ended with `exit_code` and was started again in its pod, where it is the
    `restart`-th time.
    """

    exit_code: int
    restart: int


class Released(NamedTuple):
    """The chief has released `tasks` (pod names), and could not reach `unreachable`."""

    tasks: Sequence[str]
    unreachable: Sequence[str]


class WasReleased(NamedTuple):
    """The chief released this task, because the run has this `outcome`: "done" or "failed", or the reason why
    there is none. Its event is "released", too.
    """

    outcome: str


class Done(NamedTuple):
    """The task is about to leave with `ExitCode.DONE`."""


Content = Union[  # Python 3.9 has no `|` for types.
    Doing,
    Waiting,
    Devices,
    Ready,
    MembershipRecord,
    Training,
    Progress,
    Evaluation,
    Loaded,
    Predicting,
    Predicted,
    Exported,
    Notice,
    Failed,
    Restarted,
    Released,
    WasReleased,
    Done,
]

EVENTS: Final[Mapping[type[Any], str]] = {
    Doing: Event.DOING,
    Waiting: Event.WAITING,
    Devices: Event.DEVICES,
    Ready: Event.READY,
    MembershipRecord: Event.MEMBERSHIP,
    Training: Event.TRAINING,
    Progress: Event.PROGRESS,
    Evaluation: Event.EVALUATION,
    Loaded: Event.LOADED,
    Predicting: Event.PREDICTING,
    Predicted: Event.PREDICTED,
    Exported: Event.EXPORTED,
    Notice: Event.NOTICE,
    Failed: Event.FAILED,
    Restarted: Event.RESTARTED,
    WasReleased: Event.RELEASED,
    Released: Event.RELEASED,
    Done: Event.DONE,
}


@dataclass(frozen=True)
class Record:
    """One line of progress: `{"tf-launcher": 1, "event": ..., "task": ..., "time": ..., ...}`.

    `time` is seconds since the epoch, by the task's own clock. `fields` are the line's other fields;
    `content` is the same as a value of the event's type, None for an event of a later version. Raises
    ValueError where the fields are not the event's. Any other line on standard output belongs to the program
    and is passed on unchanged.
    """

    event: str
    task: str
    time: float
    fields: Mapping[str, Any]
    content: Content | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", content_of(self.event, self.fields))

    def line(self) -> str:
        """Returns the line in a log, without the line end."""
        return line_of(self.event, self.task, self.time, self.fields)

    @classmethod
    def parse(cls, line: str) -> Record | None:
        """Returns None for a line that is not a record, whatever it contains: any program may print a similar
        one. A record has the fields of its event's type. Events and fields of a later version are accepted.
        """
        if not line.startswith('{"tf-launcher":'):
            return None
        try:
            document = json.loads(line, parse_int=_parse_integer, parse_constant=_refuse)
            version, event, task, time = (document.pop(name) for name in _HEAD)
            if not all(map(_is_sound, (event, task, document))):
                return None
            _count(version)
            if not 0 <= _finite(time) < _END_OF_TIME:
                return None
            return cls(event=_text(event), task=_text(task), time=float(time), fields=document)
        except (ValueError, KeyError, TypeError, RecursionError):
            return None


_HEAD: Final = ("tf-launcher", "event", "task", "time")

_END_OF_TIME: Final = 1e11
"""Seconds since the epoch, in the year 5138. Greater numbers are no valid times of a calendar."""

_DEEPEST: Final = 16
"""Levels of lists and mappings in a record's field."""

_LONGEST_INTEGER: Final = 20
"""Digits of 2**64, with a sign."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def _parse_integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        raise ValueError("a number of more than 64 bits")
    return int(digits)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _is_sound(value: Any, levels: int = 0) -> bool:
    """Returns whether the value can be printed and computed with: no half of a surrogate pair, no infinity
    (1e999).
    """
    if isinstance(value, str):
        return _SURROGATE.search(value) is None
    if isinstance(value, float):
        return abs(value) < float("inf")
    if isinstance(value, dict):
        inner: list[Any] = [*value, *value.values()]
    else:
        inner = value if isinstance(value, list) else []
    return levels <= _DEEPEST and all(_is_sound(each, levels + 1) for each in inner)


def _checked(value: Any, is_right: bool) -> Any:
    if not is_right:
        raise ValueError("a field of a record has another type")
    return value


def _text(value: Any) -> Any:
    return _checked(value, isinstance(value, str))


def _flag(value: Any) -> Any:
    return _checked(value, isinstance(value, bool))


def _count(value: Any) -> Any:
    """Checks a whole number from 0. The limit is needed because `int` has none, and neither has its printed
    text.
    """
    return _checked(value, isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63)


def _finite(value: Any) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return _checked(value, is_number and abs(value) < float("inf"))


def _number(value: Any) -> Any:
    if isinstance(value, float) or value in ("nan", "inf", "-inf"):
        return float(value)
    return _finite(value)


def _numbers(value: Any) -> Any:
    return {name: _number(each) for name, each in _checked(value, isinstance(value, Mapping)).items()}


def _texts(value: Any) -> Any:
    return tuple(map(_text, _checked(value, isinstance(value, (list, tuple)))))


def _counts(value: Any) -> Any:
    return tuple(map(_count, _checked(value, isinstance(value, (list, tuple)))))


def _names(value: Any) -> Any:
    return {reason: _texts(each) for reason, each in _checked(value, isinstance(value, Mapping)).items()}


def _devices(value: Any) -> Any:
    return tuple(map(_device, _checked(value, isinstance(value, (list, tuple)))))


def _device(value: Any) -> Device:
    get = _checked(value, isinstance(value, Mapping)).get
    return Device(_text(get("type")), _text(get("name")), _count(get("count")))


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "str": _text,
    "bool": _flag,
    "int": _count,
    "int | None": lambda value: None if value is None else _count(value),
    "Seconds": _finite,
    "Number": _number,
    "Number | None": lambda value: None if value is None else _number(value),
    "Mapping[str, Number]": _numbers,
    "Sequence[int]": _counts,
    "Sequence[str]": _texts,
    "Mapping[str, Sequence[str]]": _names,
    "Sequence[Device]": _devices,
}
"""The parser of a field's value on a line, by the field's annotation. Each raises ValueError."""


_OPTIONAL: Final = ("reasons", "runtime", "learning_rate")
"""Fields that earlier versions leave out, and that this version leaves out where they are empty."""


def _read(kind: type[Content], fields: Mapping[str, Any]) -> Content:
    """Raises ValueError where a field is missing or has another type. Ignores fields of later versions."""
    values = {}
    for name, annotation in kind.__annotations__.items():
        if name not in fields:
            if name in _OPTIONAL:
                continue
            raise ValueError(f"a record without {name}")
        values[name] = _READERS[annotation.__forward_arg__](fields[name])
    return kind(**values)


_TYPES: Final[Mapping[str, type[Content]]] = {event: kind for kind, event in EVENTS.items()}


def content_of(event: str, fields: Mapping[str, Any]) -> Content | None:
    """Returns None for an event of a later version. Raises ValueError where the fields are not
    the event's.
    """
    kind = _TYPES.get(event)
    if kind is Released and "tasks" not in fields:
        kind = WasReleased
    return None if kind is None else _read(kind, fields)


def fields_of(content: Content) -> dict[str, Any]:
    """Returns the fields by name, in the order of a line. Optional fields that are empty are left out."""
    kind = type(content)
    fields = zip(kind.__annotations__, content)
    return {name: value for name, value in fields if value or name not in _OPTIONAL}


def line_of(event: str, task: str, time: float, fields: Mapping[str, Any]) -> str:
    """Returns the line without the line end. NaN and infinities become JSON strings, since JSON has no
    numbers for them.
    """
    head = {"tf-launcher": 1, "event": event, "task": task, "time": round(time, 3)}
    return json.dumps({**head, **_as_json(fields)}, separators=(",", ":"), ensure_ascii=False)


def _as_json(value: Any) -> Any:
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    if isinstance(value, Device):
        return vars(value)
    if isinstance(value, Mapping):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return value


def emit(task: str, content: Content) -> None:
    """Prints a record and flushes: a pipe is block-buffered, and a reader needs the record at once."""
    # In one piece: another thread may print at the same time.
    sys.stdout.write(f"{line_of(EVENTS[type(content)], task, time.time(), fields_of(content))}\n")
    sys.stdout.flush()
