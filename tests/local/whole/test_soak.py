"""The code of `make soak`: runs of some kinds, and that it finds what they leave behind."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from benchmarks import soak_runs
from benchmarks.soak import Usage, grew
from benchmarks.soak_local import Local, local
from launcher.backends.local.process.processes import MARK
from tests.local.machine import linux_only

pytestmark = linux_only


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    for name in ("XDG_STATE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, "")  # monkeypatch restores them at the end
    with local() as place:
        yield place


@pytest.mark.by_day("Ctrl-C", "task killed")
@pytest.mark.parametrize("kind", ["task killed", "supervisor killed", "deleted", "Ctrl-C"])
def test_nothing_is_left(place: Local, kind: str) -> None:
    outcome = soak_runs.soak(place, 1, kind, is_training=False)
    assert outcome.problem == ""
    assert outcome.phase in place.ends[kind]
    assert place.left() == {"processes": [], "ports": [], "files": []}
    ((guard, supervisor),) = place.supervisors
    assert 0 < guard < 100
    assert 0 < supervisor < 100


def test_what_is_left_is_found(place: Local) -> None:
    assert soak_runs.soak(place, 2, "nothing", is_training=False).problem == ""
    (place.root / "tmp" / "forgotten").mkdir()
    (uid,) = place._uids
    with subprocess.Popen(["sleep", "60"], env={MARK: f"{uid}/x"}) as process:
        left = place.left()
        process.kill()
    assert left["processes"] == [str(process.pid)]
    assert left["files"] == [str(place.root / "tmp" / "forgotten")]


def test_growth_is_told_from_noise() -> None:
    assert not grew(40.0, 43.9)
    assert not grew(400.0, 430.0)
    assert grew(40.0, 45.0)
    assert Usage.now().descriptors > 2
