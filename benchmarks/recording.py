"""Prints a benchmark's result, and writes it into docs/benchmarks.md."""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

from benchmarks.measuring import ROOT

DOCUMENT = ROOT / "docs" / "benchmarks.md"


def parser(module: str, documentation: str, rounds: int) -> argparse.ArgumentParser:
    """With the arguments of every harness; `documentation` is its module's."""
    made = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=documentation,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--rounds", type=int, default=rounds, help="(%(default)s)")
    made.add_argument("--record", action="store_true", help="renew this harness' part of docs/benchmarks.md")
    return made


def publish(name: str, text: str, *, record: bool) -> None:
    """Prints `text`, Markdown without a heading, below the command and the machine; `record` as in `parser`.

    `name` is that of the part, which docs/benchmarks.md has between `<!-- begin NAME -->` and `<!-- end -->`.
    """
    part = f"    {command()}\n\n{machine()} {text.strip()}\n"
    print(part)
    if record:
        DOCUMENT.write_text(replaced(DOCUMENT.read_text(), name, part))


def replaced(document: str, name: str, part: str) -> str:
    """Returns `document` with the part of that name replaced. Raises ValueError where it has none."""
    pattern = re.compile(rf"(<!-- begin {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    renewed, found = pattern.subn(lambda match: f"{match[1]}\n{part}\n{match[2]}", document)
    if found != 1:
        raise ValueError(f"docs/benchmarks.md has {found} parts named {name}, expected 1")
    return renewed


def command() -> str:
    """Returns the command that measures the same again."""
    spec = sys.modules["__main__"].__spec__
    module = spec.name if spec else Path(sys.argv[0]).name
    return " ".join(
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
