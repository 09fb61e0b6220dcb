"""The pages of `ui`, asked for by HTTP: who may see them, what they say, and how often a backend is read."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from launcher import redaction
from launcher.backends.base import Backend, History, LogLine, Selection
from launcher.backends.base import Place as Where
from launcher.backends.patience import Patience
from launcher.errors import BackendError, LauncherError, NotFoundError
from launcher.status import RunStatus
from launcher.ui import shared_read
from launcher.ui.reads import Place
from launcher.ui.server import Server
from launcher.ui.site import MOST_COMPARED, Site
from tests.unit.histories import history, pod, says, step

RUN = "/runs/local/vision/mnist"


@dataclass
class Runs:
    """A place with one run, whose past a test sets; it counts how often it is read."""

    past: History
    error: LauncherError | None = None
    log: list[LogLine] = field(default_factory=list)
    reads: int = 0
    delay: float = 0.0
    place: Where = field(default_factory=lambda: Where("local"))

    def _read(self) -> None:
        self.reads += 1
        time.sleep(self.delay)
        if self.error is not None:
            raise self.error

    def runs(self, namespace: str | None, *, progress: bool) -> list[RunStatus]:
        assert progress
        self._read()
        return [self.past.status]

    def histories(self, run: str, namespace: str) -> Iterator[History]:
        while True:
            self._read()
            if (run, namespace) != ("mnist", "vision"):
                raise NotFoundError(f"there is no run {run}")
            yield self.past

    def logs(self, run: str, namespace: str, selection: Selection, *, follow: bool) -> Iterator[LogLine]:
        assert not follow
        self._read()
        return iter(self.log)


Get = Callable[..., tuple[int, Mapping[str, str], str]]


@dataclass
class Served:
    """A server of such a place."""

    server: Server
    runs: Runs

    def get(
        self, path: str = "/", *, token: str | None = None, method: str = "GET", **headers: str
    ) -> tuple[int, Mapping[str, str], str]:
        port = self.server.server_address[1]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        start = f"/{self.server.token if token is None else token}"
        sent = {
            "Host": f"127.0.0.1:{port}",
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        connection.request(method, start + path, headers=sent)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, dict(answer.getheaders()), text

    def until(self, path: str, words: str) -> str:
        """The page once it has these words: it is read again after a while."""
        deadline = time.monotonic() + 30
        while words not in (text := self.get(path)[2]):
            assert time.monotonic() < deadline, text
            time.sleep(0.05)
        return text


@pytest.fixture
def served() -> Iterator[Served]:
    runs = Runs(history([pod("chief"), pod("worker")], [step(10, 1, 10), step(20, 2, 10)], seen=30))
    with Server(0) as server:
        server.site = Site([Place("local", cast("Backend", runs), Patience())], f"/{server.token}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield Served(server, runs)
        server.shutdown()
        thread.join()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is read again at once."""
    monkeypatch.setattr("launcher.ui.reads._SECONDS", {"local": 0.05})


def test_without_a_run_there_is_nothing_to_choose(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Compare" in served.get("/")[2]
    monkeypatch.setattr(Runs, "runs", lambda *_, **__: [])
    deadline = time.monotonic() + 20
    while "There are no runs." not in (text := served.get("/")[2]):
        assert time.monotonic() < deadline
    assert "Compare" not in text


def test_a_run_its_list_and_its_log_are_there(served: Served) -> None:
    status, headers, text = served.get()
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert f'href="/{served.server.token}{RUN}"' in text
    assert "epoch 2/8, step 10/10" in text
    status, _, text = served.get(RUN)
    assert status == 200
    assert "<h1>mnist</h1>" in text
    assert f'<a href="/{served.server.token}{RUN}/logs/worker-0#end"' in text
    served.runs.log = [LogLine("worker", 0, 0, "hello", None, 1e9), step(10, 1, 10)]
    status, _, text = served.get(f"{RUN}/logs/worker-0")
    assert status == 200
    assert re.search(r"<li><time>\d\d:\d\d:40</time>hello</li>", text)
    assert '<li class="record"><time></time>epoch 1/8, step 10/10' in text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Host": "127.0.0.1@evil.example"},
        {"Host": "[::1"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/", RUN, "/ui.js"])
def test_what_another_page_asks_for_is_refused(served: Served, headers: dict[str, str], path: str) -> None:
    status, answer_headers, text = served.get(path, **headers)
    assert status == 403
    assert "mnist" not in text
    assert "Access-Control-Allow-Origin" not in answer_headers
    assert served.runs.reads == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost:9000"},
        {"Host": "[::1]:9000"},
        {"Sec_Fetch_Site": "none", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"},
        {"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"},
    ],
    ids=str,
)
def test_a_tunnel_and_a_link_lead_in(served: Served, headers: dict[str, str]) -> None:
    assert served.get(RUN, **headers)[0] == 200


@pytest.mark.parametrize("token", ["", "x", "%00", "%C3%BC", "..", "ui.js"])
def test_without_the_token_nothing_is_shown(served: Served, token: str) -> None:
    for path in ("/", RUN, "/ui.css", ""):
        status, _, text = served.get(path, token=token)
        assert status == 403
        assert served.server.token not in text
    assert served.runs.reads == 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(served: Served, method: str) -> None:
    assert served.get(RUN, method=method)[0] == 501
    assert served.runs.reads == 0


def test_every_answer_forbids_what_it_does_not_need(served: Served) -> None:
    for path in ("/", RUN, "/ui.js", "/none"):
        headers = served.get(path)[1]
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ")
        assert "frame-ancestors 'none'" in policy
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Python" not in headers["Server"]
    status, headers, text = served.get(RUN, method="HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize(
    "path",
    [
        "/none",
        "/../../etc/passwd",
        "/templates/report.css",
        "/runs",
        "/runs/local/vision",
        "/runs/elsewhere/vision/mnist",
        "/runs/kubernetes/vision/mnist",
        "/runs/local/vision/..",
        "/runs/local/%2e%2e/mnist",
        "/runs/local/vision/mnist/logs/",
        "/runs/local/vision/mnist/logs/root-0",
        "/runs/local/vision/mnist/logs/worker--1",
        "/runs/local/vision/mnist/logs/worker-%D9%A1",
        "/runs/local/vision/mnist/logs/worker-0/more",
        f"/runs/local/vision/{'a' * 64}",
    ],
)
def test_other_paths_lead_nowhere(served: Served, path: str) -> None:
    assert served.get(path)[0] == 404
    assert served.runs.reads == 0


def test_many_tabs_cost_one_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.runs.delay = 0.3
    with ThreadPoolExecutor(20) as tabs:
        answers = list(tabs.map(lambda _: served.get(RUN), range(20)))
    assert {answer[0] for answer in answers} == {200}
    assert len({answer[1]["ETag"] for answer in answers}) == 1
    assert served.runs.reads == 1
    served.get(f"/curves?run={RUN.removeprefix('/runs/')}")
    assert served.runs.reads == 1, "the curves are of the same read"
    monkeypatch.setattr("launcher.ui.site.rendered", None)
    assert served.get(RUN)[2] == answers[0][2], "and the page is made once"


def test_what_has_not_changed_is_not_sent_again(served: Served) -> None:
    _, headers, _ = served.get(RUN)
    status, again, text = served.get(RUN, If_None_Match=headers["ETag"])
    assert (status, text) == (304, "")
    assert again["ETag"] == headers["ETag"]


@pytest.mark.usefixtures("eager")
def test_the_page_follows_the_run(served: Served) -> None:
    assert "Running" in served.get(RUN)[2]
    past = history([pod("chief", finished=40, exit_code=0)], [step(10, 1, 10)], finished=40, seen=50)
    served.runs.past = past
    assert "Running" not in served.until(RUN, "Succeeded")
    tag = served.get(RUN)[1]["ETag"]
    # The same, seen later: of a run that has ended the page stays.
    served.runs.past, reads = replace(past, seen=past.seen + 60), served.runs.reads
    deadline = time.monotonic() + 30
    while served.runs.reads < reads + 2 and time.monotonic() < deadline:
        assert served.get(RUN, If_None_Match=tag)[0] == 304
        time.sleep(0.05)


@pytest.mark.usefixtures("eager")
def test_a_server_that_is_away(served: Served) -> None:
    served.runs.error = BackendError("the API server has not answered", "Check it.")
    status, _, text = served.get(RUN)
    assert status == 200
    assert "Run mnist cannot be read: the API server has not answered. Check it." in text
    assert "The list of this machine cannot be read: the API server" in served.get()[2]
    served.runs.error = None
    assert "notice" not in served.until(RUN, "<h1>mnist</h1>").replace('class="notice" id="away"', "")
    served.runs.error = BackendError("the API server has not answered")
    text = served.until(
        RUN, "Run mnist cannot be read now: the API server has not answered. What is shown was"
    )
    assert "<h1>mnist</h1>" in text, "what was known stays"


@pytest.mark.usefixtures("eager")
def test_a_run_that_is_deleted(served: Served) -> None:
    status, _, text = served.get("/runs/local/vision/other")
    assert status == 404
    assert "there is no run other." in text
    served.get(RUN)
    served.runs.error = NotFoundError("run mnist was deleted")
    text = served.until(RUN, "run mnist was deleted. What is shown was known at ")
    assert "<h1>mnist</h1>" in text
    served.runs.error = None
    served.runs.past = history([pod("chief", finished=40, exit_code=0)], finished=40, seen=50)
    assert "was deleted" not in served.until(RUN, "Succeeded"), "another one of its name"


@pytest.mark.usefixtures("eager")
def test_a_fault_of_ours_ends_nothing(served: Served) -> None:
    served.runs.past = cast("History", None)
    assert "error in the launcher itself: AttributeError" in served.get(RUN)[2]
    served.runs.past = history([pod("chief")], seen=30)
    served.until(RUN, "<h1>mnist</h1>")


def test_a_slow_place_does_not_hold_the_page(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.ui.site._WAIT", 0.1)
    served.runs.delay = 2.0
    began = time.monotonic()
    assert "Run mnist is being read." in served.get(RUN)[2]
    assert time.monotonic() - began < 1.5
    served.until(RUN, "<h1>mnist</h1>")


def test_every_text_is_escaped_and_no_secret_is_shown(served: Served) -> None:
    redaction.keep_secret("S3CRET<value>&more")
    bad = "<script>alert(1)</script>\"'><img src=x onerror=y> S3CRET<value>&more \x1b[31mred\x1b[0m \x07"
    past = served.runs.past
    lines = [*past.lines, step(21, 2, 10, metrics={bad: 0.5})]
    failed = replace(past.status, message=bad, labels={bad: bad})
    served.runs.past = replace(past, status=failed, lines=lines, missing=(bad,), spec={"strategy": bad})
    served.runs.log = [LogLine("chief", 0, 0, bad, None, None), says("chief", 0, 0, 1, "notice", message=bad)]
    served.runs.error = None
    key = RUN.removeprefix("/runs/")
    for path in ("/", RUN, f"{RUN}/logs/chief-0", f"/curves?run={key}"):
        text = served.get(path)[2]
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "S3CRET" not in text
        assert "\x1b" not in text
        assert len(re.findall("<script", text)) == 1, "ours"
    assert "[redacted]" in served.get(f"{RUN}/logs/chief-0")[2]
    assert "red \\x07" in served.get(f"{RUN}/logs/chief-0")[2]


def test_curves_of_several_runs_share_a_chart(served: Served) -> None:
    one = RUN.removeprefix("/runs/")
    text = served.get(f"/curves?run={one}&run={one}&run=local/vision/other&run=x/y&run=../../z")[2]
    assert text.count("<figure>") == 3
    assert '<polyline class="trained hue-1"' in text
    assert "there is no run other." in text
    many = "&".join(f"run=local/vision/run-{number}" for number in range(MOST_COMPARED + 2))
    assert "These are the first 8 of 10 runs." in served.get(f"/curves?{many}")[2]
    assert "Curves of 0 runs" in served.get("/curves")[2]


def test_a_port_that_is_taken(served: Served) -> None:
    port = served.server.server_address[1]
    with pytest.raises(BackendError) as error:
        Server(port)
    assert str(error.value) == f"port {port} of this machine: Address already in use\nName another."


def test_a_value_that_does_not_change_is_read_less_often() -> None:
    read: shared_read.SharedRead[int] = shared_read.SharedRead(lambda: 1, 0.5)
    known = read.known(9)
    assert (known.value, read.every) == (1, 0.5)
    for every in (1, 2, 4, 8, 10, 10):
        read._due = 0.0
        assert read.known(9) is known
        assert read.every == every
