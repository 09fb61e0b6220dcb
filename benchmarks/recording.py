"""Prints a benchmark's result, and writes it into a page of docs/benchmarks/."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path

from benchmarks.measuring import ROOT

PAGES = ROOT / "docs" / "benchmarks"


def parser(module: str, documentation: str, rounds: int) -> argparse.ArgumentParser:
    """With the arguments of every harness; `documentation` is its module's."""
    made = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=documentation,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--rounds", type=int, default=rounds, help="(%(default)s)")
    made.add_argument("--record", action="store_true", help="renew this harness' part of docs/benchmarks/")
    return made


def publish(name: str, text: str, *, record: bool) -> None:
    """Prints `text`, Markdown without a heading, below the command and the machine; `record` as in `parser`.

    `name` is that of the part, which a page of docs/benchmarks/ has between `<!-- begin NAME -->` and
    `<!-- end -->`.
    """
    part = f"    {command()}\n\n{machine()} {text.strip()}\n"
    print(part)
    if record:
        page = page_with(name)
        page.write_text(replaced(page.read_text(), name, part))


def page_with(name: str) -> Path:
    """Returns the page that has the part of that name. Raises ValueError where not exactly one has."""
    pages = [page for page in PAGES.glob("*.md") if f"<!-- begin {name} -->\n" in page.read_text()]
    if len(pages) != 1:
        raise ValueError(f"docs/benchmarks/: {len(pages)} pages have a part named {name}, expected 1")
    return pages[0]


def replaced(page: str, name: str, part: str) -> str:
    """Returns the text of `page`, which has the part of that name once, with that part replaced."""
    pattern = re.compile(rf"(<!-- begin {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}\n{part}\n{match[2]}", page)


def command() -> str:
    """Returns the command that measures the same again."""
    spec = sys.modules["__main__"].__spec__
    module = spec.name if spec else Path(sys.argv[0]).name
    return shlex.join(
        [".venv/bin/python", "-m", module, *(word for word in sys.argv[1:] if word != "--record")]
    )


def machine() -> str:
    """Returns one sentence about this machine."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"Measured with {os.cpu_count()} cores ({_processor()}), {gigabytes:.0f} GiB, {platform.system()},"
        f" Python {platform.python_version()}, TensorFlow {_tensorflow()}."
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _tensorflow() -> str:
    for package in ("tensorflow", "tensorflow-cpu"):
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return "not installed"
