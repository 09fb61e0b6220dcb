"""TFRecord files, written without TensorFlow, which tests do not import."""

from __future__ import annotations

import struct
from pathlib import Path

_POLYNOMIAL = 0x82F63B78
"""Of CRC-32C, reversed."""


def write(path: Path, records: list[bytes]) -> None:
    """A file with these records: length, its checksum, the record, its checksum.

    https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
    """
    with path.open("wb") as file:
        for record in records:
            length = struct.pack("<Q", len(record))
            file.write(length + _masked(length) + record + _masked(record))


def _masked(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
