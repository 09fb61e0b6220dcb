"""The tasks that a dispatcher of tf.data service gives its data workers: one for each pass through the data.

TensorFlow has no function for it, and ends no task of a data worker that never comes back (2.21): every pass
would wait for it. The dispatcher's own RPCs do both (tensorflow/core/data/service/dispatcher.proto), through
grpcio, which TensorFlow itself requires.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

_SERVICE = "/tensorflow.data.DispatcherService/"
_SECONDS = 5.0
_VARINT, _BYTES = 0, 2
_LENGTHS = {1: 8, 5: 4}
"""protobuf's wire types: https://protobuf.dev/programming-guides/encoding/"""


class UnansweredError(OSError):
    """The dispatcher has not answered, or grpcio is missing."""


class ReadingTask(NamedTuple):
    """A data worker's part in one pass of one job, which is an `iteration`."""

    iteration: int
    task: int


def workers(address: str) -> list[str]:
    """Returns the addresses of all data workers that have ever come to the dispatcher at `address`."""
    # message GetWorkersResponse { repeated WorkerInfo workers = 1; }, WorkerInfo { string address = 1; }
    answer = _call(address, "GetWorkers", b"")
    infos = [dict(_fields(info)) for number, info in _fields(answer) if number == 1]
    return [info[1].decode() for info in infos]


def unfinished(address: str, worker: str) -> list[ReadingTask]:
    """Returns the tasks of the data worker `worker` that it has not finished."""
    # message WorkerHeartbeatRequest { string worker_address = 1; }: one without tasks is told them all.
    # message WorkerHeartbeatResponse { repeated TaskDef new_tasks = 1; }
    # message TaskDef { int64 task_id = 4; int64 iteration_id = 5; }
    answer = _call(address, "WorkerHeartbeat", _text(worker))
    tasks = [dict(_fields(task)) for number, task in _fields(answer) if number == 1]
    return [ReadingTask(task[5], task[4]) for task in tasks]


def finish(address: str, worker: str, task: int) -> None:
    """Ends a task as its data worker does when it has nothing more to give."""
    # message WorkerUpdateRequest { string worker_address = 1; repeated TaskProgress updates = 2; }
    # message TaskProgress { int64 task_id = 1; bool completed = 2; }
    progress = bytes([1 << 3 | _VARINT]) + _varint(task) + bytes([2 << 3 | _VARINT, 1])
    update = bytes([2 << 3 | _BYTES]) + _varint(len(progress)) + progress
    _call(address, "WorkerUpdate", _text(worker) + update)


def _call(address: str, method: str, request: bytes) -> bytes:
    try:
        import grpc
    except ImportError as error:  # an image whose TensorFlow was built without its own requirements
        raise UnansweredError(str(error)) from error
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            answer: bytes = channel.unary_unary(_SERVICE + method)(request, timeout=_SECONDS)
        except grpc.RpcError as error:
            raise UnansweredError(f"{address}: {method} failed") from error
    return answer


def _text(value: str) -> bytes:
    encoded = value.encode()
    return bytes([1 << 3 | _BYTES]) + _varint(len(encoded)) + encoded


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yields number and value of each field; a text or a message as bytes."""
    place = 0

    def number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(message):
        key = number()
        kind = key & 7
        if kind == _VARINT:
            yield key >> 3, number()
            continue
        length = number() if kind == _BYTES else _LENGTHS[kind]
        yield key >> 3, message[place : place + length]
        place += length
