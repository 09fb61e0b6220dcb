"""A line of pip's that says what is to be installed."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_HASH = re.compile(r"--hash=(?:sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})")


def checked(line: str) -> str:
    """Returns the line, its words one space apart. Raises ValueError where pip would read another thing of it
    than a package, or does not read it.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    given, *hashes = re.split(r"\s+(?=--hash)", line.strip())
    if given.startswith("-") or "\\" in given:
        raise ValueError(
            "expected a package, such as scikit-learn==1.7.0: pip's options are variables in env, such as "
            "PIP_INDEX_URL"
        )
    if not all(map(_HASH.fullmatch, hashes)):
        raise ValueError("expected --hash=sha256: and 64 hexadecimal digits behind the package")
    try:
        requirement = Requirement(given)
    except InvalidRequirement as error:
        why = str(error).splitlines()[0]
        raise ValueError(f"expected a package, such as scikit-learn==1.7.0: {why}") from None
    if requirement.url is not None and urlsplit(requirement.url).username is not None:
        raise ValueError(
            "expected a URL without user and password, which everybody could read here: give them by a "
            "PIP_ variable from a Secret"
        )
    if hashes and [each.operator for each in requirement.specifier] != ["=="] and requirement.url is None:
        raise ValueError("a package with a hash needs its version, such as scikit-learn==1.7.0")
    return " ".join([*given.split(), *hashes])


def hashed(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the lines. Raises ValueError where some have hashes and others none, which pip refuses."""
    lacking = [line for line in lines if "--hash=" not in line]
    if lacking and len(lacking) < len(lines):
        raise ValueError(f"expected a hash behind each package, or behind none: {lacking[0]} has none")
    return lines
