"""`ui` and `report --serve` of runs on this machine, in a browser."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from launcher.status import Phase
from tests.browser import Browser
from tests.local.machine import Machine, eventually, job
from tests.local.test_report import BROKEN_WORDS, SPEAKS, begin
from tests.paths import ROOT

LOOKS = 3.0
"""Seconds in which a page asks at least once."""
SPEAKER = (
    SPEAKS
    + """
name, steps = sys.argv[1], pathlib.Path(sys.argv[2])
print("<b>first</b> line", flush=True)
for epoch in range(1, 5):
    progress = {"epoch": epoch, "epochs": 4, "step": 20, "steps": 20, "steps_per_second": 10.0}
    emit(f"{name}-chief-0", Progress(loss=1 / epoch, metrics={}, epoch_end=True, **progress))
number = 0
while not steps.exists():
    number += 1
    print(f"line {number} of many", flush=True)
    time.sleep(0.1)
"""
)


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Starts the command; gives it with the address that it prints. Ctrl-C must end it well."""
    process = subprocess.Popen(
        [sys.executable, "-m", "launcher", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"(?:run demo|the runs): (http://127\.0\.0\.1:\d+/[\w-]{32}/\S*)\n", line)
        assert match, (line, process.communicate(timeout=60))
        yield process, match[1]
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "Ctrl-C ends it; the runs are left alone\n")
    finally:
        process.kill()
        process.communicate()


def shows(chromium: Browser, words: str) -> None:
    eventually(lambda: words in chromium.text, f"the page says {words!r}")


def files(directory: Path) -> dict[str, float]:
    """When each file was last written; of what a run's own processes write, nothing."""
    return {str(path): path.stat().st_mtime for path in directory.rglob("*") if path.is_file()}


def test_a_page_follows_a_run_to_its_end_and_beyond(here: Machine, chromium: Browser, tmp_path: Path) -> None:
    begin(here, tmp_path / "go")
    with serving("report", "demo", "--serve") as (process, url):
        chromium.open(url, height=500)
        assert "demo Running" in chromium.text
        title = chromium.evaluate("document.title")
        assert title == "demo · Running"
        # What the reader has done: marked, opened, scrolled. A page that is loaded anew would forget it.
        chromium.evaluate(
            "window.mark = document.querySelector('h1');"
            "document.querySelector('details').open = true;"
            "scrollTo(0, 700); getSelection().selectAllChildren(mark)"
        )
        at = chromium.evaluate("scrollY")
        assert at > 300
        before = chromium.text
        eventually(lambda: chromium.text != before, "it goes on")
        (tmp_path / "go").write_text("on")
        shows(chromium, "demo Succeeded")
        shows(chromium, "accuracy 0.7500 training, epoch 3")
        assert chromium.evaluate("document.title") == "demo · Succeeded"
        assert chromium.evaluate("document.contains(mark) && mark === document.querySelector('h1')")
        assert chromium.evaluate("document.querySelector('details').open")
        assert chromium.evaluate("getSelection().toString()") == "demo"
        assert abs(chromium.evaluate("scrollY") - at) < 200, "what is added above moves it a little"
        here.end()
        assert chromium.evaluate("document.querySelectorAll('.events tbody tr').length") > 5

        # It has ended: the page says nothing new, and does not change at all.
        time.sleep(LOOKS)
        chromium.evaluate(
            "window.changes = 0; new MutationObserver(seen => { changes += seen.length })"
            ".observe(document, {subtree: true, childList: true, attributes: true, characterData: true})"
        )
        sent = len(chromium.requests)
        written = files(here.root)
        eventually(lambda: len(chromium.requests) > sent + 1, "it asks on")
        assert chromium.evaluate("changes") == 0
        assert files(here.root) == written, "nothing is written"
        chromium.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
        time.sleep(LOOKS)  # one may be under way
        sent = len(chromium.requests)
        time.sleep(5 * LOOKS)
        assert len(chromium.requests) == sent, "nobody sees it"
        chromium.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        eventually(lambda: len(chromium.requests) > sent, "it asks at once")
        origin = url.rpartition("/runs/")[0]
        assert {request.startswith(origin) for request in chromium.requests} == {True}

        here.backend.delete("demo", "default")
        shows(chromium, "run demo was deleted. What is shown was known at")
        assert "demo Succeeded" in chromium.text
        assert chromium.complaints == []
        process.send_signal(signal.SIGINT)
        process.wait(60)
        shows(chromium, "tf-launcher does not answer: this page stands still until it does.")
        assert "demo Succeeded" in chromium.text


@pytest.mark.by_day
@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (400, "dark"),
        (1280, "light"),
        pytest.param(400, "light", marks=pytest.mark.thorough),
        pytest.param(1280, "dark", marks=pytest.mark.thorough),
    ],
)
def test_the_list_the_curves_and_a_log(
    here: Machine, chromium: Browser, tmp_path: Path, scheme: str, width: int
) -> None:
    names = ("first", "second", "third")
    for name in names:
        command = ["python", "-c", SPEAKER, name, str(tmp_path / name)]
        here.submit(job("chief", command, run=name, primary=True), run=name)
    with serving("ui") as (_, url):
        chromium.open(url, width, 900, scheme=scheme)
        for name in names:
            shows(chromium, f"{name} this machine Running")
        if width > 700:
            shows(chromium, "epoch 4/4, step 20/20")
        looks_right(chromium, width)
        assert set(chromium.accessible("checkbox")) == {f"compare {name}" for name in names}
        # A run that ends while two are chosen: the choice stays with its runs.
        for name in ("first", "third"):
            chromium.evaluate(f"document.querySelector('input[value$=\"/{name}\"]').click()")
        (tmp_path / "second").touch()
        shows(chromium, "second this machine Succeeded")
        here.backend.delete("second", "default")
        eventually(lambda: "second" not in chromium.text, "it goes")
        chosen = "[...document.querySelectorAll('input:checked')].map(i => i.value.split('/').pop()).sort()"
        assert chromium.evaluate(chosen) == ["first", "third"]

        chromium.click("button")
        shows(chromium, "Curves of 2 runs")
        eventually(lambda: chromium.evaluate("document.querySelectorAll('figure').length") == 2, "its charts")
        lines = "document.querySelectorAll('figure:first-child polyline')"
        colours = chromium.evaluate(f"[...{lines}].map(line => getComputedStyle(line).stroke)")
        assert len(colours) == len(set(colours)) == 2
        images = chromium.accessible("image")
        assert "loss over the epochs: third from 1.0000 to 0.2500, first from 1.0000 to 0.2500" in images
        looks_right(chromium, width)

        chromium.click("a[href$='/runs/local/default/first']")
        shows(chromium, "first Running")
        looks_right(chromium, width)
        chromium.click("a[href$='/logs/chief-0#end']")
        shows(chromium, "<b>first</b> line")
        shows(chromium, "epoch 1/4, step 20/20: loss 1.0000")
        number = "document.querySelectorAll('.log li').length"
        at_end = "innerHeight + scrollY >= document.documentElement.scrollHeight - 8"
        for seen in (chromium.evaluate(number), chromium.evaluate(number) + 10):
            eventually(partial(chromium.evaluate, f"{number} > {seen}"), "more lines")
            assert chromium.evaluate(at_end), "the end stays in view"
        chromium.evaluate("getSelection().selectAllChildren(document.querySelector('.log li'))")
        seen = chromium.evaluate(number)
        time.sleep(LOOKS)
        assert chromium.evaluate(number) == seen, "while text is selected"
        looks_right(chromium, width)
        assert chromium.complaints == []


def looks_right(chromium: Browser, width: int) -> None:
    """Nothing is cut off at the right, and no word is broken."""
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    assert chromium.evaluate(BROKEN_WORDS) == []
    cut = "e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, .hidden')"
    expression = f"[...document.querySelectorAll('main *')].filter(e => {cut}).map(e => e.outerHTML)"
    assert chromium.evaluate(expression) == []
    pairs: list[Any] = chromium.evaluate(
        "[...document.querySelectorAll('main p, main td, main th, main li, main a, main button')]"
        ".filter(e => e.innerText.trim() && e.offsetWidth)"
        ".map(e => [getComputedStyle(e).color, getComputedStyle(document.body).backgroundColor])"
    )
    assert pairs
    assert min(contrast(*pair) for pair in pairs) >= 4.5


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, by WCAG 2.2."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_it_serves_what_there_is(here: Machine, tmp_path: Path) -> None:
    def refused(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "launcher", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout == ""
        return done.returncode, done.stderr

    code, message = refused("report", "demo", "--serve")
    assert (code, "there is no run demo" in message) == (3, True)
    code, message = refused("report", "demo", "--serve", "-o", "run.html")
    assert (code, "--serve writes no file" in message) == (2, True)
    code, message = refused("report", "demo", "--port", "8000")
    assert (code, "a file has no port: add --serve" in message) == (2, True)
    code, message = refused("ui", "-n", "A_B")
    assert (code, "expected a namespace" in message) == (2, True)
    here.run(job("chief", "print('hello')", primary=True))
    with serving("ui", "--backend", "local") as (_, url):
        port = re.findall(r":(\d+)/", url)[0]
        message = f"error: port {port} of this machine: Address already in use\nName another.\n"
        assert refused("ui", "--port", port) == (5, message)
        assert refused("report", "demo", "--serve", "--port", port) == (5, message)
    assert here.status().phase is Phase.SUCCEEDED


def test_sigterm_ends_it_well(here: Machine) -> None:
    with serving("ui") as (process, _):
        process.send_signal(signal.SIGTERM)
        process.wait(60)
