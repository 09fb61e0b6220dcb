"""What the launcher adds to a start: from `submit --backend local` to the first training step, against the
same five processes started by hand with the same TF_CONFIG. Once with the runtime that is installed, and once
with the one that travels.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks import recording
from benchmarks.measuring import ENVIRONMENT, ROOT, table
from launcher import plan_of_file
from launcher.validation import loader
from launcher.validation.loader import Loaded
from worker.contract.environment import Env
from worker.contract.records import Event, Record
from worker.contract.task_names import pod_name

DEMO = ROOT / "examples" / "fashion-mnist" / "cluster.yaml"
# Short, since only the start is looked at.
SHORT = ("spec.program.parameters.epochs=1", "spec.program.parameters.stepsPerEpoch=10")
SECONDS = 300


def launched(directory: Path, runtime: str) -> float:
    """Seconds from `submit` to the first step, with `runtime` as spec.runtime."""
    environment = {**ENVIRONMENT, "XDG_STATE_HOME": str(directory)}
    python = [sys.executable, "-m", "launcher"]
    flags = [f"--set={override}" for override in (*SHORT, f"spec.runtime={runtime}")]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*python, *arguments],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    begin = time.time()
    run("submit", str(DEMO), "--backend", "local", *flags)
    name = loader.load(str(DEMO))[0].cluster.metadata.name
    printed = run("logs", name, "--role", "chief", "--raw").stdout.splitlines()
    run("delete", name)
    return first_step(printed) - begin


def by_hand(directory: Path) -> float:
    """Seconds from the start of the first process to the first step."""
    (loaded,) = loader.load(str(DEMO), SHORT)
    environments = tasks(loaded, directory)
    begin = time.time()
    with ExitStack() as stack:
        processes = {}
        for pod, environment in environments.items():
            log = stack.enter_context((directory / f"{pod}.log").open("wb"))
            processes[pod] = subprocess.Popen(
                [sys.executable, "-m", "worker"],
                cwd=directory,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            for pod, process in processes.items():
                if process.wait(SECONDS):
                    raise RuntimeError(
                        f"{pod} ended with {process.returncode}:\n{(directory / f'{pod}.log').read_text()}"
                    )
        finally:
            for process in processes.values():
                process.kill()
                process.wait()
    chief = next(pod for pod in environments if pod.endswith("-chief-0"))
    return first_step((directory / f"{chief}.log").read_text().splitlines()) - begin


def tasks(loaded: Loaded, directory: Path) -> dict[str, dict[str, str]]:
    """The environment of each task by its pod's name, and in `directory` the files that it refers to.

    What a person would write who starts the five by hand: loopback addresses, and the launcher's own settings
    for the worker runtime.
    """
    plan = plan_of_file.plan(loaded)
    spec = loaded.cluster.spec
    replicas = {
        name: role.replicas
        for name in ("chief", "worker", "ps", "evaluator")
        if (role := getattr(spec, name))
    }
    addresses = {
        name: [f"127.0.0.1:{port}" for port in free_ports(count)] for name, count in replicas.items()
    }
    training = {name: listed for name, listed in addresses.items() if name != "evaluator"}
    config_map = next(item for item in plan.objects if item["metadata"]["name"] == f"{plan.run}-config")
    config = json.loads(config_map["data"]["run.json"])
    config.update(chief_address=addresses["chief"][0], model_dir=str(directory / "model"))
    (directory / "run.json").write_text(json.dumps(config))
    (directory / "model").mkdir()
    assert spec.program is not None
    environments = {}
    for role, listed in addresses.items():
        for index, address in enumerate(listed):
            pod = pod_name(plan.run, role, index)
            task_directory = directory / "tasks" / pod
            task_directory.mkdir(parents=True)
            cluster = (
                training
                if role == "chief"
                else {role: [address] if role == "evaluator" else {str(index): address}}
            )
            environments[pod] = {
                **ENVIRONMENT,
                "PYTHONPATH": str(ROOT),
                Env.TASK_INDEX: str(index),
                Env.TF_CONFIG: json.dumps({"cluster": cluster, "task": {"type": role, "index": index}}),
                Env.ROLE: role,
                Env.CONFIG: str(directory / "run.json"),
                Env.TASK_DIR: str(task_directory),
                Env.SOURCE: str((loaded.directory / (spec.program.shipped or "")).parent),
            }
    return environments


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody uses now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def first_step(printed: Iterable[str]) -> float:
    """When the chief reported its first step, in seconds since the epoch. Raises RuntimeError."""
    for line in printed:
        record = Record.parse(line)
        if record is not None and record.event == Event.PROGRESS:
            return record.time
    raise RuntimeError("the chief reported no step:\n" + "\n".join(printed))


def main() -> None:
    """Measures in turns and prints. One round before the first is not counted."""
    options = recording.parser("benchmarks.first_step", str(__doc__), 5).parse_args()
    ways: dict[str, Callable[[Path], float]] = {
        "submit --backend local": partial(launched, runtime="Image"),
        "submit, runtime: Travels": partial(launched, runtime="Travels"),
        "by hand": by_hand,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(options.rounds + 1):
        for (name, taken), measure in zip(times.items(), ways.values(), strict=True):
            with tempfile.TemporaryDirectory() as directory:
                seconds = measure(Path(directory))
            print(f"{name}: {seconds:.2f} s", file=sys.stderr)
            if round_:
                taken.append(seconds)
    hand = statistics.median(times["by hand"])
    rows = [
        (
            name,
            f"{statistics.median(taken):.2f}",
            f"{min(taken):.2f}",
            f"{max(taken):.2f}",
            f"{statistics.median(taken) / hand:.3f}",
        )
        for name, taken in times.items()
    ]
    text = f"{options.rounds} rounds. The ratio of the medians should stay under 1.10.\n\n"
    text += table(("started", "median s", "min", "max", "ratio"), rows)
    recording.publish("first-step", text, record=options.record)


if __name__ == "__main__":
    main()
