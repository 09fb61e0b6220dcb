"""A task's line is a record or plain text: no line makes a reader fail."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher import sentences
from launcher.backends.base import History, LogLine, Place, log_lines
from launcher.cli import console, run_table
from launcher.report import page
from launcher.status import Phase
from tests.unit.histories import BEGIN, history, pod
from worker.contract.records import (
    EVENTS,
    Checkpoint,
    Content,
    Device,
    Devices,
    Doing,
    Done,
    Evaluation,
    Event,
    Exported,
    Failed,
    GpuUse,
    Loaded,
    MembershipRecord,
    Notice,
    Prechecked,
    Predicted,
    Predicting,
    Progress,
    Ready,
    Record,
    Released,
    Restarted,
    Spent,
    Training,
    Waiting,
    WasReleased,
    emit,
)

RIGHT: dict[str, dict[str, Any]] = {
    Event.DOING: {"activity": "importing TensorFlow"},
    Event.WAITING: {"tasks": ["mnist-ps-0"], "seconds": 1.5, "deadline": 900},
    Event.DEVICES: {
        "replicas": 2,
        "tasks": 2,
        "devices": [{"type": "GPU", "name": "NVIDIA A100", "count": 1}],
        "tensorflow": "2.21.0",
        "lacking": "",
        "runtime": "0.1.0 of the image",
    },
    Event.PRECHECKED: {
        "seconds": 5.1,
        "compute": {"CPU": 97.5},
        "storage": {"disk write": 198.0},
        "bandwidth": {"mnist-ps-0": 1120.0},
        "latency": {"mnist-ps-0": 0.21},
    },
    Event.LOADED: {"checkpoint": "ckpt-3", "path": "/model/checkpoints/ckpt-3"},
    Event.PREDICTING: {"examples": 12, "examples_per_second": 3.5},
    Event.PREDICTED: {"path": "/model/predictions/mnist", "examples": 17, "parts": 2},
    Event.READY: {},
    Event.MEMBERSHIP: {
        "workers": [0, 2, 3],
        "joined": [3],
        "left": [1],
        "reason": "worker 1 is lost",
        "generation": None,
    },
    Event.TRAINING: {"epochs": 2, "steps_per_epoch": None, "initial_epoch": 0},
    Event.PROGRESS: {
        "epoch": 1,
        "epochs": 2,
        "step": 5,
        "steps": 10,
        "steps_per_second": 2.5,
        "loss": 0.5,
        "metrics": {"accuracy": 0.9},
        "epoch_end": False,
    },
    Event.CHECKPOINT: {"epochs": 1, "steps": 3, "taken": 1500.5, "every_seconds": 30.0},
    Event.EVALUATION: {"checkpoint": "ckpt-1", "epoch": None, "metrics": {"loss": 0.1}},
    Event.EXPORTED: {"path": "/model/export"},
    Event.GPU_USE: {"use": [87, 0], "memory": [40213, 4], "total": [81559, 81559]},
    Event.SPENT: {"steps": 40, "seconds": {"input": 1.5, "peers": 0.5}, "throttled": 0.25},
    Event.NOTICE: {"message": "a notice"},
    Event.FAILED: {"message": "no data", "traceback": "", "exit_code": 70},
    Event.RESTARTED: {"exit_code": 137, "restart": 1},
    Event.RELEASED: {"tasks": ["mnist-ps-0"], "unreachable": []},
    Event.DONE: {},
}


def line(event: Any, fields: Mapping[str, Any], **head: Any) -> str:
    start = {"tf-launcher": 1, "event": event, "task": "mnist-chief-0", "time": BEGIN + 1.0}
    return json.dumps({**start, **head, **fields}, separators=(",", ":"))


HEAD = '{"tf-launcher":1,"event":"ready","task":"t","time":1'

NO_RECORDS = [
    '{"tf-launcher":1,"event":"ready","task":[],"time":1}',
    '{"tf-launcher":1,"event":[],"task":"t","time":1}',
    '{"tf-launcher":1,"event":{},"task":"t","time":1}',
    '{"tf-launcher":1,"event":null,"task":"t","time":1}',
    '{"tf-launcher":1,"event":"ready","task":null,"time":1}',
    '{"tf-launcher":1,"event":"ready","task":{"a":1},"time":1}',
    '{"tf-launcher":1,"event":"ready","task":"t","time":"1"}',
    '{"tf-launcher":1,"event":"ready","task":"t","time":true}',
    '{"tf-launcher":1,"event":"ready","task":"t","time":null}',
    '{"tf-launcher":1,"event":"ready","task":"t","time":NaN}',
    '{"tf-launcher":1,"event":"ready","task":"t","time":-Infinity}',
    '{"tf-launcher":1,"event":"ready","task":"t","time":1e999}',
    '{"tf-launcher":1,"event":"ready","task":"t","time":1e300}',
    '{"tf-launcher":1,"event":"ready","task":"t","time":-1}',
    '{"tf-launcher":1,"event":"ready","task":"t","time":' + "9" * 4000 + "}",
    '{"tf-launcher":1,"event":"ready","task":"t","time":' + "9" * 5000 + "}",
    '{"tf-launcher":1,"event":"ready","task":"t"}',
    '{"tf-launcher":1,"event":"ready","time":1}',
    '{"tf-launcher":1,"task":"t","time":1}',
    '{"tf-launcher":[],"event":"ready","task":"t","time":1}',
    '{"tf-launcher":"1","event":"ready","task":"t","time":1}',
    '{"tf-launcher":1,"event":"ready","task":"\\ud800","time":1}',
    '{"tf-launcher":1,"event":"\\udfff","task":"t","time":1}',
    HEAD + ',"x":"\\ud800"}',
    HEAD + ',"\\udc00":1}',
    HEAD + ',"x":["\\ud800"]}',
    HEAD + ',"x":' + "9" * 4000 + "}",
    HEAD + ',"x":-' + "9" * 4000 + "}",
    HEAD + ',"x":1e999}',
    HEAD + ',"x":NaN}',
    HEAD + ',"x":' + "[" * 100_000 + "]" * 100_000 + "}",
    HEAD + ',"x":' + "[" * 100_000,
    HEAD + ',"x":' + '{"a":' * 100_000,
    HEAD + ',"x":' + "[" * 500 + "]" * 500 + "}",
    HEAD,
    HEAD + "}x",
    '{"tf-launcher":',
    '{"tf-launcher":1}',
    '{"tf-launcher":1,',
    '{"tf-launcher":1}]',
]
"""Lines that begin as a record does and are none. Tests may only add to them."""


@pytest.mark.parametrize("text", NO_RECORDS, ids=range(len(NO_RECORDS)))
def test_these_are_lines_of_text(text: str) -> None:
    assert Record.parse(text) is None


WRONG: list[Any] = [
    None,
    True,
    -1,
    1.5,
    2**64,
    "x",
    "",
    [],
    [1],
    [None],
    {},
    {"a": []},
    {"a": None},
    {"a": "x"},
]


@pytest.mark.parametrize("event", RIGHT)
def test_every_field_has_its_type(event: str) -> None:
    right = RIGHT[event]
    parsed = Record.parse(line(event, right))
    assert parsed == Record(event, "mnist-chief-0", BEGIN + 1.0, right)
    for name, value in right.items():
        without = Record.parse(line(event, {other: right[other] for other in right if other != name}))
        # The records of an earlier version do not have the runtime.
        assert (without is None) == (name != "runtime")
        refused = sum(Record.parse(line(event, {**right, name: wrong})) is None for wrong in WRONG)
        assert refused >= len(WRONG) - 6, (name, value)
        if type(value) is int and name != "deadline":
            for wrong in (-1, 1.5, 2**64, True, None):
                assert Record.parse(line(event, {**right, name: wrong})) is None or (name, wrong) == (
                    "steps",
                    None,
                )


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (
            Event.PROGRESS,
            {**RIGHT[Event.PROGRESS], "loss": "nan", "metrics": {"a": "inf", "b": "-inf", "c": 1}},
        ),
        (Event.PROGRESS, {**RIGHT[Event.PROGRESS], "loss": None, "steps": None}),
        (Event.EVALUATION, {**RIGHT[Event.EVALUATION], "epoch": 3}),
        (Event.RELEASED, {"outcome": "succeeded"}),
        (Event.READY, {"later": {"field": [1, None, "x"]}}),
        (Event.NOTICE, {"message": "a\x00b \u2028 \U0001f600", "later": True}),
        ("of a later version", {"any": [{"thing": 2**63}]}),
    ],
)
def test_what_a_worker_of_this_or_a_later_version_says_is_a_record(event: str, fields: Any) -> None:
    assert Record.parse(line(event, fields)) == Record(event, "mnist-chief-0", BEGIN + 1.0, fields)


CONTENT: list[Content] = [
    Doing("importing TensorFlow"),
    Waiting(("mnist-ps-0",), 1.5, 900),
    Prechecked(5.1, {"CPU": 97.5}, {"disk write": 198.0}, {"mnist-ps-0": 1120.0}, {"mnist-ps-0": 0.21}),
    Devices(2, 2, (Device("GPU", "NVIDIA A100", 1),), "2.21.0", "", "0.1.0 of the image"),
    Ready(),
    MembershipRecord((0, 2, 3), (3,), (1,), "worker 1 is lost", None),
    Training(2, None, 0),
    Progress(1, 2, 5, 10, 2.5, 0.5, {"accuracy": 0.9}, False),
    Checkpoint(1, 3, 1500.5, 30.0),
    Evaluation("ckpt-1", None, {"loss": 0.1}),
    Loaded("ckpt-3", "/model/checkpoints/ckpt-3"),
    Predicting(12, 3.5),
    Predicted("/model/predictions/mnist", 17, 2),
    Exported("/model/export"),
    GpuUse((87, 0), (40213, 4), (81559, 81559)),
    Spent(40, {"input": 1.5, "peers": 0.5}, 0.25),
    Notice("a notice"),
    Failed("no data", "", 70),
    Restarted(137, 1),
    Released(("mnist-ps-0",), ()),
    Done(),
]


def test_a_record_is_read_once_as_a_value_of_its_event_s_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert {type(content) for content in CONTENT} | {WasReleased} == set(EVENTS)
    for content in [*CONTENT, WasReleased("done")]:
        emit("mnist-chief-0", content)
        record = Record.parse(capsys.readouterr().out.rstrip("\n"))
        assert record is not None
        assert (record.event, record.content) == (EVENTS[type(content)], content)
        assert type(record.content) is type(content)
        if not isinstance(content, WasReleased):
            assert record.fields == RIGHT[record.event], "the line is what it always was"
            assert list(record.fields) == list(RIGHT[record.event])


def test_what_json_cannot_hold_is_a_number_again(capsys: pytest.CaptureFixture[str]) -> None:
    emit("t", Progress(1, 2, 5, 10, math.inf, None, {"a": math.nan, "b": -math.inf, "c": 1}, False))
    text = capsys.readouterr().out
    assert '"steps_per_second":"inf","loss":null,"metrics":{"a":"nan","b":"-inf","c":1}' in text
    record = Record.parse(text)
    assert record is not None
    assert isinstance(record.content, Progress)
    assert (record.content.steps_per_second, record.content.metrics["b"]) == (math.inf, -math.inf)
    assert math.isnan(record.content.metrics["a"])


def test_the_learning_rate_is_in_a_record_where_it_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    emit("t", Progress(1, 2, 5, 5, 2.5, 0.5, {}, epoch_end=True, learning_rate=0.01))
    record = Record.parse(capsys.readouterr().out.rstrip("\n"))
    assert record is not None
    assert isinstance(record.content, Progress)
    assert record.content.learning_rate == 0.01


def test_an_event_of_a_later_version_has_fields_and_no_content() -> None:
    record = Record.parse(line("later", {"x": 1}))
    assert record is not None
    assert (record.fields, record.content) == ({"x": 1}, None)


def test_a_record_with_another_event_s_fields_is_none() -> None:
    with pytest.raises(ValueError, match="without message"):
        Record(Event.NOTICE, "t", 1.0, {"path": "/x"})


def test_what_is_written_is_read() -> None:
    for event, fields in RIGHT.items():
        record = Record(event, "mnist-chief-0", 1.5, fields)
        assert Record.parse(record.line()) == record
    odd = {**RIGHT[Event.PROGRESS], "loss": math.nan, "metrics": {"a": math.inf}, "steps_per_second": 1}
    parsed = Record.parse(Record(Event.PROGRESS, "t", 1.5, odd).line())
    assert parsed is not None
    assert (parsed.fields["loss"], parsed.fields["metrics"]) == ("nan", {"a": "inf"})


def test_a_record_behind_a_line_that_has_no_end() -> None:
    record = Record("doing", "t", 1.0, {"activity": 'prints {"tf-launcher":1}'})
    before, after = log_lines("worker", 1, 0, f"  0%|     | 0/10{record.line()}", 2.0)
    assert (before.text, before.record, before.time) == ("  0%|     | 0/10", None, 2.0)
    assert (after.text, after.record) == (record.line(), record)
    assert [line.record for line in log_lines("worker", 1, 0, record.line())] == [record]
    for text in ("", "text", '{"tf-launcher":1', f"{record.line()} and more"):
        assert [(line.text, line.record) for line in log_lines("worker", 1, 0, text)] == [(text, None)]


class _Told:
    """A backend that returns a given history."""

    def __init__(self, known: History) -> None:
        self._known = known

    def places(self, *_: str) -> dict[str, str]:
        return {"logs": "/logs"}

    def options(self, _: str) -> str:
        return ""

    def logs(self, *_: Any, **__: Any) -> Sequence[LogLine]:
        return self._known.lines


def read_by_all(texts: Sequence[str], phase: Phase = Phase.FAILED) -> None:
    """Passes the texts to every reader of records: none raises, and the output of each can be encoded."""
    lines = [LogLine("chief", 0, 0, text, Record.parse(text)) for text in texts]
    for over in (None, 9.0):
        pods = [pod("chief", finished=over, exit_code=None if over is None else 1), pod("worker"), pod("ps")]
        run_history = history(pods, lines, phase=phase, finished=over)
        out = io.StringIO()
        screen = console.console(out)
        for news in sentences.Narrator().news(run_history.status, lines):
            out.write(news.text)
        console.show_status(_Told(run_history), run_history.status, screen)  # type: ignore[arg-type]
        console.show_summary(_Told(run_history), run_history.status, screen)  # type: ignore[arg-type]
        run_table.show_list([run_table.Listed(run_history.status, Place("local"))], out=screen)
        console.show_logs(lines, out=screen)
        out.write(page.page_of(run_history))
        out.getvalue().encode()


EXTREME = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([0, 2**63 - 1, 1e308, -1e308, 5e-324, "nan", "inf", 10**400, "\ud800", [], {}]),
    st.lists(st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.one_of(st.floats(), st.integers(), st.just("nan")), max_size=3),
)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_no_reader_fails_by_what_is_printed(data: st.DataObject) -> None:
    texts = []
    for _ in range(data.draw(st.integers(1, 5))):
        event = data.draw(st.sampled_from([*RIGHT, "later", "", "__class__"]))
        fields = dict(RIGHT.get(event, {}))
        for name in data.draw(st.lists(st.sampled_from([*fields, "x", "event", "task", "time"]), max_size=3)):
            fields[name] = data.draw(EXTREME)
        texts.append(line(event, fields))
    read_by_all(texts)


RIGHT_NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**63 - 1))
COUNTS = st.integers(0, 2**63 - 1)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(COUNTS, COUNTS, COUNTS, st.none() | COUNTS, RIGHT_NUMBERS, RIGHT_NUMBERS), max_size=6)
)
def test_no_reader_fails_by_a_right_record_with_an_odd_value(rows: list[tuple[Any, ...]]) -> None:
    texts = []
    for epoch, epochs, step, steps, rate, when in rows:
        fields = {"epoch": epoch, "epochs": epochs, "step": step, "steps": steps, "steps_per_second": rate}
        fields |= {"loss": rate, "metrics": {"m": when}, "epoch_end": epoch % 2 == 0}
        texts.append(line(Event.PROGRESS, fields, time=abs(when)))
        texts.append(line(Event.EVALUATION, {"checkpoint": "c", "epoch": epoch, "metrics": {"m": rate}}))
        texts.append(line(Event.WAITING, {"tasks": [], "seconds": rate, "deadline": when}, time=abs(rate)))
        fields = {"epochs": epochs, "steps_per_epoch": steps, "initial_epoch": epoch}
        texts.append(line(Event.TRAINING, fields))
    read_by_all(texts)


def test_no_reader_fails_by_what_is_no_record() -> None:
    read_by_all(NO_RECORDS)


@pytest.mark.parametrize("value", [*WRONG, ["x"], {"why": "mnist-ps-0"}, {"why": [1]}])
def test_why_a_task_waits_is_left_out_or_has_its_type(value: Any) -> None:
    """Earlier versions leave it out."""
    parsed = Record.parse(line(Event.WAITING, {**RIGHT[Event.WAITING], "reasons": value}))
    assert parsed is None or value in ({}, {"a": []})
