"""Makes the subsets of Fashion-MNIST that ship with the worker package, from the full set.

    full=/usr/share/datasets/fashion-mnist
    python examples/fashion-mnist/make_subset.py $full worker/data/fashion-mnist
    python examples/fashion-mnist/make_subset.py $full worker/data/fashion-mnist-small --train 100 --test 30

The first images of each class are taken, in the full set's own order, which is random already. So nothing
is chosen by how it looks, the classes are even as they are in the full set, and the same input gives the
same bytes. Training images come from the training files only, held-out images from the test files only.
"""

from __future__ import annotations

import argparse
import gzip
import struct
from pathlib import Path

CLASSES = 10
IMAGE_BYTES = 28 * 28
# The IDX magic numbers: unsigned bytes in three dimensions, and in one. https://yann.lecun.com/exdb/mnist
IMAGES_MAGIC, LABELS_MAGIC = 0x803, 0x801


def subset(images: bytes, labels: bytes, per_class: int) -> tuple[bytes, bytes]:
    """The IDX files of the first `per_class` images of each class, from those of the full set.

    Raises ValueError when they are not IDX files of 28x28 images, or hold too few of a class.
    """
    magic, count, rows, columns = struct.unpack(">4I", images[:16])
    labels_header = struct.pack(">2I", LABELS_MAGIC, count)
    if (magic, rows, columns) != (IMAGES_MAGIC, 28, 28) or not labels.startswith(labels_header):
        raise ValueError("not a pair of IDX files with 28x28 images and their labels")
    taken = [0] * CLASSES
    kept_images, kept_labels = bytearray(), bytearray()
    for index, label in enumerate(labels[8 : 8 + count]):
        if taken[label] < per_class:
            taken[label] += 1
            start = 16 + index * IMAGE_BYTES
            kept_images += images[start : start + IMAGE_BYTES]
            kept_labels.append(label)
    if min(taken) < per_class:
        raise ValueError(f"fewer than {per_class} images of class {taken.index(min(taken))}")
    size = len(kept_labels)
    return (
        struct.pack(">4I", IMAGES_MAGIC, size, 28, 28) + bytes(kept_images),
        struct.pack(">2I", LABELS_MAGIC, size) + bytes(kept_labels),
    )


def main(full: Path, target: Path, train: int, test: int) -> None:
    """Reads the four files of the full set in one directory, writes those of the subset in the other, with
    `train` and `test` images of each class.
    """
    target.mkdir(parents=True, exist_ok=True)
    for part, per_class in {"train": train, "t10k": test}.items():
        names = [f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"]
        images, labels = (gzip.decompress((full / name).read_bytes()) for name in names)
        for name, content in zip(names, subset(images, labels, per_class), strict=True):
            # mtime=0: the same content gives the same file.
            (target / name).write_bytes(gzip.compress(content, compresslevel=9, mtime=0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Makes a subset of Fashion-MNIST.")
    parser.add_argument("full", type=Path, help="directory of the full set's four files")
    parser.add_argument("target", type=Path, help="directory of the subset's")
    parser.add_argument("--train", type=int, default=600, help="training images of each class")
    parser.add_argument("--test", type=int, default=200, help="held-out images of each class")
    main(**vars(parser.parse_args()))
