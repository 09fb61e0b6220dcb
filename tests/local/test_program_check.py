"""`validate --import`: it runs the program up to its first step, with real TensorFlow."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from launcher import plan_of_file, program_check
from launcher.cli import parser
from launcher.validation import loader
from tests.local.machine import eventually, linux_only, with_variable

CLUSTER = """
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {name: tried}
spec:
  strategy: ParameterServer
  program:
    source: program.py
    entrypoint: program:Program
    parameters: {epochs: 9, stepsPerEpoch: 1000, globalBatchSize: 8}
  modelDir: /model
  chief: {env: [{name: UNITS, value: "3"}]}
  worker: {replicas: 2}
  ps: {replicas: 1}
  evaluator: {}
"""
PROGRAM = """
import os
import tensorflow as tf

UNITS = int(os.environ["UNITS"])
LOGS = os.environ["MODEL_DIR"] + "/logs"

class Stop(tf.keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        raise RuntimeError("callbacks are not called")

class Program:
    def __init__(self, parameters):
        pass

    def model(self):
        model = tf.keras.Sequential([tf.keras.layers.Dense(UNITS), tf.keras.layers.Dense(1)])
        model.compile("sgd", tf.keras.losses.MeanSquaredError())
        return model

    def train_dataset(self, batch_size):
        return tf.data.Dataset.from_tensors((tf.ones(4), tf.ones(1))).repeat().batch(batch_size)

    def evaluation_dataset(self, batch_size):
        return tf.data.Dataset.from_tensors((tf.ones(4), tf.ones(1))).repeat(5).batch(batch_size)

    def predict_dataset(self, batch_size):
        return tf.data.Dataset.from_tensors(tf.ones(4)).repeat(5).batch(batch_size)

    def callbacks(self):
        return [Stop()]
"""
OWN_LOOP = "\n    def loss(self, labels, predictions):\n        return (labels - predictions)[:, 0] ** 2\n"
EARLY = PROGRAM.replace(
    "\n\nclass Stop", "\n\nEARLY = tf.keras.layers.Dense(1)\nEARLY.build((None, 3))\n\nclass Stop", 1
)
EARLY = EARLY.replace("tf.keras.layers.Dense(1)])", "EARLY])")
OF_MIRRORED = ["spec.strategy=Mirrored", "spec.worker=null", "spec.ps=null"]
OF_COLLECTIVE = ["spec.strategy=MultiWorkerMirrored", "spec.ps=null", "spec.worker.replicas=1"]
HASTY = PROGRAM.replace("\n\nclass Stop", "\n\nONE = tf.constant(1.0)\n\nclass Stop", 1)
HASTY = HASTY.replace("(tf.ones(4), tf.ones(1))", "(tf.ones(4), tf.ones(1) * ONE)")
WRONG_LOOP = OWN_LOOP.replace("[:, 0] ** 2", " / 0")


def validate(
    folder: Path, capsys: pytest.CaptureFixture[str], program: str, *overrides: str
) -> tuple[int, str, str]:
    (folder / "program.py").write_text(program)
    (folder / "cluster.yaml").write_text(CLUSTER)
    settings = [word for override in overrides for word in ("--set", override)]
    code = parser.main(["validate", str(folder / "cluster.yaml"), "--import", *settings])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.thorough
def test_the_python_of_the_tasks_tries_a_program_as_the_strategy_runs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two replicas, and set up before the program runs its first operation."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("TF_LAUNCHER_PYTHON", str(python))
    traced = HASTY.replace(
        "def model(self):",
        "def model(self):\n        print(tf.distribute.get_strategy().num_replicas_in_sync)",
    )
    for overrides in (OF_COLLECTIVE, []):
        code, _, err = validate(tmp_path, capsys, traced, *overrides)
        assert code == 0, err
    assert (tmp_path / "asked").read_text() == "-m worker.check\n" * 2
    code, _, err = validate(tmp_path, capsys, traced.replace("get_strategy()", "none"), *OF_COLLECTIVE)
    assert code == 2
    monkeypatch.setenv("TF_LAUNCHER_PYTHON", "/no/such/python")
    code, _, err = validate(tmp_path, capsys, PROGRAM)
    assert code == 2
    assert "TF_LAUNCHER_PYTHON names /no/such/python, which is no program" in err


@pytest.mark.by_day("None")
@pytest.mark.parametrize(
    "override",
    [
        None,
        pytest.param("loss", marks=pytest.mark.thorough),
        pytest.param("spec.mode=Evaluate", marks=pytest.mark.thorough),
        "spec.mode=Predict",
    ],
)
def test_a_program_that_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str | None
) -> None:
    program = PROGRAM + (OWN_LOOP if override == "loss" else "")
    overrides = [override] if override and override.startswith("spec.") else []
    code, out, err = validate(tmp_path, capsys, program, *overrides)
    assert code == 0, err
    assert "the program was imported and has made a first step" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.yaml", "program.py"]


@pytest.mark.by_day("method")
@pytest.mark.parametrize(
    ("program", "overrides", "problem"),
    [
        (
            PROGRAM.replace("import os", "import os, no_such_package"),
            [],
            "cluster.yaml:7:3: spec.program: ModuleNotFoundError: No module named 'no_such_package'",
        ),
        (
            PROGRAM.replace("def train_dataset(self, batch_size)", "def train_dataset(self)"),
            [],
            "Program.train_dataset must be callable as train_dataset(batch_size)",
        ),
        (PROGRAM.replace("Dense(1)", "Dense('one')"), [], '  File "program.py", line 17, in model'),
        pytest.param(
            PROGRAM.replace("(tf.ones(4), tf.ones(1))).repeat(5)", "(tf.ones(7), tf.ones(1))).repeat(5)"),
            [],
            "expected axis -1 of input shape to have value 4",
            marks=pytest.mark.thorough,
        ),
        (
            PROGRAM.replace(
                "model = tf.keras.Sequential([tf.keras.layers.Dense(UNITS), tf.keras.layers.Dense(1)])",
                "import keras\n"
                "        model = type('Keyed', (keras.Model,), {'call': lambda self, x: x['b']})()",
            ).replace("from_tensors((tf.ones(4),", "from_tensors(({'a': tf.ones(4)},"),
            [],
            "KeyError: b (Exception encountered when calling Keyed.call()) (while building the model)\n",
        ),
        (PROGRAM.replace("evaluation_dataset", "evaluate"), [], "which spec.evaluator needs"),
        (
            PROGRAM,
            ["spec.program.parameters.stepsPerEpoch=null"],
            "stepsPerEpoch: needed, because the training dataset is infinite",
        ),
        pytest.param(PROGRAM + WRONG_LOOP, [], "loss", marks=pytest.mark.thorough),
        (PROGRAM + "\nprint('a word'); os._exit(3)", [], "ended with exit code 3\n  a word\n"),
        (EARLY, ["spec.strategyOptions.logicalCpus=2", *OF_MIRRORED], "was made before model() was called"),
    ],
    ids=[
        "package",
        "method",
        "model",
        "data",
        "key",
        "evaluator",
        "steps",
        "loss",
        "crash",
        "early",
    ],
)
def test_what_a_run_would_find_in_a_minute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: str, overrides: list[str], problem: str
) -> None:
    code, out, err = validate(tmp_path, capsys, program, *overrides)
    assert (code, out) == (2, "")
    assert problem in err
    assert err.endswith("error: 1 problem found\n")


@linux_only
def test_a_program_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('begun', flush=True)\n"
        "time.sleep(600)"
    )
    outcome = program_check._run([sys.executable, "-c", code], {"TRIED": str(tmp_path)}, tmp_path, 2.0)
    assert outcome.failure == "the program was not at the end of its first step after 2 s"
    assert outcome.details == "begun"
    eventually(lambda: not with_variable(f"TRIED={tmp_path}"), "that all have ended")


CHILD = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']{})"
LEAVES = {
    "a child": CHILD.format(""),
    "a child in a session of its own": CHILD.format(", start_new_session=True"),
    "a fork": "import os, time; os.fork() or time.sleep(600)",
    "a long line": "import sys; [sys.stdout.write('x' * 1_000_000) for _ in range(300)]",
    "many lines": "import sys; [sys.stdout.write('word\\n' * 100_000) for _ in range(20)]",
    "no UTF-8": "import os; os.write(1, bytes(range(256)) * 9)",
    "closed output": "import os; os.close(1); os.close(2)",
    "odd records": 'print(\'{"tf-launcher":1,"event":"failed","task":[],"time":1}\')',
    "many notices": "for i in range(9_999):\n"
    '    print(\'{"tf-launcher":1,"event":"notice","task":"check","time":1,"message":"x"}\')',
}
"""What a program may leave behind, or print. Only ever add to them."""


@pytest.mark.by_day("a long line")
@linux_only
@pytest.mark.parametrize("what", LEAVES)
def test_what_a_program_leaves_or_prints_is_in_nobody_s_way(tmp_path: Path, what: str) -> None:
    outcome = program_check._run([sys.executable, "-c", LEAVES[what]], {"TRIED": str(tmp_path)}, tmp_path, 60)
    assert outcome.failure == "the process that tried the program ended with exit code 0"
    assert len(outcome.details) < 100_000
    assert len(outcome.notices) <= 20
    assert list(tmp_path.iterdir()) == []
    left = with_variable(f"TRIED={tmp_path}")
    if what == "a child in a session of its own":
        assert len(left) == 1  # nobody's child any more
        os.kill(left[0], signal.SIGKILL)
    else:
        eventually(lambda: not with_variable(f"TRIED={tmp_path}"), "that all have ended")


def test_a_run_of_scripts_has_nothing_to_import(tmp_path: Path) -> None:
    text = CLUSTER.replace("    entrypoint: program:Program\n", "").replace(
        "  modelDir", "  command: [sh]\n  modelDir"
    )
    (tmp_path / "program.py").write_text("")
    (tmp_path / "cluster.yaml").write_text(text)
    (loaded,) = loader.load(str(tmp_path / "cluster.yaml"))
    assert program_check.problems(loaded, plan_of_file.plan(loaded)) == ([], ())
