"""The strategy of a run, built by its name and options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import tensorflow as tf

from worker import devices
from worker.contract.strategies import PARTITIONERS
from worker.failures import Failure, program_error
from worker.task import Task
from worker.tf_compat.exclusive_updates import make_exclusive
from worker.tf_compat.lookup_tables import reach_tables_from_loops
from worker.tf_compat.strategies import read_as_numbers, with_local_cpus

_MIN_SHARD_BYTES = 256 << 10
"""The value of TensorFlow's parameter-server tutorial: smaller pieces cost more messages than they save."""
_GPU_ADVICE = "ask for nvidia.com/gpu in resources and use an image with GPU support"


Locate = Callable[[Collection[str]], Mapping[str, str]]


def build(task: Task, locate: Locate | None = None) -> tf.distribute.Strategy:
    """Builds the strategy `task.config.strategy` in a task that runs the training loop. `locate` says where
    the tasks of a collective with these addresses are.

    ParameterServer: every worker and ps must answer before, or the call blocks without a limit. Within
    `Membership` it connects to those that do.
    MultiWorkerMirrored: the call blocks until all tasks make it, and no TensorFlow operation may run before.
    Raises Failure, which names the option, for a strategy that does not work with the devices here.
    """
    builders: dict[str, Callable[[Task], tf.distribute.Strategy]] = {
        "OneDevice": _one_device,
        "Mirrored": _mirrored,
        "CentralStorage": _central_storage,
        "MultiWorkerMirrored": partial(_multi_worker_mirrored, locate=locate),
        "ParameterServer": _parameter_server,
        "TPU": _tpu,
    }
    name = task.config.strategy
    if name not in builders:
        raise program_error(f"spec.strategy: this image knows {', '.join(builders)}, not {name!r}")
    devices.prepare(task)
    read_as_numbers()
    return builders[name](task)


def _one_device(task: Task) -> tf.distribute.Strategy:
    given = task.config.strategy_options.get("device")
    if given is None:
        return tf.distribute.OneDeviceStrategy("/gpu:0" if devices.gpus() else "/cpu:0")
    return tf.distribute.OneDeviceStrategy(_present("device", given, "the first GPU or the CPU"))


def _present(option: str, given: str, default: str) -> str:
    """Returns the device's full name. Raises Failure where no such device exists: TensorFlow accepts any
    name, and places the operations of a missing device on the CPU.
    """
    here = [f"{device.device_type}:{index}" for device, index in _numbered(tf.config.list_logical_devices())]
    try:
        asked = tf.DeviceSpec.from_string(given if given.startswith("/") else f"/device:{given}")
        name = f"{asked.device_type}:{asked.device_index or 0}"
    except ValueError:
        name = given
    if name not in here:
        advice = f"; {_GPU_ADVICE}" if name.startswith("GPU:") else ""
        raise program_error(
            f"spec.strategyOptions.{option}: there is no {given} here, only {', '.join(here)}{advice}, "
            f"or leave it out for {default}"
        )
    return f"/device:{name}"


def _mirrored(task: Task) -> tf.distribute.Strategy:
    options: Any = task.config.strategy_options
    chosen = options.get("crossDeviceOps")
    packs = int(options.get("numPacks", 1))
    if chosen == "Nccl":
        _check_nccl(task, "crossDeviceOps: Nccl sums over", "HierarchicalCopy or ReductionToOneDevice")
    ops = {
        None: lambda: None,
        "Nccl": lambda: tf.distribute.NcclAllReduce(num_packs=packs),
        "HierarchicalCopy": lambda: tf.distribute.HierarchicalCopyAllReduce(num_packs=packs),
        "ReductionToOneDevice": lambda: tf.distribute.ReductionToOneDevice(),
    }
    if chosen not in ops:
        raise _unknown("crossDeviceOps", chosen)
    make: Any = ops[chosen]
    given = options.get("devices")
    chosen_devices = (
        _cpus(task) if given is None else [_present("devices", each, "all GPUs or the CPU") for each in given]
    )
    return tf.distribute.MirroredStrategy(devices=chosen_devices, cross_device_ops=make())


def _central_storage(task: Task) -> tf.distribute.Strategy:
    return tf.distribute.experimental.CentralStorageStrategy(compute_devices=_cpus(task))


def _multi_worker_mirrored(task: Task, locate: Locate | None) -> tf.distribute.Strategy:
    options: Any = task.config.strategy_options
    chosen = options.get("communication", "AUTO")
    implementations = tf.distribute.experimental.CommunicationImplementation
    if chosen not in implementations.__members__:
        raise _unknown("communication", chosen)
    if chosen == "NCCL":
        _check_nccl(task, "communication: NCCL connects", "AUTO or RING")
    communication = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=int(options.get("bytesPerPack", 0)), implementation=implementations[chosen]
    )
    with with_local_cpus(len(_cpus(task) or [])):
        return tf.distribute.MultiWorkerMirroredStrategy(
            cluster_resolver=_Resolver(locate),
            communication_options=communication,
        )


def _check_nccl(task: Task, option: str, others: str) -> None:
    """Raises Failure where NCCL has nothing to connect. TensorFlow only warns, or fails in the first step."""
    if not devices.gpus():
        raise program_error(
            f"spec.strategyOptions.{option} GPUs, and there is none here; {_GPU_ADVICE}, or choose {others}"
        )
    if devices.logical_gpus(task) > 1:
        raise program_error(
            f"spec.strategyOptions.{option} GPUs, and not the devices of one GPU (logicalGpus); "
            f"choose {others}"
        )


class _Resolver(tf.distribute.cluster_resolver.TFConfigClusterResolver):  # type: ignore[misc]
    """The cluster of TF_CONFIG, with each task where it is."""

    def __init__(self, locate: Locate | None) -> None:
        super().__init__()
        self._cluster_spec = super().cluster_spec()
        if locate is not None:
            jobs = self._cluster_spec.as_dict()
            places = locate({address for job in jobs.values() for address in job})
            located = {name: [places[address] for address in job] for name, job in jobs.items()}
            self._cluster_spec = tf.train.ClusterSpec(located)

    def cluster_spec(self) -> tf.train.ClusterSpec:
        return self._cluster_spec


def _parameter_server(task: Task) -> tf.distribute.Strategy:
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver(), variable_partitioner=_partitioner(task)
    )
    reach_tables_from_loops()
    if task.config.replicas.get("worker", 0) > 1:
        make_exclusive(strategy)
    return strategy


def _partitioner(task: Task) -> Any:
    """Returns the partitioner of the variables. Its defaults are TensorFlow's, except for MinSize's number of
    shards.
    """
    options: Any = task.config.strategy_options
    module = tf.distribute.experimental.partitioners
    chosen = options.get("partitioner", "MinSize")
    if chosen not in PARTITIONERS:
        raise _unknown("partitioner", chosen)
    make = getattr(module, f"{chosen}Partitioner")
    given = {name: int(options[_camel(name)]) for name in PARTITIONERS[chosen] if _camel(name) in options}
    if chosen == "MinSize":
        given = {
            "min_shard_bytes": _MIN_SHARD_BYTES,
            "max_shards": max(1, len(task.cluster.get("ps", {}))),
            **given,
        }
    return _whole_without_size(make(**given))


def _whole_without_size(partitioner: Any) -> Any:
    """Returns `partitioner` for variables without elements or of unknown size, too, as an adapted
    Discretization layer has. TensorFlow's partitioners fail on them.
    """

    def partitions(shape: tf.TensorShape, dtype: tf.DType, axis: int = 0) -> list[int]:
        if not shape.num_elements():
            return [1] * (shape.rank or 1)
        return list(partitioner(shape, dtype, axis))

    return partitions


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _tpu(task: Task) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:
        reason = str(error).partition("\n")[0].partition(". ")[0] or type(error).__name__
        raise program_error(
            f"spec.strategy: TPU: no TPU was found in this pod ({reason}); "
            "ask for one in resources.limits (google.com/tpu) and use an image with TPU support"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def _cpus(task: Task) -> list[str] | None:
    """Returns the names of the CPU devices, or None for TensorFlow's own choice: all GPUs, else the CPU."""
    count = devices.logical_cpus(task)
    return [f"/device:CPU:{index}" for index in range(count)] if count > 1 else None


def _numbered(given: list[Any]) -> Iterator[tuple[Any, int]]:
    for device in given:
        yield device, tf.DeviceSpec.from_string(device.name).device_index


def _unknown(option: str, value: Any) -> Failure:
    return program_error(f"spec.strategyOptions.{option}: this image does not know {value!r}")
