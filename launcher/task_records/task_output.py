"""Tells the lines that a task's program prints from those that TensorFlow prints at its start and its end."""

from __future__ import annotations

import re
from typing import Final

_CHATTER: Final = re.compile(
    r"""
    \d{4}-\d\d-\d\d\ [\d:.]+:\ I\ (external|tensorflow)/  # 2026-01-31 12:00:00.1: I tensorflow/core/port.cc
    | I\d{4}\ [\d:.]+\ +\d+\ \S+\.(cc|h):\d+\]  # I0000 00:00:1738324800.1 123 port.cc:227]
    # A lost peer, which the runtime names.
    | E\d{4}\ [\d:.]+\ +\d+\ base_collective_executor\.cc:\d+\].*\ UNAVAILABLE:
    | .*\ Unable\ to\ register\ cu(DNN|BLAS|FFT)\ factory
    | .*\ computation\ placer\ already\ registered
    | .*\ TF-TRT\ Warning:\ Could\ not\ find\ TensorRT
    | WARNING:\ All\ log\ messages\ before\ absl::InitializeLog
    | pluggable_device_options\ \{$  # the rest of a line of TensorFlow 2.16's
    | To\ enable\ the\ following\ instructions:
    """,
    re.VERBOSE,
)


def is_chatter(line: str) -> bool:
    """Returns whether TensorFlow prints such a line at every start, or whenever a task is lost, so that it
    says nothing about the program.
    """
    return _CHATTER.match(line) is not None
