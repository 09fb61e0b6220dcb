"""What `make test-gpu` checks. A check returns what it found, as a text, or raises AssertionError."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.gpu.machine import Machine
from tests.worker.cluster import ROOT, Cluster, RunningTask, running
from tests.worker.matrix import driving, judging
from tests.worker.matrix.cells import STRATEGIES, Cell
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Event

SHAPES: Final = ("functional", "recurrent", "embedding-adam", "mixed-precision", "unequal-last")
STYLES: Final = ("fit", "keras-3")
COLUMNS: Final = (
    "OneDevice",
    "Mirrored-2",
    "MultiWorkerMirrored",
    "ParameterServer",
    "ParameterServer-evaluator",
)
ONE: Final = {"chief": 1}
_KILLS: Final = 20
_HOARD: Final = 0.55
"""Part of a GPU's memory: a process that finds another's of the same size still there gets too little."""
_STALL_SECONDS: Final = 170
"""A first step loads libraries of gigabytes, and compiles kernels for a GPU that is newer than TensorFlow."""
_LEFT_MB: Final = 64
_OWN_MB: Final = 4096
"""More than CUDA, cuDNN and cuBLAS take for themselves."""

Function = Callable[[Machine, Path], str]


@dataclass(frozen=True)
class Check:
    """`alone`: nothing else may be on the device. `kinds`: what it can be checked on."""

    part: str
    what: str
    function: Function
    alone: bool = False
    kinds: Sequence[str] = ("GPU", "CPU")


# ---- what is there

_SEEN = """
import json, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
import tensorflow as tf
kind = {kind!r}
devices = tf.config.list_physical_devices(kind)
if not devices:
    raise SystemExit("TensorFlow sees no " + kind)
@tf.function(jit_compile=True)
def compiled(x):
    return tf.reduce_sum(tf.tanh(x @ x))
with tf.device(kind + ":0"):
    x = tf.random.stateless_normal([256, 256], seed=(1, 2)) / 16
    plain, by_xla = float(tf.reduce_sum(tf.tanh(x @ x))), float(compiled(x))
    image = tf.nn.conv2d(tf.ones([1, 8, 8, 3]), tf.ones([3, 3, 3, 4]), 1, "SAME")
assert kind in image.device, image.device
assert abs(plain - by_xla) < 0.05 * max(1.0, abs(plain)), (plain, by_xla)
build = tf.sysconfig.get_build_info()
print(json.dumps([tf.version.VERSION, build.get("cuda_version", "none"), len(devices)]))
"""


def seen(machine: Machine, folder: Path) -> str:
    """TensorFlow has the device; a matrix product, a convolution (cuDNN) and XLA (ptxas, libdevice) run."""
    environment = {**os.environ, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if machine.kind == "CPU":
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    code = _SEEN.format(kind=machine.kind)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_STALL_SECONDS,
        cwd=folder,
    )
    (folder / "seen.log").write_text(done.stdout + done.stderr)
    if done.returncode:
        raise AssertionError(f"{done.stderr[-1500:]} (whole in {folder / 'seen.log'})")
    version, cuda, count = json.loads(done.stdout.splitlines()[-1])
    return f"{count} {machine.kind}, TensorFlow {version}, CUDA {cuda}; a convolution and XLA ran"


# ---- the matrix


@dataclass(frozen=True)
class Placed:
    """Where the tasks of a column run: see `driving.Placement`."""

    machine: Machine
    devices: int

    def config(self, strategy: str, replicas: Mapping[str, int]) -> Mapping[str, Any]:
        return self.machine.config(strategy, replicas, self.devices)

    def variables(self, strategy: str, role: str, index: int) -> Mapping[str, str]:
        return self.machine.variables(strategy, role, index, self.devices)


def column(machine: Machine, folder: Path, name: str, shapes: Sequence[str] = SHAPES) -> str:
    """Trains programs of several shapes, of both Keras, as the matrix does, and compares them with one
    process on the same device.
    """
    cells = [Cell(name, style, shape) for style in STYLES for shape in shapes]
    devices = int(STRATEGIES[name].options.get("logicalCpus", 1))
    outcomes = driving.run(name, cells, folder / "matrix" / name, Placed(machine, devices))
    references = driving.references(folder / "matrix" / "plain", every_cell(shapes))
    tolerances = judging.ON_CPUS if machine.kind == "CPU" else judging.ON_GPUS
    wrong, most, refused = [], (0.0, ""), 0
    for cell in cells:
        cells_folder, plain = folder / "matrix" / name, folder / "matrix" / "plain"
        verdict = judging.judge(cell, outcomes[cell], references, cells_folder, plain, tolerances)
        refused += verdict.kind == "refused"
        if verdict.kind == "failed":
            wrong.append(f"{cell}: {verdict.why[:400]}")
        elif cell.shape != "mixed-precision":
            largest = max(verdict.differences.values(), default=0.0)
            most = max(most, (largest, str(cell)))
    if wrong:
        raise AssertionError(f"{len(wrong)} of {len(cells)} cells: {'; '.join(wrong)}")
    trained = f"{len(cells) - refused} cells train, {refused} refused as expected"
    return f"{trained}; at most {most[0]:.1g} off ({most[1]})"


def every_cell(shapes: Sequence[str]) -> list[Cell]:
    """Returns the cells of all columns, whose references are made once."""
    return [Cell(name, style, shape) for name in COLUMNS for style in STYLES for shape in shapes]


# ---- single runs


@contextlib.contextmanager
def _cluster(
    machine: Machine,
    folder: Path,
    strategy: str = "OneDevice",
    replicas: Mapping[str, int] = ONE,
    devices: int = 1,
    memory_mb: int | None = None,
    options: Mapping[str, Any] | None = None,
    apart: bool = True,
    **config: Any,
) -> Iterator[Cluster]:
    """A run. `apart`: where there are several GPUs, its tasks have different ones."""
    given = machine.config(strategy, replicas, devices, memory_mb)
    given["strategy_options"] = {**given["strategy_options"], **(options or {})}

    def variables(role: str, index: int) -> Mapping[str, str]:
        return machine.variables(strategy, role, index if apart else 0, devices)

    with running(
        folder,
        strategy=strategy,
        replicas=replicas,
        variables=variables,
        **{**given, "stall_seconds": _STALL_SECONDS, **config},
    ) as cluster:
        yield cluster


def _ended(task: RunningTask, code: int) -> None:
    exit_code = task.ended()
    if exit_code != code:
        raise AssertionError(f"{task.name} ended with {exit_code}, not {code}: {task.output[-1500:]}")


def _failure(task: RunningTask) -> str:
    failed = task.records(Event.FAILED)
    if len(failed) != 1:
        raise AssertionError(f"{len(failed)} messages of a failure: {task.output[-1500:]}")
    return str(failed[0].fields["message"])


def _loss(task: RunningTask) -> float:
    records = task.records(Event.PROGRESS)
    if not records:
        raise AssertionError(f"{task.name} has ended without a step: {task.output[-1500:]}")
    return float(records[-1].fields["loss"])


def precision(machine: Machine, folder: Path) -> str:
    """Both Keras train in float16, whose loss is scaled, and bfloat16 as in float32."""
    notes = []
    for keras in (2, 3):
        losses = {}
        for policy in ("float32", "mixed_float16", "mixed_bfloat16"):
            parameters = {"epochs": 4, "stepsPerEpoch": 40, "policy": policy}
            run_folder = folder / f"{policy}-{keras}"
            with _cluster(
                machine, run_folder, entrypoint="hoarding:Precise", keras=keras, parameters=parameters
            ) as cluster:
                task = cluster.start("chief")
                _ended(task, 0)
                losses[policy] = _loss(task)
        for loss in losses.values():
            if not abs(loss - losses["float32"]) < 0.02 + 0.1 * losses["float32"]:
                raise AssertionError(f"Keras {keras}: {losses}")
        notes.append(f"Keras {keras}: " + ", ".join(f"{loss:.4f}" for loss in losses.values()))
    return "losses in float32, float16, bfloat16: " + "; ".join(notes)


def xla(machine: Machine, folder: Path) -> str:
    """jit_compile=True computes on one device what it does without, and is refused by name elsewhere."""
    losses = {}
    for compiled in (False, True):
        run_folder = folder / f"compiled-{compiled}"
        with _cluster(
            machine, run_folder, entrypoint="fitted:Fitted", parameters={"epochs": 2, "xla": compiled}
        ) as cluster:
            task = cluster.start("chief")
            _ended(task, 0)
            losses[compiled] = _loss(task)
    if abs(losses[True] - losses[False]) > judging.ON_GPUS.whole * max(1.0, losses[False]):
        raise AssertionError(f"losses with and without XLA: {losses}")
    elsewhere: dict[str, Any] = {
        "for several replicas": {"strategy": "Mirrored", "devices": 2},
        "under ParameterServer": {
            "strategy": "ParameterServer",
            "replicas": {"chief": 1, "worker": 1, "ps": 1},
        },
    }
    for where, given in elsewhere.items():
        run_folder = folder / where.replace(" ", "-")
        with _cluster(
            machine, run_folder, entrypoint="fitted:Fitted", parameters={"epochs": 1, "xla": True}, **given
        ) as cluster:
            tasks = cluster.start_all()
            _ended(tasks["chief", 0], ExitCode.PROGRAM_ERROR)
            message = _failure(tasks["chief", 0])
            if f"cannot compile a step by XLA {where}" not in message:
                raise AssertionError(message)
    return f"losses {losses[True]:.6f} with and {losses[False]:.6f} without"


def nccl(machine: Machine, folder: Path) -> str:
    """NCCL connects two tasks with a GPU each. Two on one GPU are told so in one message."""
    notes = []
    given: Any = {
        "strategy": "MultiWorkerMirrored",
        "replicas": {"worker": 2},
        "options": {"communication": "NCCL"},
    }
    if machine.gpus > 1:
        with _cluster(machine, folder / "distinct", parameters={"epochs": 2}, **given) as cluster:
            for task in cluster.start_all().values():
                _ended(task, 0)
        notes.append("trains on two GPUs")
    with _cluster(machine, folder / "shared", parameters={"epochs": 1}, apart=False, **given) as cluster:
        tasks = list(cluster.start_all().values())
        codes = [task.ended() for task in tasks]
        messages = [str(each.fields["message"]) for task in tasks for each in task.records(Event.FAILED)]
    if ExitCode.PROGRAM_ERROR not in codes or not any("NCCL cannot connect" in each for each in messages):
        raise AssertionError(f"on one GPU: exit codes {codes}, {messages}")
    return "; ".join([*notes, "refused between two tasks on one GPU"])


def nccl_refused(machine: Machine, folder: Path) -> str:
    """NCCL between devices that are none of its own is refused by name, before the training."""
    with _cluster(
        machine,
        folder,
        strategy="Mirrored",
        devices=2 * max(1, machine.gpus),
        options={"crossDeviceOps": "Nccl"},
    ) as cluster:
        task = cluster.start("chief")
        _ended(task, ExitCode.PROGRAM_ERROR)
        message = _failure(task)
    if not message.startswith("spec.strategyOptions.crossDeviceOps: Nccl sums over GPUs"):
        raise AssertionError(message)
    return message


# ---- memory


def too_much(machine: Machine, folder: Path) -> str:
    """A step that needs more memory than there is: one message, with what takes less."""
    with _cluster(machine, folder, entrypoint="tiny:Huge") as cluster:
        task = cluster.start("chief")
        _ended(task, ExitCode.PROGRAM_ERROR)
        message = _failure(task)
    if (
        not message.startswith("the memory did not suffice while training")
        or "globalBatchSize" not in message
    ):
        raise AssertionError(message)
    return message[:160]


def limit(machine: Machine, folder: Path) -> str:
    """A task is bounded by gpuMemoryMB: three times as much is refused, and half of it is not."""
    part = machine.part_mb
    for hoard, code in ((3 * part, ExitCode.PROGRAM_ERROR), (part // 2, 0)):
        run_folder = folder / f"hoard-{hoard}"
        with _cluster(
            machine,
            run_folder,
            entrypoint="hoarding:Hoarder",
            parameters={"epochs": 1, "hoardMiB": hoard},
            model_dir=None,
        ) as cluster:
            task = cluster.start("chief")
            _ended(task, code)
            if code and "gpuMemoryMB" not in _failure(task):
                raise AssertionError(_failure(task))
    return f"with gpuMemoryMB {part}: {3 * part} MiB refused, {part // 2} MiB trains"


def growth(machine: Machine, folder: Path) -> str:
    """A task takes what it needs, and not the whole GPU."""
    before, hoard = machine.used_mb(), 256
    parameters = {"epochs": 10000, "hoardMiB": hoard, "waitMilliseconds": 5}
    with _cluster(
        machine, folder, memory_mb=0, entrypoint="hoarding:Hoarder", parameters=parameters
    ) as cluster:
        cluster.start("chief").until(Event.PROGRESS)
        taken = machine.used_mb() - before
    if not hoard <= taken < hoard + _OWN_MB:
        raise AssertionError(f"{taken} MiB are taken where {hoard} are needed ({before} MiB before)")
    return f"{taken} MiB of {machine.memory_mb} taken, {hoard} of them by the program"


def starter(machine: Machine, folder: Path) -> str:
    """The process that forks training processes has no GPU open; its training process has."""
    parameters = {"epochs": 10000, "waitMilliseconds": 20}
    with _cluster(machine, folder, restarts_in_place=3, parameters=parameters) as cluster:
        task = cluster.start("chief")
        task.until(Event.PROGRESS)
        parent, child = _training(task)
        opened = {pid: _devices(pid) for pid in (parent, child)}
    if parent == child:
        raise AssertionError("the training process is the starter itself: it cannot be forked")
    if opened[parent]:
        raise AssertionError(f"the starter has open: {sorted(opened[parent])}")
    if machine.kind == "GPU" and not opened[child]:
        raise AssertionError("the training process has no device of NVIDIA's open: the check sees nothing")
    return f"the starter has none open, its training process {len(opened[child])}"


def kills(machine: Machine, folder: Path, times: int = _KILLS) -> str:
    """Ends the training process again and again: each next one finds the memory that it needs."""
    hoard = int(machine.memory_mb * _HOARD)
    parameters = {"epochs": 100000, "stepsPerEpoch": 50, "hoardMiB": hoard, "waitMilliseconds": 5}
    with _cluster(
        machine,
        folder,
        memory_mb=0,
        entrypoint="hoarding:Hoarder",
        parameters=parameters,
        checkpoints={"everySteps": 5},
        restarts_in_place=10 * times,
    ) as cluster:
        task = cluster.start("chief")
        began = time.monotonic()
        for number in range(times):
            task.eventually(partial(_stepped, task, number), f"a step after {number} kills")
            if number == 0:
                began = time.monotonic()
            os.kill(_training(task)[1], signal.SIGKILL)
        task.eventually(partial(_stepped, task, times), f"a step after {times} kills")
        seconds = (time.monotonic() - began) / times
        failed = [record.fields for record in task.records(Event.FAILED)]
        measured = task.records(Event.GPU_USE)
        task.signal(signal.SIGTERM)
        _ended(task, ExitCode.PREEMPTED)
    others = [fields["message"] for fields in failed if fields["exit_code"] != 128 + signal.SIGKILL]
    if others or len(failed) != times:
        raise AssertionError(f"{len(failed)} failures after {times} kills: {others[:3]}")
    note = f"{seconds:.1f} s from a kill to the next step"
    if machine.kind == "CPU":
        return note
    if not any(max(record.fields["memory"], default=0) >= hoard for record in measured):
        raise AssertionError(f"no record of nvidia-smi has {hoard} MiB: {[r.fields for r in measured][:9]}")
    return f"{note}, {hoard} MiB each; {len(measured)} records of nvidia-smi"


def free(machine: Machine, folder: Path) -> str:
    """What all these runs have taken is free again."""
    deadline = time.monotonic() + 20.0
    while (left := machine.used_mb() - machine.used_before_mb) > _LEFT_MB:
        if time.monotonic() > deadline:
            raise AssertionError(f"{left} MiB more are in use than before the first check")
        time.sleep(0.5)
    return f"{left} MiB more than before the first check"


def _stepped(task: RunningTask, restarts: int) -> bool:
    """Whether the training has gone on after so many restarts, and has saved a step of its own: what is
    killed twice before that is not started again.
    """
    records = task.records()
    places = [place for place, record in enumerate(records) if record.event == Event.RESTARTED]
    if len(places) < restarts:
        return False
    later = records[places[restarts - 1] if restarts else 0 :]
    saved = [record.fields["taken"] for record in later if record.event == Event.CHECKPOINT]
    return any(taken > later[0].time for taken in saved)


def _training(task: RunningTask) -> tuple[int, int]:
    """Returns the starter and the training process of a task."""
    starters = [child for child in _children(task.process.pid) if _command(child) != "nvidia-smi"]
    if len(starters) != 1:
        raise AssertionError(f"{task.name} has the children {starters}")
    (parent,) = starters
    return parent, next(iter(_children(parent)), parent)


def _children(parent: int) -> list[int]:
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[1]) == parent and fields[0] != b"Z":
                    processes.append(int(entry.name))
    return processes


def _command(process: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/comm").read_text().strip()
    return ""


def _devices(process: int) -> set[str]:
    """Returns the devices of NVIDIA's that a process has open."""
    paths = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            paths.add(str(descriptor.readlink()))
    return {path for path in paths if path.startswith("/dev/nvidia")}


# ---- speed


def _speed(only: str, keras: int) -> Function:
    return partial(speed, only=only, keras=keras)


def speed(machine: Machine, folder: Path, only: str, keras: int) -> str:
    """See tests/gpu/speed.py."""
    environment = {**os.environ, **machine.variables("OneDevice", "chief", 0), "PYTHONPATH": str(ROOT)}
    environment.pop("NVIDIA_TF32_OVERRIDE", None)
    command = [sys.executable, "-m", "tests.gpu.speed", "--line", "--only", only, "--keras", str(keras)]
    if machine.kind == "CPU":
        command.append("--tiny")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, cwd=ROOT)
    (folder / "speed.log").write_text(done.stdout + done.stderr)
    if done.returncode:
        raise AssertionError(done.stderr[-1500:] or done.stdout[-1500:])
    return done.stdout.splitlines()[-1]


CHECKS: Final = (
    Check("machine", "TensorFlow, cuDNN and XLA on the device", seen, alone=True),
    *(Check("matrix", STRATEGIES[name].title, partial(column, name=name)) for name in COLUMNS),
    Check("memory", f"enough after each of {_KILLS} kills", kills),
    Check("precision", "float16 with a scaled loss, bfloat16", precision),
    Check("xla", "jit_compile on one device, refused elsewhere", xla),
    Check("nccl", "between tasks", nccl, kinds=("GPU",)),
    Check("nccl", "refused where devices are not distinct", nccl_refused),
    Check("memory", "one message where it does not suffice", too_much),
    Check("starter", "has no GPU open before it forks", starter),
    Check("memory", "a limit for each task (gpuMemoryMB)", limit, alone=True, kinds=("GPU",)),
    Check("memory", "a task takes what it needs", growth, alone=True, kinds=("GPU",)),
    Check("memory", "free again", free, alone=True, kinds=("GPU",)),
    Check("speed", "ResNet-50 by Keras 2, against a loop by hand", _speed("resnet", 2), alone=True),
    Check("speed", "a transformer by Keras 3, against a loop by hand", _speed("transformer", 3), alone=True),
    Check("speed", "waiting for input, without and with data workers", _speed("input", 3), alone=True),
)
