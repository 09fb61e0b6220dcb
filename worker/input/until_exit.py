"""The servers of tf.data service end with their process."""

from __future__ import annotations

import ctypes
from typing import Any


def keep(*servers: Any) -> None:
    """Has TensorFlow never stop the servers. It stops one that nobody refers to, and then waits, in whichever
    line of Python that is, until a request of a reader that is gone has ended: for minutes now and then.
    """
    for server in servers:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))
