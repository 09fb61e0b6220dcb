"""Sets of indexes in a Job's status, as `completedIndexes` and `failedIndexes` have them: `0,2-4`.

Source: kubernetes/kubernetes `pkg/controller/job/indexed_job_utils.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def parse_indexes(text: str) -> set[int]:
    """`"0,2-4"` as a set, as in a Job's `completedIndexes`."""
    indexes: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        indexes.update(range(int(first), int(last or first) + 1))
    return indexes


def format_indexes(indexes: Iterable[int]) -> str:
    """The inverse of `parse_indexes`; two neighbours are written `0,1`, three or more `0-2`."""
    parts: list[str] = []
    run: list[int] = []
    for index in sorted(indexes):
        if run and index != run[-1] + 1:
            parts.append(_interval(run))
            run = []
        run.append(index)
    return ",".join([*parts, _interval(run)]) if run else ""


def _interval(run: Sequence[int]) -> str:
    if len(run) <= 2:
        return ",".join(str(index) for index in run)
    return f"{run[0]}-{run[-1]}"
