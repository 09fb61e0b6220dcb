"""The strategies: how their tasks train, their options, and what the loss of a task is for the others."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal, NamedTuple

from worker.contract.task_names import DATA_WORKER, DISPATCHER, EXTRA_WORKER, task_type

StrategyName = Literal[
    "OneDevice", "Mirrored", "MultiWorkerMirrored", "ParameterServer", "CentralStorage", "TPU", "Custom"
]


class Kind(Enum):
    """How the tasks of a run train."""

    ONE_TASK = "one task"
    """One task, with the devices of its machine. It is a chief or a worker."""
    COLLECTIVE = "collective"
    """All tasks take each step together. The chief leads them, or worker 0 where there is no chief."""
    COORDINATED = "coordinated"
    """The chief, which there always is, gives out the steps; the other tasks are its servers."""
    OWN_COMMAND = "own command"
    """The image's own command decides. The chief's end is the run's, or that of the workers."""


class Loss(Enum):
    """What the loss of one task of a role is for the others. Of elastic tasks, others may take its place."""

    NOTHING = "nothing"
    """They do not need the role, also when all of its tasks have failed for good."""
    SPARED = "spared"
    """They do its work, as long as one of its role is left."""
    AWAITED = "awaited"
    """They wait until it is back."""
    RESTART = "restart"
    """Those that train with it start again from the last checkpoint: the whole collective, or the chief
    whose ps has lost its variables. Without it the run fails.
    """


class Strategy(NamedTuple):
    """`losses` has the roles that train or serve the training. `options` are the fields of
    `spec.strategyOptions` in Python's form; with `for_pods` the launcher carries them out, else the runtime,
    which builds the strategy by them. `modes` are the values of `spec.mode`. `on_slice`: its devices are
    those of a TPU slice.
    """

    kind: Kind
    losses: Mapping[str, Loss]
    options: tuple[str, ...] = ()
    for_pods: bool = False
    modes: tuple[str, ...] = ("Train", "Evaluate", "Predict")
    on_slice: bool = False

    @property
    def several(self) -> bool:
        """Returns whether several tasks train one model, and read its data."""
        return self.kind in (Kind.COLLECTIVE, Kind.COORDINATED)

    @property
    def servers(self) -> tuple[str, ...]:
        """Returns the roles whose tasks run nothing but a TensorFlow server, for a coordinator."""
        if self.kind is not Kind.COORDINATED:
            return ()
        return tuple(role for role in self.losses if role != "chief")

    @property
    def may_be_sparse(self) -> bool:
        """Returns whether the TF_CONFIG of a worker or ps may list only itself."""
        return self.kind in (Kind.COORDINATED, Kind.OWN_COMMAND)


PARTITIONERS: Final[Mapping[str, tuple[str, ...]]] = {
    "MinSize": ("min_shard_bytes", "max_shards", "bytes_per_string"),
    "MaxSize": ("max_shard_bytes", "max_shards", "bytes_per_string"),
    "FixedShards": ("num_shards",),
}
"""The options of each partitioner of ParameterServer, by the names of TensorFlow's parameters."""

_BY_ITSELF: Final = {"chief": Loss.RESTART, "worker": Loss.RESTART}
_LOGICAL: Final = ("logical_cpus", "logical_gpus")
_MEMORY: Final = ("gpu_memory_mb",)

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "OneDevice": Strategy(Kind.ONE_TASK, _BY_ITSELF, ("device", *_MEMORY)),
    "Mirrored": Strategy(
        Kind.ONE_TASK, _BY_ITSELF, ("devices", "cross_device_ops", "num_packs", *_LOGICAL, *_MEMORY)
    ),
    "CentralStorage": Strategy(Kind.ONE_TASK, _BY_ITSELF, (*_LOGICAL, *_MEMORY)),
    "MultiWorkerMirrored": Strategy(
        Kind.COLLECTIVE,
        {"chief": Loss.RESTART, "worker": Loss.RESTART},
        ("communication", "bytes_per_pack", "auto_shard", *_LOGICAL, *_MEMORY),
    ),
    "ParameterServer": Strategy(
        Kind.COORDINATED,
        {"chief": Loss.RESTART, "worker": Loss.SPARED, "ps": Loss.RESTART},
        (
            "partitioner",
            *dict.fromkeys(option for options in PARTITIONERS.values() for option in options),
            *_MEMORY,
        ),
    ),
    "TPU": Strategy(
        Kind.ONE_TASK,
        _BY_ITSELF,
        ("accelerator", "topology"),
        for_pods=True,
        modes=("Train",),
        on_slice=True,
    ),
    "Custom": Strategy(
        Kind.OWN_COMMAND,
        {"chief": Loss.RESTART, "worker": Loss.RESTART, "ps": Loss.RESTART},
        ("success_policy", "chief_task_type"),
        for_pods=True,
        modes=("Train",),
    ),
}
"""By name. Whatever depends on the strategy, and not on one of its own options, is decided by this table."""

BESIDE: Final[Mapping[str, Loss]] = {
    "evaluator": Loss.NOTHING,
    DISPATCHER: Loss.AWAITED,
    DATA_WORKER: Loss.AWAITED,
}
"""The roles beside the training, under every strategy that can have them."""

SERVING: Final = frozenset(
    role
    for losses in (BESIDE, {EXTRA_WORKER: Loss.SPARED}, *(each.losses for each in STRATEGIES.values()))
    for role, loss in losses.items()
    if role != "chief" and loss is not Loss.NOTHING
)
"""The roles that work for the primary. The run fails without them, unless their Job says that it does not;
nothing needs them once it has ended.
"""


def loss(strategy: str, role: str) -> Loss:
    """Returns what the loss of a task of the role is for the others."""
    return BESIDE.get(role) or STRATEGIES[strategy].losses[task_type(role)]
