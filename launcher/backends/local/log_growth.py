"""When a log grew, so that its lines have times: tasks write their logs themselves, without any.

A file beside the log has a line for each look that found it longer: `<seconds since the epoch> <bytes>`.
What lies before so many bytes was printed by then, and what follows, later.
"""

from __future__ import annotations

import bisect
import contextlib
import re
from pathlib import Path
from typing import Final

_LINE: Final = re.compile(rb"(\d{1,11}(?:\.\d{1,2})?) (\d{1,18})\n")
LOOK_SECONDS: Final = 1.0
"""Between two looks: how exact the times are."""


class GrowthRecorder:
    """Writes the file, look by look."""

    def __init__(self, log: Path, growth: Path) -> None:
        self._log = log
        self._growth = growth
        self._size = 0

    def look(self, now: float) -> None:
        """`now` is in seconds since the epoch. Without space on the disk nothing is noted."""
        with contextlib.suppress(OSError):
            size = self._log.stat().st_size
            if size > self._size:
                with self._growth.open("a", encoding="ascii") as file:
                    file.write(f"{now:.2f} {size}\n")
                self._size = size


class Growth:
    """What the file says; nothing where there is none."""

    def __init__(self, log: Path, growth: Path) -> None:
        self._log = log
        self._times: list[float] = [0.0]
        self._sizes: list[int] = [0]
        if not growth.is_file():
            return
        with contextlib.suppress(OSError), growth.open("rb") as file:
            for line in file:
                # A line that is being written, was cut off by a full disk, or changed, is passed over.
                match = _LINE.fullmatch(line)
                if match and int(match[2]) > self._sizes[-1]:
                    # A clock may have been set back.
                    self._times.append(max(float(match[1]), self._times[-1]))
                    self._sizes.append(int(match[2]))

    def time(self, end: int) -> float | None:
        """When the line that ends before this byte was printed, or just before; None where nobody knows."""
        number = bisect.bisect_left(self._sizes, end)
        if number < len(self._sizes):
            return self._times[number]
        try:
            return self._log.stat().st_mtime
        except OSError:
            return None

    def offset(self, time: float) -> int:
        """Where what was printed since `time` begins, in bytes, though maybe within a line."""
        number = bisect.bisect_left(self._times, time)
        return self._sizes[number - 1] if number else 0
