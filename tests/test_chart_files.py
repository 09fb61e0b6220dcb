"""What the chart has from the code is up to date: its schema, the README's table, the version."""

from __future__ import annotations

import importlib.util

from tests.chart.helm import CHART


def test_what_is_made_is_up_to_date() -> None:
    specification = importlib.util.spec_from_file_location("generate", CHART.parent / "generate.py")
    assert specification is not None
    assert specification.loader is not None
    generate = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(generate)
    for name, make in generate.MADE.items():
        assert (CHART / name).read_text() == make(), f"{name} is out of date: run `make chart`"
