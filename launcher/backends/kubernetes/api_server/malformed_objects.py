"""An API server's objects are not checked field by field. If one is malformed, the user gets one message."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, TypeVar, cast

from launcher.backends.kubernetes.api_server.api_errors import not_understood

P = ParamSpec("P")
T = TypeVar("T")

ODD: Final = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
"""The errors that reading a malformed object raises."""


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "int | None": (int, type(None)),
    "float": (int, float),
    "float | None": (int, float, type(None)),
}


def well_typed(value: T) -> T:
    """Checks a dataclass, or several. Raises TypeError where a field is of another type."""
    if isinstance(value, tuple | list):
        for each in value:
            well_typed(each)
    else:
        kind: Any = type(value)
        for name, types in _fields(kind):
            field_value = getattr(value, name)
            if types is None:
                well_typed(field_value)
            elif not isinstance(field_value, types):
                raise TypeError(f"{name} is of type {type(field_value).__name__}")
    return value


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, tuple[type, ...] | None], ...]:
    """A dataclass' fields, each with the types that are right, or None where its value is looked at in turn.
    Other classes have none. Each update of a run checks all of its tasks.
    """
    if not dataclasses.is_dataclass(kind):
        return ()
    return tuple((field.name, _TYPES.get(str(field.type))) for field in dataclasses.fields(kind))


@contextmanager
def _watched(backend: Any) -> Iterator[None]:
    try:
        yield
    except ODD as error:
        if os.environ.get("TF_LAUNCHER_DEBUG"):
            raise
        raise not_understood(error, backend.host) from error


def understood(method: Callable[P, T]) -> Callable[P, T]:
    """Wraps a backend's method: malformed objects raise a BackendError."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with _watched(args[0]):
            return well_typed(method(*args, **kwargs))

    return cast("Callable[P, T]", call)


def understood_one_by_one(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for a method that returns an iterator."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        with _watched(args[0]):
            iterator = method(*args, **kwargs)
        return _one_by_one(args[0], iterator)

    return cast("Callable[P, Iterator[T]]", call)


def _one_by_one(backend: Any, iterator: Iterator[T]) -> Iterator[T]:
    while True:
        with _watched(backend):
            try:
                item = well_typed(next(iterator))
            except StopIteration:
                return
        yield item
