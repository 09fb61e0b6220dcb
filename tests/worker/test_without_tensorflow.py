"""The runtime's parts that need no TensorFlow: each test takes milliseconds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.worker.cluster import ROOT
from worker import failures, program, task
from worker.contract.environment import Env
from worker.contract.exit_codes import ExitCode
from worker.contract.records import Record
from worker.contract.run_config import RunConfig
from worker.parameters import TrainingParameters
from worker.peers import probes
from worker.peers.chief_watch import ChiefWatch

CONFIG = RunConfig(
    run="tiny",
    strategy="ParameterServer",
    replicas={"chief": 1, "worker": 2},
    starting_deadline_seconds=60,
    stall_seconds=60,
    chief_lost_seconds=60,
)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# The environment


def test_without_its_configuration_it_says_what_it_is() -> None:
    environment = {name: value for name, value in os.environ.items() if name != Env.CONFIG}
    done = subprocess.run(
        [sys.executable, "-m", "worker"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.PROGRAM_ERROR
    assert "TF_LAUNCHER_CONFIG is not set" in done.stderr
    assert Record.parse(done.stdout.strip()) is not None
    assert "Traceback" not in done.stderr


def test_it_takes_no_arguments() -> None:
    command = [sys.executable, "-m", "worker", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.PROGRAM_ERROR
    assert "got '--help', and takes no arguments or a script" in done.stderr


def test_a_cluster_file_takes_the_place_of_a_long_tf_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"chief": ["c:1"], "worker": [f"w-{index}.example:2222" for index in range(10_000)]}
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    (tmp_path / "run.json").write_text(CONFIG.to_json())
    monkeypatch.setenv(Env.TF_CONFIG, "")
    monkeypatch.setenv(Env.CONFIG, str(tmp_path / "run.json"))
    monkeypatch.setenv(Env.CLUSTER_FILE, str(tmp_path / "cluster.json"))
    monkeypatch.setenv(Env.ROLE, "chief")
    monkeypatch.setenv(Env.TASK_INDEX, "0")
    chief = task.from_environment()
    assert len(chief.peers) == 10_000
    assert chief.peers["tiny-worker-9999"] == "w-9999.example:2222"
    tf_config = json.loads(os.environ[Env.TF_CONFIG])
    assert tf_config == {"cluster": cluster, "task": {"type": "chief", "index": 0}}


# The program


@pytest.mark.parametrize(
    ("entrypoint", "message"),
    [
        (None, "no spec.program.entrypoint"),
        ("tiny", "expected module:object, got 'tiny'"),
        ("tyni:Tiny", "no module named 'tyni'; spec.program.source has"),
        ("shapes:Round", "has no 'Round' (did you mean 'Rounded'?)"),
        ("shapes:SIZE", "is int, not a class or a function"),
        ("shapes:no_argument", "must take one argument"),
        (
            "shapes:Rounded",
            "no method train_dataset(batch_size) (did you mean 'training_dataset'?)",
        ),
        ("shapes:NoBatchSize", "must be callable as train_dataset(batch_size)"),
        ("re:compile", "has the name of a module that is loaded already"),
    ],
)
def test_a_wrong_entrypoint_is_one_sentence(tmp_path: Path, entrypoint: str | None, message: str) -> None:
    (tmp_path / "shapes.py").write_text(
        "SIZE = 3\n"
        "def no_argument(): ...\n"
        "class Rounded:\n"
        "    def __init__(self, parameters): ...\n"
        "    def model(self): ...\n"
        "    def training_dataset(self, batch_size): ...\n"
        "class NoBatchSize(Rounded):\n"
        "    def train_dataset(self): ...\n"
    )
    (tmp_path / "re.py").write_text("")
    code = (
        "import sys; from pathlib import Path; from worker import program, failures\n"
        "try: program.load(eval(sys.argv[1]), Path(sys.argv[2]), {})\n"
        "except failures.Failure as failure: print(failure.exit_code, failure.message)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, repr(entrypoint), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("70 ")
    assert message in done.stdout


def test_an_optional_method_that_is_misspelt_is_mentioned() -> None:
    class Misspelt:
        def model(self) -> None: ...
        def train_dataset(self, batch_size: int) -> None: ...
        def evaluate_dataset(self, batch_size: int) -> None: ...

    (notice,) = program.LoadedProgram(Misspelt(), "m:Misspelt", []).notices
    assert "evaluate_dataset is not used; is it meant to be evaluation_dataset(batch_size)?" in notice


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
def test_a_wrong_parameter_is_named(value: Any) -> None:
    with pytest.raises(failures.Failure, match=r"spec\.program\.parameters\.epochs: expected an integer"):
        TrainingParameters.read({"epochs": value})


def test_the_batch_size_is_given_once() -> None:
    read = TrainingParameters.read
    assert read({}).with_replicas(4).global_batch_size == 64
    assert read({"batchSizePerReplica": 8, "globalBatchSize": None}).with_replicas(4).global_batch_size == 32
    with pytest.raises(failures.Failure, match=r"batchSizePerReplica: give it or globalBatchSize, not both"):
        read({"batchSizePerReplica": 8, "globalBatchSize": 32})


def test_an_import_error_shows_the_users_lines_only(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import json\n\njson.loads('{')\n")
    try:
        program.load("broken:Thing", tmp_path, {})
    except ValueError as error:
        failure = failures.classify(error, "importing broken:Thing", [tmp_path])
    finally:
        sys.path.remove(str(tmp_path))
    assert failure.exit_code == ExitCode.PROGRAM_ERROR
    assert failure.message.endswith("(while importing broken:Thing)")
    assert "JSONDecodeError" in failure.message
    assert failure.frames.splitlines()[1:3] == [
        '  File "broken.py", line 3, in <module>',
        "    json.loads('{')",
    ]
    assert "decoder.py" not in failure.frames


def test_what_keras_says_of_a_layer_is_told_without_its_arguments() -> None:
    text = (
        "in user code:\n\n    File train.py, line 1, in step\n"
        '    ValueError: Exception encountered when calling layer "sequential" (type Sequential).\n    \n'
        '    Input 0 of layer "dense" is incompatible with the layer: expected axis -1 to be 4\n    \n'
        '    Call arguments received by layer "sequential" (type Sequential):\n'
        "      • inputs=tf.Tensor(shape=(None, 7), dtype=float32)\n      • mask=None\n"
    )
    sentence = 'Input 0 of layer "dense" is incompatible with the layer: expected axis -1 to be 4'
    assert failures.sentence(ValueError(text)) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("no such key.\nPlease see https://example.com", "ValueError: no such key."),
        ("these are missing:\n- dense/kernel\n- bias", "ValueError: these are missing: - dense/kernel"),
        ("say it like:\n```\nwith scope():\n```", "ValueError: say it like:"),
    ],
)
def test_a_long_message_is_told_by_its_first_sentence(text: str, sentence: str) -> None:
    assert failures.sentence(ValueError(text)) == sentence
    lines = [f"    {line}" for line in f"ValueError: {text}".splitlines()]
    calls = ['    File "/x/train.py", line 1, in step  *', "        return loss(x)"]
    inner = ['    File "/x/keras.py", line 7, in call  **', "        raise ValueError("]
    graph = "\n".join(["in user code:", "", *calls, *inner, "", *lines, ""])
    assert failures.sentence(ValueError(graph)) == sentence
    frames = failures.classify(ValueError(graph), "training").frames.splitlines()
    assert [frame.strip() for frame in frames[1:3]] == [
        'File "/x/train.py", line 1, in step',
        'File "/x/keras.py", line 7, in call',
    ]


def test_a_value_error_of_a_library_has_its_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    try:
        json.loads("{")
    except ValueError as error:
        failure = failures.classify(error, "training epoch 1", [tmp_path])
    assert "decoder.py" in failure.frames
    assert "(while training epoch 1)" in failure.message
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "wrote"),
    [
        ("open('/proc/nothing/x', 'w')", False),
        ("raise OSError(30, 'Read-only file system', 'model.keras')", True),
        ("raise OSError('cannot create it (message = Read-only file system)')", True),
        ("raise PermissionError(13, 'Permission denied', '/nowhere/model.keras')", True),
    ],
)
def test_who_writes_where_nobody_can_is_told_where_to_write(tmp_path: Path, code: str, wrote: bool) -> None:
    (tmp_path / "writes.py").write_text(f"{code}\n")
    try:
        program.load("writes:Thing", tmp_path, {})
    except OSError as error:
        message = failures.classify(error, "importing writes:Thing", [tmp_path]).message
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("writes", None)
    assert ("write below os.environ['MODEL_DIR'], which is spec.modelDir" in message) == wrote


def test_who_imports_what_the_image_lacks_is_told_how_to_have_it(tmp_path: Path) -> None:
    (tmp_path / "lacks.py").write_text("import no_such_package\n")
    try:
        program.load("lacks:Thing", tmp_path, {})
    except ModuleNotFoundError as error:
        message = failures.classify(error, "importing lacks:Thing", [tmp_path]).message
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("lacks", None)
    assert (
        "No module named 'no_such_package'; what the image lacks, pip installs by program.packages" in message
    )


# Peers


def test_a_process_that_hangs_is_told_from_one_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        hung = f"127.0.0.1:{silent.getsockname()[1]}"
        away = f"127.0.0.1:{closed.getsockname()[1]}"
        closed.close()
        faults = probes.faults({"a": hung, "b": away}, seconds=0.3)
        assert probes.connects(hung)
    assert faults == {
        "a": "it accepts connections but does not answer",
        "b": "nothing listens on its port: connection refused",
    }


def test_waiting_reports_at_first_and_at_last() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
    heard: list[dict[str, str]] = []

    def report(reasons: Mapping[str, str], seconds: float) -> None:
        heard.append(dict(reasons))
        if reasons:
            threading.Thread(target=serve_for_a_moment).start()

    stop = threading.Event()

    def serve_for_a_moment() -> None:
        with probes.listening(address):
            stop.wait(10)

    def absence(address: str) -> str | None:
        return None if probes.connects(address) else "away"

    probes.wait({"a": address}, 10, report, check=absence)
    stop.set()
    assert heard == [{"a": "away"}, {}]


def test_a_chief_is_lost_only_after_its_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as chief:
        watch = ChiefWatch(f"127.0.0.1:{chief.getsockname()[1]}", lost_seconds=0.9, starting_seconds=0)
        time.sleep(1.5)
        assert not watch.lost
    deadline = time.monotonic() + 10
    while not watch.lost:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_supervisor_is_small() -> None:
    code = "import worker.runtime, sys; print({'numpy', 'tensorflow', 'launcher'} & set(sys.modules))"
    assert run_python(code).stdout.strip() == "set()"
