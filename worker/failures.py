"""Turns an error into one sentence that says whether the program or a lost peer caused it, with the user's
own lines of code.

It imports TensorFlow only to handle an error of TensorFlow.
"""

from __future__ import annotations

import errno
import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from worker.contract.exit_codes import ExitCode
from worker.contract.notebook_lines import located
from worker.tf_compat import connections

_FIT_OF_KERAS_3 = (
    "Model.fit of Keras 3 cannot train under MultiWorkerMirrored or ParameterServer; leave the strategy out "
    "and give the script as program.script, whose fit() the runtime carries out under every strategy "
    "(docs/keras-scripts.md), or import tf_keras in the place of keras"
)
_NO_WORKERS_DATASET = "ClusterCoordinator.create_per_worker_dataset"
"""What TensorFlow names where a dataset is read by the strategy and not by its workers."""
_ON_COORDINATOR = (
    "a callback cannot read a dataset under ParameterServer, nor call Model.predict or Model.evaluate, which "
    "read one: call the model itself, as in model(features, training=False), or have the runtime evaluate "
    "(evaluation_dataset()) or predict (spec.mode: Predict)"
)
_NOT_SENT = ("Failed copying input tensor", "Unable to parse tensor proto")
"""What TensorFlow 2.21 says where a step takes something of the coordinator's that no other task can have."""
_TWO_SIZES = re.compile(r"are (\d+) and (\d+)|\[(\d+)[^\[\]]*\] vs\.[^\[]*\[(\d+)")
"""Matches the sizes that TensorFlow names where two shapes differ."""
_STATEFUL = "If an RNN is stateful"
"""What Keras 3 says where a layer gets another batch size than that of its states."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Keras 3 writes parts of its messages in bold."""
_MESSAGE_LIMIT = 600
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_ROOT_ERROR = re.compile(r"\(\d+\)\s+[A-Z_]+:\s*(.+)")
_DATA_ERROR = re.compile(r"Error in user-defined function passed to \S+ transformation with iterator: \S+: ")
_FUNCTION_NODE = re.compile(r"^\{\{function_node [^}]*\}\} ?")
_ASSERTION = re.compile(r"assertion failed: \[((?:[^\]\\]|\\.)*)\]")
"""The message given to tf.debugging.Assert, with quotes and line ends escaped as in C."""
_LOST_PEER = re.compile(
    r"collective|coordination|\brpc|grpc|socket|connection|heartbeat|incarnation|stream removed|nccl", re.I
)
"""Matches the text of an InternalError."""
_ARGUMENTS = "Call arguments received by layer"
_IN_LAYER = "Exception encountered when calling"
_CODE_FENCE = "```"
_MEETING = "`merge_call` called while defining a new graph"
_APART = (
    "the step updates weights within a condition or a loop of its graph (tf.cond, tf.while_loop, an `if` on "
    "a tensor) or a tf.function of its own, where the replicas cannot add up their gradients: apply them "
    "outside of it, in every step, or train by spec.strategy: OneDevice. Gradients of 0 in the place of a "
    "condition are the same for SGD without momentum alone"
)
_INNERMOST = 6
"""Number of frames that say where a ValueError without a frame of the user's was raised."""
_READ_ONLY = "Read-only file system"
_NO_FILE = "No such file or directory"
_WHERE_TO_WRITE = (
    "a program's own folder and its image are read-only: write below os.environ['MODEL_DIR'], which is "
    "spec.modelDir"
)
_WHAT_THE_IMAGE_LACKS = (
    "what the image lacks, pip installs by program.packages, such as [scikit-learn==1.7.0]; a file beside "
    "the script travels with it where program.source is their folder"
)
_FORGOTTEN = re.compile(r"\b(Iteration|Job|Dataset)\b.{0,60}\bnot found", re.I)
_DEVICE_FAULT = re.compile(r"cuda|cudnn|cublas|device-side|xid|\becc\b", re.I)
"""Matches the text of an error of a GPU, which may not occur in a retry."""
_NO_SERVER = "Could not start gRPC server"
"""A port that was free may be another connection's for a moment. `tf.distribute.Server` says so by an
UnknownError, and the servers of the data service by a RuntimeError.
"""
_NO_MEMORY = re.compile(r"OOM when allocating|out of memory|failed to allocate", re.I)
"""Matches the text of a ResourceExhaustedError about memory: there are others, as of a long message."""
_LESS_MEMORY = "a smaller globalBatchSize takes less, and so does mixed precision (mixed_float16)"
_MORE_GPU_MEMORY = (
    f"{_LESS_MEMORY}; spec.strategyOptions.gpuMemoryMB, where it is given, may be more, and other processes "
    "on the GPU take of the same memory"
)
_TAKEN_GPU = "NCCL: invalid usage"
"""TensorFlow's text (core/nccl/nccl_manager.cc), with NCCL's, where two ranks are on one GPU."""
_NOT_A_SENTENCE = (
    "Graph execution error",
    "Detected at node",
    "<stack traces unavailable>",
    "Additional GRPC error",
    ":UNKNOWN",
    "Traceback (most recent",
)


class Failure(Exception):  # noqa: N818 - it may be no error of ours at all
    """Ends the task. It has one sentence, the frames of the user's files or "", and the exit code.

    `in_place`: a retry in the same pod may succeed, if any retry may.
    """

    def __init__(self, message: str, exit_code: ExitCode, frames: str = "", in_place: bool = True) -> None:
        super().__init__(message)
        self.in_place = in_place
        self.message = message
        self.exit_code = exit_code
        self.frames = frames


class Left(BaseException):
    """The task got SIGTERM, has saved its position and ends with `exit_code`.

    It derives from BaseException, so that a handler of `Exception` does not catch it.
    """

    def __init__(self, exit_code: ExitCode) -> None:
        super().__init__(f"left with exit code {int(exit_code)}")
        self.exit_code = exit_code


def program_error(message: str, frames: str = "") -> Failure:
    """Returns the Failure of a wrong program, image or cluster file, for which a retry cannot help."""
    return Failure(message, ExitCode.PROGRAM_ERROR, frames)


def lost_chief(seconds: float, chief: str = "the chief") -> Failure:
    """Returns the Failure of a task whose chief has not answered for `seconds`. It is retried: a chief may
    have waited for a node for so long, and it needs the task when it is back.
    """
    message = f"{chief} has not been there for {seconds} s (chiefLostSeconds)"
    return Failure(message, ExitCode.RETRYABLE, in_place=False)


def is_lost_peer(error: BaseException) -> bool:
    """Returns whether TensorFlow says that another task went away, was replaced, or broke the connection.

    An exception of the user's own code arrives as some other OpError, whichever task raised it.
    """
    errors = _tensorflow_errors()
    if errors is None or not isinstance(error, errors.OpError):
        return False
    lost = (
        errors.UnavailableError,  # refused, reset, or the coordinator's PSUnavailableError
        errors.AbortedError,  # the task restarted and does not know this run's context
        errors.CancelledError,
        errors.DeadlineExceededError,
    )
    if isinstance(error, errors.InternalError):
        # Collectives raise InternalError for a lost peer, and operations raise it for any unforeseen error.
        return bool(_LOST_PEER.search(str(error)))
    return isinstance(error, lost)


def _lost_server(error: BaseException) -> str:
    """Returns which parameter server could not be reached, where TensorFlow says it: behind the line that has
    its address. A worker is left out, whose number in an elastic cluster is not its pod's.
    """
    target = re.search(r"remote target /job:ps/replica:0/task:(\d+)", str(error))
    return f"ps {target[1]}: " if target else ""


def classify(
    error: BaseException,
    doing: str,
    roots: Iterable[Path] = (),
    datasets: Sequence[Any] = (),
    alone: bool = False,
) -> Failure:
    """Returns `error` as a Failure.

    `doing` continues "while ". `roots` are the paths of the user's files. `datasets` are those that may have
    raised the error. `alone` says that no other task exists that could be lost.
    """
    if isinstance(error, Failure):
        return error
    text = sentence(error)
    if isinstance(error, SystemExit):
        message = f"the program called sys.exit({error.code!r}) while {doing}"
        return program_error(message, frames(error, roots))
    if _is_out_of_memory(error):
        advice = _LESS_MEMORY if "device:CPU" in str(error) else _MORE_GPU_MEMORY
        return program_error(
            f"the memory did not suffice while {doing}: {text}; {advice}", frames(error, roots)
        )
    if _TAKEN_GPU in str(error) and is_op_error(error):
        message = (
            f"NCCL cannot connect the devices of the tasks ({_cut(text)}): of tasks that share a GPU it "
            "connects none; leave spec.strategyOptions.communication out, or give each task a GPU of its own"
        )
        return program_error(message)
    if is_lost_peer(error):
        what = "something could not be reached" if alone else "a task was lost"
        return Failure(f"{what} while {doing}: {_lost_server(error)}{text}", ExitCode.RETRYABLE)
    if _is_forgotten(error):
        text = _cut(text)
        return Failure(f"the dispatcher has lost its journal while {doing}: {text}", ExitCode.RETRYABLE)
    if _is_device_fault(error):
        return Failure(f"a device failed while {doing}: {text}", ExitCode.RETRYABLE)
    if _NO_SERVER in str(error):
        return Failure(f"{text} while {doing}: is its port taken?", ExitCode.RETRYABLE)
    if connections.connecting() and is_op_error(error):
        return Failure(f"a worker came back while {doing}: {text}", ExitCode.RETRYABLE)
    shown = frames(error, roots)
    if doing.startswith("training") and _NO_WORKERS_DATASET in str(error):
        return program_error(f"{_ON_COORDINATOR} ({_cut(text)})", shown)
    if _is_fit_of_keras_3(error):
        return program_error(f"{_FIT_OF_KERAS_3} ({_cut(text)})", shown)
    if not shown and is_op_error(error):
        from worker.tf_compat import graphs

        made = graphs.function_frames(error) or graphs.dataset_frames(error, list(datasets))
        shown = frames(error, roots, made)
    if not shown and not is_op_error(error) and not isinstance(error, MemoryError):
        whole = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        if isinstance(error, ValueError):  # mostly what Keras says of a wrong model, not of where
            print(whole, file=sys.stderr, end="", flush=True)
            shown = _innermost(error)
        else:  # It may be a defect of this runtime: the report needs the whole traceback.
            shown = whole
    elif shown and _could_not_write(error):
        text = f"{text}; {_WHERE_TO_WRITE}"
    elif isinstance(error, ModuleNotFoundError) and shown:
        text = f"{text}; {_WHAT_THE_IMAGE_LACKS}"
    return program_error(f"{text} (while {doing})", shown)


def advice_of_workers(error: BaseException) -> str:
    """Returns what to do where the workers of a coordinator lack what it has, "" for another error."""
    text, errors = str(error), _tensorflow_errors()
    if any(words in text for words in _NOT_SENT):
        return (
            "a step that workers run uses a dataset, an iterator or a table that only the chief has: give "
            "the step tensors or variables in its place, put what it reads into the elements of "
            "train_dataset(), or leave out what reads it, such as a metric over a dataset of candidates"
        )
    if errors is not None and isinstance(error, errors.NotFoundError) and _NO_FILE in text:
        return (
            "under ParameterServer each worker reads the data itself: the file must be at this path in every "
            "worker, as in the image, on a volume that all mount, or at a URL"
        )
    return ""


def advice_of_shares(error: BaseException, replicas: int) -> str:
    """Returns what to do where an operation got a whole batch and one replica's share of it, "" for another
    error.
    """
    if replicas > 1 and _STATEFUL in str(error):
        return (
            f"each of the {replicas} replicas has its share of a batch, and the layer has the states of a "
            "whole one: strategy OneDevice trains it, or ParameterServer with one worker"
        )
    for match in _TWO_SIZES.finditer(str(error)):
        share, whole = sorted(int(size) for size in match.groups() if size)
        if replicas > 1 and share > 0 and whole == replicas * share:
            return (
                f"each of the {replicas} replicas has {share} of {whole} examples, and the program has a "
                "batch size of its own there: take it from the data, as by tf.shape(x)[0]"
            )
    return ""


def frames(error: BaseException, roots: Iterable[Path], more: Sequence[traceback.FrameSummary] = ()) -> str:
    """Returns the frames of `error` in files under `roots`, as Python prints them, with relative file names.

    An error inside a tf.function has its frames in its text; `more` are further frames. Returns "" without
    any.
    """
    folders = [root.resolve() for root in roots]
    shown: list[traceback.FrameSummary] = []
    for summary in [*traceback.extract_tb(error.__traceback__), *more, *_in_text(error)]:
        _add(shown, folders, summary.filename, summary.lineno or 0, summary.name)
    if isinstance(error, SyntaxError) and error.filename:
        _add(shown, folders, error.filename, error.lineno or 0, "<module>")
    return _listed(shown, error) if shown else ""


def _innermost(error: BaseException) -> str:
    """Returns the last frames of `error`, in whatever files they are."""
    summaries = _in_text(error) or traceback.extract_tb(error.__traceback__)
    return _listed(summaries[-_INNERMOST:], error)


def _in_text(error: BaseException) -> list[traceback.FrameSummary]:
    """Returns the frames that AutoGraph writes into the message."""
    return [
        traceback.FrameSummary(filename, int(line), function)
        for filename, line, function in _FRAME.findall(str(error))
        if "__autograph_generated" not in filename
    ]


def _listed(summaries: list[traceback.FrameSummary], error: BaseException) -> str:
    head = "Traceback (most recent call last):\n"
    return head + "".join(traceback.format_list(summaries)) + sentence(error)


def place(summaries: Sequence[traceback.FrameSummary], roots: Iterable[Path]) -> str:
    """Returns the innermost of the frames `summaries` in a file under `roots`, as `data.py:12`; "" where none
    is.
    """
    folders = [root.resolve() for root in roots]
    shown: list[traceback.FrameSummary] = []
    for summary in summaries:
        _add(shown, folders, summary.filename, summary.lineno or 0, summary.name)
    return f"{shown[-1].filename}:{shown[-1].lineno}" if shown else ""


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns an error of writing the model directory into one message. The error of a lost peer passes
    through.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise _cannot_write(path, reason, error.errno == errno.ENOSPC) from error
    except Exception as error:
        if not is_op_error(error) or is_lost_peer(error):
            raise
        reason = sentence(error, kind=False)
        raise _cannot_write(path, reason, "space" in reason or "quota" in reason) from error


def _cannot_write(path: str, reason: str, full: bool) -> Failure:
    if full:
        advice = "make room on the volume behind spec.modelDir, or give it a larger one"
    elif reason.startswith("File system scheme"):
        advice = "have the program import a plugin for it, or give spec.modelDir a path or a gs:// URL"
    else:
        advice = "spec.modelDir must be a path or URL that user 65532 (or the pod's runAsUser) can write"
    return program_error(f"cannot write {path}: {reason}; {advice}")


def _add(
    summaries: list[traceback.FrameSummary], folders: list[Path], filename: str, line: int, function: str
) -> None:
    path = Path(filename)
    for folder in folders:
        if path == folder or folder in path.parents:
            shown = path.name if path == folder else str(path.relative_to(folder))
            code = linecache.getline(filename, line).strip()
            shown, line = located(filename, line, shown)
            summary = traceback.FrameSummary(shown, line, function, lookup_line=False, line=code)
            if summary not in summaries:
                summaries.append(summary)
            return


def sentence(error: BaseException, kind: bool = True) -> str:
    """Returns the message of `error`, one line of at most 600 characters; with `kind`, its class
    comes first.
    """
    message = str(getattr(error, "message", None) or error)
    if isinstance(error, KeyError) and error.args and "\n" in str(error.args[0]):
        message = str(error.args[0])  # Keras tells where it was; `str` would quote that like a key
    text = _COLOURS.sub("", message)
    name = type(error).__name__
    if _MEETING in text:
        return _APART
    if is_op_error(error):
        return _cut(f"{name}: {_op_sentence(text)}" if kind else _op_sentence(text))
    # Keras 2 lists the arguments after its message.
    text = text.partition(_ARGUMENTS)[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("in user code"):
        # AutoGraph gives the frames, each with its code, and then the error with its class.
        calls = [number for number, line in enumerate(lines) if _FRAME.match(line)]
        after = lines[calls[-1] + 2 :] if calls else []
        return _cut(_first(_without_layer(after or lines[-1:])))
    if len(lines) > 1 and lines[0].startswith(_IN_LAYER):
        return _cut(f"{name}: {_first(lines[1:])} ({lines[0].rstrip(':').rstrip('.')})")
    first = _first(lines)
    return _cut(f"{name}: {first}" if kind and first else first or name)


def _first(lines: Sequence[str]) -> str:
    """Returns the first sentence of a message, "" of none. Where it announces something, that is with it."""
    announces = len(lines) > 1 and lines[0].endswith(":") and not lines[1].startswith(_CODE_FENCE)
    return " ".join(lines[: 2 if announces else 1])


def _without_layer(lines: Sequence[str]) -> Sequence[str]:
    """Returns the lines after that in which Keras 2 names the layer, if there are any."""
    return lines[1:] if len(lines) > 1 and _IN_LAYER in lines[0] else lines


def _op_sentence(text: str) -> str:
    text = _DATA_ERROR.sub("in the dataset: ", _FUNCTION_NODE.sub("", text))
    text = _ASSERTION.sub(lambda match: re.sub(r"\\(['\"])", r"\1", match.group(1)), text)
    root = _ROOT_ERROR.search(text)
    if root:
        return root.group(1)
    for line in text.splitlines():
        indented = line.startswith(("  ", "\t")) or line.lstrip().startswith("[[")
        if line.strip() and not indented and not line.lstrip().startswith(_NOT_A_SENTENCE):
            return line.strip()
    return text.strip().split("\n")[0]


def _cut(text: str) -> str:
    return text if len(text) <= _MESSAGE_LIMIT else text[: _MESSAGE_LIMIT - 3] + "..."


def _is_device_fault(error: BaseException) -> bool:
    errors = _tensorflow_errors()
    is_internal = errors is not None and isinstance(error, errors.InternalError)
    return is_internal and bool(_DEVICE_FAULT.search(str(error)))


def _is_out_of_memory(error: BaseException) -> bool:
    errors = _tensorflow_errors()
    is_exhausted = errors is not None and isinstance(error, errors.ResourceExhaustedError)
    return is_exhausted and bool(_NO_MEMORY.search(str(error)))


def _could_not_write(error: BaseException) -> bool:
    """Returns whether a file or folder could not be made. A library raises it without the file's name."""
    if isinstance(error, PermissionError) and isinstance(error.filename, str):
        # One that is there and cannot be read was to be read.
        return os.access(error.filename, os.R_OK) or not os.access(error.filename, os.F_OK)
    return _READ_ONLY in str(error)


def _is_forgotten(error: BaseException) -> bool:
    """Returns whether a dispatcher of tf.data service, started again without its journal, knows nothing of
    what is read (2.21: "Iteration client id not found", and the like for a job or a dataset).
    """
    errors = _tensorflow_errors()
    is_missing = errors is not None and isinstance(error, errors.NotFoundError)
    return is_missing and bool(_FORGOTTEN.search(str(error)))


def _is_fit_of_keras_3(error: BaseException) -> bool:
    """Returns whether Keras 3 failed on the data of MultiWorkerMirrored or ParameterServer (Keras 3.15)."""
    text = str(error)
    by_keras = any("/keras/src/" in frame.filename for frame in traceback.extract_tb(error.__traceback__))
    return by_keras and ("PerReplica:{" in text or _NO_WORKERS_DATASET in text)


def is_op_error(error: BaseException) -> bool:
    """Returns whether TensorFlow raised it."""
    errors = _tensorflow_errors()
    return errors is not None and isinstance(error, errors.OpError)


def _tensorflow_errors() -> Any:
    tensorflow = sys.modules.get("tensorflow")
    return getattr(tensorflow, "errors", None)
