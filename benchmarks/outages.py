"""What becomes of commands while the API server is gone, busy or broken, lets their streams hang, no longer
knows their token, or has another time than this machine.

Starts a control plane from KUBEBUILDER_ASSETS, and plays the kubelet. Each command talks to the server
through a proxy of its own, which makes the trouble.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import recording
from benchmarks.api_proxy import ApiProxy, Request, proxy
from benchmarks.control_plane import TOKEN, UnavailableError, control_plane
from benchmarks.measuring import ENVIRONMENT, ROOT, table
from tests.api.conftest import restricted_namespace
from tests.api.kubelet import Kubelet, Logs, bind, node
from tests.api.plain_requests import Api, wait_for
from tests.api.runs import CLUSTER, RUN, start_all

TASKS = 5
LINES = 12
LATE_SECONDS = 5.0
"""After which a new token is in its file, where the old one has expired."""
AHEAD_SECONDS = 600
START_SECONDS = 60.0
END_SECONDS = 300.0
"""For a command to end after the trouble, and its run."""
RETRYABLE = 5
BACKOFF_SECONDS = 10.0
"""Of a Job's first replacement of a failed pod; it doubles."""
BACKOFF_LIMIT = 3
"""The chart's."""
WORKERS = 6
NODE = "node-of-all"

SHIFTED = f"""
import time
real = time.time
time.time = lambda: real() + {AHEAD_SECONDS}
import sys
from launcher.cli.parser import main
sys.exit(main(sys.argv[1:]))
"""
"""The launcher, on a machine whose clock is ahead."""


class Case(NamedTuple):
    """A command, and the moment at which the trouble begins."""

    name: str
    arguments: tuple[str, ...]
    moment: str
    submits: bool = False
    streams: bool = True
    """Whether it has streams at that moment."""
    is_job: bool = False
    """Whether it is the container of the chart's Job, which is started again."""

    @property
    def is_begin(self) -> bool:
        """Whether the trouble is there before the command."""
        return self.moment == "its pod starts"


SUBMIT = ("submit", "{file}", "-n", "{namespace}")
OWNED = (*SUBMIT, "--owned-by", "ConfigMap/owner", "--owned-by", "Job/owner")
CASES = (
    Case("submit --detach", (*SUBMIT, "--detach"), "its first object is made", submits=True, streams=False),
    Case("submit", SUBMIT, "it follows the run", submits=True),
    Case("wait", ("wait", RUN, "-n", "{namespace}"), "it follows the run"),
    Case("logs -f", ("logs", RUN, "-f", "--role", "chief", "-n", "{namespace}"), "it follows the log"),
    Case("the chart's Job", OWNED, "its pod starts", submits=True, streams=False, is_job=True),
    Case("the chart's Job", OWNED, "it follows the run", submits=True, is_job=True),
)


class Trouble(NamedTuple):
    """`lasts`: it is over after a while, and not at once."""

    name: str
    begin: Callable[[Cell], None]
    end: Callable[[Cell], None]
    lasts: bool = True
    ahead: bool = False
    streams_only: bool = False


class Outcome(NamedTuple):
    """What came of it. `after`: the seconds from the end of the trouble and of the run to the command's end;
    `printed`: how many of the chief's lines, None where the command prints none.
    """

    code: int
    starts: int
    after: float
    printed: int | None
    doubled: int
    error: str

    @property
    def went_on(self) -> bool:
        """Whether all is as without the trouble."""
        return self.code == 0 and self.printed in (None, LINES) and not self.doubled


class Cell:
    """One command in one trouble, in a namespace of its own."""

    def __init__(
        self,
        case: Case,
        trouble: Trouble,
        seconds: float,
        api: Api,
        logs: Logs,
        namespace: str,
        directory: Path,
    ) -> None:
        self.case = case
        self.trouble = trouble
        self.api = api
        self.proxy: ApiProxy
        self.token = directory / "token"
        self._seconds = seconds
        self._logs = logs
        self._namespace = namespace
        self._directory = directory
        self._kubelet = Kubelet(api, namespace)
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._code = -1

    def outcome(self) -> Outcome:
        """Carries it out."""
        (self._directory / "mnist.py").write_text("class Mnist: ...\n")
        file = self._directory / "cluster.yaml"
        file.write_text(CLUSTER)
        self.token.write_text(TOKEN)
        words = {"file": str(file), "namespace": self._namespace}
        arguments = [word.format(**words) for word in self.case.arguments]
        self._make_owners()
        environment = {**ENVIRONMENT, "XDG_STATE_HOME": str(self._directory)}
        with proxy(self.api.kubeconfig) as self.proxy:
            environment["KUBECONFIG"] = str(self.proxy.kubeconfig(self._directory, self.token))
            if not self.case.submits:
                self._submit(environment, file)
                self._play()
            begin = threading.Thread(target=self._begin)
            if self.case.is_begin:
                begin.start()
                time.sleep(0.5)
            elif self.case.moment == "its first object is made":
                self.proxy.after(_made, begin.start)
            program = ["-c", SHIFTED] if self.trouble.ahead else ["-m", "launcher"]
            command = [sys.executable, *program, *arguments]
            carried_out = threading.Thread(target=self._carry_out, args=(command, environment))
            carried_out.start()
            try:
                self._live_through(begin)
                ended = self._end_run()
                carried_out.join(END_SECONDS)
            finally:
                self._over.set()
                if self._process is not None:
                    self._process.kill()
                carried_out.join()
            after = time.monotonic() - ended
        out = self._directory / "out"
        lines = out.read_text(errors="replace")
        printed = None
        doubled = 0
        if self.case.name == "logs -f":
            counts = [lines.count(f"line {number} of the chief") for number in range(LINES)]
            printed, doubled = sum(map(bool, counts)), sum(count > 1 for count in counts)
        error_text = (self._directory / "error").read_text(errors="replace")
        return Outcome(self._code, self._starts, after, printed, doubled, error_text)

    def _live_through(self, begin: threading.Thread) -> None:
        """Returns when the trouble is over, and the pods run."""
        if "follows" in self.case.moment:
            if self.case.submits:
                self._play()
            sought = _follows_log if self.case.name == "logs -f" else _watches_pods
            if not wait_for(lambda: self.proxy.has(sought), START_SECONDS):
                return
            time.sleep(2)
            begin.start()
        elif self.case.submits:
            self._play()
        if begin.ident is not None:
            begin.join()

    def _carry_out(self, command: Sequence[str], environment: dict[str, str]) -> None:
        """The command, as often as the chart's Job starts it."""
        back_off = BACKOFF_SECONDS
        with (self._directory / "out").open("wb") as output, (self._directory / "error").open("wb") as error:
            while True:
                self._process = subprocess.Popen(
                    command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=error
                )
                self._starts += 1
                self._code = self._process.wait()
                again = self.case.is_job and self._code == RETRYABLE and self._starts <= BACKOFF_LIMIT
                if not again or self._over.wait(back_off):
                    break
                back_off *= 2
        if self._code:
            self._over.set()

    def _make_owners(self) -> None:
        container = {"name": "launcher", "image": "launcher", "command": ["launcher"]}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        spec = {"suspend": True, "template": template}
        for item in (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}},
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "owner"}, "spec": spec},
        ):
            made = self.api.create(item, self._namespace)
            assert made.status == 201, made.body

    def _submit(self, environment: dict[str, str], file: Path) -> None:
        direct = {**environment, "KUBECONFIG": str(self.api.kubeconfig)}
        command = [sys.executable, "-m", "launcher", "submit", str(file), "--detach", "-n", self._namespace]
        subprocess.run(command, cwd=ROOT, env=direct, check=True, capture_output=True, timeout=END_SECONDS)

    def _play(self) -> None:
        """Starts the pods of the run, once they are there."""
        until = time.monotonic() + END_SECONDS
        while len(pods := self._kubelet.pods()) < TASKS:
            if self._over.wait(0.2) or time.monotonic() > until:
                return
        for pod in pods:
            bind(self.api, pod, NODE)
            self._logs.write(pod["metadata"]["name"])
        start_all(self._kubelet)
        self._write(0, LINES // 2)

    def _write(self, first: int, last: int) -> None:
        (chief,) = self._kubelet.pods("chief")
        self._logs.write(
            chief["metadata"]["name"], *(f"line {number} of the chief" for number in range(first, last))
        )

    def _begin(self) -> None:
        """The trouble, from its beginning to its end; the chief prints meanwhile."""
        self.trouble.begin(self)
        time.sleep(self._seconds / 2 if self.trouble.lasts else LATE_SECONDS)
        if "follows" in self.case.moment:
            self._write(LINES // 2, LINES - 2)
        time.sleep(self._seconds / 2 if self.trouble.lasts else 0)
        self.trouble.end(self)

    def _end_run(self) -> float:
        """Ends all tasks with 0. Returns when, monotonic."""
        pods = self._kubelet.pods()
        if len(pods) == TASKS:
            follows = "follows" in self.case.moment
            self._write(LINES - 2 if follows else LINES // 2, LINES)
            for pod in pods:
                self._logs.end(pod["metadata"]["name"])
                self._kubelet.end(pod, 0)
        return time.monotonic()

    def renew(self) -> None:
        """Puts a new token into the file."""
        account = f"api/v1/namespaces/{self._namespace}/serviceaccounts/default/token"
        made = self.api.request("POST", account, {"spec": {"expirationSeconds": 3600}})
        assert made.status == 201, made.body
        binding = {
            "metadata": {"name": "renewed"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": self._namespace}],
        }
        path = f"apis/rbac.authorization.k8s.io/v1/namespaces/{self._namespace}/rolebindings"
        assert self.api.request("POST", path, binding).status == 201
        self.token.write_text(made.body["status"]["token"])


def _made(request: Request) -> bool:
    return request.is_write and request.method == "PATCH"


def _watches_pods(request: Request) -> bool:
    return request.is_stream and request.path.endswith("/pods")


def _follows_log(request: Request) -> bool:
    return request.is_stream and request.path.endswith("/log")


def _nothing(_: Cell) -> None:
    pass


TROUBLES = (
    Trouble("it is gone", lambda cell: cell.proxy.gone(), lambda cell: cell.proxy.back()),
    Trouble("it answers 429", lambda cell: cell.proxy.answer(429), lambda cell: cell.proxy.back()),
    Trouble("it answers 500", lambda cell: cell.proxy.answer(500), lambda cell: cell.proxy.back()),
    Trouble("streams hang for good", lambda cell: cell.proxy.hang(), _nothing, streams_only=True),
    Trouble(
        "the token expires", lambda cell: cell.proxy.expire(TOKEN), lambda cell: cell.renew(), lasts=False
    ),
    Trouble("the clock is 10 min ahead", _nothing, _nothing, lasts=False, ahead=True),
)


@contextmanager
def cells(seconds: float, chosen: Sequence[str]) -> Iterator[list[Cell]]:
    """All that there are, on a control plane of their own."""
    with tempfile.TemporaryDirectory(prefix="outages-") as name, ExitStack() as stack:
        directory = Path(name)
        try:
            api = Api(stack.enter_context(control_plane(directory)).kubeconfig)
        except UnavailableError as reason:
            raise SystemExit(str(reason)) from None
        logs = stack.enter_context(node(api, directory, NODE))
        made: list[Cell] = []
        for trouble in TROUBLES:
            for case in CASES:
                if (trouble.streams_only and not case.streams) or (trouble.ahead and case.is_begin):
                    continue
                if chosen and not any(each in f"{case.name}, {trouble.name}" for each in chosen):
                    continue
                folder = directory / f"cell-{len(made)}"
                folder.mkdir()
                namespace = stack.enter_context(restricted_namespace(api))
                made.append(Cell(case, trouble, seconds, api, logs, namespace, folder))
        yield made


def row(cell: Cell, outcome: Outcome) -> Sequence[str]:
    """One of the table's."""
    end = "went on" if outcome.went_on else f"ended with {outcome.code}"
    lines = "" if outcome.printed is None else f"{outcome.printed} of {LINES}"
    if outcome.doubled:
        lines += f", {outcome.doubled} twice"
    begins = "from the start" if cell.trouble.ahead else cell.case.moment
    starts = str(outcome.starts) if cell.case.is_job else ""
    return cell.case.name, cell.trouble.name, begins, end, f"{outcome.after:.0f}", starts, lines


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outages", description=str(__doc__))
    parser.add_argument("--seconds", type=float, default=60.0, help="how long it is gone (%(default)g)")
    parser.add_argument("--only", action="append", default=[], help="part of a row's name; may be repeated")
    parser.add_argument("--record", action="store_true", help="renew this harness' part of docs/benchmarks/")
    options = parser.parse_args()

    def tried(cell: Cell) -> Outcome:
        try:
            outcome = cell.outcome()
        except Exception:  # noqa: BLE001 - the other cells go on
            outcome = Outcome(-2, 0, 0.0, None, 0, traceback.format_exc())
        print("; ".join(row(cell, outcome)), file=sys.stderr, flush=True)
        if not outcome.went_on:
            print(outcome.error, file=sys.stderr, flush=True)
        return outcome

    with cells(options.seconds, options.only) as all_, ThreadPoolExecutor(WORKERS) as pool:
        outcomes = list(pool.map(tried, all_))
    heads = ("command", "the API server", "begins when", "it", "ended s after", "starts", "lines")
    text = f"The outages last {options.seconds:g} s.\n\n" + table(
        heads, [row(cell, outcome) for cell, outcome in zip(all_, outcomes, strict=True)]
    )
    recording.publish("outages", text, record=options.record)


if __name__ == "__main__":
    main()
