"""A cluster file, which somebody else may have written, ships only files of its own folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import launcher
from launcher.cli import parser
from launcher.errors import SpecError
from launcher.validation import loader, source

PROGRAM = "class Program:\n    def model(self): ...\n    def train_dataset(self, batch_size): ...\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """`there/` is the file's folder; `secret.py` and `others/` lie outside."""
    (tmp_path / "secret.py").write_text(PROGRAM)
    for name in ("there/code", "others"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "train.py").write_text(PROGRAM)
    return tmp_path


def written(place: Path, given: str, module: str = "train") -> str:
    program = {"source": given, "entrypoint": f"{module}:Program"}
    spec = {"strategy": "OneDevice", "program": program}
    document = {"apiVersion": "launcher/v1alpha1", "kind": "TrainingCluster", "metadata": {"name": "run"}}
    path = place / "there" / "cluster.yaml"
    path.write_text(yaml.safe_dump({**document, "spec": spec}))
    return str(path)


def refused(path: str) -> str:
    (loaded,) = loader.load(path)
    with pytest.raises(SpecError) as caught:
        source.read(loaded)
    (problem,) = caught.value.problems
    assert problem.path == "spec.program.source"
    return problem.message


def test_what_lies_beside_the_file_is_taken(place: Path) -> None:
    for given in ("code", "./code", "code/../code", "code/train.py", str(place / "there" / "code")):
        assert source.read(loader.load(written(place, given))[0])


def test_a_path_that_leads_out(place: Path) -> None:
    outside = f"outside the cluster file's folder {place / 'there'}: copy it there, or give --allow-outside"
    assert f"../others is {place / 'others'}, {outside}" in refused(written(place, "../others"))
    assert f"{place}/others is {outside}" in refused(written(place, str(place / "others")))
    assert outside in refused(written(place, "code/../../secret.py", "secret"))


def test_a_link_that_leads_out(place: Path) -> None:
    link = place / "there" / "linked"
    link.symlink_to("../others")
    assert f"is by the link {link} {place / 'others'}, outside" in refused(written(place, "linked"))
    assert f"is by the link {link} " in refused(written(place, "linked/train.py"))


def test_a_link_within_the_program_that_leads_out(place: Path) -> None:
    link = place / "there" / "code" / "config.txt"
    link.symlink_to("../../secret.py")
    message = refused(written(place, "code"))
    assert message.startswith(
        f"code has config.txt, which is by the link {link} {place / 'secret.py'}, outside"
    )


def test_a_link_of_a_link_that_leads_out(place: Path) -> None:
    (place / "there" / "first").symlink_to("../secret.py")
    (place / "there" / "code" / "second.py").symlink_to("../first")
    assert f"{place / 'secret.py'}, outside" in refused(written(place, "code"))


def test_a_link_within_the_folder_is_taken(place: Path) -> None:
    (place / "there" / "shared.py").write_text("")
    (place / "there" / "code" / "shared.py").symlink_to("../shared.py")
    program_files = source.read(loader.load(written(place, "code"))[0])
    assert program_files is not None
    assert set(program_files.files) == {"shared.py", "train.py"}


def test_the_files_own_folder_may_be_a_link(place: Path) -> None:
    written(place, "code")
    (place / "elsewhere").symlink_to("there")
    assert source.read(loader.load(str(place / "elsewhere" / "cluster.yaml"))[0])


def test_what_a_kubelet_mounts_is_taken(place: Path) -> None:
    """A kubelet mounts a volume's files as links into a folder that is itself a link's target."""
    (place / "there" / "code").rename(place / "there" / "..2026")
    (place / "there" / "..data").symlink_to("..2026")
    (place / "there" / "train.py").symlink_to("..data/train.py")
    assert source.read(loader.load(written(place, "train.py"))[0])


def test_whoever_means_it_allows_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "there" / "code" / "more.py").symlink_to("../../secret.py")
    path = written(place, "code")
    assert parser.main(["validate", path]) == 2
    assert "--allow-outside" in capsys.readouterr().err
    assert parser.main(["validate", path, "--allow-outside"]) == 0
    (loaded,) = launcher.load(path, allow_outside=True)
    maps = [item for item in launcher.render(loaded) if item["metadata"]["name"] == "run-source"]
    assert len(maps[0]["data"]) == 2
    with pytest.raises(SpecError, match="outside the cluster file's folder"):
        launcher.render(path)


def test_a_function_of_ones_own_is_sent_from_wherever_it_is(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code runs here already."""
    module = place / "others" / "linked_training.py"
    module.symlink_to("../secret.py")
    monkeypatch.syspath_prepend(str(module.parent))
    import importlib

    program: Any = importlib.import_module("linked_training").Program
    assert launcher.render(program, name="run", strategy="OneDevice")


def of_script(place: Path, **program: str) -> list[str]:
    path = Path(written(place, "code"))
    document = yaml.safe_load(path.read_text())
    document["spec"]["program"] = program
    path.write_text(yaml.safe_dump(document))
    (loaded,) = loader.load(str(path))
    return [f"{problem.path}: {problem.message}" for problem in source.problems(loaded)]


def test_a_script_is_a_file_or_one_in_the_source(place: Path) -> None:
    assert (
        of_script(place, script="code/train.py") == of_script(place, source="code", script="./train.py") == []
    )
    here = "spec.program.script: no"
    assert of_script(place, script="trian.py") == [
        f"{here} such file or folder: trian.py (beside the cluster file)"
    ]
    problems = of_script(place, source="code", script="code/train.py")
    assert problems == [f"{here} file code/train.py in the source; did you mean train.py?"]


def test_a_script_that_is_no_python(place: Path) -> None:
    (place / "there" / "code" / "train.py").write_text("model.fit(\n")
    (problem,) = of_script(place, script="code/train.py")
    assert problem.startswith("spec.program.script: train.py:1: not valid Python: ")
