"""A program of Keras 3 on an image whose Keras is too old."""

from __future__ import annotations

import keras
from three import Fitted

keras.__version__ = "3.7.0"

__all__ = ["Fitted"]
