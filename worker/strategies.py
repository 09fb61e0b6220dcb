"""The strategy of a run, built by its name and options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from worker.contract.strategies import PARTITIONERS
from worker.failures import Failure, program_error
from worker.task import Task
from worker.tf_compat.exclusive_updates import make_exclusive
from worker.tf_compat.lookup_tables import reach_tables_from_loops
from worker.tf_compat.strategies import with_local_cpus

_MIN_SHARD_BYTES = 256 << 10
"""The value of TensorFlow's parameter-server tutorial: smaller pieces cost more messages than they save."""
_GPU_ADVICE = "ask for nvidia.com/gpu in resources and use an image with GPU support"


def prepare(task: Task) -> None:
    """Divides the CPU into `logicalCpus` devices where there is no GPU. Call it before TensorFlow's first
    operation.
    """
    count = _logical_cpus(task)
    if count == 1:
        return
    (cpu, *_) = tf.config.list_physical_devices("CPU")
    if len(tf.config.get_logical_device_configuration(cpu) or ()) == count:
        return
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)


def build(task: Task) -> tf.distribute.Strategy:
    """Builds the strategy `task.config.strategy` in a task that runs the training loop.

    ParameterServer: every worker and ps must answer before, or the call blocks without a limit. Within
    `Membership` it connects to those that do.
    MultiWorkerMirrored: the call blocks until all tasks make it, and no TensorFlow operation may run before.
    Raises Failure, which names the option, for a strategy that does not work with the devices here.
    """
    builders = {
        "OneDevice": _one_device,
        "Mirrored": _mirrored,
        "CentralStorage": _central_storage,
        "MultiWorkerMirrored": _multi_worker_mirrored,
        "ParameterServer": _parameter_server,
        "TPU": _tpu,
    }
    name = task.config.strategy
    if name not in builders:
        raise program_error(f"spec.strategy: this image knows {', '.join(builders)}, not {name!r}")
    prepare(task)
    return builders[name](task)


def _one_device(task: Task) -> tf.distribute.Strategy:
    given = task.config.strategy_options.get("device")
    if given is None:
        return tf.distribute.OneDeviceStrategy("/gpu:0" if _gpus() else "/cpu:0")
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
    if chosen == "Nccl" and not _gpus():
        raise program_error(
            "spec.strategyOptions.crossDeviceOps: Nccl sums over GPUs, and there is none here; "
            f"{_GPU_ADVICE}, or choose HierarchicalCopy or ReductionToOneDevice"
        )
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
    devices = (
        _cpus(task) if given is None else [_present("devices", each, "all GPUs or the CPU") for each in given]
    )
    return tf.distribute.MirroredStrategy(devices=devices, cross_device_ops=make())


def _central_storage(task: Task) -> tf.distribute.Strategy:
    return tf.distribute.experimental.CentralStorageStrategy(compute_devices=_cpus(task))


def _multi_worker_mirrored(task: Task) -> tf.distribute.Strategy:
    options: Any = task.config.strategy_options
    chosen = options.get("communication", "AUTO")
    implementations = tf.distribute.experimental.CommunicationImplementation
    if chosen not in implementations.__members__:
        raise _unknown("communication", chosen)
    if chosen == "NCCL" and not _gpus():
        # TensorFlow only warns, and uses RING.
        raise program_error(
            "spec.strategyOptions.communication: NCCL connects GPUs, and there is none here; "
            f"{_GPU_ADVICE}, or choose AUTO or RING"
        )
    communication = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=int(options.get("bytesPerPack", 0)), implementation=implementations[chosen]
    )
    with with_local_cpus(len(_cpus(task) or [])):
        return tf.distribute.MultiWorkerMirroredStrategy(
            cluster_resolver=tf.distribute.cluster_resolver.TFConfigClusterResolver(),
            communication_options=communication,
        )


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


def _gpus() -> list[Any]:
    return list(tf.config.list_physical_devices("GPU"))


def _logical_cpus(task: Task) -> int:
    """Returns the number of logical CPUs; 1 where there are GPUs, which are then the devices."""
    count = int(task.config.strategy_options.get("logicalCpus", 1))
    return 1 if count == 1 or _gpus() else count


def _cpus(task: Task) -> list[str] | None:
    """Returns the names of the CPU devices, or None for TensorFlow's own choice: all GPUs, else the CPU."""
    count = _logical_cpus(task)
    return [f"/device:CPU:{index}" for index in range(count)] if count > 1 else None


def _numbered(devices: list[Any]) -> Iterator[tuple[Any, int]]:
    for device in devices:
        yield device, tf.DeviceSpec.from_string(device.name).device_index


def _unknown(option: str, value: Any) -> Failure:
    return program_error(f"spec.strategyOptions.{option}: this image does not know {value!r}")
