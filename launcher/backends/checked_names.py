"""Names that a user gives to a command or a function, checked before they become a path or a URL."""

from __future__ import annotations

from launcher import object_names
from launcher.errors import Problem, SpecError

_SHOWN = 80
"""Characters of a wrong name."""


def check_names(namespace: str | None, run: str | None = None, source: str = "--namespace") -> None:
    """Raises SpecError if these cannot be the names of a namespace and of a run. None is no name."""
    problems = []
    if namespace is not None and not object_names.is_dns_1123(namespace):
        expected = "a namespace: lower-case letters, digits and '-', at most 63 characters"
        problems.append(_wrong(source, expected, namespace))
    if run is not None and not object_names.is_dns_1035(run):
        expected = (
            "a run's name: lower-case letters, digits and '-', beginning with a letter, at most 63 characters"
        )
        problems.append(_wrong("NAME", expected, run))
    if problems:
        raise SpecError(problems)


def check_object(name: str, source: str) -> None:
    """Raises SpecError if this cannot be the name of an object."""
    if not object_names.is_dns_subdomain(name):
        expected = "an object's name: lower-case letters, digits, '-' and '.', at most 253 characters"
        raise SpecError([_wrong(source, expected, name)])


def _wrong(source: str, expected: str, name: str) -> Problem:
    shown = ascii(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}...")
    return Problem(source, 0, 0, "", f"expected {expected}; not {shown}")
