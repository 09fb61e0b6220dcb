"""The chart's package."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import yaml

import launcher
from tests.chart.helm import CHART, Helm


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
