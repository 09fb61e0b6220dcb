"""The sums of a training's seconds, cut into windows."""

from __future__ import annotations

from worker.contract.records import PARTS, Spent
from worker.supervisor.spent_windows import SpentWindows


def sums(steps: float, *seconds: float) -> dict[str, float]:
    return {"steps": steps, "examples": 0.0, **dict(zip(PARTS, seconds, strict=True))}


def test_a_window_has_what_came_since_the_last_one() -> None:
    windows = SpentWindows()
    assert windows.spend(sums(3, 1.0, 20.0, 0.0, 0.0), 7.0, {}) is None  # what was before is unknown
    assert windows.spend(sums(20, 3.0, 24.0, 3.0, 0.0), 7.0, {}) is None  # 9 s
    spent = windows.spend(sums(23, 3.0, 25.0, 3.0, 0.5), 7.25, {})
    assert spent == Spent(20, {"input": 2.0, "computing": 5.0, "peers": 3.0, "saving": 0.5}, 0.25)
    assert windows.spend(sums(24, 3.0, 36.0, 3.0, 0.5), 7.25, {}) is None  # one step
    spent = windows.spend(sums(28, 3.0, 37.0, 3.0, 0.5), 7.25, {})
    assert spent == Spent(5, {"input": 0.0, "computing": 12.0, "peers": 0.0, "saving": 0.0}, 0.0)


def test_a_coordinator_takes_no_steps() -> None:
    windows = SpentWindows()
    for steps in (10, 1000):
        assert windows.spend({"steps": steps, "examples": 0.0, "saving": 60.0}, 0.0, {}) is None


def test_of_the_connections_those_count_on_which_much_has_waited() -> None:
    windows = SpentWindows()
    windows.spend(sums(3, 0.0, 20.0, 0.0, 0.0), 0.0, {"demo-worker-1": 4.0})
    sending = {"demo-worker-1": 5.5, "demo-worker-2": 0.5}
    spent = windows.spend(sums(23, 0.0, 25.0, 5.0, 0.0), 0.0, sending)
    assert spent is not None
    assert spent.sending == {"demo-worker-1": 1.5}
