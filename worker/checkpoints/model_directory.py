"""The model directory: its layout, who writes it, and where a run resumes.

    run-state.json                the run that owns the directory, and whether it is over
    checkpoints/ckpt-<epoch>      weights and optimizer after that epoch, for the evaluator and to resume
    checkpoints/checkpoint        the list of them, as TensorFlow's own tools read it
    checkpoints/best.json         the epoch whose checkpoint stays by spec.checkpoints.keepBest
    backup/ckpt-<epoch>-<steps>   a checkpoint in the middle of an epoch, to resume
    fits/<number>.json            a script's call of fit(): see `script.fit_records`
    fits/<number>/                the same folders again, of its second call and those after it
    files/                        what a script writes
    logs/                         TensorBoard: train, evaluation
    export/<version>              the SavedModel: 1 of the first run that finishes here, 2 of the next, as
                                  TensorFlow Serving reads them

A checkpoint has the names of TensorFlow's tutorials, `tf.train.Checkpoint(model=model, optimizer=optimizer)`,
and those of `tf.train.Checkpoint(root=model)` and `model.load_weights`: see `state_copy`.

A run that did not finish resumes at its newest checkpoint. A run that finished and is submitted again starts
anew, as with TensorFlow's BackupAndRestore, which deletes its backup at the end of training. The export of
the finished run stays; only the user removes it.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from worker.checkpoints import exports_in_parts, state_copy
from worker.checkpoints.files import Files, open_files
from worker.checkpoints.position import Position
from worker.checkpoints.state_copy import StateCopy
from worker.failures import Failure, classify, is_lost_peer, program_error, writing
from worker.tf_compat.saved_models import names_in_checkpoint

FOLDERS = ("checkpoints", "backup", "fits")
"""The folders that only the first task of a run writes."""
_CHECKPOINT = re.compile(r"ckpt-(\d+)\.index$")
_COUNTER = "save_counter/.ATTRIBUTES/VARIABLE_VALUE"
"""Checkpoints of earlier versions lack it: they have only the names of `tf.train.Checkpoint(root=model)`."""
_VALUE = r"/(\w+)/\.ATTRIBUTES/VARIABLE_VALUE"
_METRIC, _STATE = (re.compile(name + _VALUE) for name in (state_copy.METRICS, state_copy.RANDOM))
_FILE = re.compile(r"(ckpt-\d+-\d+)\.(?:index|data-.*)")
_BACKUP = re.compile(r"ckpt-(\d+)-(\d+)\.index$")
_EXPORT = re.compile(r"([1-9]\d{0,17})/?")
_MOST_EXPORTS = 10**18
"""TensorFlow Serving reads versions of 64 bits."""
"""A bucket's folders are listed with a slash behind them."""


@dataclass(frozen=True)
class Life:
    """How long a run has lived: `before` seconds in earlier attempts, and this one since the time `since`.
    `losses` of them ended without a last checkpoint.
    """

    before: float = 0.0
    since: float = field(default_factory=time.time)
    losses: int = 0

    @property
    def seconds(self) -> float:
        """Returns the seconds until now."""
        return self.before + max(0.0, time.time() - self.since)

    @classmethod
    def of(cls, document: Any) -> Life:
        """Reads what a state has of it; earlier versions write nothing."""
        try:
            return cls(float(document["before"]), float(document["since"]), int(document["losses"]))
        except (ValueError, KeyError, TypeError, OverflowError):
            return cls()


@dataclass(frozen=True)
class RunState:
    """The content of `run-state.json`. `phase` is training, left (by SIGTERM, for now), done or failed;
    `outcome` is a sentence. `export` is the version of the run's SavedModel, the same for each of its
    attempts.
    """

    run_id: str
    phase: str
    outcome: str = ""
    export: int = 1
    life: Life = field(default_factory=Life)


class ModelDirectory:
    """The layout above under one path or URL.

    By TensorFlow's default each ps of a ParameterServer run writes its variables to its own disk. All reading
    and writing happens on `io_device` instead, because only chief and evaluator have the volume.

    `kept` is the number of checkpoints that stay. The evaluator may be this many behind without missing one.
    """

    def __init__(
        self, root: str, io_device: str | None = None, files: Files | None = None, kept: int = 5
    ) -> None:
        self.files = files or open_files(root)
        self.root = self.files.root
        self._kept = kept
        self._io_device = io_device
        self._options = tf.train.CheckpointOptions(experimental_io_device=io_device)
        self._resumed: str | None = None

    def path(self, *parts: str) -> str:
        """Returns the path or URL of a file in the directory."""
        return self.files.path("/".join(parts))

    def read_state(self) -> RunState | None:
        """Returns None if the file is missing or cannot be read (yet)."""
        try:
            document = json.loads(self.files.read("run-state.json") or "")
            outcome, export = document.get("outcome", ""), int(document.get("export", 1))
            if not 0 < export <= _MOST_EXPORTS:
                return None
            life = Life.of(document.get("life"))
            return RunState(document["runId"], document["phase"], outcome, export, life)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return None  # JSON that is no state

    def write_state(self, state: RunState) -> None:
        """Writes the whole file or nothing, after everything that was saved before. Raises Failure where the
        directory cannot be written.
        """
        document = {
            "runId": state.run_id,
            "phase": state.phase,
            "outcome": state.outcome,
            "export": state.export,
            "life": asdict(state.life),
        }
        self.files.write("run-state.json", json.dumps(document) + "\n")
        self.files.settle()

    def leave(self, life: Life) -> None:
        """Says that an attempt ends well, and another one will continue."""
        if (state := self.read_state()) is not None:
            self.write_state(replace(state, phase="left", life=Life(life.seconds, time.time(), life.losses)))

    def epochs(self) -> list[int]:
        """Returns the epochs of the complete checkpoints, ascending. TensorFlow writes a checkpoint's index
        last.
        """
        return sorted(int(match.group(1)) for match in self._matches("checkpoints", _CHECKPOINT))

    def checkpoint(self, epoch: int) -> str:
        """Returns the prefix of the checkpoint's files."""
        return self.path("checkpoints", f"ckpt-{epoch}")

    def backups(self) -> list[Position]:
        """Returns the positions of the complete checkpoints in the middle of an epoch, ascending."""
        return sorted(
            Position(int(match.group(1)), int(match.group(2))) for match in self._matches("backup", _BACKUP)
        )

    def is_whole(self, position: Position) -> bool:
        """Returns whether each tensor of a checkpoint in the middle of an epoch is as it was written."""
        try:
            _read_through(self._fetched(self._backup(position)))
        except tf.errors.OpError:
            return False
        return True

    def position(self) -> Position:
        """Returns the position of the newest checkpoint, whether or not it can be read."""
        return max([Position(), *map(Position, self.epochs()), *self.backups()])

    def remove_checkpoints(self) -> None:
        """Removes the checkpoints of a finished run."""
        for name in FOLDERS:
            self.files.remove_folder(name)

    def save(
        self,
        copy: StateCopy,
        go_on: Callable[[], bool] = lambda: True,
        kept: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Saves the checkpoint of an epoch, all or nothing; then removes the oldest ones, but not that of the
        epoch `kept()`. In a bucket it is saved when `files.settle()` returns True.

        Raises Failure where it cannot be written, Abandoned soon after `go_on()` is false.
        """
        epoch = copy.position.epochs
        self._write(copy, f"checkpoints/ckpt-{epoch}", go_on)
        there, best = [saved for saved in self.epochs() if saved <= epoch], kept()
        epochs = [saved for saved in there if saved == best or saved in there[-self._kept :]]
        with writing(self.path("checkpoints", "checkpoint")):
            self._write_index(epochs)
        for saved in self.epochs():
            if saved not in epochs:  # too old, or a later one that could not be read
                self._remove(f"checkpoints/ckpt-{saved}")
        self._clear_backups("")

    def back_up(self, copy: StateCopy, go_on: Callable[[], bool] = lambda: True) -> None:
        """Saves a checkpoint in the middle of an epoch as `save` does. Only `resume` and `saved_metrics` read
        it, and the next one or the next epoch's `save` removes it.
        """
        self._write(copy, self._backup(copy.position), go_on)
        self._clear_backups(self._backup(copy.position))

    def load(self, model: Any, epoch: int) -> None:
        """Loads weights and optimizer. Raises an error where the checkpoint restores nothing.

        Raises OpError for a checkpoint that was removed or is damaged, AssertionError or ValueError for one
        of another model.
        """
        self._load(model, f"checkpoints/ckpt-{epoch}")

    @contextlib.contextmanager
    def loaded_for_export(self, model: Any, epoch: int, large: list[Any]) -> Iterator[None]:
        """Loads weights as `load` does. The variables in `large`, which have no values, are taken from the
        checkpoint where a SavedModel is written in the block.
        """
        path = self._fetched(f"checkpoints/ckpt-{epoch}")
        self.load(model, epoch)
        names = names_in_checkpoint(path, tf.train.Checkpoint(**_names(path, model)), large) if large else {}
        with exports_in_parts.written_from(path, names):
            yield

    def resume(self, model: Any, notice: Callable[[str], None]) -> Position:
        """Loads the newest checkpoint that is complete, with the random state. Returns its position."""
        names = {Position(epoch): f"checkpoints/ckpt-{epoch}" for epoch in self.epochs()}
        names.update({backup: self._backup(backup) for backup in self.backups()})
        for position in sorted(names, reverse=True):
            name, path = names[position], self.path(names[position])
            try:
                if position == min(names):
                    # A damaged checkpoint may be half loaded. The one before it then overwrites those values,
                    # but here there is none.
                    _read_through(self._fetched(name))
                self._load(model, name)
                self._load_random_state(model, name)
                self._resumed = name
                return position
            except (AssertionError, ValueError) as error:
                raise program_error(
                    f"{path} was written by another model than this program's: "
                    f"{mismatch(error)}; give the run another spec.modelDir, or empty this one"
                ) from error
            except tf.errors.OpError as error:
                if is_lost_peer(error):
                    raise
                notice(f"{path} cannot be read and is passed over: {classify(error, 'reading it').message}")
        return Position()

    def saved_metrics(self, position: Position) -> dict[str, Any]:
        """Returns the values of the metrics that `back_up` saved, by their names; none if it saved none."""
        name = self._backup(position)
        return _values(self.files.local(name), _METRIC) if self.files.fetch_checkpoint(name) else {}

    def resumed_beside(self, name: str) -> Any:
        """Returns the array that the checkpoint of `resume` has beside the model; None where it has none."""
        return None if self._resumed is None else self._beside(self._resumed, name)

    def beside_at(self, position: Position, name: str) -> Any:
        """Returns the same of a checkpoint in the middle of an epoch."""
        return self._beside(self._backup(position), name)

    def _beside(self, checkpoint: str, name: str) -> Any:
        path = self._fetched(checkpoint)
        with _reading(path):
            reader, key = tf.train.load_checkpoint(path), state_copy.beside_key(name)
            return reader.get_tensor(key) if reader.has_tensor(key) else None

    def exports(self) -> list[int]:
        """Returns the versions that exist, ascending."""
        return sorted(int(match.group(1)) for match in self._matches("export", _EXPORT))

    def write_export(self, version: int, write: Callable[[str], None]) -> str:
        """Has `write(path)` fill a new directory, then moves it to the place of `version`, where an earlier
        attempt may have written one. Returns the path.
        """
        return self.files.write_folder(f"export/{version}", write, last="saved_model.pb")

    def index(self, epoch: int) -> bytes:
        """Returns a checkpoint's index, which has a checksum of each tensor. Raises OpError."""
        with tf.io.gfile.GFile(self._fetched(f"checkpoints/ckpt-{epoch}") + ".index", "rb") as file:
            return bytes(file.read())

    def fetch_newest(self) -> None:
        """Makes the newest checkpoint be where `files.local` says, and a file that
        `tf.train.latest_checkpoint` reads.
        """
        if self.files.is_mirrored and (epochs := self.epochs()):
            name = f"ckpt-{epochs[-1]}"
            if self.files.fetch_checkpoint(f"checkpoints/{name}"):
                path = self.files.local("checkpoints/checkpoint")
                Path(path).write_text(f'model_checkpoint_path: "{name}"\n', encoding="utf-8")

    def _matches(self, folder: str, name: re.Pattern[str]) -> list[re.Match[str]]:
        return [match for text in self.files.names(folder) if (match := name.fullmatch(text))]

    def _backup(self, position: Position) -> str:
        return f"backup/ckpt-{position.epochs}-{position.steps}"

    def _clear_backups(self, kept: str) -> None:
        """Removes all but one, and what a writer that was killed has left."""
        prefixes = {match[1] for match in self._matches("backup", _FILE)}
        for name in sorted(f"backup/{prefix}" for prefix in prefixes):
            if name != kept:
                self._remove(name)

    def _write(self, copy: StateCopy, name: str, go_on: Callable[[], bool]) -> None:
        self.files.before_checkpoint()
        path = self.files.local(name)
        with writing(path):
            tf.io.gfile.makedirs(path.rpartition("/")[0])
            copy.write(path, self._io_device, go_on)
        self.files.checkpoint_written(name)

    def _fetched(self, name: str) -> str:
        """Returns the prefix of the checkpoint's files, for TensorFlow to read. Raises NotFoundError."""
        if not self.files.fetch_checkpoint(name):
            raise tf.errors.NotFoundError(None, None, f"{self.path(name)} was removed meanwhile")
        return self.files.local(name)

    def _load(self, model: Any, name: str) -> None:
        path = self._fetched(name)
        # Not model.load_weights: that of Keras 3 cannot read TensorFlow's checkpoints.
        with _reading(path):
            status = tf.train.Checkpoint(**_names(path, model)).read(path, options=self._options)
        status.assert_existing_objects_matched()
        status.expect_partial()  # an evaluator, for instance, has made no optimizer

    def _load_random_state(self, model: Any, name: str) -> None:
        """Earlier versions have not written any."""
        from worker.tf_compat import keras_models  # imports Keras: see `state_copy`

        values = _values(self._fetched(name), _STATE)
        for state_name, state in keras_models.random_states(model).items():
            if state_name in values:
                state.assign(values[state_name])

    def _write_index(self, epochs: list[int]) -> None:
        """Writes the file that tf.train.latest_checkpoint reads (checkpoint_state.proto), all or nothing.

        TensorFlow's own function would write absolute paths, or wrong ones for a URL.
        """
        times = [self.files.modified(f"checkpoints/ckpt-{epoch}.index") for epoch in epochs]
        lines = [
            f'model_checkpoint_path: "ckpt-{epochs[-1]}"',
            *(f'all_model_checkpoint_paths: "ckpt-{epoch}"' for epoch in epochs),
            *(f"all_model_checkpoint_timestamps: {time}" for time in times),
        ]
        self.files.write("checkpoints/checkpoint", "\n".join(lines) + "\n")

    def _remove(self, name: str) -> None:
        folder, _, prefix = name.rpartition("/")
        data = [file for file in self.files.names(folder) if file.startswith(f"{prefix}.data-")]
        # The index goes first: without it the checkpoint is not listed, and a reader that has it open gets an
        # error.
        for each in [f"{name}.index", *(f"{folder}/{each}" for each in data)]:
            with contextlib.suppress(Failure):
                self.files.remove([each])


def mismatch(error: BaseException) -> str:
    """Returns TensorFlow's message about a checkpoint of another model, without the variables' values."""
    return str(error).splitlines()[0].partition(" Showing ")[0].rstrip(".")


def _names(path: str, model: Any) -> dict[str, Any]:
    """Returns the objects under whose names the checkpoint has what `model` consists of."""
    by_name = tf.train.load_checkpoint(path).has_tensor(_COUNTER)
    return state_copy.tutorial_names(model) if by_name else {"root": model}


def _values(path: str, name: re.Pattern[str]) -> dict[str, Any]:
    """Returns what the checkpoint has under such names, by the part of them in brackets."""
    with _reading(path):
        reader = tf.train.load_checkpoint(path)
        keys = [name.fullmatch(key) for key in reader.get_variable_to_shape_map()]
        return {key[1]: reader.get_tensor(key[0]) for key in keys if key}


def _read_through(path: str) -> None:
    """Raises OpError where a tensor of the checkpoint cannot be read."""
    with _reading(path):
        reader = tf.train.load_checkpoint(path)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except (IndexError, RuntimeError) as error:
        # TensorFlow's reader raises this for a file that is too short. It is no OpError.
        raise tf.errors.DataLossError(None, None, f"{path}: {error}") from error


@dataclass(frozen=True)
class Beginning:
    """The result of `begin`. `finished` means that this very run is over already. `export` is the version
    that the run writes, and `life` how long it has lived.
    """

    finished: bool
    previous_run: bool
    export: int = 1
    life: Life = field(default_factory=Life)


def is_done(directory: ModelDirectory, run_id: str) -> bool:
    """Returns whether this very run is over, and did not fail."""
    state = directory.read_state()
    return state is not None and state.phase == "done" and state.run_id == run_id != ""


def begin(directory: ModelDirectory, run_id: str, notice: Callable[[str], None]) -> Beginning:
    """Claims the model directory for `run_id`, before anything else is written to it. `notice` is told what
    happens to the files of a finished run, before it happens.
    """
    if directory.files.is_file("export"):
        exports = directory.path("export")
        raise program_error(
            f"{exports} is a file, where a folder is expected for the exported model: move it"
        )
    previous = directory.read_state()
    same = previous is not None and previous.run_id == run_id
    # Where the state is lost, what has been exported is not.
    export = previous.export if previous is not None else max(directory.exports(), default=0) + 1
    if previous is not None and previous.phase == "done":
        if same and run_id:
            return Beginning(finished=True, previous_run=False)
        kept = directory.exports()
        export = max(kept, default=0) + 1
        stays = f"its export/{kept[-1]} stays, and " if kept else ""
        notice(
            f"{directory.root} holds a run that has finished, and this one begins anew: {stays}the new one "
            f"will be export/{export}; the finished run's checkpoints are removed"
        )
        # This precedes the state that names `run_id`: the evaluator must not see checkpoints of another run.
        directory.remove_checkpoints()
    life = Life()
    if previous is not None and same:
        was_lost, before = previous.phase == "training", previous.life
        life = Life(before.seconds if was_lost else before.before, losses=before.losses + was_lost)
    directory.write_state(RunState(run_id, "training", export=export, life=life))
    return Beginning(finished=False, previous_run=not same, export=export, life=life)
