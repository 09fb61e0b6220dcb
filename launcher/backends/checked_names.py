"""Names that a user gives to a command or a function, checked before they become a path or a URL."""

from __future__ import annotations

from launcher import object_names
from launcher.errors import Problem, SpecError

_SHOWN = 80
"""Characters of a wrong name."""


def check_namespace(name: str | None, source: str = "--namespace") -> None:
    """Raises SpecError if this cannot be the name of a namespace. None is no name."""
    if name is not None and not object_names.is_dns_1123(name):
        raise _wrong(source, "a namespace: lower-case letters, digits and '-', at most 63 characters", name)


def check_run(name: str) -> None:
    """Raises SpecError if this cannot be the name of a run."""
    if not object_names.is_dns_1035(name):
        expected = (
            "a run's name: lower-case letters, digits and '-', beginning with a letter, at most 63 characters"
        )
        raise _wrong("NAME", expected, name)


def check_object(name: str, source: str) -> None:
    """Raises SpecError if this cannot be the name of an object."""
    if not object_names.is_dns_subdomain(name):
        expected = "an object's name: lower-case letters, digits, '-' and '.', at most 253 characters"
        raise _wrong(source, expected, name)


def _wrong(source: str, expected: str, name: str) -> SpecError:
    shown = ascii(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}...")
    return SpecError([Problem(source, 0, 0, "", f"expected {expected}; not {shown}")])
