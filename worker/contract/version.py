"""Which version the launcher and the worker runtime have."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.2.0"
"""Of the launcher and of the worker runtime: they belong together, see `RunConfig.version`."""
