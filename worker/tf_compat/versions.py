"""The versions of TensorFlow and Keras 3 that this runtime is tested with. `version` is the text that they
give.
"""

from __future__ import annotations

OLDEST = (2, 16)
NEWEST = (2, 21)
OLDEST_KERAS = (3, 8)
NEWEST_KERAS = (3, 15)


def too_old(version: str) -> str | None:
    """Returns a sentence where this runtime does not work with `version`, else None."""
    if _number(version) >= OLDEST:
        return None
    return f"TensorFlow {version} is older than {_text(OLDEST)}, the oldest that this runtime works with"


def untested(version: str) -> str | None:
    """Returns a sentence where `version` is newer than the newest tested one, else None."""
    if _number(version) <= NEWEST:
        return None
    return f"TensorFlow {version} is newer than {_text(NEWEST)}, the newest that this runtime is tested with"


def keras_too_old(version: str) -> str | None:
    """Returns a sentence where models of Keras 3 of `version` cannot be trained, else None."""
    if _number(version) >= OLDEST_KERAS:
        return None
    return f"Keras {version} is older than {_text(OLDEST_KERAS)}, the oldest whose models this runtime trains"


def keras_untested(version: str) -> str | None:
    """Returns a sentence where `version` of Keras 3 is newer than the newest tested one, else None."""
    if _number(version) <= NEWEST_KERAS:
        return None
    return f"Keras {version} is newer than {_text(NEWEST_KERAS)}, the newest that this runtime is tested with"


def sums_activity_losses(version: str) -> bool:
    """Returns whether Keras 3 of `version` adds an activity regularizer's loss up over the batch. Newer ones
    take the mean, as for other losses, so that replicas can weigh theirs by their parts of the batch.
    """
    return _number(version) < (3, 14)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def _text(number: tuple[int, ...]) -> str:
    return ".".join(map(str, number))
