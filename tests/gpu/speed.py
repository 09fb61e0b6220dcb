"""The runtime against a loop written by hand, on one GPU: ResNet-50 with batches of 256 and a transformer of
110 million parameters, on a batch that is there already. Then ResNet-50 on images that the processor makes
anew for each batch, without and with data workers: how much of the time the GPU waits for them.

Both ways train the same model with the same optimizer, one after the other. A rate is that of the median
epoch after the first. The time to the first step is from the process' start. With --tiny the models are so
small that a processor trains them, which tries the harness and says nothing of a GPU.
"""

from __future__ import annotations

import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import recording
from benchmarks.measuring import ROOT, table
from tests.worker.cluster import running
from worker.contract.records import Devices, Event, Progress
from worker.contract.task_names import DATA_WORKER, DISPATCHER

PROGRAMS = ROOT / "benchmarks" / "programs"
MODELS = {"resnet": (256, 20), "transformer": (64, 60)}
"""Examples of a batch, and steps of an epoch."""
TINY = {"resnet": (4, 6), "transformer": (8, 10)}
EPOCHS = 4
DATA_WORKERS = 4
_SECONDS = 300
_FIRST = re.compile(r"^first step at ([\d.]+)$", re.MULTILINE)
_EPOCH = re.compile(r"^epoch \d+ at ([\d.]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One model, how large it and its batches are, and where its data come from."""

    model: str
    tiny: bool
    keras: int
    input: str = "constant"
    data_workers: int = 0

    @property
    def batch(self) -> int:
        """Returns the examples of a step."""
        return (TINY if self.tiny else MODELS)[self.model][0]

    @property
    def steps(self) -> int:
        """Returns the steps of an epoch."""
        return (TINY if self.tiny else MODELS)[self.model][1]

    @property
    def size(self) -> str:
        """Returns the program's word for it."""
        return "tiny" if self.tiny else "whole"


@dataclass(frozen=True)
class Measured:
    """`rate` is in examples a second, `first` in seconds from the start of the process to the first step."""

    rate: float
    first: float


def by_hand(case: Case) -> Measured:
    """Trains by a loop of its own."""
    arguments = [case.model, case.batch, case.steps, EPOCHS, case.size, case.input]
    environment = {
        **os.environ,
        "TF_USE_LEGACY_KERAS": "0" if case.keras == 3 else "1",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    began = time.time()
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "accelerated.py"), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    ends = [float(text) for text in _EPOCH.findall(done.stdout)]
    first = _FIRST.search(done.stdout)
    if done.returncode or len(ends) != EPOCHS or first is None:
        raise RuntimeError(f"the loop by hand ended with {done.returncode}: {done.stderr[-2000:]}")
    return Measured(_rate(case, ends), float(first[1]) - began)


def by_runtime(case: Case) -> Measured:
    """Trains by the runtime, without a model directory: no checkpoint is in the way."""
    replicas = {"chief": 1}
    if case.data_workers:
        replicas |= {DISPATCHER: 1, DATA_WORKER: case.data_workers}
    parameters = {
        "epochs": EPOCHS,
        "stepsPerEpoch": case.steps,
        "globalBatchSize": case.batch,
        "model": case.model,
        "size": case.size,
        "input": case.input,
    }

    def variables(role: str, index: int) -> Mapping[str, str]:
        return {} if role == "chief" else {"CUDA_VISIBLE_DEVICES": "-1"}

    with (
        tempfile.TemporaryDirectory() as folder,
        running(
            Path(folder),
            replicas=replicas,
            strategy="OneDevice",
            entrypoint="accelerated:Program",
            source=PROGRAMS,
            parameters=parameters,
            model_dir=None,
            keras=case.keras,
            variables=variables,
            stall_seconds=_SECONDS,
            starting_deadline_seconds=_SECONDS,
        ) as cluster,
    ):
        for role, index in cluster.addresses:
            if role != "chief":
                cluster.start(role, index)
        began = time.time()
        chief = cluster.start("chief")
        code = chief.ended(_SECONDS)
        if code:
            raise RuntimeError(f"the runtime ended with {code}: {chief.output[-2000:]}")
        devices = chief.records(Event.DEVICES)[0].content
        assert isinstance(devices, Devices)
        if not case.tiny and all(device.type != "GPU" for device in devices.devices):
            raise RuntimeError("TensorFlow sees no GPU here: --tiny tries the harness on a processor")
        timed_contents = [(record.time, record.content) for record in chief.records(Event.PROGRESS)]
    progress = [(at, content) for at, content in timed_contents if isinstance(content, Progress)]
    ends = [at for at, content in progress if content.epoch_end]
    return Measured(_rate(case, ends), progress[0][0] - began)


def _rate(case: Case, ends: Sequence[float]) -> float:
    return case.steps * case.batch / statistics.median(b - a for a, b in itertools.pairwise(ends))


def against_hand(model: str, tiny: bool, keras: int, rounds: int) -> tuple[Sequence[str], str]:
    """Returns a row of the table, and a line that says the same."""
    case = Case(model, tiny, keras)
    ratios, hands, runtimes = [], [], []
    for _ in range(rounds):
        hands.append(by_hand(case))
        runtimes.append(by_runtime(case))
        ratios.append(runtimes[-1].rate / hands[-1].rate)
    hand, runtime, ratio = hands[-1], runtimes[-1], statistics.median(ratios)
    shown = [f"{hand.rate:,.0f}", f"{runtime.rate:,.0f}", f"{ratio:.3f}"]
    first = [f"{hand.first:.1f} s", f"{runtime.first:.1f} s"]
    line = (
        f"{model}, Keras {keras}, batch {case.batch}: {shown[0]} examples/s by hand, {shown[1]} by the "
        f"runtime, ratio {shown[2]}; first step after {first[0]} and {first[1]}"
    )
    return [f"{model}, Keras {keras}", f"{case.batch}", *shown, *first], line


def waiting(tiny: bool, keras: int) -> tuple[Sequence[Sequence[str]], str]:
    """Returns rows and a line: the rate with images that are made anew, without and with data workers."""
    limit = by_runtime(Case("resnet", tiny, keras)).rate
    rows, shares = [], []
    for workers in (0, 1 if tiny else DATA_WORKERS):
        rate = by_runtime(Case("resnet", tiny, keras, "mapped", workers)).rate
        share = max(0.0, 1 - rate / limit)
        rows.append([f"{workers}", f"{rate:,.0f}", f"{100 * share:.0f} %"])
        shares.append(f"{100 * share:.0f} % with {workers} data workers")
    return (
        rows,
        f"of the time the device waits for its input: {', '.join(shares)} ({limit:,.0f} examples/s at most)",
    )


def main() -> None:
    """Measures and prints."""
    parser = recording.parser("tests.gpu.speed", str(__doc__), 1)
    parser.add_argument("--tiny", action="store_true", help="models that a processor trains")
    parser.add_argument("--only", default="resnet,transformer,input", help="(%(default)s)")
    parser.add_argument("--keras", type=int, choices=(2, 3), default=3, help="(%(default)s)")
    parser.add_argument("--line", action="store_true", help="print a line for each, without a table")
    options = parser.parse_args()
    # A start is that of a Python of its own.
    os.environ["LAUNCHER_TEST_FRESH"] = "1"
    chosen = options.only.split(",")
    rows: list[Sequence[str]] = []
    lines: list[str] = []
    inputs: Sequence[Sequence[str]] = []
    for model in (model for model in MODELS if model in chosen):
        row, line = against_hand(model, options.tiny, options.keras, options.rounds)
        rows.append(row)
        lines.append(line)
    if "input" in chosen:
        inputs, line = waiting(options.tiny, options.keras)
        lines.append(line)
    if options.line:
        print("; ".join(lines))
        return
    heads: list[str] = ["model", "batch", "by hand, examples/s", "runtime, examples/s", "ratio"]
    text = table([*heads, "first step by hand", "first step, runtime"], rows) if rows else ""
    if inputs:
        text += "\n\n" + table(["data workers", "examples/s", "waits for input"], inputs)
    recording.publish("gpu", text, record=options.record)


if __name__ == "__main__":
    main()
