"""Data that ships with the worker package, so that the examples run where there is no network.

A subset of Fashion-MNIST: 6,000 training and 2,000 held-out images of 28x28 grey pixels in 10 even classes,
as gzipped IDX files named like those of the full set; 1,000 and 300 where the runtime travels with the run.
MIT licence, in the directory; made by examples/fashion-mnist/make_subset.py.
"""

from __future__ import annotations

import gzip
import os
import tempfile
import zipfile
import zipimport
from pathlib import Path
from typing import Any, Final


def _directory() -> Path:
    """Returns the directory of the images. Unpacks them where this module is imported from the travelling
    archive.
    """
    loader: Any = __spec__.loader
    if not isinstance(loader, zipimport.zipimporter):
        return Path(__file__).parent / "fashion-mnist"
    folder = Path(os.environ.get("TF_LAUNCHER_TASK_DIR") or tempfile.mkdtemp(), "runtime")
    with zipfile.ZipFile(loader.archive) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".gz")])
    return folder / "worker" / "data" / "fashion-mnist"


FASHION_MNIST: Final = _directory()
"""The directory of the subset."""

# Bytes of an IDX file's header: the magic number and the size of each dimension, four bytes each.
_IMAGES_HEADER, _LABELS_HEADER = 16, 8


def fashion_mnist(part: str, directory: str | Path = FASHION_MNIST) -> Any:
    """The images of `part`, "train" or "t10k" (held out), in the files' order.

    A `tf.data.Dataset` of pairs: `float32[28, 28, 1]` in 0 to 1, and the class, `uint8[]`. `directory` holds
    the four files of Fashion-MNIST, of the subset or of the full set.
    """
    import tensorflow as tf

    def records(name: str, size: int, header: int) -> Any:
        path = f"{directory}/{part}-{name}-ubyte.gz"
        return tf.data.FixedLengthRecordDataset(path, size, header_bytes=header, compression_type="GZIP")

    def decoded(image: Any, label: Any) -> Any:
        pixels = tf.reshape(tf.io.decode_raw(image, tf.uint8), (28, 28, 1))
        return tf.cast(pixels, tf.float32) / 255.0, tf.reshape(tf.io.decode_raw(label, tf.uint8), ())

    images = records("images-idx3", 28 * 28, _IMAGES_HEADER)
    pairs = tf.data.Dataset.zip((images, records("labels-idx1", 1, _LABELS_HEADER))).map(decoded)
    # TensorFlow cannot tell how many examples a compressed file holds; the runtime needs it to count an
    # epoch's steps.
    size = _size(f"{directory}/{part}-labels-idx1-ubyte.gz")
    return pairs.apply(tf.data.experimental.assert_cardinality(size))


def _size(path: str) -> int:
    """Returns the number of labels in a file, by its header."""
    import tensorflow as tf

    with tf.io.gfile.GFile(path, "rb") as file, gzip.open(file) as unpacked:
        return int.from_bytes(unpacked.read(_LABELS_HEADER)[4:], "big")
