"""The devices that this task's TensorFlow uses, and whether they are those that the task asked for."""

from __future__ import annotations

import os
import platform
from collections import Counter
from pathlib import Path
from typing import Any, Final

import tensorflow as tf

from worker.contract.environment import Env
from worker.contract.records import Device, Devices
from worker.contract.version import VERSION
from worker.failures import program_error
from worker.reporting import Reporter
from worker.task import Task
from worker.tf_compat import versions
from worker.tf_compat.strategies import uses_coordinator

_CPU_INFO = Path("/proc/cpuinfo")


def report(task: Task, reporter: Reporter, strategy: Any = None, tasks: int = 0) -> None:
    """Emits `Devices`. `tasks` is how many tasks take steps; `strategy` is None in a task without one.

    It starts no device, since the server, which is made later, must do that.
    """
    if strategy is not None:
        # Under ParameterServer the strategy's number is that of one worker.
        several = tasks if uses_coordinator(strategy) else 1
        replicas = strategy.num_replicas_in_sync * several
    else:
        replicas = tasks * max(1, len(gpus()))
    made = Devices(replicas, tasks, _devices(), tf.version.VERSION, _lacking(task), _runtime(task))
    reporter.emit(made)
    if task.is_primary and (notice := versions.untested(tf.version.VERSION)):
        reporter.notice(notice)


def on_server(role: str, index: int) -> Any:
    """Returns a context in which operations are placed on the server of that task."""
    return tf.device(f"/job:{role}/replica:0/task:{index}/device:CPU:0")


def prepare(task: Task) -> None:
    """Divides each GPU into `logicalGpus` devices of at most `gpuMemoryMB`, or the CPU into `logicalCpus`
    where there is no GPU. Call it before TensorFlow's first operation.
    """
    parts = [_part(task)] * logical_gpus(task)
    for gpu in gpus():
        if parts != [_WHOLE]:
            _divide(gpu, parts)
    count = logical_cpus(task)
    if count > 1:
        (cpu, *_) = tf.config.list_physical_devices("CPU")
        _divide(cpu, [_WHOLE] * count)


def server_options(task: Task) -> Any:
    """Returns the configuration of this task's server, which does not follow `prepare`; None where it needs
    none.
    """
    limit = _part(task).memory_limit
    if limit is None or not gpus():
        return None
    config = tf.compat.v1.ConfigProto()
    for _ in gpus():
        config.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[limit])
    return config


def logical_gpus(task: Task) -> int:
    """Returns into how many devices each GPU is divided."""
    return int(task.config.strategy_options.get("logicalGpus", 1))


def logical_cpus(task: Task) -> int:
    """Returns the number of logical CPUs; 1 where there are GPUs, which are then the devices."""
    count = int(task.config.strategy_options.get("logicalCpus", 1))
    return 1 if count == 1 or gpus() else count


def gpus() -> list[Any]:
    """Returns the GPUs that TensorFlow sees. It starts none."""
    return list(tf.config.list_physical_devices("GPU"))


_WHOLE: Final = tf.config.LogicalDeviceConfiguration()


def _part(task: Task) -> Any:
    return tf.config.LogicalDeviceConfiguration(task.config.strategy_options.get("gpuMemoryMB"))


def _divide(device: Any, parts: list[Any]) -> None:
    if tf.config.get_logical_device_configuration(device) != parts:
        tf.config.set_logical_device_configuration(device, parts)


def check(task: Task) -> None:
    """Raises Failure where TensorFlow is too old, or where the task asked for GPUs, has none, and may not do
    without.

    Where resources have no effect, as on one machine, a missing GPU is no failure.
    """
    if complaint := versions.too_old(tf.version.VERSION):
        raise program_error(f"{complaint}; use a newer image (spec.image, or the role's own)")
    lacking = _lacking(task)
    if not lacking or task.role in task.config.allow_cpu or Env.LOCAL in os.environ:
        return
    if tf.test.is_built_with_gpu_support():
        advice = "run nvidia-smi in the pod to see whether the node's driver is there and fits this image"
    else:
        advice = (
            "it is built without GPU support: use an image with a TensorFlow that has it (spec.image, or the "
            "role's own)"
        )
    raise program_error(
        f"resources ask for {lacking}, and TensorFlow {tf.version.VERSION} sees no GPU here; {advice}, or let"
        f" the {task.role} continue with the CPU by allowCpu: true"
    )


def _runtime(task: Task) -> str:
    if task.role in task.config.travels:
        return f"{VERSION} that travels with the run"
    return f"{VERSION} {'of this machine' if Env.LOCAL in os.environ else 'of the image'}"


def _lacking(task: Task) -> str:
    """Returns the GPUs that the task asked for if it has none; else ""."""
    asked = task.config.gpus.get(task.role, "")
    return "" if not asked or gpus() else asked


def _devices() -> list[Device]:
    """Returns each kind of device once, such as `Device("GPU", "NVIDIA A100-SXM4-40GB", 8)`."""
    kinds: Counter[tuple[str, str]] = Counter()
    for device in tf.config.list_physical_devices():
        logical = tf.config.get_logical_device_configuration(device) or [None]
        kinds[device.device_type, _name(device)] += len(logical)
    return [Device(kind, name, count) for (kind, name), count in kinds.items()]


def _name(device: Any) -> str:
    if device.device_type == "CPU":
        return _cpu_name()
    details = tf.config.experimental.get_device_details(device) if device.device_type == "GPU" else {}
    return str(details.get("device_name", device.name))


def _cpu_name() -> str:
    """Returns the kernel's name of the CPU, or its architecture: the kernel has no name for an
    ARM processor.
    """
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.machine()
