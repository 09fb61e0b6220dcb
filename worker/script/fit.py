"""One call of `fit` in a script: trained, gone on with, or not repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from worker.data_adapters import fit_data
from worker.failures import Failure, classify
from worker.input import fit_iterations, used_shuffle_orders
from worker.input.fit_iterations import Orders
from worker.parameters import TrainingParameters
from worker.reporting import as_numbers
from worker.script import randomness
from worker.script.callback_states import CallbackStates
from worker.script.fit_records import FOLDER, Call, FitRecord, FitRecords, variables_of
from worker.script.given_program import GivenProgram
from worker.steps import model_build
from worker.tf_compat import keras_models
from worker.training.fitting import FitCall, Fitting

_STATES = 3
"""Epochs whose states are kept: the checkpoint of the newest may not be written yet."""


class Fit:
    """The call `number`, from 1, of the script."""

    def __init__(
        self,
        fitting: Fitting,
        records: FitRecords,
        program: GivenProgram,
        parameters: TrainingParameters,
        number: int,
    ) -> None:
        self.fitting = fitting
        self.records = records
        self.program = program
        self.parameters = parameters
        self.number = number
        self.model = model = program.model()
        with fitting.strategy.scope():
            model_build.build(model, program.element, program.entrypoint)
            keras_models.build_optimizer(model.optimizer, model.trainable_variables)
        self.call = Call(
            program.entrypoint,
            variables_of(model),
            parameters.epochs,
            parameters.steps_per_epoch,
            parameters.global_batch_size,
        )
        self.earlier = records.earlier(number, self.call)
        earlier = FitRecord(self.call) if self.earlier is None else self.earlier
        states = CallbackStates(program.callbacks(model), records.file(f"{number}.npz"), records.writes)
        self.recorder = _Recorder(earlier, states, self._write_epoch)
        program.call(self.recorder)
        self._stopped_at: int | None = None
        program.orders = self._orders(parameters.epochs - parameters.initial_epoch)

    @property
    def folder(self) -> str:
        """Returns where the call's checkpoints are in the model directory."""
        return "" if self.number == 1 else f"{FOLDER}/{self.number}"

    def run(self) -> Any:
        """Returns Keras' History."""
        directory = self.fitting.place(self.folder)
        if self.earlier is not None and self.earlier.done:
            self.fitting.notice(
                f"{self.program.entrypoint}: fit() number {self.number} was done before the interruption, "
                "and is not repeated"
            )
            self.restore(self.earlier, directory)
            self.recorder.restore()
            self._stopped_at = self.earlier.stopped_at
        else:
            self.write(done=False)
            call = FitCall(self.number, self._recorded_epochs())
            self.fitting.fit(self.program, self.parameters, directory, call, self._ended)
        self._use_up()
        return with_logs(self.model, self.recorder.logs)

    def _recorded_epochs(self) -> int:
        """Returns how many epochs the record of an earlier attempt has, those before `initial_epoch` too."""
        if self.earlier is None:
            return -1
        return max((epoch + 1 for epoch, _ in self.earlier.logs), default=self.parameters.initial_epoch)

    def _use_up(self) -> None:
        """Leaves the random numbers and the data as they are in one process: the next call has its order of
        them.
        """
        dataset = self.program.datasets[0]
        epochs = len(self.recorder.logs)
        if (given := fit_data.of(dataset)) is not None:
            given.use_up(epochs)
        used_shuffle_orders.use(self._orders(epochs).end, *self.program.datasets)

    def _orders(self, epochs: int) -> Orders:
        """Returns those of so many epochs."""
        program, parameters = self.program, self.parameters
        return fit_iterations.of_fit(
            program.datasets[0],
            parameters.steps_per_epoch,
            epochs,
            keras_3=program.is_keras_3,
            drawn=used_shuffle_orders.of(*program.datasets),
            evaluation=program.scored,
            validates=lambda epoch: parameters.validates(parameters.initial_epoch + epoch),
            stopped_at=self._stopped_at,
        )

    def _ended(self, stopped_at: int | None) -> None:
        self._stopped_at = stopped_at
        self.write(done=True)

    def _write_epoch(self, epoch: int) -> None:
        """Writes the record after `epoch`. Where the disk is full the training goes on, as without a
        checkpoint: the next epoch's record has all that this one has.
        """
        try:
            self.recorder.keep_states(epoch)
            self.write(done=False)
        except (Failure, OSError) as error:
            failure = classify(error, "writing the record of fit()")
            self.fitting.notice(
                f"{self.program.entrypoint}: this epoch of fit() is not recorded: {failure.message}"
            )

    def write(self, *, done: bool) -> None:
        """Writes the record of what is done by now."""
        generators = randomness.state() if done else None
        self.records.write(self.number, self.recorder.record(self.call, done, self._stopped_at, generators))

    def restore(self, earlier: FitRecord, directory: Any) -> None:
        """Gives the model what the call left."""
        model = self.model
        if epochs := directory.epochs():
            with self.fitting.strategy.scope():
                directory.load(model, epochs[-1])
        randomness.restore(earlier.randomness)


class _Recorder(keras_models.Callback):
    """Keeps the logs of each epoch, and the states of the other callbacks, which precede it. It begins with
    those of an `earlier` attempt. `write` is called with each epoch that is done, before its checkpoint is
    written.
    """

    def __init__(self, earlier: FitRecord, states: CallbackStates, write: Callable[[int], None]) -> None:
        super().__init__()
        self.logs: list[tuple[int, dict[str, Any]]] = [
            (epoch, as_numbers(each)) for epoch, each in earlier.logs
        ]
        self._known = [(epoch, list(each)) for epoch, each in earlier.states]
        self._states = states
        self._write = write

    def record(self, call: Call, done: bool, stopped_at: int | None, randomness: Any) -> FitRecord:
        """Returns the record of the call by now."""
        return FitRecord(call, self.logs, done, stopped_at, randomness, self._known)

    def restore(self) -> None:
        """Gives the callbacks their newest states."""
        if self._known:
            self._states.restore(self._known[-1][1])

    def set_model(self, model: Any) -> None:
        """Is called before the training begins."""
        super().set_model(model)
        if self._known:
            self._states.go_on()

    def on_train_begin(self, logs: Any = None) -> None:
        """Follows that of the others, which reset their states."""
        self.restore()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Leaves out what is known of epochs that are trained again, and shows Keras' History the others."""
        known = [each for each in self._known if each[0] < epoch]
        if known != self._known:
            self._known = known
            self.restore()
        self.logs = [each for each in self.logs if each[0] < epoch]
        with_logs(self.model, self.logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keeps what Keras' History keeps."""
        self.logs.append((epoch, as_numbers(logs)))
        self._write(epoch)

    def keep_states(self, epoch: int) -> None:
        """Keeps the states that the other callbacks have after `epoch`."""
        self._known = [*self._known[1 - _STATES :], (epoch, self._states.values())]


def with_logs(model: Any, logs: list[tuple[int, dict[str, Any]]]) -> Any:
    """Returns the model's History, of these epochs."""
    history = getattr(model, "history", None)
    kind = keras_models.keras_of(model).callbacks.History
    if not isinstance(history, kind):
        history = model.history = kind()
        history.set_model(model)
    history.epoch = [epoch for epoch, _ in logs]
    history.history = {}
    for _, values in logs:
        for name, value in values.items():
            history.history.setdefault(name, []).append(value)
    return history
