"""How many workers an elastic run may have: `Env.ELASTIC_WORKERS`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from worker.contract.environment import Env
from worker.contract.json_values import count


@dataclass(frozen=True)
class ElasticWorkers:
    """How many workers an elastic run may have: it trains with `min` or more, `max` is the greatest number
    that can be set, and `replicas` the number at its submission. 1 <= min <= replicas <= max. A TF_CONFIG
    with the whole cluster lists the addresses of `max` workers.
    """

    min: int
    max: int
    replicas: int

    def to_json(self) -> str:
        """Returns the value of `Env.ELASTIC_WORKERS`."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ElasticWorkers:
        """Reads the output of `to_json`. Raises ValueError for any other text. It ignores fields of later
        versions.
        """
        try:
            document = json.loads(text)
            found = cls(*(count(document[each.name]) for each in fields(cls)))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not what the launcher writes of elastic workers: {text}") from error
        if not 1 <= found.min <= found.replicas <= found.max:
            raise ValueError(f"expected 1 <= min <= replicas <= max of elastic workers, got {text}")
        return found


def elastic_workers(environment: Mapping[str, str]) -> ElasticWorkers | None:
    """Reads `Env.ELASTIC_WORKERS`. Returns None for a run that is not elastic. Raises ValueError where the
    variable has another text than the launcher's.
    """
    text = environment.get(Env.ELASTIC_WORKERS)
    return None if text is None else ElasticWorkers.from_json(text)
