"""The controller's queue: one thread for a key at a time, later turns, and errors."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Hashable

from launcher.controller.work_queue import WorkQueue


def wait_until(condition: threading.Event) -> None:
    assert condition.wait(10)


def test_a_key_has_one_thread_and_a_change_meanwhile_gives_it_another_turn() -> None:
    begun, go_on, again = threading.Event(), threading.Event(), threading.Event()
    at_once: list[int] = []
    running, calls = Counter[Hashable](), Counter[Hashable]()
    lock = threading.Lock()

    def work(key: Hashable) -> None:
        with lock:
            running[key] += 1
            calls[key] += 1
            at_once.append(running[key])
        begun.set()
        wait_until(go_on)
        if calls["a"] == 2:
            again.set()
        with lock:
            running[key] -= 1

    queue = WorkQueue(work, lambda key, error: None, threads=4)
    queue.start()
    queue.add("a")
    wait_until(begun)
    for _ in range(5):
        queue.add("a")
    queue.add("b")
    go_on.set()
    wait_until(again)
    queue.close(5)
    assert calls == {"a": 2, "b": 1}
    assert max(at_once) == 1


def test_a_key_comes_again_when_it_asked_to_and_an_earlier_turn_counts() -> None:
    times: list[float] = []
    done = threading.Event()

    def work(key: Hashable) -> float | None:
        times.append(time.monotonic())
        if len(times) == 3:
            done.set()
            return None
        return 0.2 if len(times) == 1 else 600

    queue = WorkQueue(work, lambda key, error: None, threads=2)
    queue.start()
    queue.add("a")
    while len(times) < 2:
        time.sleep(0.01)
    assert times[1] - times[0] >= 0.2
    time.sleep(0.1)
    queue.add("a")
    wait_until(done)
    queue.close(5)
    assert times[2] - times[1] < 300


def test_an_error_is_told_and_tried_again_ever_later_while_the_others_go_on() -> None:
    messages: list[str] = []
    waits: list[float] = []
    last, worked = threading.Event(), threading.Event()

    def work(key: Hashable) -> None:
        if key == "good":
            worked.set()
            return
        waits.append(time.monotonic())
        if len(waits) == 3:
            last.set()
        raise ValueError(f"number {len(waits)}")

    queue = WorkQueue(work, lambda key, error: messages.append(f"{key}: {error}"), threads=1)
    queue.start()
    queue.add("bad")
    queue.add("good")
    wait_until(worked)
    wait_until(last)
    queue.close(5)
    assert messages == ["bad: number 1", "bad: number 2", "bad: number 3"]
    assert waits[1] - waits[0] >= 1
    assert waits[2] - waits[1] >= 2
