"""docs/benchmarks/: each part names the command that printed it, and the command can be run."""

import importlib
import re
from pathlib import Path

import pytest

from benchmarks import recording

PART = re.compile(r"<!-- begin (\S+) -->\n\n(.*?)<!-- end -->", re.DOTALL)
COMMAND = re.compile(r"    \.venv/bin/python -m (benchmarks\.\w+)( .*)?\n")
PARTS = dict(part for page in recording.PAGES.glob("*.md") for part in PART.findall(page.read_text()))


@pytest.mark.parametrize("name", PARTS)
def test_a_part_starts_with_the_command_that_printed_it(name: str) -> None:
    command = COMMAND.match(PARTS[name])
    assert command
    module = importlib.import_module(command[1])
    assert re.search(rf'publish\(\s*"{name}"', Path(str(module.__file__)).read_text())


def test_only_the_part_of_that_name_is_renewed() -> None:
    document = "a\n<!-- begin one -->\nold\n<!-- end -->\nb\n<!-- begin two -->\nkept\n<!-- end -->\n"
    renewed = recording.replaced(document, "one", "new \\1\n")
    assert renewed == (
        "a\n<!-- begin one -->\n\nnew \\1\n\n<!-- end -->\nb\n<!-- begin two -->\nkept\n<!-- end -->\n"
    )


def test_a_part_is_on_one_page() -> None:
    assert {recording.page_with(name) for name in PARTS} < set(recording.PAGES.glob("*.md"))
    with pytest.raises(ValueError, match="0 pages have a part named three"):
        recording.page_with("three")
