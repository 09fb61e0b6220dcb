"""The documents are correct: commands run, files are valid, and generated parts are up to date."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import markdown  # type: ignore[import-untyped]
import pytest
import yaml
from markdown_it import MarkdownIt

from launcher.plan import runtime_archive
from launcher.validation import loader

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", *PAGES]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# They start TensorFlow, or this very test; tests/local/whole/test_demo.py runs them.
ELSEWHERE = re.compile(
    r"^(make |(python -m |tf-)launcher (submit|status|logs|report|wait|delete|list|kill)\b)"
)


def by_path(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(document: Path, language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(document.read_text()) if name == language]


def commands(document: Path) -> list[str]:
    return [line for text in blocks(document, "sh") for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_path)
def test_commands(document: Path, tmp_path: Path) -> None:
    """Runs the commands in order, in one empty folder, as a reader would type them."""
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": binaries, "PYTHONPATH": str(ROOT)}
    for line in commands(document):
        command, _, comment = line.partition("  # ")
        if ELSEWHERE.match(command):
            continue
        expected = re.search(r"exits with (\d+)", comment)
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == (int(expected[1]) if expected else 0), f"{command}\n{done.stderr}"
        if expected:
            assert all(f"    {error_line}" in document.read_text() for error_line in done.stderr.splitlines())


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_path)
def test_every_command_is_one(document: Path) -> None:
    """Commands that run in other tests, or are in the text, can at least be parsed."""
    from launcher.cli import parser

    text = document.read_text().replace("\\\n", " ")
    typed = "\n".join(line.replace("tf-launcher", "`tf-launcher") for line in commands(document))
    for line in re.findall(r"(?:python -m |`tf-)launcher ([a-z]+ [^\n`|>#;]*)", f"{text}\n{typed}"):
        arguments = [word for word in shlex.split(line) if word not in ("...",)]
        if any(word in ("FILE", "FOLDER", "NAME") for word in arguments):
            continue
        try:
            parser.parser().parse_args(arguments)
        except SystemExit:
            pytest.fail(f"{document.name}: python -m launcher {line}")


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_path)
def test_files(document: Path, tmp_path: Path) -> None:
    """A whole file is valid; a part of one is valid inside a whole file."""
    (tmp_path / "train.py").write_text("class Program: pass\n")
    for text in blocks(document, "yaml"):
        part = yaml.safe_load(text)
        whole = {
            "apiVersion": "launcher/v1alpha1",
            "kind": "TrainingCluster",
            "metadata": {"name": "part"},
            **part,
        }
        spec = whole["spec"]
        if part.keys() == {"spec"}:
            spec.setdefault("strategy", "MultiWorkerMirrored")
            spec.setdefault("worker", {"replicas": 2})
            if "command" not in spec and spec["strategy"] != "Custom":
                spec.setdefault("program", {"entrypoint": "a:B"})
        path = tmp_path / "cluster.yaml"
        path.write_text(yaml.safe_dump(whole))
        assert loader.load(str(path))


def anchors(text: str) -> set[str]:
    """Returns the anchors of the headings, as GitHub names them: a repeated heading gets a number."""
    counts: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ +(.*?) *$", BLOCK.sub("", text), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(
            " ", "-"
        )
        names.add(f"{name}-{counts[name]}" if name in counts else name)
        counts[name] = counts.get(name, 0) + 1
    return names


EVERY_DOCUMENT = [
    *ROOT.glob("*.md"),
    *(path for folder in ("docs", "charts", "examples") for path in (ROOT / folder).rglob("*.md")),
]


@pytest.mark.parametrize("document", EVERY_DOCUMENT, ids=by_path)
def test_links_lead_somewhere(document: Path) -> None:
    """Each link leads to an existing file, and to an existing heading in it."""
    text = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", document.read_text()))
    for target in re.findall(r"!?\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        there = document.parent / path if path else document
        assert there.exists(), target
        assert not anchor or anchor in anchors(there.read_text()), target


def test_a_broken_link_is_found() -> None:
    assert anchors("# A `b.c`, d!\n## A\n\n### A\n```sh\n# no heading\n```\n## [x y](z) e") == {
        "a-bc-d",
        "a",
        "a-1",
        "x-y-e",
    }


def generated() -> dict[Path, str]:
    """Returns the pages that are made from the code."""
    specification = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert specification is not None
    assert specification.loader is not None
    generate = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(generate)
    pages: dict[Path, str] = generate.pages()
    return pages


def test_the_reference_is_up_to_date() -> None:
    for page, text in generated().items():
        assert page.read_text() == text, "run `make docs`"


def test_each_page_is_short_and_can_be_found() -> None:
    made = generated()
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    contents = (ROOT / "docs" / "README.md").read_text()
    for page in PAGES:
        assert page in made or page.read_text().count("\n") <= 300, f"{page}: split it, by subject"
        name = str(page.relative_to(ROOT / "docs"))
        assert re.search(rf" {re.escape(name)}$", navigation, re.MULTILINE), f"{name}: not in mkdocs.yml"
        assert name == "README.md" or f"]({name})" in contents, f"{name}: not in docs/README.md"


ELEMENT = re.compile(r"<(h\d|p|li|ul|ol|pre|code|table|tr|td|strong|em|a|img)\b")


@pytest.mark.parametrize("page", PAGES, ids=by_path)
def test_a_page_reads_the_same_on_github_and_on_the_site(page: Path) -> None:
    """The two have rules of their own: for one, how far a list's further paragraphs are indented."""
    text = page.read_text()
    there = MarkdownIt("commonmark").enable("table").render(text)
    here = markdown.markdown(text, extensions=["tables", "fenced_code"])
    assert Counter(ELEMENT.findall(here)) == Counter(ELEMENT.findall(there))


FOLDERS = (
    "benchmarks",
    "charts",
    "docs",
    "examples",
    "launcher",
    "manifests",
    "releases",
    "requirements",
    "tests",
    "worker",
)


@pytest.mark.parametrize("document", [ROOT / "CONTRIBUTING.md", *DOCUMENTS], ids=by_path)
def test_the_files_and_modules_that_are_named_exist(document: Path) -> None:
    text = BLOCK.sub("", document.read_text()).replace("`launcher/v1alpha1`", "")
    for path in re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*)`", text):
        assert (ROOT / path).exists(), path
    for module, name in re.findall(r"`((?:launcher|worker)(?:\.[a-z_]+)*)\.([A-Za-z_]+)[(`]", text):
        folder = ROOT / module.replace(".", "/")
        is_module = (folder / name).exists() or (folder / f"{name}.py").exists()
        assert is_module or hasattr(importlib.import_module(module), name), f"{module}.{name}"
    if document.name in ("CONTRIBUTING.md", "design.md"):  # short names of ours, and no file of a user's
        ours = [str(path) for folder in FOLDERS for path in (ROOT / folder, *(ROOT / folder).rglob("*"))]
        for path in re.findall(r"`([\w/-]+(?:\.py|/))`", text):
            assert any(known.endswith(f"/{path.rstrip('/')}") for known in ours), path


def test_the_design_names_modules_that_exist_and_numbers_its_decisions() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    for where, job in re.findall(r"^\| (`.*?) \| (.*) \|$", text, re.MULTILINE):
        folder = ROOT / re.findall(r"`([\w/.]+)`", where)[0]
        for name in re.findall(r"`([a-z_]+)`", job):
            assert name == "render" or list(folder.rglob(name)) + list(folder.rglob(f"{name}.py")), name
    numbers = re.findall(r"^(\d+)\. \*\*", text, re.MULTILINE)
    assert numbers == [str(number + 1) for number in range(len(numbers))]


def test_the_size_of_the_runtime_that_travels() -> None:
    size = re.search(r"archive of (\d+) KB", (ROOT / "docs" / "design.md").read_text())
    assert size
    assert len(runtime_archive.packed(None)) / 1000 == pytest.approx(int(size[1]), rel=0.1)


def test_the_pictures_are_up_to_date() -> None:
    from docs import pictures

    for path, text in pictures.pictures().items():
        assert path.read_text() == text, "run `make docs`"
        assert path.stat().st_size < 40_000


def test_the_table_of_commands_has_them_all() -> None:
    from launcher.cli import parser

    (subparsers,) = (a for a in parser.parser()._actions if a.choices)
    assert subparsers.choices is not None
    readme = (ROOT / "README.md").read_text()
    for command in subparsers.choices:
        assert f"`{command}" in readme, command
