"""The arithmetic of `make bench-recovery`: when a run has recovered, and the length of its back-off."""

import pytest

from benchmarks.recovery import SHAPES, Measured, backoffs, report
from benchmarks.recovery_runs import Marks, Shape, Task
from launcher.backends.local.supervisor.jobs import Backoff
from worker.contract.records import Event, Record

PARAMETER_SERVER, COLLECTIVE, ONE_DEVICE, *_ = SHAPES
EVALUATED = {"checkpoint": "ckpt-1", "epoch": 1, "metrics": {"loss": 0.5}}


def marks(*lines: tuple[float, str, Task]) -> Marks:
    """Returns the marks of lines, as the bare script prints them."""
    run_marks = Marks()
    for time, what, task in lines:
        run_marks.add(task, f"{what} at {time}")
    return run_marks


@pytest.mark.parametrize(
    ("shape", "victim", "seconds"),
    [
        (PARAMETER_SERVER, ("worker", 1), 12.0),
        (PARAMETER_SERVER, ("chief", 0), 14.5),
        (PARAMETER_SERVER, ("ps", 0), 14.5),
    ],
)
def test_what_counts_as_recovered(shape: Shape, victim: Task, seconds: float) -> None:
    """The steps of another worker do not count, nor do steps that were in flight when the chief
    was killed.
    """
    run_marks = marks(
        (9.0, "training", ("chief", 0)),
        (9.5, "step", ("worker", 1)),
        (10.1, "step", ("worker", 0)),
        (12.0, "step", ("worker", 1)),
        (14.0, "training", ("chief", 0)),
        (14.5, "step", ("worker", 0)),
    )
    assert run_marks.recovered(shape, victim, 10.0) == seconds


def test_a_worker_that_joins_is_followed_from_its_server_to_its_own_first_step() -> None:
    worker = PARAMETER_SERVER.joins
    assert worker == ("worker", PARAMETER_SERVER.replicas["worker"])
    run_marks = marks((10.1, "step", ("worker", 0)), (13.0, "step", worker))
    run_marks.add(worker, Record(Event.READY, "t", 12.0, {}).line())
    assert (run_marks.first("ready", 10.0, worker), run_marks.first("step", 10.0, worker)) == (12.0, 13.0)


def test_a_worker_that_joins_a_collective_is_followed_from_its_connection() -> None:
    (shape,) = (shape for shape in SHAPES if shape.has_generations and shape.joins is not None)
    assert shape.joins == ("worker", shape.replicas["worker"])
    run_marks = marks((10.1, "step", ("worker", 0)), (19.0, "step", shape.joins))
    waits = {"activity": "waiting for the next generation of workers"}
    run_marks.add(shape.joins, Record(Event.DOING, "t", 12.0, waits).line())
    assert (run_marks.first("ready", 10.0, shape.joins), run_marks.first("step", 12.0, shape.joins)) == (
        12.0,
        19.0,
    )
    assert backoffs(shape, Backoff()) == [0.0], "the others do not wait for its pod"


def test_an_evaluator_has_recovered_when_it_has_evaluated() -> None:
    run_marks = marks((10.5, "step", ("chief", 0)), (11.0, "step", ("evaluator", 0)))
    assert run_marks.recovered(ONE_DEVICE, ("evaluator", 0), 10.0) is None
    run_marks.add(("evaluator", 0), Record(Event.EVALUATION, "t", 12.0, EVALUATED).line())
    assert run_marks.recovered(ONE_DEVICE, ("evaluator", 0), 10.0) == 12.0


def test_a_pause_is_the_longest_time_without_a_step_of_training() -> None:
    run_marks = marks(
        (10.5, "step", ("worker", 0)), (13.0, "step", ("worker", 0)), (12.0, "step", ("evaluator", 0))
    )
    assert run_marks.pause(10.0, 14.0) == 2.5


def test_what_a_line_says_is_found_as_tensorflow_prints_it() -> None:
    run_marks = Marks()
    run_marks.add(("chief", 0), 'step at "1795268666.127"')
    assert run_marks.first("step", 0.0) == 1795268666.127


def test_the_delay_of_whoever_was_lost_before_is_longer() -> None:
    assert backoffs(PARAMETER_SERVER, Backoff()) == [1.0, 1.0, 2.0], "the ps takes the chief along"
    assert backoffs(COLLECTIVE, Backoff(10.0, 600.0)) == [10.0, 20.0]
    assert backoffs(ONE_DEVICE, Backoff()) == [1.0, 1.0]
    in_place = next(shape for shape in SHAPES if shape.in_place)
    assert backoffs(in_place, Backoff()) == [0.0, 0.0, 0.0], "a pod that stays is not waited for"


def test_the_work_that_is_lost_is_what_is_done_a_second_time() -> None:
    run_marks = Marks()
    for time, done in [(10.0, 40), (10.5, 41), (11.0, 42), (11.5, 43), (20.0, 41), (20.5, 42)]:
        run_marks.add(("worker", 0), f'step at "{time}" after {done}')
    steps, seconds = run_marks.lost(begun=10.0, killed=11.7, recovered=20.0)
    assert steps == 2
    assert seconds == pytest.approx(1.2), "since it was at step 41"
    assert run_marks.lost(begun=8.0, killed=9.0, recovered=10.0) == (0, 0.0), "there was nothing to lose"


@pytest.mark.parametrize("least", [[8.0], []])
def test_the_report_has_seconds_and_lost_work_of_each_victim(least: list[float]) -> None:
    spans = [] if least else [(1.0, 10.0, 1.5, 5.5)]
    measurements = Measured(0.0, [18.0], least, [2.0], [40], [1.25], spans)
    taken = {(PARAMETER_SERVER.name, victim): measurements for victim in PARAMETER_SERVER.victims[:2]}
    text = report([PARAMETER_SERVER], taken, {}, "local")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    measured = ["ParameterServer: chief", "1", "18.00", "18.00", "18.00"]
    assert [*measured, *(["1", "17.00", "8.00", "2.12"] if least else [])] in rows
    assert ["ParameterServer: chief", "40", "40", "1.25", "1.25"] in rows
    assert not any(row[:2] == ["ParameterServer: worker 1", "40"] for row in rows), "the other trains on"
    assert (["ParameterServer: chief", "1.00", "10.00", "1.50", "5.50"] in rows) is bool(spans)
    assert "ParameterServer: ps" not in text, "its round failed"
