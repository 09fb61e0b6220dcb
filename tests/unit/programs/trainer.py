"""A user's own module: a program, a function that trains, and objects that are neither."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Program:
    def __init__(self, parameters: Mapping[str, Any]) -> None: ...

    def model(self) -> None: ...

    def train_dataset(self, batch_size: int) -> None: ...


class Model:
    def model(self) -> None: ...


def train_MNIST(epochs: int, rate: float = 0.1) -> None: ...  # noqa: N802 - a user's name


def make() -> Callable[[], None]:
    def inner() -> None: ...

    return inner


unnamed = lambda: None  # noqa: E731 - it is what is refused
