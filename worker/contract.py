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
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum
from typing import Any, Final, NamedTuple, Union

VERSION: Final = "0.2.0"
"""Of the launcher and of the worker runtime: they belong together, see `RunConfig.version`."""

ARCHIVE: Final = "/opt/tf-launcher/runtime/worker.zip"
"""Where a pod has the runtime that travels with a run. `python3 ARCHIVE` is `python -m worker`."""

PORT: Final = 2222
"""Every task's gRPC port, TensorFlow's customary one."""


GRACE_SECONDS: Final = 30
"""From SIGTERM to SIGKILL: Kubernetes' own default of a pod's terminationGracePeriodSeconds."""


GRPC_FAIL_FAST: Final = ("GRPC_FAIL_FAST", "use_caller")
"""A variable of TensorFlow's servers and clients, and its value: a task that is lost is an error at once, and
one that is not up yet is waited for. With `false` a chief hangs on a lost ps, with `true` it fails early."""


BATCH_SIZES: Final = ("globalBatchSize", "batchSizePerReplica")
ITERATIONS: Final = ("steps", "batches", "epoch")

PARAMETERS: Final = (
    "epochs",
    "stepsPerEpoch",
    *BATCH_SIZES,
    "stepsPerExecution",
    "checkpointEpochs",
    "iteration",
)
"""The names in `spec.program.parameters` that the runtime reads; any other is the program's own."""

_NEVER_NULL: Final = ("epochs", "checkpointEpochs")


def parameter_problems(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with the parameters that the runtime reads: each name, and a sentence."""
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
    """What a task says by ending.

    1 is left out on purpose: it is what a container ends with when its command cannot be executed
    (an environment string over 128 KiB, for one), and what any crashing script says.
    """

    DONE = 0
    """Finished, or released by the chief."""
    PROGRAM_ERROR = 70
    """The program is wrong, or its image: no TensorFlow, too old a Python, a runtime of another version than
    the launcher. Trying again cannot help. EX_SOFTWARE of sysexits.h."""
    RETRYABLE = 75
    """A peer was lost, or nothing moved for `stall_seconds`. EX_TEMPFAIL of sysexits.h."""
    PREEMPTED = 143
    """Left on SIGTERM (128 + 15), as a process without a handler would. Never 0: a Job would count
    a drained worker as finished and not replace it."""


class Env:
    """Names of environment variables. All but TF_CONFIG are reserved to the launcher."""

    TF_CONFIG: Final = "TF_CONFIG"
    """TensorFlow's own: `{"cluster": {role: [address]}, "task": {"type": role, "index": int}}`."""
    TASK_INDEX: Final = "TASK_INDEX"
    """The pod's completion index; TF_CONFIG refers to it as `$(TASK_INDEX)`."""
    ROLE: Final = "TF_LAUNCHER_ROLE"
    """chief, worker, ps or evaluator; there also where a task has no TF_CONFIG."""
    CONFIG: Final = "TF_LAUNCHER_CONFIG"
    """Path of the `RunConfig` document (JSON)."""
    CLUSTER_FILE: Final = "TF_LAUNCHER_CLUSTER_FILE"
    """Path of the cluster spec (JSON: the value of TF_CONFIG's "cluster"), set in place of TF_CONFIG
    where that would be too long for an environment string; the task is ROLE and TASK_INDEX."""
    TASK_DIR: Final = "TF_LAUNCHER_TASK_DIR"
    """This task's private, writable directory; see `released_path`."""
    SOURCE: Final = "TF_LAUNCHER_SOURCE"
    """Directory of the program's source, to be put on the module path; unset without a source."""

    LOCAL: Final = "TF_LAUNCHER_LOCAL"
    """Only where tasks are processes of this machine, and what they ask for has no meaning: whose it is."""

    RESERVED: Final = frozenset({TF_CONFIG, TASK_INDEX, ROLE, CONFIG, CLUSTER_FILE, TASK_DIR, SOURCE})


@dataclass(frozen=True)
class RunConfig:
    """The run as every task sees it. JSON names are the fields' own.

    `replicas` counts the tasks of each role: `{"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}`.
    `chief_address` is `host:port` of the task whose end is the run's end, None in a one-task run.
    `model_dir` is a path or a URL that `tf.io.gfile` opens. Durations are in seconds.
    `mode` is Train, Evaluate or Predict; the latter two read `checkpoint`, as `ckpt-3`, None for the newest.
    `strategy_options` and `evaluation` are the spec's, without what was left out, `keras` is 2 or 3, or
    None where it is left to the image.
    `run_id` tells one submission of a name from the next; of what `launcher render` prints it is a digest,
    so that the same file is the same run. `gpus` says what GPUs the pods of a role ask for, such as
    "nvidia.com/gpu: 8", and `allow_cpu` which roles may do without. `grace_seconds` are those from SIGTERM to
    SIGKILL, of each role whose pods do not have GRACE_SECONDS. `version` is that of the launcher that made
    the run, "" before there was one; `travels` are the roles whose runtime goes with the run.
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

    def to_json(self) -> str:
        """One line, keys sorted: the same run gives the same ConfigMap."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """Reads `to_json`. Raises ValueError when it is not such a document. Fields of another version are
        passed over, so that `version` can be read first.
        """
        try:
            document = json.loads(text)
            known = {f.name for f in fields(cls)}
            given = {name: value for name, value in document.items() if name in known}
            return cls(**{"version": "", **given})
        except (AttributeError, TypeError) as error:
            raise ValueError(f"not a run configuration: {error}") from error


def pod_name(run: str, role: str, index: int) -> str:
    """The stable hostname that an Indexed Job gives its pod."""
    return f"{run}-{role}-{index}"


def released_path(task_dir: str, own: str, peer: str) -> str:
    """The file that, once it is there, tells `peer` to leave; its text is the outcome.

    `task_dir` is the asking task's own `Env.TASK_DIR`, `own` and `peer` are `pod_name`s. On Kubernetes
    every task has the same path on a disk of its own. Where tasks share a disk, the pod's name is a
    component of the path and is replaced by the peer's.
    """
    return _peers_file(task_dir, own, peer, "released")


def leaving_path(task_dir: str, own: str, peer: str) -> str:
    """The file that says that the server `peer` was told to leave; otherwise as `released_path`."""
    return _peers_file(task_dir, own, peer, "leaving")


def _peers_file(task_dir: str, own: str, peer: str, name: str) -> str:
    parts = [peer if part == own else part for part in task_dir.split("/")]
    return "/".join([*parts, name])


class Event:
    """What a `Record` is about. The type of the same name has the fields."""

    DOING: Final = "doing"
    WAITING: Final = "waiting"
    DEVICES: Final = "devices"
    READY: Final = "ready"
    TRAINING: Final = "training"
    PROGRESS: Final = "progress"
    EVALUATION: Final = "evaluation"
    LOADED: Final = "loaded"
    PREDICTING: Final = "predicting"
    PREDICTED: Final = "predicted"
    EXPORTED: Final = "exported"
    NOTICE: Final = "notice"
    FAILED: Final = "failed"
    RELEASED: Final = "released"
    DONE: Final = "done"


# NamedTuples, because a dataclass takes five times as long to make, and `--help` makes all of these.

Seconds = float
"""Finite; an int is as good."""

Number = float
"""Of a model, so it may be NaN or infinite. A line has those as text: "nan", "inf", "-inf"."""


class Doing(NamedTuple):
    """What may take a while before the first step, or after the last: `importing TensorFlow`, say. It lasts
    until another record of the task.
    """

    activity: str


class Waiting(NamedTuple):
    """The task has waited `seconds`, of at most `deadline`, for `tasks` (pod names) to answer; all do if that
    is empty. `reasons` says why they do not, each with the first pods; earlier versions leave it out.
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
    """What the task computes with. `replicas` take the steps, in `tasks` tasks, as far as the task knows: a
    server knows itself, an evaluator has none. `devices` are this task's own, `tensorflow` is a version,
    `lacking` the GPUs that the task asked for and does not see, or "". `runtime` says of which version this
    runtime is, and where it is from; "" in a run of an earlier version.
    """

    replicas: int
    tasks: int
    devices: Sequence[Device]
    tensorflow: str
    lacking: str
    runtime: str = ""


class Ready(NamedTuple):
    """A worker's or ps's server is up; an evaluator looks for checkpoints."""


class Training(NamedTuple):
    """It begins. `steps_per_epoch` is None if unknown.
    `initial_epoch` epochs were done by earlier attempts.
    """

    epochs: int
    steps_per_epoch: int | None
    initial_epoch: int


class Progress(NamedTuple):
    """`step` of the `steps` (None: unknown) of `epoch` is done; epochs count from 1. `loss` is None if it is
    not known yet, and is not among the `metrics`. At an `epoch_end` the values are the epoch's.
    """

    epoch: int
    epochs: int
    step: int
    steps: int | None
    steps_per_second: Number
    loss: Number | None
    metrics: Mapping[str, Number]
    epoch_end: bool


class Evaluation(NamedTuple):
    """What a checkpoint scored; "loss" is among the `metrics`. `epoch` is None if unknown."""

    checkpoint: str
    epoch: int | None
    metrics: Mapping[str, Number]


class Loaded(NamedTuple):
    """A checkpoint to evaluate or to predict with, and the directory that it is in."""

    checkpoint: str
    path: str


class Predicting(NamedTuple):
    """So many examples of the task's share are done, by earlier attempts too."""

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
    """One sentence that the user should read."""

    message: str


class Failed(NamedTuple):
    """Why the task fails, in one sentence. `traceback` has the user's own frames, or is ""."""

    message: str
    traceback: str
    exit_code: int


class Released(NamedTuple):
    """The chief has told `tasks` (pod names) to leave, and could not tell the `unreachable`."""

    tasks: Sequence[str]
    unreachable: Sequence[str]


class WasReleased(NamedTuple):
    """This task was told to leave, because the run has this `outcome`: "done" or "failed", or why there is
    none. Its event is "released", too.
    """

    outcome: str


class Done(NamedTuple):
    """The task is about to leave with `ExitCode.DONE`."""


Content = Union[  # of Python 3.9, which has no `|` for types
    Doing,
    Waiting,
    Devices,
    Ready,
    Training,
    Progress,
    Evaluation,
    Loaded,
    Predicting,
    Predicted,
    Exported,
    Notice,
    Failed,
    Released,
    WasReleased,
    Done,
]

EVENTS: Final[Mapping[type[Any], str]] = {
    Doing: Event.DOING,
    Waiting: Event.WAITING,
    Devices: Event.DEVICES,
    Ready: Event.READY,
    Training: Event.TRAINING,
    Progress: Event.PROGRESS,
    Evaluation: Event.EVALUATION,
    Loaded: Event.LOADED,
    Predicting: Event.PREDICTING,
    Predicted: Event.PREDICTED,
    Exported: Event.EXPORTED,
    Notice: Event.NOTICE,
    Failed: Event.FAILED,
    WasReleased: Event.RELEASED,
    Released: Event.RELEASED,
    Done: Event.DONE,
}


@dataclass(frozen=True)
class Record:
    """One line of progress: `{"tf-launcher": 1, "event": ..., "task": ..., "time": ..., ...}`.

    `time` is seconds since the epoch, by the task's own clock. `fields` is what else the line has, as it
    stands there; `content` is the same as a value of the event's type, None for an event of a later version.
    Raises ValueError where the fields are not the event's. Any other line on standard output is the program's
    own and is passed on as it is.
    """

    event: str
    task: str
    time: float
    fields: Mapping[str, Any]
    content: Content | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", content_of(self.event, self.fields))

    def line(self) -> str:
        """As it stands in a log, without the line end."""
        return line_of(self.event, self.task, self.time, self.fields)

    @classmethod
    def parse(cls, line: str) -> Record | None:
        """None for a line that is not a record, whatever is in it: anyone's program may print one that is
        alike. A record has the fields of its event's type. Events and fields of a later version pass.
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
"""Seconds since the epoch, in the year 5138: beyond it are numbers that no calendar takes."""

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
    """Whether it can be printed and computed with: no half of a surrogate pair, no infinity (1e999)."""
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
    """A whole number from 0; `int` has no bound, and neither has what would be printed of it."""
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
    "Sequence[str]": _texts,
    "Mapping[str, Sequence[str]]": _names,
    "Sequence[Device]": _devices,
}
"""By the annotation of a field: what its value on a line stands for. All raise ValueError."""


_OPTIONAL: Final = ("reasons", "runtime")
"""Fields that earlier versions leave out, and that are left out where they are empty."""


def _read(kind: type[Content], fields: Mapping[str, Any]) -> Content:
    """Raises ValueError where a field is missing or has another type. Passes over those of later versions."""
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
    """None for an event of a later version. Raises ValueError where the fields are not the event's."""
    kind = _TYPES.get(event)
    if kind is Released and "tasks" not in fields:
        kind = WasReleased
    return None if kind is None else _read(kind, fields)


def fields_of(content: Content) -> dict[str, Any]:
    """By name, in the order in which a line has them; what is left out has its default."""
    kind = type(content)
    fields = zip(kind.__annotations__, content)
    return {name: value for name, value in fields if value or name not in _OPTIONAL}


def line_of(event: str, task: str, time: float, fields: Mapping[str, Any]) -> str:
    """Without the line end. NaN and infinities are written as JSON strings, which JSON can hold."""
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
    """Prints a record at once: a pipe is block-buffered, and a record is read while it is news."""
    print(line_of(EVENTS[type(content)], task, time.time(), fields_of(content)), flush=True)
