"""Options of Keras 3 that fail where workers share variables are found in the program's source."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from launcher.errors import SpecError
from launcher.validation import loader, source

PROGRAM = """
{imports}
class Program:
    def model(self):
        return optimizer(0.1, {option})
    def train_dataset(self, batch_size): ...
"""


def read(
    tmp_path: Path, imports: str, option: str, strategy: str = "ParameterServer", keras: int = 2
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.format(imports=imports, option=option))
    spec = {
        "strategy": strategy,
        "program": {"source": "train.py", "entrypoint": "train:Program", "keras": keras},
        **({"worker": {"replicas": 2}} if strategy != "Mirrored" else {}),
        **({"ps": {}} if strategy == "ParameterServer" else {}),
    }
    document = {"apiVersion": "launcher/v1alpha1", "kind": "TrainingCluster", "metadata": {"name": "run"}}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({**document, "spec": spec}))
    (loaded,) = loader.load(str(tmp_path / "cluster.yaml"))
    source.read(loaded)


@pytest.mark.parametrize("option", ["gradient_accumulation_steps=4", "ema_overwrite_frequency=n"])
@pytest.mark.parametrize(
    "imports", ["import keras", "from keras.optimizers import SGD", "import keras.layers as l"]
)
def test_refused_with_the_line(tmp_path: Path, imports: str, option: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, imports, option)
    (problem,) = caught.value.problems
    name = option.partition("=")[0]
    assert problem.path == "spec.program.source"
    assert problem.message.startswith(f"train.py:5: {name}: Keras 3 cannot do that under")


def test_tf_keras_is_keras_3_where_the_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        read(tmp_path, "import tensorflow as tf", "gradient_accumulation_steps=4", keras=3)


@pytest.mark.parametrize(
    ("imports", "option", "strategy"),
    [
        ("import tf_keras as keras", "gradient_accumulation_steps=4", "ParameterServer"),
        ("import keras, tf_keras", "gradient_accumulation_steps=4", "ParameterServer"),
        ("import keras", "gradient_accumulation_steps=None", "ParameterServer"),
        ("import keras", "gradient_accumulation_steps=4", "Mirrored"),
        ("import keras", "gradient_accumulation_steps=4", "MultiWorkerMirrored"),
        ("import keras", "momentum=0.9", "ParameterServer"),
    ],
)
def test_the_rest_is_taken(tmp_path: Path, imports: str, option: str, strategy: str) -> None:
    read(tmp_path, imports, option, strategy)
