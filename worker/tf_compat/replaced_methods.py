"""Methods of TensorFlow's and Keras' objects that the runtime puts its own in the place of. No other module
does so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

import tensorflow as tf


def replace(owner: Any, **methods: Any) -> None:
    """Gives `owner`, an object, a class or a module, other methods from now on.

    An attribute of an object has precedence over its class's method. It is set past the object's
    `__setattr__`, by which Keras would track it.
    """
    if isinstance(owner, (type, ModuleType)):
        for name, method in methods.items():
            setattr(owner, name, method)
    else:
        owner.__dict__.update(methods)


@contextmanager
def replaced(owner: Any, **methods: Any) -> Iterator[None]:
    """Gives `owner` other methods in the block; then it has its own again, or its class's."""
    before = {name: vars(owner)[name] for name in methods if name in vars(owner)}
    replace(owner, **methods)
    try:
        yield
    finally:
        for name in methods.keys() - before.keys():
            delattr(owner, name)
        replace(owner, **before)


def read_before(variable: Any, value: Any) -> AbstractContextManager[None]:
    """Has each read of `variable` in the block return `value`, which was read before."""

    def converted(dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
        return value if dtype is None or value.dtype.is_compatible_with(dtype) else NotImplemented

    return replaced(
        variable,
        read_value=lambda: value,
        value=lambda: value,
        sparse_read=lambda indices, name=None: tf.gather(value, indices),
        gather_nd=lambda indices, name=None: tf.gather_nd(value, indices),
        _dense_var_to_tensor=converted,
    )
