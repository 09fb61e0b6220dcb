"""A record that is declared is shown everywhere: what is forgotten is an error before any run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, get_args

from pydantic import BaseModel

from launcher.cli import run_document
from launcher.report import time_breakdown, timeline_rows
from launcher.task_records.presentation import PRESENTATION, State
from worker.contract.records import EVENTS, Content, Event


def test_every_record_is_declared_once() -> None:
    assert set(get_args(Content)) == set(EVENTS) == set(PRESENTATION)
    names = {value for name, value in vars(Event).items() if not name.startswith("_")}
    assert set(EVENTS.values()) == names


def test_a_record_that_is_not_shown_is_an_error_at_import() -> None:
    code = (
        "from worker.contract import records\n"
        "@records._record('paused')\n"
        "class Paused(records.NamedTuple):\n  why: 'str'\n"
        "import launcher.cli.console"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "PRESENTATION lacks or has too much: {<class '__main__.Paused'>}" in done.stderr


def test_the_document_of_a_run_has_the_records_that_say_so() -> None:
    documents: dict[str, Any] = {shown.document: kind for kind, shown in PRESENTATION.items()}
    del documents[""]
    fields = run_document.Status.model_fields
    models = {name: get_args(fields[name].annotation)[0] for name in documents}
    for name, model in models.items():
        if issubclass(model, BaseModel):
            assert set(model.model_fields) - {"time"} <= set(documents[name]._fields)
            assert "time" in model.model_fields
    of_records = {
        name
        for name, field in fields.items()
        for each in get_args(field.annotation)
        if isinstance(each, type) and issubclass(each, BaseModel) and "time" in each.model_fields
    }
    assert of_records == set(documents) - {"export"}, "a text, without a model"


def test_every_state_has_its_words_in_the_report() -> None:
    assert set(time_breakdown._WORDS) == set(timeline_rows.STATE_TEXTS) == set(State)
