"""Has the chief of a ParameterServer run, which has `modelDir`, read and write the checkpoints.

By TensorFlow's default each parameter server writes its variables to its own disk, but its pod has no
`modelDir`. `tf.train.CheckpointOptions(experimental_io_device=...)` changes that, but Keras' BackupAndRestore
and `Model.save` take no such options. They, ModelCheckpoint and `tf.train.CheckpointManager` all make options
of that class in the end, so this module changes the default of the class.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from worker.tf_compat.connections import own_device

_MODULE = "tensorflow.python.checkpoint.checkpoint_options"
_MENDED = "_tf_launcher_mended"


def save_here() -> None:
    """Makes this process the default device of CheckpointOptions, once it has connected to a cluster.

    TensorFlow need not be imported yet, and this function does not import it.
    """
    if _MODULE in sys.modules:
        _mend(sys.modules[_MODULE])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _mend(module: ModuleType) -> None:
    options: Any = module.CheckpointOptions  # tf.train.CheckpointOptions
    if hasattr(options, _MENDED):
        return
    given = options.experimental_io_device  # the slot of the value: the class has __slots__

    def device(self: Any) -> str | None:
        # The device is read at each use: a callback may be made before the strategy is.
        chosen: str | None = given.__get__(self, options)
        return own_device() if chosen is None else chosen

    options.experimental_io_device = property(device, given.__set__)
    setattr(options, _MENDED, True)


class _Finder(MetaPathFinder):
    """Finds the module as usual, once, and changes it after it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Mending(spec.loader)
        return spec


class _Mending(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _mend(module)
