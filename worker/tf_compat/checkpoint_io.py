"""Has the chief of a ParameterServer run, which has `modelDir`, read and write the checkpoints.

By TensorFlow's default each parameter server writes its variables to its own disk, but its pod has no
`modelDir`. `tf.train.CheckpointOptions(experimental_io_device=...)` changes that, but Keras' BackupAndRestore
and `Model.save` take no such options. They, ModelCheckpoint and `tf.train.CheckpointManager` all make options
of that class in the end, so this module changes the default of the class.

A SavedModel keeps the devices of its operations, and the cluster's are not there where it is served or
converted, so an export names none.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from worker.tf_compat.connections import own_device

_MENDED = "_tf_launcher_mended"


def save_here() -> None:
    """Makes this process the default device of CheckpointOptions, once it has connected to a cluster, and
    has exports name no device.

    TensorFlow need not be imported yet, and this function does not import it.
    """
    for name, mend in _MENDS.items():
        if name in sys.modules:
            mend(sys.modules[name])
        elif not any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder(name, mend))


def _write_here(module: ModuleType) -> None:
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


def _name_no_device(module: ModuleType) -> None:
    build: Any = module._build_meta_graph
    if hasattr(build, _MENDED):
        return

    @functools.wraps(build)
    def build_without_devices(*arguments: Any, **named: Any) -> Any:
        built = build(*arguments, **named)
        graph = built[0].graph_def
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            for node in nodes:
                node.device = ""
        return built

    setattr(build_without_devices, _MENDED, True)
    module._build_meta_graph = build_without_devices  # type: ignore[attr-defined]


_MENDS = {
    "tensorflow.python.checkpoint.checkpoint_options": _write_here,
    "tensorflow.python.saved_model.save": _name_no_device,
}


class _Finder(MetaPathFinder):
    """Finds the module `name` as usual, once, and changes it after it is loaded."""

    def __init__(self, name: str, mend: Callable[[ModuleType], None]) -> None:
        self.name = name
        self._mend = mend

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Mending(spec.loader, self._mend)
        return spec


class _Mending(Loader):
    def __init__(self, loader: Loader, mend: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._mend = mend

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._mend(module)
