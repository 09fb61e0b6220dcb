"""Data that ships with the worker package, so that the examples run where there is no network.

`FASHION_MNIST` is the directory of a subset of Fashion-MNIST: 6,000 training and 2,000 held-out images of
28x28 grey pixels in 10 even classes, as gzipped IDX files named like those of the full set. MIT licence, in
the directory; made by examples/fashion-mnist/make_subset.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

FASHION_MNIST: Final = Path(__file__).parent / "fashion-mnist"
