"""What a call of `fit`, `evaluate` or `predict` is given, as the program that the loop trains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from worker.failures import program_error
from worker.input.fit_iterations import Scored
from worker.program import LoadedProgram
from worker.tf_compat import keras_models

_OF_A_CLASS: Final = re.compile(r"\b(?:the dataset_fn of )?(train|evaluation|predict)_dataset\([\w, ]*\)")
_OF_A_SCRIPT: Final = {
    "train": "the data of fit()",
    "evaluation": "the data to evaluate",
    "predict": "the data of predict()",
}


def in_words_of_a_script(sentence: str) -> str:
    """Returns the sentence with the script's calls for the methods of a class that give the same data."""
    return _OF_A_CLASS.sub(lambda match: _OF_A_SCRIPT[match[1]], sentence)


class GivenProgram(LoadedProgram):
    """The model on which the script has called `method` at `entrypoint`, such as `train.py:31`, and the data.

    `training` and `evaluation` are batched datasets, None where there is none; `scored` says how Keras reads
    the latter. For `counts_end` see `data.counts_end`.
    """

    is_of_one_process = True

    def __init__(
        self,
        model: Any,
        method: str,
        entrypoint: str,
        roots: Sequence[Path],
        *,
        training: Any = None,
        evaluation: Any = None,
        scored: Scored | None = None,
        counts_end: bool = False,
        callbacks: Sequence[Any] = (),
    ) -> None:
        given = {"train_dataset": training, "evaluation_dataset": evaluation}
        self._given = {name: dataset for name, dataset in given.items() if dataset is not None}
        self._model = model
        self._callbacks = list(callbacks)
        self._has_callbacks = bool(callbacks)
        self.scored = scored
        self._counts_end = counts_end
        self.method = method
        self.entrypoint = entrypoint
        self.roots = list(roots)
        self.notices = []
        self.datasets = list(self._given.values())
        self.element = training.element_spec if training is not None else None
        self.is_keras_3 = keras_models.is_keras_3(model)

    def has(self, method: str) -> bool:
        """See `LoadedProgram`."""
        return method in self._given or (method == "callbacks" and self._has_callbacks)

    def model(self) -> Any:
        """See `LoadedProgram`: always the same model. It need not be compiled to predict."""
        if self.method != "predict" and not keras_models.is_compiled(self._model):
            raise program_error(
                f"{self.entrypoint}: {self.method}() of a model that is not compiled: call "
                "model.compile(...) before it"
            )
        return self._model

    def optimizers(self) -> dict[str, Any]:
        """See `LoadedProgram`: the script has none but the model's."""
        return {}

    def data_ended(self, *, first: bool) -> None:
        """See `LoadedProgram`. After the first epoch Keras 2 knows where the data end."""
        if self._counts_end and (first or self.is_keras_3):
            keras_models.count_step(self._model)

    def callbacks(self, model: Any) -> list[Any]:
        """See `LoadedProgram`."""
        return self._callbacks

    def worded(self, sentence: str) -> str:
        """See `LoadedProgram`."""
        return in_words_of_a_script(sentence)

    def call(self, callback: Any) -> None:
        """Has `callback` be called after the others."""
        self._callbacks.append(callback)

    def _dataset(self, method: str, batch_size: int) -> Any:
        return self._given[method]
