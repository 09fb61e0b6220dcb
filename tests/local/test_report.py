"""The report of a run on this machine, in a browser."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import parser
from launcher.status import Phase
from tests.browser import Browser
from tests.local.machine import Machine, eventually, job

EPOCH = {"epochs": 3, "step": 20, "steps": 20, "steps_per_second": 10.0, "epoch_end": True}
SPEAKS = """
import os, pathlib, signal, sys, time
from worker.contract.records import Done, Failed, Progress, Ready, Released, Training, Waiting
from worker.contract.records import WasReleased, emit
"""
CHIEF = (
    SPEAKS
    + """
go = pathlib.Path(sys.argv[1])
emit("demo-chief-0", Waiting(["demo-worker-0"], seconds=0.0, deadline=900))
time.sleep(0.3)
emit("demo-chief-0", Waiting([], seconds=0.3, deadline=900))
emit("demo-chief-0", Training(epochs=3, steps_per_epoch=20, initial_epoch=0))
for epoch in (1, 2):
    emit("demo-chief-0", Progress(epoch=epoch, loss=1 / epoch, metrics={"accuracy": epoch / 4}, **EPOCH))
while not go.exists() or not go.read_text():  # a file is there before its text is
    time.sleep(0.05)
if go.read_text() == "fail":
    emit("demo-chief-0", Failed("<b>no</b> such file", traceback="line 3", exit_code=70))
    sys.exit(70)
emit("demo-chief-0", Progress(epoch=3, loss=0.25, metrics={"accuracy": 0.75}, **EPOCH))
emit("demo-chief-0", Released(["demo-worker-0"], unreachable=[]))
emit("demo-chief-0", Done())
"""
).replace("**EPOCH", f"**{EPOCH!r}")
WORKER = (
    SPEAKS
    + """
go, again = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
emit("demo-worker-0", Ready())
if not again.exists():
    again.touch()
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
while not go.exists():
    time.sleep(0.05)
emit("demo-worker-0", WasReleased("done"))
"""
)


def begin(machine: Machine, go: Path) -> None:
    """Starts a run that waits for a text in the file; its worker was killed and has restarted."""
    again = go.with_name("again")
    chief = job("chief", ["python", "-c", CHIEF, str(go)], primary=True, backoffLimit=0)
    worker = job("worker", ["python", "-c", WORKER, str(go), str(again)])
    machine.submit(chief, worker)

    def back() -> bool:
        ready = [line for line in machine.lines("worker") if line.record and line.record.event == "ready"]
        return len(ready) == 2

    eventually(back, "the worker's second start")


def report(capsys: pytest.CaptureFixture[str], path: Path) -> str:
    """Writes the report; returns the page's address."""
    assert parser.main(["report", "demo", "-o", str(path)]) == 0
    assert capsys.readouterr().out == f"wrote {path}\n"
    return path.as_uri()


def bars(chromium: Browser) -> dict[str, list[dict[str, Any]]]:
    """Returns each row of the timeline, from left to right: state, left and right edge in pixels."""
    rows: dict[str, list[dict[str, Any]]] = chromium.evaluate(
        """Object.fromEntries([...document.querySelectorAll("li.row")].map(row => [
            row.querySelector(".name").innerText.split("\\n")[0],
            [...row.querySelectorAll(".bar")].map(bar => {
                const box = bar.getBoundingClientRect();
                return {state: bar.classList[2], left: box.left, right: box.right, height: box.height};
            })
        ]))"""
    )
    return rows


def test_what_a_reader_sees(
    here: Machine, chromium: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(here, tmp_path / "go")
    chromium.open(report(capsys, tmp_path / "run.html"))
    text = chromium.text
    assert "demo Running" in text
    assert re.search(r"Of \d+\.\d s so far: (.*, )?\d+\.\d s training\.", text)

    (tmp_path / "go").write_text("on")
    assert here.end().phase is Phase.SUCCEEDED
    chromium.open(report(capsys, tmp_path / "run.html"))
    text = chromium.text
    assert "TRAINING RUN demo Succeeded namespace default 1 chief, 1 worker submitted 20" in text
    assert re.search(r"Of \d+\.\d s: (.*, )?\d\.\d s waiting for worker, \d+\.\d s training", text)
    assert re.search(r"Besides, worker ended after \d+\.\d s \(killed\) and was back \d+\.\d s later", text)
    assert "accuracy 0.7500 training, epoch 3" in text
    assert "worker failure: ended with exit code 137 (SIGKILL)" in text
    assert "worker warning: started again (killed)" in text
    assert chromium.requests == [(tmp_path / "run.html").as_uri()], "it loads nothing else"
    assert chromium.complaints == []

    rows = bars(chromium)
    assert list(rows) == ["chief", "worker"]
    chief, worker = rows["chief"], rows["worker"]
    assert [bar["state"] for bar in chief if bar["state"] in ("waiting", "training")] == [
        "waiting",
        "training",
    ]
    states = [bar["state"] for bar in worker]
    assert "down" in states
    assert "training" in states[states.index("down") :], "it trains again"
    for row in (chief, worker):
        assert all(bar["right"] > bar["left"] and bar["height"] > 20 for bar in row)
        assert all(one["left"] <= other["left"] for one, other in itertools.pairwise(row))
        assert row[-1]["right"] <= 1280
    assert chromium.evaluate("document.querySelectorAll('li.row .marker.failed').length") == 1

    assert chromium.evaluate("[...document.querySelectorAll('figure h3')].map(h => h.innerText)") == [
        "loss",
        "accuracy",
        "steps per second",
    ]
    images = chromium.accessible("image")
    assert "loss over the epochs: training from 1.0000 to 0.2500" in images
    parts = {"demo", "Where the time went", "Tasks", "Training", "Events"}
    assert set(chromium.accessible("heading")) == {*parts, "loss", "accuracy", "steps per second"}
    (event,) = (item for item in chromium.evaluate(LISTED) if "killed after" in item)
    assert event.startswith("worker ")
    assert "starting the program" in event


LISTED = "[...document.querySelectorAll('li.row')].map(row => row.textContent.replace(/\\s+/g, ' ').trim())"


def test_it_fits_a_telephone_and_the_night(
    here: Machine, chromium: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(here, tmp_path / "go")
    (tmp_path / "go").write_text("on")
    here.end()
    address = report(capsys, tmp_path / "run.html")
    chromium.open(address, 400, 800)
    assert chromium.evaluate("document.documentElement.scrollWidth") <= 400
    assert chromium.evaluate("document.querySelector('li.row .track').getBoundingClientRect().width") > 300
    paper = "getComputedStyle(document.body).backgroundColor"
    light = chromium.evaluate(paper)
    chromium.open(address, scheme="dark")
    assert chromium.evaluate(paper) != light


BROKEN_WORDS = """[...document.querySelectorAll("main *")].flatMap(element => [...element.childNodes])
    .filter(node => node.nodeType === Node.TEXT_NODE)
    .flatMap(node => [...node.data.matchAll(/\\S+/g)].filter(word => {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        return word[0].length < 17 && new Set([...range.getClientRects()].map(box => box.top)).size > 1;
    }).map(word => word[0]))"""
COVERED = """[...document.querySelectorAll(".bar > span")].filter(label => {
    if (!label.offsetWidth) return false;
    const text = document.createRange();
    text.selectNodeContents(label);
    const a = text.getBoundingClientRect();
    return [...label.closest(".track").querySelectorAll(".marker.scored")].some(marker => {
        const b = marker.getBoundingClientRect();
        return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    });
}).map(label => label.innerText)"""
SCORES = (
    SPEAKS
    + """
from worker.contract.records import Evaluation
emit("demo-evaluator-0", Ready())
for number in range(40):
    time.sleep(0.05)
    emit("demo-evaluator-0", Evaluation(f"ckpt-{number}", number, {"loss": 0.5}))
"""
)


@pytest.mark.by_day("light")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_word_is_broken_and_no_label_covered(
    here: Machine, chromium: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    fails = f"{SPEAKS}\ntime.sleep(1)\nsys.exit(3)"
    chief = job("chief", ["python", "-c", CHIEF, str(tmp_path / "go")], primary=True, backoffLimit=0)
    program = {"entrypoint": "train:Program", "parameters": {"epochs": 3, "layers": [8, 4]}}
    spec = {"strategy": "ParameterServer", "program": program}
    chief["metadata"]["annotations"]["tf-launcher.dev/spec"] = json.dumps({"spec": spec})
    here.submit(chief, job("evaluator", ["python", "-c", SCORES]), job("worker", fails, backoffLimit=3))
    eventually(lambda: sum(line.record is not None for line in here.lines("evaluator")) > 40, "its scores")
    (tmp_path / "go").write_text("fail")
    assert here.end().phase is Phase.FAILED
    address = report(capsys, tmp_path / "run.html")
    for width in (400, 1280):
        chromium.open(address, width, 900, scheme=scheme)
        assert chromium.evaluate(BROKEN_WORDS) == []
        assert chromium.evaluate(COVERED) == []
    assert "strategy ParameterServer program train:Program epochs 3, layers [8, 4]" in chromium.text


def test_a_failed_run(
    here: Machine, chromium: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(here, tmp_path / "go")
    (tmp_path / "go").write_text("fail")
    assert here.end().phase is Phase.FAILED
    chromium.open(report(capsys, tmp_path / "run.html"))
    assert "demo Failed" in chromium.text
    assert "chief ended with exit code 70. <b>no</b> such file line 3" in chromium.text
    assert chromium.evaluate("document.querySelector('.failure').getBoundingClientRect().top") < 400


def test_the_page_on_standard_output(
    here: Machine, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    begin(here, tmp_path / "go")
    (tmp_path / "go").write_text("on")
    here.end()
    assert parser.main(["report", "demo", "-o", "-"]) == 0
    out, err = capfdbinary.readouterr()
    assert out.startswith(b"<!doctype html>\n")
    assert out.rstrip().endswith(b"</html>")
    assert err == b""


def test_a_file_that_cannot_be_written(
    here: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(here, tmp_path / "go")
    assert parser.main(["report", "demo", "-o", str(tmp_path / "none" / "run.html")]) == 2
    error = capsys.readouterr().err.splitlines()
    assert error[0] == f"--output: {tmp_path}/none/run.html cannot be written: No such file or directory"
    assert not (tmp_path / "none").exists()
