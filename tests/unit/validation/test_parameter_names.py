"""Misspelt parameters: names similar to one of the runtime's, which the program does not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher import plan_of_file
from launcher.errors import SpecError
from launcher.validation import loader, parameter_names, rules

CLUSTER = """
apiVersion: launcher/v1alpha1
kind: TrainingCluster
metadata: {{name: run}}
spec:
  strategy: OneDevice
  modelDir: gs://bucket/run
  program:
    {source}
    entrypoint: program:Program
    parameters:
      epochs: 3
      {name}: 5
"""
PROGRAM = "class Program:\n    def __init__(self, parameters):\n        self.read = parameters{read}\n"


def planned(folder: Path, name: str, *, read: str = '["units"]', source: str = "source: program.py") -> None:
    (folder / "program.py").write_text(PROGRAM.format(read=read))
    (folder / "cluster.yaml").write_text(CLUSTER.format(source=source, name=name))
    (loaded,) = loader.load(str(folder / "cluster.yaml"))
    plan_of_file.plan(loaded)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("steps_per_epoch", "stepsPerEpoch"),
        ("globalBatchsize", "globalBatchSize"),
        ("epoch", "epochs"),
        ("num_epochs", "epochs"),
        ("steps", "stepsPerEpoch"),
        ("batchSize", "globalBatchSize"),
        ("batch_size_per_replica", "batchSizePerReplica"),
    ],
)
def test_a_name_that_nobody_reads_is_refused_with_its_line(tmp_path: Path, name: str, meant: str) -> None:
    with pytest.raises(SpecError) as refused:
        planned(tmp_path, name)
    (problem,) = refused.value.problems
    message = "neither the runtime nor the program's source has a parameter of this name"
    where = f"{tmp_path / 'cluster.yaml'}:13:7: spec.program.parameters.{name}"
    assert str(problem) == f"{where}: {message}: did you mean {meant}?"


@pytest.mark.parametrize("read", ['["steps"]', ".get('steps', 3)"])
def test_one_that_the_program_reads_is_its_own(tmp_path: Path, read: str) -> None:
    planned(tmp_path, "steps", read=read)


def test_a_word_in_the_program_that_is_no_string_does_not_count(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        planned(tmp_path, "steps", read='["units"]  # and many steps')


@pytest.mark.parametrize("name", ["hiddenUnits", "learning_rate", "rate", "stepsPerExecution", "dataDir"])
def test_other_names_are_left_alone(tmp_path: Path, name: str) -> None:
    planned(tmp_path, name)


def test_a_program_of_an_image_may_read_it(tmp_path: Path) -> None:
    """So it gets a notice, and only for names that are very similar."""
    planned(tmp_path, "globalBatchsize", source="")
    (loaded,) = loader.load(str(tmp_path / "cluster.yaml"))
    notice = (
        "spec.program.parameters.globalBatchsize: the runtime does not read it; did you mean globalBatchSize?"
    )
    assert rules.notices(loaded.cluster) == [notice]
    assert parameter_names.notices({"batchSize": 1, "steps": 2, "hidden": 3}) == []
