"""What a comparison has found, as values and sentences. Its documents are those of `worker.comparison`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from launcher.lists_and_counts import counted, listed
from worker.contract.run_config import Verification

FILES_APART: Final = (
    "each task reads files of its own (spec.strategyOptions.autoShard: FILE, or AUTO), so a step has other "
    "examples than in one process; with autoShard: DATA they are the same, as a further training has shown"
)
Found = Sequence[Mapping[str, Any]]
"""A document for each `fit`."""
_MOMENTS: Final = {
    "begin": "weights at the start",
    "first": "weights after step 1",
    "last": "weights at the end",
}


@dataclass(frozen=True)
class Difference:
    """A value of one `fit` in one process and by the strategy, and whether they are the same.

    `where` is the line of a script's `fit`, or the program. `name` is steps, examples, a result, such as
    loss, or the weights at a moment, whose values are None. `difference` is relative for values above 1, and
    of all weights the greatest; of the examples it is how many were left out, or came instead.
    """

    where: str
    name: str
    one: float | None
    strategy: float | None
    difference: float
    same: bool


@dataclass(frozen=True)
class Verdict:
    """Whether the strategy trains as one process does. `causes` say why it does not, `notes` what was
    compared, and how.
    """

    run: str
    agrees: bool
    compared: Sequence[Difference]
    causes: Sequence[str]
    notes: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """Returns the same as plain values. JSON has no number that is infinite or none: those are None."""
        rows = [{name: _finite(value) for name, value in asdict(each).items()} for each in self.compared]
        return {**asdict(self), "compared": rows}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def agree(fits: Found) -> bool:
    """Returns whether nothing differs."""
    return all(each.same for each in differences(fits))


def data_agree(fits: Found) -> bool:
    """Returns whether all have seen the same examples, as often."""
    return all(each.same for each in differences(fits) if each.name in ("fit", "steps", "examples"))


def first_different(fits: Found) -> Mapping[str, Any]:
    """Returns the first `fit` that differs: the model of those behind it may be its own."""
    return next(fit for fit in fits if not agree([fit]))


def differences(fits: Found) -> Iterator[Difference]:
    """Yields all that was compared."""
    for fit in fits:
        of = partial(Difference, fit["where"])
        if "missing" in fit:
            one, other = (float(there) for there in fit["there"][:2])
            yield of("fit", one, other, abs(one - other), False)
            continue
        (one, other), examples = fit["steps"], fit["examples"]
        yield of("steps", one, other, abs(one - other), one == other)
        changed = max(abs(examples[0] - examples[1]), fit["left_out"], fit["instead"])
        yield of("examples", examples[0], examples[1], changed, changed <= fit["uneven"])
        for each in fit["results"]:
            yield of(each["name"], each["values"][0], each["values"][1], each["far"], each["same"])
        for moment, weights in fit["moments"].items():
            yield of(_MOMENTS[moment], None, None, weights["most"], not weights["first"])


def notes(fits: Found) -> list[str]:
    """Returns how the values were compared."""
    sentences = []
    if any(fit.get("in_order") is False for fit in fits):
        sentences.append(
            "the workers of ParameterServer take steps in any order, so only the numbers of steps and of "
            "examples can be compared; --workers 1 compares losses and weights"
        )
    if any(fit.get("half") for fit in fits):
        sentences.append("float16: compared to 1%, as sums in 16 bits are rounded")
    return list(dict.fromkeys(sentences))


def suspects(fits: Found) -> dict[str, list[str]]:
    """Returns the layers that compute otherwise on several replicas, by what can be left out of them."""
    names: dict[str, list[str]] = {}
    for fit in fits:
        for kind, layers in fit.get("layers", {}).items():
            # A replica that is alone has the statistics of one process.
            if layers and (kind == Verification.RANDOM or fit["replicas"] > 1):
                names[kind] = list(dict.fromkeys([*names.get(kind, []), *layers]))
    return names


def of_layers(kind: str, layers: Sequence[str]) -> str:
    """Returns why such layers compute otherwise on several replicas."""
    which = listed(layers, 4)
    if kind == Verification.STATISTICS:
        return (
            f"batch normalization ({which}): each replica normalizes by the mean and variance of its own "
            "part of the batch, not of the whole; BatchNormalization(synchronized=True) does as one process"
        )
    return (
        f"random layers ({which}): each replica draws numbers of its own. This is as it should be, and "
        "cannot be compared: --without random compares the rest"
    )


def of_data(fit: Mapping[str, Any]) -> str:
    """Returns why the tasks have not seen the examples of one process."""
    where, left, instead = fit["where"], fit["left_out"], fit["instead"]
    seen = (
        f"{counted(left, 'time')} an example of one process was left out, and {counted(instead, 'time')} "
        "another one came, or one twice"
        if left or instead
        else f"{fit['examples'][1]:,} examples were seen, not {fit['examples'][0]:,}"
    )
    if "shard" in fit["data"]:
        return (
            f"{where}: {seen}: the training data calls shard(). The runtime shares each batch out itself, "
            "and takes a part of it in each task: give every task all of the data"
        )
    if "random" in fit["data"]:
        return (
            f"{where}: {seen}: the training data draws random numbers in a map(), so no two readers have the "
            "same examples. This may be as it should be, and cannot be compared: leave it out to compare the "
            "rest, or draw by a seed of the example's own (tf.random.stateless_uniform)"
        )
    return (
        f"{where}: {seen}: the tasks do not have the same data. The runtime shares each batch out itself: "
        "give every task all of the data, in the same order"
    )


def of_numbers(fit: Mapping[str, Any]) -> str:
    """Returns what the numbers themselves say, where the examples were the same."""
    where = fit["where"]
    if fit["moments"].get("begin", {}).get("first"):
        return (
            f"{where}: the weights are not the same before the first step: they come from a generator that "
            "is not seeded here (those of random, numpy and TensorFlow are)"
        )
    if fit["clipped"] and fit["replicas"] > 1:
        return (
            f"{where}: the step clips its gradients by the norm of all of them, in {fit['clipped']}: in each "
            "replica those of its own part of the batch. The optimizer's global_clipnorm=... clips the whole "
            "batch's"
        )
    if (times := fit["gradients"]) is not None:
        sentence = f"{where}: after one step the gradient is {times:.3g} times that of one process"
        if abs(times - fit["replicas"]) < 0.02 * fit["replicas"]:
            sentence += (
                f", as {fit['replicas']} replicas' gradients are added up: the step takes that of a mean "
                "over a replica's examples. Divide the sum by global_batch_size instead"
            )
        return sentence
    if fit["drawn"]:
        return (
            f"{where}: the step draws random numbers, in {fit['drawn']}: each replica draws its own. This is "
            "as it should be, and cannot be compared"
        )
    since = f"from step {fit['step']} on" if fit["step"] is not None else "at the end"
    return (
        f"{where}: the results differ {since}; neither the examples nor a layer that is known for it "
        "explains that"
    )


def first_variable(fit: Mapping[str, Any]) -> str:
    """Returns which variable differs first, "" where none does."""
    for moment, weights in fit.get("moments", {}).items():
        if weights["first"]:
            when = _MOMENTS[moment].removeprefix("weights ")
            name = weights["first"]
            return (
                f"{fit['where']}: the first variable that differs is {name}, by {weights['far']:.2g} {when}"
            )
    return ""
