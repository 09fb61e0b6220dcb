"""The examples: their files are valid, and the shipped data is the subset that it claims to be."""

from __future__ import annotations

import gzip
import importlib.util
import struct
from collections import Counter
from pathlib import Path

import kubernetes_validate
import pytest

from launcher.plan import rendering, topology
from launcher.validation import loader, source
from worker.data import FASHION_MNIST

ROOT = Path(__file__).parent.parent
CLUSTERS = sorted(ROOT.glob("examples/*/cluster*.yaml"))
FULL_SET = Path("/usr/share/datasets/fashion-mnist")
SIZES = {"train": 6000, "t10k": 2000}


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_strict_schemas_take_every_example(path: Path) -> None:
    for loaded in loader.load(str(path)):
        for item in rendering.render(topology.build(loaded.cluster), source.read(loaded)):
            for version in ("1.33", "1.34", "1.35", "1.36"):
                kubernetes_validate.validate(item, version, strict=True)


@pytest.mark.parametrize(("part", "size"), SIZES.items())
def test_the_shipped_images_are_of_even_classes(part: str, size: int) -> None:
    images = gzip.decompress((FASHION_MNIST / f"{part}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((FASHION_MNIST / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    assert struct.unpack(">4I", images[:16]) == (0x803, size, 28, 28)
    assert struct.unpack(">2I", labels[:8]) == (0x801, size)
    assert len(images) == 16 + size * 28 * 28
    assert Counter(labels[8:]) == dict.fromkeys(range(10), size // 10)


def test_no_held_out_image_is_among_the_training_images() -> None:
    def images(part: str) -> list[bytes]:
        content = gzip.decompress((FASHION_MNIST / f"{part}-images-idx3-ubyte.gz").read_bytes())
        return [content[start : start + 784] for start in range(16, len(content), 784)]

    assert not set(images("train")) & set(images("t10k"))


@pytest.mark.parametrize(
    ("shipped", "train", "test"),
    [(FASHION_MNIST, 600, 200), (FASHION_MNIST.parent / "fashion-mnist-small", 100, 30)],
    ids=["in the image", "with the run"],
)
@pytest.mark.skipif(not FULL_SET.exists(), reason=f"the full set is not in {FULL_SET}")
def test_the_script_makes_the_very_files_that_ship(
    tmp_path: Path, shipped: Path, train: int, test: int
) -> None:
    script = ROOT / "examples" / "fashion-mnist" / "make_subset.py"
    spec = importlib.util.spec_from_file_location("make_subset", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(FULL_SET, tmp_path, train, test)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in shipped.glob("*.gz")}
    for path in tmp_path.iterdir():
        # The compressed bytes are not compared: they depend on the version of zlib.
        there = gzip.decompress((shipped / path.name).read_bytes())
        assert gzip.decompress(path.read_bytes()) == there
