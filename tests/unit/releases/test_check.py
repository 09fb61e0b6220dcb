"""A tag is released only if the package, the runtime, the chart and the changelog name its version."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import launcher
from releases import check

VERSION = launcher.__version__
HEADING = rf"^## \[{re.escape(VERSION)}\].*"
CHART = "charts/tf-launcher/Chart.yaml"
FILES = ("launcher/__init__.py", "worker/contract/version.py", CHART, "CHANGELOG.md")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files that name the version, with nothing unreleased."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(check.ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    text = changelog.read_text()
    released = text.index(f"## [{VERSION}]")
    changelog.write_text(text[: text.index("## [Unreleased]")] + "## [Unreleased]\n\n" + text[released:])
    return tmp_path


def change(path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, path.read_text(), flags=re.MULTILINE)
    assert count == 1
    path.write_text(text)


def test_what_agrees_is_released(root: Path) -> None:
    assert check.problems(f"v{VERSION}", root) == []
    notes = check.notes(VERSION, root)
    assert notes.startswith("### ")
    assert f"[{VERSION}]:" not in notes
    assert "## [" not in notes


def test_all_but_what_is_unreleased_agrees_here() -> None:
    """Between two releases only the changelog may have something more."""
    differences = check.problems(f"v{VERSION}")
    assert [line for line in differences if "[Unreleased] belongs" not in line] == []


@pytest.mark.parametrize("tag", ["v9.9.9", "v0.0.1"])
def test_another_tag_is_refused_by_every_place(root: Path, tag: str) -> None:
    differences = check.problems(tag, root)
    version = tag.removeprefix("v")
    assert [line.partition(":")[0] for line in differences] == [
        "launcher/__init__.py",
        "worker/contract/version.py",
        "charts/tf-launcher/Chart.yaml (version)",
        "charts/tf-launcher/Chart.yaml (appVersion)",
        "CHANGELOG.md",
    ]
    assert all(version in line and VERSION in line for line in differences)


@pytest.mark.parametrize("tag", ["0.2.0", "v0.2", "v0.2.0-rc1", "v00.2.0", "release", "v"])
def test_a_tag_of_another_form_is_refused(root: Path, tag: str) -> None:
    assert check.problems(tag, root) == [f"the tag {tag}: expected v and a version, such as v0.2.0"]


@pytest.mark.parametrize(
    ("name", "pattern", "replacement", "expected"),
    [
        ("launcher/__init__.py", r'^__version__ = ".*"', '__version__ = "7.0.0"', "not 7.0.0"),
        ("launcher/__init__.py", r'^__version__ = ".*"', "", "no version found"),
        ("worker/contract/version.py", r'^VERSION: Final = ".*"', 'VERSION: Final = "7.0.0"', "not 7.0.0"),
        (CHART, r"^version: .*", "version: 7.0.0", "(version): expected"),
        (CHART, r"^appVersion: .*", 'appVersion: "7.0.0"', "(appVersion): expected"),
        ("CHANGELOG.md", r"^## \[Unreleased\]", "", "expected ## [Unreleased]"),
        ("CHANGELOG.md", r"^## \[Unreleased\]", "## [Unreleased]\n\n- Something new.", "belongs under"),
        ("CHANGELOG.md", HEADING, "## [7.0.0] - 2026-01-31", "not [7.0.0]"),
        ("CHANGELOG.md", HEADING, f"## [{VERSION}]", "expected a date"),
        ("CHANGELOG.md", HEADING, f"## [{VERSION}] - 2026-02-30", "expected a date"),
        ("CHANGELOG.md", rf"^\[{re.escape(VERSION)}\]: .*", "", f"a last line [{VERSION}]:"),
        ("CHANGELOG.md", r"^\[Unreleased\]: .*", "[Unreleased]: ../v7.0.0", "a last line [Unreleased]:"),
    ],
)  # fmt: skip
def test_one_that_differs_is_named(
    root: Path, name: str, pattern: str, replacement: str, expected: str
) -> None:
    change(root / name, pattern, replacement)
    (difference,) = check.problems(f"v{VERSION}", root)
    assert difference.startswith(name)
    assert expected in difference


def test_as_the_workflow_runs_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "problems", lambda tag: problems(tag, root))
    monkeypatch.setattr(check, "notes", lambda version: "what is new")
    assert check.main([f"v{VERSION}", "--notes"]) == 0
    assert capsys.readouterr() == ("what is new\n", "")
    assert check.main(["v9.9.9", "--notes"]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("v9.9.9 cannot be released:\n  launcher/__init__.py: expected 9.9.9")


problems = check.problems


def test_the_workflow_builds_only_after_the_check() -> None:
    workflow = (check.ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert "python -m releases.check" in workflow
