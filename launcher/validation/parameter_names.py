"""Finds misspelt names in `spec.program.parameters`: those similar to one of the runtime's, which the program
does not read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from worker.contract.parameters import PARAMETERS

_SIMILAR: Final = 0.7
"""Similarity from 0 to 1, by difflib: `batchSize` and `globalBatchSize` have 0.75."""
_ALIKE: Final = 0.9
"""Similarity for a program whose text is not there to be searched, and which may well read the name."""
_SHORTEST: Final = 5
"""Letters of a name that is part of another, as `steps` is of `stepsPerEpoch`."""


def misspelt(parameters: Mapping[str, Any], files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """Yields each name that is similar to one of the runtime's, and that no .py file among `files` has as a
    string; with a sentence. A program that reads such a name has it as a string, as in `parameters["steps"]`.
    """
    for name in parameters:
        near = _near(name, _SIMILAR)
        if near and not _is_read(name, files):
            message = "neither the runtime nor the program's source has a parameter of this name"
            yield name, f"{message}: did you mean {near}?"


def notices(parameters: Mapping[str, Any]) -> list[str]:
    """Returns notices about such names, for a program that is in an image."""
    near = {name: _near(name, _ALIKE) for name in parameters}
    return [
        f"spec.program.parameters.{name}: the runtime does not read it; did you mean {known}?"
        for name, known in near.items()
        if known
    ]


def _near(name: str, cutoff: float) -> str:
    """Returns the runtime's parameter that is meant; "" for none, and for a name that is one of them."""
    if name in PARAMETERS:
        return ""
    known = {_plain(each): each for each in PARAMETERS}
    plain = _plain(name)
    if close := difflib.get_close_matches(plain, known, 1, cutoff):
        return known[close[0]]
    if cutoff > _SIMILAR or len(plain) < _SHORTEST:
        return ""
    return next((each for text, each in known.items() if plain in text or text in plain), "")


def _plain(name: str) -> str:
    """Returns the name without differences of spelling style."""
    return re.sub(r"[-_ .]", "", name).lower()


def _is_read(name: str, files: Mapping[str, bytes]) -> bool:
    quoted = re.compile(rb"[\"']" + re.escape(name.encode()) + rb"[\"']")
    return any(path.endswith(".py") and quoted.search(text) for path, text in files.items())
