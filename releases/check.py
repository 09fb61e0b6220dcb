"""Checks that a tag, the package, the runtime, the chart and the changelog name one version.

    python -m releases.check v0.2.0            exits with 1, and says what differs
    python -m releases.check v0.2.0 --notes    prints the version's part of the changelog, too

Standard library only: it reads the files as they are, before anything is installed.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

# A version that Helm and pip both read the same way: SemVer without build metadata, and no pre-release.
_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_PLACES: Final = {
    "launcher/__init__.py": r'^__version__ = "(.*)"$',
    "worker/contract/version.py": r'^VERSION: Final = "(.*)"$',
    "charts/tf-launcher/Chart.yaml (version)": r"^version: (.*)$",
    "charts/tf-launcher/Chart.yaml (appVersion)": r'^appVersion: "(.*)"$',
}
"""Each place that names the version, and how."""

_HEADING: Final = re.compile(r"^## \[(?P<name>[^]]*)\](?: - (?P<date>\S+))?$", re.MULTILINE)
_LINK: Final = re.compile(r"^\[[^]]+\]: .*$", re.MULTILINE)


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """A sentence for each thing that keeps the tag from being released; none if all agree."""
    version = tag.removeprefix("v")
    if not tag.startswith("v") or not _VERSION.fullmatch(version):
        return [f"the tag {tag}: expected v and a version, such as v0.2.0"]
    found = []
    for place, pattern in _PLACES.items():
        text = (root / place.partition(" ")[0]).read_text(encoding="utf-8")
        named = re.search(pattern, text, re.MULTILINE)
        if named is None:
            found.append(f"{place}: no version found")
        elif named[1] != version:
            found.append(f"{place}: expected {version}, as the tag {tag} says, not {named[1]}")
    return found + _changelog_problems((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)


def _changelog_problems(text: str, version: str) -> list[str]:
    headings = list(_HEADING.finditer(text))
    names = [heading["name"] for heading in headings]
    if names[:1] != ["Unreleased"]:
        return ["CHANGELOG.md: expected ## [Unreleased] as the first heading"]
    found = []
    if _part(text, "Unreleased"):
        found.append(f"CHANGELOG.md: what stands under [Unreleased] belongs under [{version}]")
    if names[1:2] != [version]:
        newest = f"[{names[1]}]" if names[1:] else "nothing"
        found.append(f"CHANGELOG.md: expected ## [{version}] - DATE below [Unreleased], not {newest}")
        return found
    if not _is_date(headings[1]["date"] or ""):
        found.append(f"CHANGELOG.md: expected a date behind [{version}], such as 2026-01-31")
    if not _part(text, version):
        found.append(f"CHANGELOG.md: nothing stands under [{version}]")
    for name in ("Unreleased", version):
        link = re.search(rf"^\[{re.escape(name)}\]: (.*)$", text, re.MULTILINE)
        if link is None or f"v{version}" not in link[1]:
            found.append(f"CHANGELOG.md: expected a last line [{name}]: with a link that names v{version}")
    return found


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def notes(version: str, root: Path = ROOT) -> str:
    """The version's part of the changelog, without its heading."""
    return _part((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)


def _part(text: str, name: str) -> str:
    headings = list(_HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    parts = (
        text[heading.end() : end]
        for heading, end in zip(headings, ends, strict=True)
        if heading["name"] == name
    )
    return _LINK.sub("", next(parts, "")).strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what differs on standard error, and the notes on standard output. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m releases.check", description=__doc__.partition("\n")[0])
    parser.add_argument("tag", help="such as v0.2.0")
    parser.add_argument("--notes", action="store_true", help="print the version's part of the changelog")
    options = parser.parse_args(arguments)
    if found := problems(options.tag):
        print(f"{options.tag} cannot be released:", *found, sep="\n  ", file=sys.stderr)
        return 1
    if options.notes:
        print(notes(options.tag.removeprefix("v")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
