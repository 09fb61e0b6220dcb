"""Calls a function with the program's parameters: `python -m worker -- -m worker.function MODULE:NAME`."""

from __future__ import annotations

import importlib
import sys

from worker.task import from_environment


def main() -> None:
    """Calls the function and ignores what it returns."""
    module, _, name = sys.argv[1].partition(":")
    parameters = from_environment().config.parameters
    getattr(importlib.import_module(module), name)(**parameters)


if __name__ == "__main__":
    main()
