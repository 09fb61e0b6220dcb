"""Compiled templates are cached, and never used for a changed template."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest

from launcher.plan import rendering
from launcher.plan.template_cache import TemplateCache
from tests.paths import ROOT


def rendered(directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, bool]:
    """Returns what the template prints, and whether it was compiled for it."""
    compiled: list[object] = []
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(directory), bytecode_cache=TemplateCache()
    )
    compile_ = environment.compile

    def counted(*given: Any) -> Any:
        compiled.append(given)
        return compile_(*given)

    monkeypatch.setattr(environment, "compile", counted)
    return environment.get_template("job.yaml.j2").render(name="one"), bool(compiled)


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    path = tmp_path / "job.yaml.j2"
    path.write_text("name: {{ name }}")
    return path


def kept(template: Path) -> list[Path]:
    return sorted(template.parent.glob("__pycache__/*"))


def test_what_was_compiled_is_kept(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rendered(template.parent, monkeypatch) == ("name: one", True)
    assert [path.name for path in kept(template)] == [f"job.yaml.{sys.implementation.cache_tag}.pyc"]
    assert rendered(template.parent, monkeypatch) == ("name: one", False)


def test_a_template_that_has_changed_is_compiled_again(
    template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered(template.parent, monkeypatch)
    template.write_text("name: {{ name }}!")
    assert rendered(template.parent, monkeypatch) == ("name: one!", True)
    assert rendered(template.parent, monkeypatch) == ("name: one!", False)


def test_so_it_is_by_another_jinja(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered(template.parent, monkeypatch)
    monkeypatch.setattr(jinja2, "__version__", "99")
    assert rendered(template.parent, monkeypatch) == ("name: one", True)


@pytest.mark.parametrize("left", [0, 5, 40, 100])
def test_a_file_cut_short_is_no_error(template: Path, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    rendered(template.parent, monkeypatch)
    (path,) = kept(template)
    path.write_bytes(path.read_bytes()[:left])
    assert rendered(template.parent, monkeypatch) == ("name: one", True)
    assert rendered(template.parent, monkeypatch) == ("name: one", False)


def test_what_cannot_be_kept_is_compiled_each_time(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (template.parent / "__pycache__").write_text("in the way")
    assert rendered(template.parent, monkeypatch) == ("name: one", True)
    assert rendered(template.parent, monkeypatch) == ("name: one", True)


def test_who_wants_no_bytecode_gets_none(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert rendered(template.parent, monkeypatch) == ("name: one", True)
    assert kept(template) == []


def test_all_templates_are_compiled_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    rendering._environment.cache_clear()
    rendering.compile_templates()
    compiled = {path.name.split(".")[0] for path in tmp_path.rglob("*.yaml.*")}
    manifests = ROOT / "manifests"
    assert compiled == {path.name.split(".")[0] for path in manifests.glob("*.j2")}
