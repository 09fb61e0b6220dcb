"""`verify`: trains a few steps of a file's program in one process and by its strategy, on this machine, and
says where the two differ.

Both are runs of the local backend, of the same loop. Where they differ, further trainings look for the cause:
one process that begins a rounding off, all without the layers that differ by design, the strategy with each
task reading all data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from launcher import program_check
from launcher.lists_and_counts import counted
from launcher.validation.loader import Loaded
from launcher.verification import verdict
from launcher.verification.trials import TrainingFailed, Trials, trials
from launcher.verification.two_runs import ONE, OTHER, TwoRuns
from launcher.verification.verdict import Verdict as Verdict

STEPS: Final = 20
WORKERS: Final = 2
_CONTROL: Final = "one-process-again"


def verify(
    loaded: Loaded,
    *,
    steps: int = STEPS,
    workers: int = WORKERS,
    without: Sequence[str] = (),
    allow_network: bool = False,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Verdict:
    """Compares `steps` steps of the file's training; `workers` is how many workers, or devices of one task,
    are tried at most. `without` are those of `Verification`. `tell` hears what is done next.

    Raises SpecError for a file whose run trains nothing that one process could, BackendError, and
    TrainingFailed.
    """
    program_check.check_python("verify")
    runs = TwoRuns(loaded, workers)
    notes, causes = [*runs.notes, *(f"compared without {name}" for name in without)], list[str]()
    with trials(steps, allow_network) as trained:
        tell(f"trains {counted(steps, 'step')} in one process, and {runs.described}")
        left_out = frozenset(without)
        one, other = trained.train({ONE: (runs.one, left_out, False), OTHER: (runs.other, left_out, False)})
        fits = trained.compare(one, other)
        if not fits:
            raise TrainingFailed(
                "nothing was compared: the script has called no fit()",
                "`verify` compares what fit() trains, not train_on_batch() or a loop of the script's own.",
            )
        if not verdict.agree(fits) and verdict.data_agree(fits):
            tell("they differ: trains one process from weights that are off by a rounding")
            (control,) = trained.train({_CONTROL: (runs.one, left_out, True)})
            fits = trained.compare(one, other, control)
            if verdict.agree(fits):
                notes.append(
                    "one process that begins 2e-7 off differs from itself as much: this training makes a "
                    "rounding larger"
                )
        if not verdict.agree(fits):
            first = verdict.first_variable(verdict.first_different(fits))
            causes = [*filter(None, [first]), *_causes(runs, trained, fits, one, left_out, tell)]
    compared = list(verdict.differences(fits))
    all_notes = [*notes, *verdict.notes(fits)]
    return Verdict(loaded.cluster.metadata.name, verdict.agree(fits), compared, causes, all_notes)


def _causes(
    runs: TwoRuns,
    trained: Trials,
    fits: verdict.Found,
    one: Path,
    left_out: frozenset[str],
    tell: Callable[[str], None],
) -> list[str]:
    if any("missing" in fit for fit in fits):
        return ["the script calls fit() more often in one of the two"]
    if not verdict.data_agree(fits):
        if runs.reads_apart:
            tell("the examples differ: trains by the strategy with each task reading all data")
            (other,) = trained.train({f"{OTHER}-data": (runs.with_all_data(), left_out, False)})
            if verdict.data_agree(trained.compare(one, other)):
                return [verdict.FILES_APART]
        return [verdict.of_data(fit) for fit in fits if not verdict.data_agree([fit])]
    suspects = verdict.suspects(fits)
    if not suspects:
        return [verdict.of_numbers(verdict.first_different(fits))]
    tell(f"trains all again without what differs by design: {', '.join(suspects)}")
    without = left_out | set(suspects)
    again = trained.train(
        {
            f"{ONE}-without": (runs.one, without, False),
            f"{OTHER}-without": (runs.other, without, False),
            f"{_CONTROL}-without": (runs.one, without, True),
        }
    )
    rest = trained.compare(*again)
    sentences = [verdict.of_layers(kind, layers) for kind, layers in suspects.items()]
    if verdict.agree(rest):
        return [*sentences, "without this the two agree, as a further training of both has shown"]
    return [
        verdict.of_numbers(verdict.first_different(rest)),
        *(f"perhaps also {each}" for each in sentences),
    ]
