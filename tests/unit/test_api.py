"""The library of `import launcher`, without a backend. tests/local and tests/api run it."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import launcher
from launcher import LauncherError, SpecError, TrainingCluster, load, render, submit
from launcher.config.spec import Metadata, Spec
from tests.paths import SPECS

FILE = SPECS / "valid" / "script-for-the-chief-only.yaml"
SMALL: dict[str, Any] = {
    "apiVersion": "launcher/v1alpha1",
    "kind": "TrainingCluster",
    "metadata": {"name": "small"},
    "spec": {"strategy": "Mirrored", "command": ["python", "train.py"]},
}


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A user's module, imported by its name."""
    path = Path(__file__).parent / "programs" / "trainer.py"
    specification = importlib.util.spec_from_file_location("trainer", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "trainer", module)
    specification.loader.exec_module(module)
    return module


def primary(objects: list[dict[str, Any]]) -> Any:
    return objects[0]["spec"]["template"]["spec"]["containers"][0]


def spec_of(objects: list[dict[str, Any]]) -> Any:
    return json.loads(objects[0]["metadata"]["annotations"]["tf-launcher.dev/spec"])["spec"]


def source_of(objects: list[dict[str, Any]], run: str) -> Mapping[str, str]:
    (config_map,) = (item for item in objects if item["metadata"]["name"] == f"{run}-source")
    texts: Mapping[str, str] = config_map["data"]
    return texts


def test_every_public_name_is_exported() -> None:
    """The names imported for the type checker are exactly those at run time."""
    tree = ast.parse(Path(launcher.__file__).read_text())
    conditions = [node for node in tree.body if isinstance(node, ast.If)]
    (checked,) = [node for node in conditions if ast.unparse(node.test) == "TYPE_CHECKING"]
    for_the_checker = {
        (statement.module, alias.name)
        for statement in checked.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    at_run_time = {(module, name) for module, names in launcher._NAMES.items() for name in names}
    assert at_run_time == for_the_checker
    assert launcher.__all__ == sorted(["__version__", *(name for _, name in at_run_time)])
    assert set(launcher.__all__) <= set(dir(launcher))
    for module, name in at_run_time:
        assert getattr(launcher, name).__module__ == module


def test_every_public_name_is_documented() -> None:
    for name in launcher.__all__:
        assert name == "__version__" or (getattr(launcher, name).__doc__ or "").strip(), name


def test_a_name_that_is_none() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'sumbit'"):
        _ = launcher.sumbit  # type: ignore[attr-defined]


def test_what_it_raises_is_a_launcher_error() -> None:
    for name in ("BackendError", "ConflictError", "NotFoundError", "SpecError"):
        assert issubclass(getattr(launcher, name), LauncherError)


def test_the_same_run_however_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    (loaded,) = load(FILE)
    mapping = yaml.safe_load(FILE.read_text())
    expected = render(str(FILE))
    assert expected[0]["kind"] == "Job"
    assert render(FILE) == render(loaded) == expected
    with pytest.raises(SpecError, match=r"no such file or folder: \./train.py"):
        render(mapping)
    monkeypatch.chdir(FILE.parent)  # a path in a mapping is relative to it
    assert render(mapping) == render(TrainingCluster.model_validate(mapping)) == expected


def test_a_jobset() -> None:
    kinds = [item["kind"] for item in render(SMALL, form="jobset")]
    assert (kinds[0], kinds.count("Job")) == ("JobSet", 0)


def test_a_cluster_takes_lists_and_mappings() -> None:
    cluster = TrainingCluster(**SMALL)
    assert cluster.spec.command == ("python", "train.py")
    assert primary(render(cluster))["command"] == ["python", "train.py"]


def test_a_cluster_takes_the_names_of_python() -> None:
    """A file may not have them."""
    spec: dict[str, Any] = {"strategy": "Mirrored", "model_dir": "/model", "command": ["python"]}
    cluster = TrainingCluster(
        api_version="launcher/v1alpha1",
        kind="TrainingCluster",
        metadata=Metadata(name="a"),
        spec=Spec(strategy="Mirrored", model_dir="/model", command=("python",)),
    )
    assert cluster.spec == Spec(**spec)
    assert spec_of(render(cluster))["modelDir"] == "/model"
    refusal = message({**SMALL, "spec": spec})
    assert "the cluster: spec.model_dir: unknown field; did you mean modelDir?" in refusal


def test_overrides_and_namespace() -> None:
    objects = render(SMALL, namespace="vision", overrides=["spec.chief.resources={cpu: 2}"])
    assert {item["metadata"]["namespace"] for item in objects} == {"vision"}
    assert primary(objects)["resources"] == {"requests": {"cpu": "2"}}


def test_a_tfjob_is_taken_as_it_is() -> None:
    path = SPECS / "valid" / "tfjob-one-worker.yaml"
    mapping = yaml.safe_load(path.read_text())
    text = launcher.convert(path)
    assert text == launcher.convert(mapping)
    assert yaml.safe_load(text)["kind"] == "TrainingCluster"
    assert "\n# A TFJob, as a cluster.yaml." in text
    assert render(path) == render(mapping) == render(load(path)[0])
    with pytest.raises(SpecError, match="kind: expected a TFJob: this is a TrainingCluster already"):
        launcher.convert(SMALL)


def test_a_class_is_a_program_of_its_module(trainer: ModuleType) -> None:
    objects = render(
        trainer.Program,
        strategy="ParameterServer",
        worker={"replicas": 2},
        ps={},
        model_dir="/model",
        parameters={"epochs": 3},
        program={"keras": 2},
    )
    assert objects[0]["metadata"]["name"] == "program-chief"
    assert spec_of(objects)["program"] == {
        "source": "trainer.py",
        "entrypoint": "trainer:Program",
        "keras": 2,
        "parameters": {"epochs": 3},
    }
    assert spec_of(objects)["modelDir"] == "/model"
    assert "class Program" in source_of(objects, "program")["file-0"]


def test_a_function_is_called_in_every_task_that_trains(trainer: ModuleType) -> None:
    called = ["--", "-m", "worker.function", "trainer:train_MNIST"]
    objects = render(
        trainer.train_MNIST,
        strategy="MultiWorkerMirrored",
        worker={"replicas": 2},
        parameters={"epochs": 3},
        source=str(Path(trainer.__file__ or "").parent),
    )
    assert objects[0]["metadata"]["name"] == "train-mnist-worker"
    assert primary(objects)["args"] == called
    assert spec_of(objects)["program"] == {"source": "programs", "parameters": {"epochs": 3}}

    objects = render(
        trainer.train_MNIST,
        name="tm",
        strategy="ParameterServer",
        chief={"resources": {"cpu": 1}},
        worker={},
        ps={},
        parameters={"epochs": 3},
    )
    jobs = {item["metadata"]["name"]: primary([item]) for item in objects if item["kind"] == "Job"}
    assert jobs["tm-chief"]["args"] == called
    assert "args" not in jobs["tm-worker"]


def message(*arguments: Any, **fields: Any) -> str:
    with pytest.raises(SpecError) as caught:
        submit(*arguments, **fields)
    return str(caught.value)


def test_what_cannot_be_shipped_is_refused(trainer: ModuleType) -> None:
    assert "train_MNIST): it is called with the parameters by name, and cannot be: " in message(
        trainer.train_MNIST, strategy="OneDevice", parameters={"epoch": 3}
    )
    assert "trainer does not have it by that name" in message(trainer.make(), strategy="OneDevice")
    assert "trainer does not have it by that name" in message(trainer.unnamed, strategy="OneDevice")
    assert "this has no train_dataset; a function is the training itself" in message(trainer.Model)
    assert "there is no Python file of its module builtins" in message(int)
    assert "expected a class or a function, not builtin_function_or_method" in message(len)
    refusal = message(trainer.train_MNIST, parameters={"epochs": 1}, source="/")
    assert f"source: expected the folder that trainer is imported from, {Path(__file__).parent}" in refusal
    refusal = message(render, name="x", parameters={"what": "y"})
    root = Path(launcher.__file__).parents[1]
    assert f"launcher.api is in a package: give source, the folder to ship ({root})" in refusal
    both = {"strategy": "ParameterServer", "chief": {"args": ["x"]}, "parameters": {"epochs": 1}}
    assert "takes the place of command and args" in message(trainer.train_MNIST, **both)


def test_a_function_of_the_script_that_runs_is_refused(tmp_path: Path) -> None:
    """To import it would run the submission again."""
    script = tmp_path / "main.py"
    script.write_text(
        "import launcher\n"
        "def train(): ...\n"
        "try: launcher.submit(train, strategy='OneDevice')\n"
        "except launcher.SpecError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "in the script that runs: put it into a module of its own" in done.stdout


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("no-such-file.yaml", "no-such-file.yaml: no such file"),
        (5, "expected a path, a mapping, a TrainingCluster, or a class or a function, not int"),
        ({}, "the cluster: spec: missing"),
        ({**SMALL, "spec": {**SMALL["spec"], "stratgey": 1}}, "spec.stratgey: unknown field; did you mean"),
        ({**SMALL, "spec": {**SMALL["spec"], "ps": {}}}, "spec.ps: Mirrored has no parameter servers"),
        ({**SMALL, "spec": {**SMALL["spec"], "args": [Path("x")]}}, "expected what a file can hold"),
        (
            TrainingCluster.model_construct(kind="TrainingCluster"),  # type: ignore[call-arg]
            "the cluster: apiVersion: missing",
        ),
    ],
)
def test_a_wrong_cluster(what: Any, expected: str) -> None:
    assert expected in message(what)


def test_a_wrong_call(tmp_path: Path) -> None:
    two = tmp_path / "two.yaml"
    two.write_text("\n---\n".join(yaml.safe_dump({**SMALL, "metadata": {"name": name}}) for name in "ab"))
    assert f"{two}: it holds 2 runs: take them one by one, from load()" in message(two)
    assert "backend: expected kubernetes or local, not slurm" in message(SMALL, backend="slurm")
    with pytest.raises(SpecError, match="form: expected jobs or jobset, not pods"):
        render(SMALL, form="pods")  # type: ignore[arg-type]
    assert "worker: only a script, a class or a function takes fields: use overrides" in message(
        SMALL, worker={}
    )
    refusal = message(SMALL, overrides="spec.worker.replicas=4")
    assert 'overrides: expected a list, as in ["spec.worker.replicas=4"]' in refusal
    assert "--set spec.x: expected field=value" in message(SMALL, overrides=["spec.x"])


def test_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    render(FILE)
    message({})
    assert capsys.readouterr() == ("", "")
