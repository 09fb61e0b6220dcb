"""The file of a run, as the tests of single fields need it."""

from __future__ import annotations

import json
from typing import Any

from launcher.config.spec import TrainingCluster


def cluster(strategy: str, **spec: Any) -> TrainingCluster:
    """Returns a run by that strategy, called mnist, with these fields of its spec."""
    document = {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": {"name": "mnist"},
        "spec": {
            "strategy": strategy,
            "program": {"entrypoint": "mnist:Mnist"},
            "modelDir": "/model",
            **spec,
        },
    }
    return TrainingCluster.model_validate_json(json.dumps(document))
