"""What the training process tells its supervisor: how long it may be silent, and what it has done.

The training process writes `Silence`, one JSON line, which says how long it may be silent from now on, and
what the supervisor says and does after that. An empty line is a sign of life, and the time starts again.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worker.contract.exit_codes import ExitCode
from worker.contract.records import EVENTS, Content, Failed, content_of, fields_of
from worker.process.lease import Holder, Lease, message

UNWATCHED_SECONDS = 1e9
"""Limit for a script of the user's that does as it likes: as good as none."""


@dataclass(frozen=True)
class Silence:
    """The child may be silent for `seconds`. After that, the parent prints a record with this `content`, and
    leaves with `exit_code`.

    With `blame`, the message of a `Failed` names the peers that do not answer.
    """

    seconds: float
    content: Content
    exit_code: int
    blame: bool = False

    def to_json(self) -> str:
        """Returns one line."""
        head = {"seconds": self.seconds, "exit_code": int(self.exit_code), "blame": self.blame}
        return json.dumps({**head, "event": EVENTS[type(self.content)], "fields": fields_of(self.content)})

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Silence:
        """Reads the document of `to_json`."""
        content = content_of(document["event"], document["fields"])
        assert content is not None  # noqa: S101 - for the type checker: parent and child are of one version
        return cls(document["seconds"], content, document["exit_code"], document["blame"])


def stalled(doing: str, seconds: float) -> Silence:
    """Returns the Silence of most activities: a stall is a failure that a retry may fix. `doing` continues
    "while ".
    """
    message = f"nothing moved for {seconds:.0f} s while {doing}"
    return Silence(seconds, Failed(message, "", ExitCode.RETRYABLE), ExitCode.RETRYABLE, blame=True)


def overtaken(other: Holder) -> Silence:
    """Returns a Silence of no time: two chiefs must not write to one model directory."""
    return Silence(0.0, Failed(message(other), "", ExitCode.RETRYABLE), ExitCode.RETRYABLE)


class Watch:
    """The child's side of the protocol. It is thread-safe, never raises, and waits only for the supervisor to
    read. Without a pipe it does nothing.
    """

    def __init__(self, pipe: int | None = None) -> None:
        self._pipe = pipe
        self._spoke = 0.0
        self._lock = threading.Lock()

    def fall_silent(self) -> None:
        """Says nothing from now on: for a fork of the child."""
        self._pipe = None

    def expect(self, silence: Silence) -> None:
        """Makes `silence` valid from now on."""
        self._write(silence.to_json().encode() + b"\n", patient=True)

    def hold(self, lease: Lease) -> None:
        """Has the supervisor renew `lease` from now on. If the lease is lost, the supervisor ends
        the child.
        """
        self._write(json.dumps({"lease": lease.to_json()}).encode() + b"\n", patient=True)

    def attend(self, workers: Mapping[str, str]) -> None:
        """Has the supervisor report from now on which of `workers` (pod name to address) are gone or back."""
        self._write(json.dumps({"workers": workers}).encode() + b"\n", patient=True)

    def introduce(self, identity: Mapping[str, Any]) -> None:
        """Says what this task of an elastic collective runs: see `identity`."""
        self._write(json.dumps({"identity": identity}).encode() + b"\n", patient=True)

    def came_further(self) -> None:
        """Says that the task has come further than before its last restart: see `Restarts`."""
        self._write(b'{"further": true}\n', patient=True)

    def tell(self, record: str) -> None:
        """Passes on a record's line. It is no sign of life: any thread may print one."""
        self._write(record.encode() + b"\n", patient=True)

    def spend(self, times: Mapping[str, float]) -> None:
        """Says where the time of the training's steps went so far: see `StepTimes`."""
        self._write(json.dumps({"spent": times}).encode() + b"\n", patient=True)

    def stepped(self) -> None:
        """Says that the first step is done."""
        self._write(b'{"stepped": true}\n', patient=True)

    def trains(self, now: bool) -> None:
        """Says whether this task takes orders for a profile from now on: see `training.training_profile`."""
        self._write(json.dumps({"trains": now}).encode() + b"\n", patient=True)

    def profiled(self, answer: Mapping[str, Any]) -> None:
        """Answers such an order."""
        self._write(json.dumps({"profiled": answer}).encode() + b"\n", patient=True)

    def stay_down(self) -> None:
        """Says that another process in this pod would fail like this one."""
        self._write(b'{"again": false}\n', patient=True)

    def alive(self) -> None:
        """Gives a sign of life. It is cheap: at most ten a second are sent."""
        now = time.monotonic()
        if now - self._spoke >= 0.1:
            self._spoke = now
            self._write(b"\n")

    def beat(self) -> None:
        """Gives a sign of life every second from now on, for as long as Python runs at all."""

        def beat() -> None:
            while True:
                self.alive()
                time.sleep(1.0)

        threading.Thread(target=beat, name="beat", daemon=True).start()

    def _write(self, data: bytes, patient: bool = False) -> None:
        if self._pipe is None:
            return
        with self._lock, contextlib.suppress(OSError):
            while data:
                try:
                    data = data[os.write(self._pipe, data) :]
                except BlockingIOError:
                    if not patient:
                        return  # the pipe is full of signs of life that the supervisor has yet to read
                    select.select([], [self._pipe], [])
