"""Tries the runtime on other TensorFlows: `make test-tensorflow VERSIONS="2.16 2.20@3.9"`.

For each version, and the Python after the `@`, it makes an environment with TensorFlow and tf_keras from
PyPI, for CPUs only, and nothing of the launcher's. In it, from the archive that travels with a run, it runs
the tests of what TensorFlow and Keras keep private, compares the weights of Keras 3 models on two replicas
with those of one process, and runs the demo with its five tasks. It writes the results
to tests/worker/tensorflow_versions.json, from which `make docs` makes a table. It tries one version at a
time: an environment has about 1.5 GB, and is removed again.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

from launcher.backends.local.pod.pods import PYTHON_VARIABLE
from launcher.plan import runtime_archive
from worker.contract.environment import MODULES

ROOT: Final = Path(__file__).resolve().parents[2]
RECORD: Final = Path(__file__).with_suffix(".json")
CONTRACTS: Final = "tests/worker/tf_compat/test_tf_compat.py"
KERAS_3: Final = "tests/worker/keras_3_numbers.py"
_NEEDED: Final = ("tests/worker/forked_tasks.py", CONTRACTS, KERAS_3)
_DEMO: Final = ROOT / "examples" / "fashion-mnist" / "cluster.yaml"
_LEAST_ACCURACY: Final = 0.75
"""Accuracy of the demo's last checkpoint, on the 300 held-out images that travel; chance is 0.1."""
_MOST_DIFFERENCE: Final = 1e-12
"""Of a weight in float64."""
_SECONDS: Final = 1200
_PACKAGES: Final = ("tensorflow-cpu", "keras", "tf_keras", "tensorboard")


class FailedError(Exception):
    """A test that failed, and its output."""


def _run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        raise FailedError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def _environment(folder: Path, version: str, python: str) -> Path:
    """Its Python. tf_keras without its dependencies: it asks for `tensorflow` by name."""
    uv = str(Path(sys.executable).with_name("uv"))
    made = folder / "environment"
    _run([uv, "venv", "--quiet", "--python", shutil.which(f"python{python}") or python, str(made)], folder)
    # As an image has it: else each task compiles all of TensorFlow for itself.
    install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--only-binary", ":all:"]
    install += ["--python", str(made / "bin" / "python")]
    _run([*install, f"tensorflow-cpu=={version}.*", "pytest", "pytest-timeout"], folder)
    _run([*install, "--no-deps", f"tf_keras=={version}.*"], folder)
    return made / "bin" / "python"


def _installed(folder: Path, python: Path) -> dict[str, str]:
    code = (
        "import importlib.metadata as m, json, platform\n"
        "found = {d.metadata['Name'].lower().replace('-', '_'): d.version for d in m.distributions()}\n"
        "print(json.dumps({**found, 'python': platform.python_version()}))"
    )
    versions: dict[str, str] = json.loads(_run([str(python), "-c", code], folder))
    names = ("python", *_PACKAGES)
    return {name: versions.get(name.replace("-", "_"), "") for name in names}


def _tree(folder: Path) -> Path:
    """The archive's own files and the tests: nothing else of the checkout is there."""
    tree = folder / "tree"
    with zipfile.ZipFile(io.BytesIO(runtime_archive.packed(None))) as archive:
        modules = io.BytesIO(archive.read(MODULES))
    with zipfile.ZipFile(modules) as opened:
        opened.extractall(tree)
    for name in _NEEDED:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    return tree


def _contracts(tree: Path, python: Path) -> int:
    """How many of the tests pass."""
    (tree / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib -p no:cacheprovider\n")
    output = _run([str(python), "-m", "pytest", "-q", CONTRACTS], tree, PYTHONPATH=str(tree))
    counted = re.search(r"(\d+) passed", output)
    if counted is None or " skipped" in output:
        raise FailedError(output)
    return int(counted[1])


def _keras_3(tree: Path, python: Path) -> int:
    """How many optimizers of Keras 3 give two replicas the weights of one process."""
    differences = json.loads(_run([str(python), KERAS_3], tree).splitlines()[-1])
    differences.pop("overflow")  # in float32, because its loss scale is
    far = {name: value for name, value in differences.items() if value > _MOST_DIFFERENCE}
    if far:
        raise FailedError(f"weights of Keras 3 models differ from those of one process: {far}")
    return len(differences)


def _demo(folder: Path, python: Path) -> float:
    """The accuracy of the last checkpoint."""
    submit = [sys.executable, "-m", "launcher", "submit", str(_DEMO), "--backend", "local"]
    output = _run(
        [*submit, "--set", "spec.runtime=Travels"],
        ROOT,
        **{PYTHON_VARIABLE: str(python), "XDG_STATE_HOME": str(folder / "state")},
    )
    scored = re.search(r"^evaluation +accuracy ([\d.]+),.*after epoch 6", output, re.MULTILINE)
    if scored is None or "that travels with the run" not in output or "exported the model" not in output:
        raise FailedError(output)
    if (accuracy := float(scored[1])) < _LEAST_ACCURACY:
        raise FailedError(f"accuracy {accuracy} in the demo\n{output}")
    return accuracy


def passed(version: str, python: str) -> dict[str, Any]:
    """What the version is and what passed. Raises FailedError."""
    with tempfile.TemporaryDirectory(prefix="tensorflow-") as made:
        folder = Path(made)
        interpreter = _environment(folder, version, python)
        installed = _installed(folder, interpreter)
        tree = _tree(folder)
        return {
            **installed,
            "contracts": _contracts(tree, interpreter),
            "keras_3": _keras_3(tree, interpreter),
            "accuracy": _demo(folder, interpreter),
        }


def main(versions: list[str]) -> int:
    """Returns the exit code: 1 where something did not pass, which then leaves the record."""
    record: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    failed = False
    for asked in versions:
        version, _, python = asked.partition("@")
        python = python or ".".join(map(str, sys.version_info[:2]))
        key = f"{version}@{python}"
        try:
            record[key] = passed(version, python)
            print(f"TensorFlow {version}, Python {python}: passed, {record[key]}", flush=True)
        except (FailedError, subprocess.TimeoutExpired) as error:
            record.pop(key, None)
            failed = True
            print(f"TensorFlow {version}, Python {python}: {error}", file=sys.stderr, flush=True)
        numbers = {name: tuple(map(int, re.findall(r"\d+", name))) for name in record}
        ordered = {name: record[name] for name in sorted(record, key=lambda name: numbers[name])}
        RECORD.write_text(json.dumps(ordered, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.worker.tensorflow_versions", description=__doc__)
    parser.add_argument("versions", nargs="+", metavar="VERSION[@PYTHON]")
    sys.exit(main(parser.parse_args().versions))
