"""The model directory: what is in it, who writes it, and from where a run goes on.

    run-state.json            whose run this is, and whether it is over
    checkpoints/ckpt-<epoch>  weights and optimizer after that epoch, for the evaluator and for going on
    logs/                     TensorBoard: train, evaluation
    export/                   the SavedModel

A run that did not finish goes on from its newest checkpoint; one that finished and is submitted again
starts anew, as with TensorFlow's BackupAndRestore, which deletes its backup at the end of training.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from worker.failures import classify, is_lost_peer, program_error, writing

KEPT = 5
"""Checkpoints kept: the evaluator may be that many epochs behind and miss none."""
_CHECKPOINT = re.compile(r"ckpt-(\d+)\.index$")


@dataclass(frozen=True)
class RunState:
    """`run-state.json`. `phase` is training, done or failed; `outcome` a sentence."""

    run_id: str
    phase: str
    outcome: str = ""


class ModelDirectory:
    """The layout above under one path or URL.

    Under ParameterServer, TensorFlow's default is that each ps writes its variables to its own disk.
    `io_device` is where all reading and writing happens instead: only chief and evaluator have the volume.
    """

    def __init__(self, root: str, io_device: str | None = None) -> None:
        self.root = root.rstrip("/") or "/"
        self._options = tf.train.CheckpointOptions(experimental_io_device=io_device)

    def path(self, *parts: str) -> str:
        """Of something in the directory."""
        return "/".join([self.root.rstrip("/"), *parts])

    def read_state(self) -> RunState | None:
        """None where there is none, or it cannot be read (yet)."""
        try:
            with tf.io.gfile.GFile(self.path("run-state.json")) as file:
                document = json.loads(file.read())
            return RunState(document["runId"], document["phase"], document.get("outcome", ""))
        except (tf.errors.OpError, ValueError, KeyError, TypeError):
            return None

    def write_state(self, state: RunState) -> None:
        """Whole or not at all. Raises Failure where the directory cannot be written."""
        document = {"runId": state.run_id, "phase": state.phase, "outcome": state.outcome}
        path = self.path("run-state.json")
        with writing(path):
            tf.io.gfile.makedirs(self.root)
            # Of one name, so that a killed writer leaves one leftover and not many.
            with tf.io.gfile.GFile(path + ".new", "w") as file:
                file.write(json.dumps(document) + "\n")
            tf.io.gfile.rename(path + ".new", path, overwrite=True)

    def epochs(self) -> list[int]:
        """Of the whole checkpoints, ascending. The index is what TensorFlow writes last."""
        try:
            names = tf.io.gfile.listdir(self.path("checkpoints"))
        except tf.errors.NotFoundError:
            return []
        found = (_CHECKPOINT.search(name) for name in names)
        return sorted(int(match.group(1)) for match in found if match)

    def checkpoint(self, epoch: int) -> str:
        """The prefix of its files."""
        return self.path("checkpoints", f"ckpt-{epoch}")

    def remove_checkpoints(self) -> None:
        """Of a finished run."""
        with writing(self.path("checkpoints")):
            if tf.io.gfile.exists(self.path("checkpoints")):
                tf.io.gfile.rmtree(self.path("checkpoints"))

    def save(self, model: Any, epoch: int) -> None:
        """Weights, optimizer and its iterations, whole or not at all; then removes the oldest."""
        path = self.checkpoint(epoch)
        with writing(path):
            tf.io.gfile.makedirs(self.path("checkpoints"))
            tf.train.Checkpoint(root=model).write(path, options=self._options)
        for old in self.epochs()[:-KEPT]:
            self._remove(old)

    def load(self, model: Any, epoch: int) -> None:
        """Loads weights and optimizer; never restores nothing in silence.

        Raises OpError for a checkpoint that has gone or is damaged, AssertionError or ValueError for one
        of another model.
        """
        status = model.load_weights(self.checkpoint(epoch), options=self._options)
        status.assert_existing_objects_matched()

    def resume(self, model: Any, notice: Callable[[str], None]) -> int:
        """Loads the newest checkpoint that is whole. Returns the epochs that are done."""
        for epoch in reversed(self.epochs()):
            try:
                self.load(model, epoch)
                return epoch
            except (AssertionError, ValueError) as error:
                raise program_error(
                    f"{self.checkpoint(epoch)} was written by another model than this program's: "
                    f"{str(error).splitlines()[0]}; give the run another spec.modelDir, or empty this one"
                ) from error
            except tf.errors.OpError as error:
                if is_lost_peer(error):
                    raise
                reason = classify(error, "reading it").message
                notice(f"{self.checkpoint(epoch)} cannot be read and is passed over: {reason}")
        return 0

    def replace_directory(self, name: str, write: Callable[[str], None]) -> str:
        """Has `write(path)` fill a new directory, then puts it in the place of `name`. Returns its path."""
        path = self.path(name)
        new = self.path(f".{name}-{uuid.uuid4().hex[:8]}")
        with writing(path):
            for leftover in tf.io.gfile.glob(self.path(f".{name}-*")):
                tf.io.gfile.rmtree(leftover)
            tf.io.gfile.makedirs(new)
        write(new)
        with writing(path):
            if tf.io.gfile.exists(path):
                tf.io.gfile.rmtree(path)
            tf.io.gfile.rename(new, path)
        return path

    def _remove(self, epoch: int) -> None:
        # The index first: without it the checkpoint is not listed, and a reader that has it open notices.
        prefix = self.checkpoint(epoch)
        for path in [f"{prefix}.index", *tf.io.gfile.glob(f"{prefix}.data-*")]:
            try:
                tf.io.gfile.remove(path)
            except tf.errors.OpError:
                pass


@dataclass(frozen=True)
class Beginning:
    """What `begin` found: `finished` means that this very run is over already."""

    finished: bool
    previous_run: bool


def begin(directory: ModelDirectory, run_id: str) -> Beginning:
    """Claims the model directory for `run_id`, before anything else is written to it."""
    previous = directory.read_state()
    same = previous is not None and previous.run_id == run_id
    if previous is not None and previous.phase == "done":
        if same and run_id:
            return Beginning(finished=True, previous_run=False)
        # Before the state says `run_id`: the evaluator must not see what is left of another run.
        directory.remove_checkpoints()
    directory.write_state(RunState(run_id, "training"))
    return Beginning(finished=False, previous_run=not same)
