"""The command line: its output and its exit codes. The commands that run tasks are tested in tests/local."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

import launcher
from launcher import object_names
from launcher.cli import parser, prerequisites
from launcher.config.spec import RoleName
from tests.paths import ROOT

SPECS = ROOT / "tests" / "specs"
GOOD = str(SPECS / "valid" / "one-task-mirrored.yaml")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = parser.main(arguments)
    except SystemExit as leave:
        code = int(leave.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_validate(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "validate", GOOD)
    assert (code, err) == (0, "")
    assert out == (
        f"{GOOD}: autoencoder: valid: Mirrored with 1 chief\n"
        f"{GOOD}: autoencoder: the program was not imported; `validate --import` tries it\n"
    )


def test_a_typo(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(Path(GOOD).read_text().replace("strategy: Mirrored", "stratgey: Mirrored"))
    code, out, err = run(capsys, "validate", str(path))
    assert (code, out) == (2, "")
    assert f"{path}:5:3: spec.stratgey: unknown field; did you mean strategy?\n" in err
    assert err.endswith("error: 2 problems found\n")


def test_render_prints_documents(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "render", GOOD)
    assert code == 0
    assert [item["kind"] for item in yaml.safe_load_all(out)] == [
        "Service",
        "ConfigMap",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "Job",
    ], "kubelet must find what a pod mounts"


def test_render_prints_one_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "render", GOOD, "-o", "json", "--set", "metadata.namespace=vision")
    assert code == 0
    document = json.loads(out)
    assert document["kind"] == "List"
    assert {item["metadata"]["namespace"] for item in document["items"]} == {"vision"}


@pytest.mark.parametrize(
    ("given", "namespaces"),
    [
        ([], {None}),
        (["--as", "jobset"], {None}),
        (["-n", "vision"], {"vision"}),
        (["-n", "default"], {"default"}),
        (["--set", "metadata.namespace=default"], {"default"}),
    ],
)
def test_kubectl_decides_on_a_namespace_that_nobody_has_given(
    capsys: pytest.CaptureFixture[str], given: list[str], namespaces: set[str | None]
) -> None:
    code, out, _ = run(capsys, "render", GOOD, *given)
    assert code == 0
    assert {item["metadata"].get("namespace") for item in yaml.safe_load_all(out)} == namespaces


def test_what_a_plain_kubectl_apply_refuses_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    message = "is too large for the annotation of a plain `kubectl apply`: add --server-side"
    _, out, err = run(capsys, "render", GOOD, "--set", "spec.image=tensorflow/tensorflow:2.21.0")
    names = [item["metadata"]["name"] for item in yaml.safe_load_all(out) if "binaryData" in item]
    assert [line for line in err.splitlines() if message in line] == [f"note: ConfigMap {names[0]} {message}"]
    assert message not in run(capsys, "render", GOOD)[2]


def test_what_a_reader_might_not_expect_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "validate", str(SPECS / "valid" / "parameter-server.yaml"))
    assert code == 0
    assert "mnist: valid" in out
    assert err.count(": note: ") == 1


def test_init_writes_a_valid_file_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(tmp_path / "new" / "run")
    code, out, _ = run(capsys, "init", folder)
    assert code == 0
    assert f"submit {folder}/cluster.yaml" in out
    assert run(capsys, "validate", f"{folder}/cluster.yaml")[0] == 0
    Path(folder, "train.py").write_text("mine = True\n")
    Path(folder, "cluster.yaml").unlink()
    code, _, err = run(capsys, "init", folder)
    assert code == 4
    assert err.startswith(f"error: {folder}/train.py is there already\n")
    assert Path(folder, "train.py").read_text() == "mine = True\n"
    assert not Path(folder, "cluster.yaml").exists()


def test_init_where_it_cannot_write(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    code, _, err = run(capsys, "init", str(file))
    assert code == 5
    assert err.splitlines()[0] in (
        f"error: {file} cannot be written: File exists",
        f"error: {file}/cluster.yaml cannot be written: Not a directory",
    )
    assert err.splitlines()[1].startswith("Give another folder: ")


def test_a_wrong_field_hides_nothing_that_is_wrong_with_the_program(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "cluster.yaml"
    (tmp_path / "train.py").write_text("class Program: pass\n")
    file.write_text(
        "apiVersion: launcher/v1alpha1\n"
        "kind: TrainingCluster\n"
        "metadata: {name: My_Run}\n"
        "spec:\n"
        "  strategy: ParameterServer\n"
        "  program:\n"
        "    source: ./train.py\n"
        "    entrypoint: train:Porgram\n"
        "    parameters: {epochs: three, steps_per_epoch: 5, globalBatchsize: 16}\n"
        "  ps: 1\n"
        "  worker: {}\n"
        "  chief: {}\n"
    )
    code, _, err = run(capsys, "validate", str(file))
    assert code == 2
    assert [line.split(": ")[:2] for line in err.splitlines()] == [
        [f"{file}:3:12", "metadata.name"],
        [f"{file}:8:5", "spec.program.entrypoint"],
        [f"{file}:9:18", "spec.program.parameters.epochs"],
        [f"{file}:9:33", "spec.program.parameters.steps_per_epoch"],
        [f"{file}:9:53", "spec.program.parameters.globalBatchsize"],
        [f"{file}:10:3", "spec.ps"],
        ["error", "6 problems found"],
    ]
    code, _, err = run(capsys, "validate", str(file), "--set", "spec.program.source=none.py")
    assert "spec.program.source: no such file or folder: none.py" in err


@pytest.mark.parametrize(
    "command", ["status one", "list", "wait one", "logs one", "delete one", "cp one:x y", "suspend one"]
)
def test_a_folder_of_runs_that_may_not_be_read(tmp_path: Path, command: str) -> None:
    without_rights = []
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root may read everything, and there is no setpriv")
        without_rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    (tmp_path / "tf-launcher" / "runs" / "default" / "one").mkdir(parents=True)
    runs = tmp_path / "tf-launcher" / "runs"
    runs.chmod(0)
    try:
        ended = subprocess.run(
            [*without_rights, sys.executable, "-m", "launcher", *command.split(), "--backend", "local"],
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        runs.chmod(0o700)
    assert ended.returncode == 5, ended
    assert ended.stderr.startswith(f"error: cannot keep the run's files under {tmp_path}/tf-launcher: ")
    assert f"Permission denied ({runs}" in ended.stderr.splitlines()[0]
    assert "XDG_STATE_HOME" in ended.stderr.splitlines()[1]


def test_an_empty_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.touch()
    code, _, err = run(capsys, "validate", str(file))
    assert code == 2
    assert err.startswith(f"{file}: empty: `python -m launcher init` writes a file to start from\n")


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("", "train.py does not define Program"),
        ("class Programm: pass\n", "did you mean train:Programm?"),
        ("class Program(:\n", "train.py:1: not valid Python: "),
        (None, "no such file or folder: ./train.py"),
    ],
)
def test_a_wrong_program(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, program: str | None, expected: str
) -> None:
    run(capsys, "init", str(tmp_path))
    if program is None:
        (tmp_path / "train.py").unlink()
    else:
        (tmp_path / "train.py").write_text(program)
    code, out, err = run(capsys, "validate", str(tmp_path / "cluster.yaml"))
    assert (code, out) == (2, "")
    assert expected in err


def test_a_program_too_large_to_travel(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run(capsys, "init", str(tmp_path))
    (tmp_path / "data.csv").write_bytes(b"x" * 20_000_001)
    code, _, err = run(capsys, "validate", str(tmp_path / "cluster.yaml"), "--set", "spec.program.source=.")
    assert code == 2
    assert "over 20,000,000 bytes: leave data out of it, or have the tasks fetch it" in err


def test_schema_is_one_that_takes_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "schema")
    assert code == 0
    schema = json.loads(out)
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    validator = kind(schema)
    for path in sorted(set((SPECS / "valid").glob("*.yaml")) - set((SPECS / "valid").glob("tfjob-*"))):
        validator.validate(yaml.safe_load(path.read_text()))
    wrong = yaml.safe_load(Path(GOOD).read_text())
    wrong["spec"]["stratgey"] = "Mirrored"
    with pytest.raises(jsonschema.ValidationError, match="stratgey"):
        validator.validate(wrong)


def test_every_field_is_described() -> None:
    from launcher.config import json_schema

    document = json.loads(json_schema.as_json())
    models = {**document["$defs"], "TrainingCluster": document}
    assert all(model["description"] for model in models.values())
    for field in models["Spec"]["properties"].values():
        assert field.get("description")


def test_the_bare_command_and_help_print_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert out.startswith("usage: python -m launcher")
    assert run(capsys, "help") == run(capsys, "--help") == (0, out, "")
    assert run(capsys, "help", "submit") == run(capsys, "submit", "--help")
    for heading in ("where a command looks:", "exit codes:"):
        assert heading in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    expected = (0, f"tf-launcher {launcher.__version__}\n", "")
    assert run(capsys, "version") == run(capsys, "--version") == expected


def test_a_program_in_the_place_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "validate", "train.py")
    assert (code, out) == (2, "")
    assert err.startswith("train.py: a program: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sumbit x.yaml", "there is no command sumbit; did you mean submit?"),
        ("xyzzy", "there is no command xyzzy"),
        ("ls", "there is no command ls; did you mean list?"),
        ("apply -f a.yaml", "there is no command apply; did you mean submit?"),
        ("get pods", "there is no command get; did you mean list or status?"),
        ("top mnist", "there is no command top; did you mean status?"),
        ("install mnist", "there is no command install; did you mean submit?"),
        ("cancel mnist", "there is no command cancel; did you mean delete?"),
        ("port-forward mnist", "there is no command port-forward; did you mean tensorboard?"),
        (
            "status a/cluster.yaml",
            "expected a run's name, which is metadata.name in the file, not a/cluster.yaml",
        ),
        ("completion", "missing: bash|zsh|fish"),
        ("logs", "missing: NAME"),
        ("cp ./x mnist:export", "cp copies from a run, not to one: expected NAME:PATH first, not ./x"),
        ("delete mnist.yaml", "expected a run's name; the runs of a file go with -f mnist.yaml"),
        ("delete a first/cluster.yaml", "the runs of a file go with -f first/cluster.yaml"),
        ("list -n --", "argument -n/--namespace: expected one argument"),
        ("logs mnist --tail=--", "argument --tail: expected one argument"),
        ("cp mnist/export", "expected a run and a path below its modelDir, as in mnist:export"),
        ("help sumbit", "there is no command sumbit; did you mean submit?"),
        ("submit x.yaml --detatch", "there is no option --detatch; did you mean --detach?"),
        ("logs mnist --sinse=10m", "there is no option --sinse; did you mean --since=10m?"),
        ("submit x.yaml --det", "there is no option --det; did you mean --detach?"),
        ("submit x.yaml --name a", "there is no option --name; did you mean --set metadata.name=NAME?"),
        ("submit x.yaml --name=a", "there is no option --name; did you mean --set metadata.name=a?"),
        ("status mnist -z", "there is no option -z"),
        ("status", "missing: NAME"),
        ("status a b", "one argument too many: b"),
        ("submit", "FILE: expected a cluster.yaml, or - for standard input"),
        ("submit a.yaml -f b.yaml", "FILE: expected one file, not a.yaml and b.yaml"),
        ("submit a.yaml --backend locl", "'locl' is none of kubernetes, local; did you mean local?"),
        ("submit a.yaml --dry-run=srver", "'srver' is none of client, server; did you mean server?"),
        ("delete", "delete: expected the runs' names, or --all, or -f FILE"),
        ("delete a --all", "delete: expected one of the runs' names, --all and -f FILE"),
        ("logs a -f --previous", "--previous: shows what has ended, so there is nothing to follow"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], line: str, message: str) -> None:
    code, out, err = run(capsys, *line.split())
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert second.endswith("--help` says what there is")


@pytest.mark.parametrize(
    "line",
    [
        f"submit {GOOD} --dry-run",
        f"submit --dry-run {GOOD}",
        f"submit -f {GOOD} --dry-run",
        f"submit --dry-run client {GOOD}",
    ],
)
def test_a_bare_dry_run_asks_nobody(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    code, out, err = run(capsys, *line.split())
    assert (code, err) == (0, "")
    assert out.startswith("Job autoencoder-chief\nService autoencoder\n")
    assert "nothing was done" in out
    assert "JobSet" not in out


def test_a_bare_dry_run_of_a_queued_run_says_that_it_may_become_a_jobset(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, "submit", GOOD, "--dry-run", "--set", "spec.scheduling.queue=team-a")
    assert code == 0
    assert "where the cluster has the kind JobSet, these Jobs become one JobSet" in out
    _, out, _ = run(
        capsys, "submit", GOOD, "--dry-run", "--backend=local", "--set", "spec.scheduling.queue=team-a"
    )
    assert "JobSet" not in out


def test_deleting_all_asks_for_the_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    nothing = "there are no runs in namespace default\n"
    assert run(capsys, "delete", "--all") == (0, "", nothing), "there is but this machine"
    (tmp_path / "kubeconfig").write_text("nonsense")
    code, _, err = run(capsys, "delete", "--all")
    assert code == 2
    assert "whose runs: add --backend local, this machine's, or --backend kubernetes" in err
    assert run(capsys, "delete", "--all", "--backend", "local") == (0, "", nothing)


def test_a_python_without_the_packages(tmp_path: Path) -> None:
    """As outside of the virtual environment: `-S` leaves out its packages."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    command = [sys.executable, "-S", "-m", "launcher", "submit", "a b.yaml", "--backend", "local"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first == (
        f"error: this Python, {sys.executable}, lacks jinja2, kubernetes, packaging, pydantic, rich, "
        "urllib3, websocket-client and pyyaml, which the launcher needs"
    )
    assert second.endswith(".venv/bin/python -m launcher submit 'a b.yaml' --backend local")
    for harmless in (["--help"], ["version"], []):
        done = subprocess.run(
            [*command[:4], *harmless],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_the_packages_that_are_looked_for_are_the_dependencies() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    (block,) = re.findall(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert sorted(prerequisites.PACKAGES.values()) == sorted(re.findall(r'"([a-z0-9-]+)', block))


@pytest.mark.parametrize("path", [True, False], ids=["on the path", "not on the path"])
def test_messages_name_the_command_as_it_was_called(path: bool, tmp_path: Path) -> None:
    installed = Path(sys.executable).with_name("tf-launcher")
    environment = {
        "PATH": f"{installed.parent}:/usr/bin" if path else "/usr/bin",
        "XDG_STATE_HOME": str(tmp_path),
        "KUBECONFIG": str(tmp_path / "none"),
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [str(installed), "status", "mnist"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3
    assert f"`{'tf-launcher' if path else installed} list` shows" in done.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("10m", 600), ("1.5h", 5400), ("1h30m", 5400), ("2d", 172_800)],
)
def test_times(text: str, seconds: float) -> None:
    assert parser.parser().parse_args(["logs", "mnist", "--since", text]).since == seconds


@pytest.mark.parametrize("text", ["", "m", "ten", "10 weeks", "5ms", "1h30"])
def test_a_time_that_is_none(capsys: pytest.CaptureFixture[str], text: str) -> None:
    code, _, err = run(capsys, "logs", "mnist", "--since", text)
    assert code == 2
    assert "expected a time, such as 30s, 10m or 2h" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize(
    "command", [["render", GOOD], ["schema"], ["validate", GOOD], ["completion", "bash"]]
)
def test_output_to_a_full_disk(command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "launcher", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.endswith("error: the output cannot be written: No space left on device\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_output_that_is_closed(closed: str) -> None:
    command = f'"$0" -m launcher render "$1" {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, GOOD], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


def test_a_reader_that_has_seen_enough() -> None:
    """As `render | head -1`: no error and no traceback."""
    command = [
        sys.executable,
        "-m",
        "launcher",
        "render",
        GOOD,
        "--set",
        "spec.program.parameters.x=" + "y" * 90_000,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 0


def test_an_error_in_the_launcher_is_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.plan.topology.build", lambda cluster: 1 / 0)
    code, _, err = run(capsys, "validate", GOOD)
    assert code == 70
    assert err.startswith("error in the launcher itself: ZeroDivisionError")


def test_the_roles_of_the_command_line_are_those_of_the_file() -> None:
    assert get_args(RoleName) == object_names.ROLES


def test_the_public_names_are_there() -> None:
    for name in launcher.__all__:
        assert getattr(launcher, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = launcher.nothing  # type: ignore[attr-defined]


def test_list_looks_everywhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    assert run(capsys, "list") == (0, "no runs\n", "")
    (tmp_path / "kubeconfig").write_text("nonsense")
    code, out, err = run(capsys, "list")
    assert (code, out) == (5, "no runs\n")
    assert err.startswith("error: the cluster's runs are not shown: ")
    assert run(capsys, "list", "--backend", "local") == (0, "no runs\n", "")


def test_a_mistake_in_the_file_comes_before_a_missing_cluster(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    wrong = tmp_path / "cluster.yaml"
    wrong.write_text(Path(GOOD).read_text().replace("spec:", "spec:\n  colour: red"))
    code, _, err = run(capsys, "submit", str(wrong))
    assert code == 2
    assert err.startswith(f"{wrong}:")
    assert "kubeconfig" not in err
    code, _, err = run(capsys, "submit", GOOD)
    assert code == 5
    assert "kubeconfig" in err


def test_a_report_needs_a_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    for more in ([], ["-o", "run.html"]):
        code, out, err = run(capsys, "report", "nobody", "--backend", "local", *more)
        assert (code, out) == (3, "")
        assert err.startswith("error: there is no run nobody in namespace default on this machine\n")
    assert list(tmp_path.iterdir()) == []
