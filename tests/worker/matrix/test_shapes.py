"""Every strategy, style and shape of a program: each cell trains as a plain process does, or is refused.

One process, or one cluster, goes through all cells of a strategy. `make test` runs some of them,
`make runtime` a sixth, and `make shapes` all. `--renew` writes what came of them to shapes.json,
of which docs/compatibility.md has a table.
"""

from __future__ import annotations

import fcntl
import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.worker.matrix import driving
from tests.worker.matrix.cells import (
    REFUSALS,
    SHAPES,
    STRATEGIES,
    STYLES,
    Cell,
    cells,
    is_nightly,
    represents,
    styles,
)
from tests.worker.matrix.judging import Verdict, judge

RECORD = Path(__file__).with_name("shapes.json")
COLUMN_SECONDS = 3600
"""For all cells of a strategy, which the first test of it waits for; each cell has a bound of its own."""

COLUMNS = {name: {"title": column.title, "styles": styles(name)} for name, column in STRATEGIES.items()}

Judge = Callable[[Cell], Verdict]


def is_recorded(cell: Cell) -> bool:
    """Whether it has been seen to train, or to be refused."""
    outcomes = _record_before()["shapes"].get(cell.shape, {}).get("outcomes", {})
    return cell.style in outcomes.get(cell.strategy, {})


@functools.cache
def _record_before() -> dict[str, Any]:
    """The record as it was when the tests were collected."""
    record: dict[str, Any] = json.loads(RECORD.read_text())
    return record


def parameters() -> list[Any]:
    """Each cell, those of a strategy in one process of pytest's."""
    return [
        pytest.param(
            cell,
            id=str(cell),
            marks=_marks(cell),
        )
        for strategy in STRATEGIES
        for cell in cells(strategy)
    ]


def _marks(cell: Cell) -> list[Any]:
    if is_recorded(cell) and is_nightly(cell):
        return [pytest.mark.shapes, pytest.mark.nightly]
    return [pytest.mark.shapes]


@pytest.fixture(scope="module")
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Gives a cell's verdict. The cells of its strategy that were chosen run when it is first asked."""
    shared = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        shared = shared.parent  # that of all processes of pytest's
    chosen: list[Any] = [
        item.callspec.params["cell"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and "cell" in getattr(item, "fixturenames", ())
    ]
    columns: dict[str, dict[Cell, dict[str, Any]]] = {}

    def verdict(cell: Cell) -> Verdict:
        folder = shared / "shapes" / cell.strategy
        if cell.strategy not in columns:
            columns[cell.strategy] = {}
            strategy_cells = [each for each in chosen if each.strategy == cell.strategy]
            columns[cell.strategy] = driving.run(cell.strategy, strategy_cells, folder)
        assert cell in columns[cell.strategy], "its strategy's first test says why it did not run"
        plain = shared / "shapes" / "plain"
        return judge(cell, columns[cell.strategy][cell], driving.references(plain, chosen), folder, plain)

    return verdict


@pytest.mark.timeout(COLUMN_SECONDS)
@pytest.mark.parametrize("cell", parameters())
def test_trains_or_is_refused(cell: Cell, judged: Judge, renew: bool) -> None:
    verdict = judged(cell)
    print(*(f"{name} {far:.1g}" for name, far in verdict.differences.items()))
    assert verdict.kind != "failed", (
        f"{verdict.why}\n\nalone: python -m tests.worker.matrix --strategies {cell.strategy} "
        f"--styles {cell.style} --shapes {cell.shape}"
    )
    outcome = "trains" if verdict.kind == "trains" else said(verdict.why)
    if renew:
        write(cell, outcome)
    else:
        recorded = json.loads(RECORD.read_text())["shapes"][cell.shape]["outcomes"]
        # That each is recorded is for another test: some of a new shape's cells run before all do.
        known = recorded.get(cell.strategy, {}).get(cell.style, outcome)
        # The record is that of one processor.
        elsewhere = outcome == "trains" and any(each.by_kernels and each.covers(cell) for each in REFUSALS)
        assert known == outcome or elsewhere, "make shapes RENEW=--renew, then make docs"


@pytest.mark.shapes
def test_every_cell_is_recorded(renew: bool) -> None:
    if renew:
        pytest.skip("the record is being written by the tests beside this one")
    record = json.loads(RECORD.read_text())
    assert record["styles"] == STYLES
    assert record["strategies"] == COLUMNS
    assert {name: shape["title"] for name, shape in record["shapes"].items()} == SHAPES
    recorded = {
        Cell(strategy, style, shape)
        for shape, row in record["shapes"].items()
        for strategy, outcomes in row["outcomes"].items()
        for style in outcomes
    }
    assert recorded == {cell for strategy in STRATEGIES for cell in cells(strategy)}


def test_every_strategy_and_shape_is_in_ci() -> None:
    every = [cell for strategy in STRATEGIES for cell in cells(strategy)]
    assert {cell.strategy for cell in every if represents(cell)} == set(STRATEGIES)
    assert sorted(cell.shape for cell in every if represents(cell)) == sorted(SHAPES)
    assert not [cell for cell in every if represents(cell) and is_nightly(cell)]


def test_each_shape_is_tried_in_every_style_and_by_every_strategy_that_has_all_in_ci() -> None:
    every = [cell for strategy in STRATEGIES for cell in cells(strategy)]
    tried = [cell for cell in every if not is_nightly(cell)]
    whole = [cell for cell in every if styles(cell.strategy) == list(STYLES)]
    assert {cell[::2] for cell in tried} >= {cell[::2] for cell in whole}
    assert {cell[1:] for cell in tried} == {cell[1:] for cell in every}


def said(message: str) -> str:
    """What a refusal says of any program."""
    message = re.sub(r"\bstyles\w*:\w+", "train:Program", message.partition("\n")[0])
    # Keras numbers the layers of a process, TensorFlow its functions.
    message = re.sub(r" \[Op:\w+\]", "", message)
    return re.sub(r"\b(sequential|conv2d|replica)(_\d+)?(?=/)", r"\1", message)


def write(cell: Cell, outcome: str) -> None:
    """Into the record, which several processes write."""
    with RECORD.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        shape_outcomes = {name: row["outcomes"] for name, row in before.get("shapes", {}).items()}
        shape_outcomes.setdefault(cell.shape, {}).setdefault(cell.strategy, {})[cell.style] = outcome
        known = {each for strategy in STRATEGIES for each in cells(strategy)}
        document = {
            "strategies": COLUMNS,
            "styles": STYLES,
            "shapes": {
                shape: {
                    "title": title,
                    "outcomes": {
                        strategy: {
                            style: outcomes[style]
                            for style in STYLES
                            if style in outcomes and Cell(strategy, style, shape) in known
                        }
                        for strategy in STRATEGIES
                        if (outcomes := shape_outcomes.get(shape, {}).get(strategy))
                    },
                }
                for shape, title in SHAPES.items()
            },
        }
        RECORD.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
