"""Trains a TensorFlow model on many machines, from one cluster.yaml.

    cluster.yaml -> spec -> topology -> manifests -> backend -> status
    (text)          (what    (who: tasks,  (what the   (kubernetes  (what is
                     the user addresses,    cluster     | local)     going on)
                     wants)   TF_CONFIG)    is told)

It runs one way: each arrow is one function, `loading.load`, `topology.build`, `rendering.render`,
`Backend.submit` and `status.fold`, and each noun is one module. What comes out of an arrow is a value
that can be printed, compared and tested before anything is done.

The package never imports TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launcher.loading import load
    from launcher.rendering import render
    from launcher.spec import TrainingCluster
    from launcher.topology import build

__all__ = ["TrainingCluster", "__version__", "build", "load", "render"]

__version__ = "0.1.0"

_HOMES = {
    "TrainingCluster": "launcher.spec",
    "build": "launcher.topology",
    "load": "launcher.loading",
    "render": "launcher.rendering",
}


def __getattr__(name: str) -> Any:
    # On first use: `--help` must not wait for pydantic.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
