"""The chart's package; and the generated parts of the chart are up to date."""

from __future__ import annotations

import importlib.util
import json
import tarfile
from pathlib import Path

import pytest
import yaml

import launcher
from tests.chart.helm import CHART, Helm


def test_what_is_made_is_up_to_date() -> None:
    specification = importlib.util.spec_from_file_location("generate", CHART.parent / "generate.py")
    assert specification is not None
    assert specification.loader is not None
    generate = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(generate)
    for name, make in generate.MADE.items():
        assert (CHART / name).read_text() == make(), f"{name} is out of date: run `make chart`"


def test_package(helm: Helm, tmp_path: Path) -> None:
    done = helm.run("package", CHART, "--destination", tmp_path)
    assert done.code == 0, done.error
    (package,) = tmp_path.glob("*.tgz")
    assert package.name == f"tf-launcher-{launcher.__version__}.tgz"
    with tarfile.open(package) as archive:
        held = {name.removeprefix("tf-launcher/") for name in archive.getnames()}
        schema = archive.extractfile("tf-launcher/values.schema.json")
        assert schema is not None
        assert "Spec" in json.load(schema)["$defs"]
    there = {path.relative_to(CHART).as_posix() for path in CHART.rglob("*") if path.is_file()}
    assert held == there - {".helmignore"} | (held & {".helmignore"})
    shown = helm.run("show", "chart", package)
    assert yaml.safe_load(shown.out)["appVersion"] == launcher.__version__


@pytest.mark.parametrize("name", ["README.md", "values.yaml", "values.schema.json", "templates/NOTES.txt"])
def test_no_trace_of_a_machine(name: str) -> None:
    text = (CHART / name).read_text()
    assert "\t" not in text
    assert "localhost" not in text
