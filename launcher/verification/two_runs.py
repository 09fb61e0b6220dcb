"""The two runs of a comparison, as this machine can carry them out."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from launcher.errors import SpecError
from launcher.lists_and_counts import counted
from launcher.validation import loader
from launcher.validation.loader import Loaded
from worker.contract.environment import BUCKET_SCHEME
from worker.contract.parameters import BATCH_SIZES
from worker.contract.strategies import STRATEGIES, Kind

ONE: Final = "one-process"
OTHER: Final = "by-strategy"
_MODEL: Final = "/tf-launcher-verify"
"""A model directory that no volume of the user's covers."""
_SERVERS: Final = 2
"""Parameter servers at most: enough for variables to be split."""
_OPTIONS: Final = ("autoShard", "partitioner", "minShardBytes", "maxShardBytes", "maxShards", "numShards")
"""The strategy's options that this machine's CPU can carry out."""

_LEFT_OUT: Final = (
    "storage",
    "evaluator",
    "evaluation",
    "dataService",
    "tensorboard",
    "scheduling",
    "checkpoints",
)
"""The fields of a run that do not change what a step computes."""
_OF_BUCKETS: Final = ("endpoint", "region", "secretName")
"""How the program's data are reached, by `spec.storage`."""


class TwoRuns:
    """The two runs as this machine can carry them out: `one` in one process, `other` by the strategy."""

    def __init__(self, loaded: Loaded, most: int) -> None:
        self._loaded = loaded
        self._spec = spec = loaded.cluster.spec
        program, kind = spec.program, STRATEGIES[spec.strategy].kind
        if program is None or program.trained is None or spec.mode != "Train" or kind is Kind.OWN_COMMAND:
            message = (
                "`verify` compares a training by the runtime with one in one process: expected a "
                "program.entrypoint or program.script, and mode: Train"
            )
            raise SpecError([loaded.problem(("spec",), message)])
        self.kind = kind
        self.notes: list[str] = []
        self._workers = self._count(most)
        self.other = self._checked(self._by_strategy())
        self.one = self._checked(self._in_one_process())

    @property
    def described(self) -> str:
        """How the strategy is tried."""
        what = "device" if self.kind is Kind.ONE_TASK else "task" if self._is_collective else "worker"
        return f"by {self._strategy} with {counted(self._workers, what)}"

    @property
    def reads_apart(self) -> bool:
        """Whether each task may read files of its own."""
        return self._is_collective and self._spec.strategy_options.auto_shard != "DATA"

    def with_all_data(self) -> Loaded:
        """The run by the strategy, in which each task reads all data."""
        document = self._by_strategy()
        document["spec"].setdefault("strategyOptions", {})["autoShard"] = "DATA"
        return self._checked(document)

    @property
    def _is_collective(self) -> bool:
        return self.kind is Kind.COLLECTIVE

    @property
    def _strategy(self) -> str:
        return "Mirrored" if STRATEGIES[self._spec.strategy].on_slice else self._spec.strategy

    def _count(self, most: int) -> int:
        """How many workers, tasks or devices there are here: as many as can share a batch."""
        spec = self._spec
        if spec.strategy == "OneDevice":
            return 1
        if self.kind is Kind.ONE_TASK:
            wanted = most
            self.notes.append(f"{counted(most, 'logical CPU')} stand for the devices of {spec.strategy}")
        else:
            roles = (spec.worker, spec.chief) if self._is_collective else (spec.worker,)
            wanted = sum(role.replicas for role in roles if role is not None)
        fits = [each for each in range(1, wanted + 1) if self._shares(each)]
        count = max((each for each in fits if each <= most), default=1)
        if count == 1 < min(most, wanted):
            count = min((each for each in fits if each > 1), default=wanted)
        if count != wanted:
            self.notes.append(f"tried here: {count} of {wanted} workers; --workers tries more")
        return count

    def _shares(self, count: int) -> bool:
        """Whether so many replicas can share a batch of a program's."""
        size = self._parameters.get(BATCH_SIZES[0], 64)
        devices = self._spec.strategy_options.logical_cpus or 1
        replicas = count * (devices if self._is_collective else 1)
        any_size = self.kind is Kind.COORDINATED or self._parameters.get(BATCH_SIZES[1]) is not None
        any_size = any_size or (self._spec.program is not None and self._spec.program.script is not None)
        return any_size or not isinstance(size, int) or size % replicas == 0

    @property
    def _parameters(self) -> Mapping[str, Any]:
        return {} if self._spec.program is None else self._spec.program.parameters

    def _document(self) -> dict[str, Any]:
        """What both have in common."""
        document = copy.deepcopy(
            self._loaded.cluster.model_dump(mode="json", exclude_unset=True, warnings=False)
        )
        spec = document["spec"]
        storage = spec.get("storage") or {}
        for name in _LEFT_OUT:
            spec.pop(name, None)
        if any(str(value).startswith(f"{BUCKET_SCHEME}://") for value in self._parameters.values()):
            spec["storage"] = {name: storage[name] for name in _OF_BUCKETS if name in storage}
        spec["runPolicy"] = {"backoffLimit": 0, "restartsInPlace": 0}
        document["metadata"] = {}
        template = spec.setdefault("template", {})
        roles = [template, *(spec[name] for name in ("chief", "worker", "ps") if spec.get(name))]
        for role in roles:
            for name in ("resources", "minReplicas", "maxReplicas"):
                role.pop(name, None)
            role["allowCpu"] = True  # a podTemplate may ask for GPUs
        patches = [container for role in roles for container in _containers(role.get("podTemplate"))]
        spec["modelDir"] = self._model_directory(
            [mount for holder in (*roles, *patches) for mount in holder.get("volumeMounts") or ()]
        )
        cpu = {"name": "CUDA_VISIBLE_DEVICES", "value": "-1"}
        template["env"] = [*(template.get("env") or []), cpu]
        return document

    def _model_directory(self, mounts: Sequence[dict[str, Any]]) -> str:
        """Returns the file's, where that is in a claim, and so in a folder of this comparison. Where it is in
        a volume of the user's, that becomes read-only.
        """
        given = self._spec.model_dir or _MODEL
        above = [mount for mount in mounts if f"{given}/".startswith(f"{mount['mountPath'].rstrip('/')}/")]
        for mount in above:
            mount["readOnly"] = True
        return _MODEL if above or "://" in given else given

    def _by_strategy(self) -> dict[str, Any]:
        document = self._document()
        spec = document["spec"]
        document["metadata"]["name"] = OTHER
        given = spec.pop("strategyOptions", None) or {}
        options = {name: given[name] for name in _OPTIONS if name in given}
        if self.kind is Kind.ONE_TASK and self._workers > 1:
            options["logicalCpus"] = self._workers
        elif self._is_collective and "logicalCpus" in given:
            options["logicalCpus"] = given["logicalCpus"]
        spec["strategy"], spec["strategyOptions"] = self._strategy, options
        if self.kind is not Kind.ONE_TASK:
            chiefs = int(self._is_collective and spec.get("chief") is not None)
            worker = spec.pop("worker", None) or {}
            if self._workers > chiefs:
                spec["worker"] = {**worker, "replicas": self._workers - chiefs}
        if spec.get("ps"):
            spec["ps"]["replicas"] = min(spec["ps"].get("replicas", 1), _SERVERS)
        return document

    def _in_one_process(self) -> dict[str, Any]:
        document = self._document()
        spec = document["spec"]
        document["metadata"]["name"] = ONE
        roles = [spec.pop(name, None) for name in ("chief", "worker", "ps")]
        spec["chief"] = {**(next(filter(None, roles), {})), "replicas": 1}
        spec.pop("strategyOptions", None)
        spec.pop("sparseClusterSpec", None)
        spec["strategy"] = "OneDevice"
        each = self._parameters.get(BATCH_SIZES[1])
        if isinstance(each, int):
            spec["program"]["parameters"].pop(BATCH_SIZES[1])
            devices = self._spec.strategy_options.logical_cpus or 1
            coordinated = self.kind is Kind.COORDINATED
            replicas = 1 if coordinated else self._workers * (devices if self._is_collective else 1)
            spec["program"]["parameters"][BATCH_SIZES[0]] = each * replicas
        return document

    def _checked(self, document: dict[str, Any]) -> Loaded:
        checked = loader.check(document, directory=self._loaded.directory, source=self._loaded.source)
        return replace(checked, allow_outside=self._loaded.allow_outside)


def _containers(template: Any) -> Sequence[dict[str, Any]]:
    """Returns the containers of a podTemplate, which may lack any field."""
    pod = template.get("spec") if isinstance(template, dict) else None
    containers = pod.get("containers") if isinstance(pod, dict) else None
    return [each for each in containers if isinstance(each, dict)] if isinstance(containers, list) else []
