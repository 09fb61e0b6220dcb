"""What huge pages give: steps of a model of `--megabytes` with Adam, with the launcher's GLIBC_TUNABLES and
without, in turns, each in a process of its own.

A batch of one example, so that a step is the work on the variables: each makes a gradient as large as its
variable. Where the node uses huge pages for everything, or never, both are the same.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks import recording
from benchmarks.measuring import table
from worker.contract.environment import HUGE_PAGES

_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_STEPS = """
import statistics, sys, time
from benchmarks.checkpoints import Training
training, seconds = Training(int(sys.argv[1])), []
for number in range(16):
    began = time.perf_counter()
    training.step()
    if number >= 4:
        seconds.append(time.perf_counter() - began)
print("step", statistics.median(seconds))
"""


def main() -> None:
    """Prints the table."""
    parser = recording.parser("benchmarks.huge_pages", str(__doc__), 3)
    parser.add_argument("--megabytes", type=int, default=333)
    given = parser.parse_args()
    name, value = HUGE_PAGES
    seconds: dict[str, list[float]] = {value: [], "": []}
    for _ in range(given.rounds):
        for tunables, measured in seconds.items():
            environment = {**os.environ, name: tunables, "TF_CPP_MIN_LOG_LEVEL": "3"}
            command = [sys.executable, "-c", _STEPS, str(given.megabytes)]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            measured.append(float(done.stdout.split()[-1]))
    plain = statistics.median(seconds[""])
    rows = [
        [
            tunables or "none",
            *(f"{of(each):.3f}" for of in (statistics.median, min, max)),
            f"{statistics.median(each) / plain:.2f}",
        ]
        for tunables, each in seconds.items()
    ]
    enabled = _ENABLED.read_text().strip()
    caption = f"A model of {given.megabytes} MB; transparent_hugepage/enabled: {enabled}."
    text = f"{caption}\n\n{table([name, 'step, s', 'min', 'max', 'ratio'], rows)}"
    recording.publish("huge-pages", text, record=given.record)


if __name__ == "__main__":
    main()
