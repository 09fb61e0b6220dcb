"""Makes the README's pictures from a real run that was recorded: `make docs`, and a test compares.

`python -m docs.pictures --record fashion-mnist` records a run of this machine anew, until it has ended: how
it was in the middle of its training, and how it was at its end.
"""

from __future__ import annotations

import io
import json
import re
import sys
import time
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from launcher import sentences
from launcher.backends.base import History, LogLine
from launcher.backends.latest_records import LatestRecords
from launcher.backends.local.backend import LocalBackend
from launcher.backends.local.following import StateReader
from launcher.cli import live_view
from launcher.report.page_content import report
from launcher.report.timeline_rows import STATE_TEXTS
from launcher.status import attempts, fold, latest
from launcher.task_records.remaining_time import Pace
from worker.contract.records import Progress, Record

HERE: Final = Path(__file__).parent
RECORDED: Final = HERE / "recorded-run.json"
LIVE_VIEW: Final = HERE / "live-view.svg"
TIMELINE: Final = HERE / "timeline.svg"
_WIDTH: Final = 100
_COMMAND: Final = "tf-launcher submit cluster.yaml --backend local"
_LOOK_SECONDS: Final = 0.2

_FORMAT: Final = """\
<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
{styles}
</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="#1b1f24"/>
<g class="{unique_id}-matrix" transform="translate(12, 8)">{backgrounds}{matrix}</g>
</svg>
"""
_COLOURS: Final = {
    "starting": "#8395a9",
    "waiting": "#e9a93a",
    "ready": "#7fb8b5",
    "training": "#0b7571",
    "scoring": "#3564c4",
    "finishing": "#56606b",
}
"""Of the page's states, on white and on black."""


def record(run: str) -> None:
    """Writes RECORDED, once the run has ended."""
    directory = LocalBackend()._directory(run, "default")
    moments: dict[str, Any] = {}
    while "end" not in moments:
        moment = _moment(directory)
        if moment["state"]["ended"]:
            moments["end"] = moment
        elif "middle" not in moments and _is_half_done(moment):
            moments["middle"] = moment
        time.sleep(_LOOK_SECONDS)
    home = str(directory.path.parents[3])
    RECORDED.write_text(json.dumps(moments).replace(home, "~/.local/state") + "\n")


def _moment(directory: Any) -> dict[str, Any]:
    from launcher.backends.base import EVERYONE
    from launcher.backends.local.following import Logs

    state, _ = StateReader(directory).read()
    logs = Logs(directory, EVERYONE)
    logs.update(state)
    lines = [line for line in logs.drain(last=True) if line.record is not None]
    written = [[line.role, line.index, line.attempt, line.text] for line in lines]
    return {"seen": time.time(), "state": state, "lines": written}


def _is_half_done(moment: Mapping[str, Any]) -> bool:
    progress = latest(history(moment).status.records, Progress)
    return progress is not None and progress.epoch * 2 > progress.epochs


def history(moment: Mapping[str, Any]) -> History:
    """The run at a recorded moment."""
    lines = [
        LogLine(role, index, attempt, text, Record.parse(text))
        for role, index, attempt, text in moment["lines"]
    ]
    book = LatestRecords()
    book.add(lines)
    jobs, pods = moment["state"]["jobs"], moment["state"]["pods"]
    status = fold(jobs, pods, book.of_task)
    return History(status, moment["seen"], status.started, attempts(jobs, pods), lines)


def live_view_picture(moment: Mapping[str, Any]) -> str:
    """What a terminal shows in the middle of the run, as SVG."""
    past = history(moment)
    out = Console(file=io.StringIO(), record=True, width=_WIDTH, force_terminal=True, highlight=False)
    out.print(Text.assemble(("$ ", "dim"), _COMMAND))
    pace = Pace()
    for line in past.lines:
        if line.record is not None:
            pace.add(line.record)
    began = past.status.started or 0.0
    for news in sentences.Narrator().news(past.status, past.lines, in_place=True):
        after = f"{(news.time or began) - began:7.1f} s  "
        out.print(Text.assemble((after, "dim"), (f"{news.who:<10} ", "bold"), news.text))
    out.print(live_view.picture(past.status, pace, past.seen, Text("⠹", style="cyan")))
    svg = out.export_svg(title="", code_format=_FORMAT, unique_id="live", font_aspect_ratio=0.6)
    # Room for the lower edge.
    return re.sub(r'(viewBox="0 0 \S+) ([\d.]+)"', _higher, svg, count=1)


def _higher(box: re.Match[str]) -> str:
    return f'{box[1]} {float(box[2]) + 24:.1f}"'


def timeline_picture(moment: Mapping[str, Any]) -> str:
    """The report's rows, as SVG."""
    page = report(history(moment))
    left, width, height = 90, 700, 26
    parts: list[str] = []

    def text(x: float, y: float, label: str, more: str = "") -> None:
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(label)}</text>')

    for tick in page.time_ticks:
        text(left + tick.at * width / 100, 12, tick.label, ' text-anchor="middle" class="soft"')
    for number, row in enumerate(page.rows):
        top = 20 + number * height
        text(0, top + 15, row.name)
        for bar in row.bars:
            x, wide = left + bar.left * width / 100, bar.width * width / 100
            colour = _COLOURS.get(bar.state, "#c3c9d1")
            parts.append(f'<rect x="{x:.1f}" y="{top}" width="{wide:.1f}" height="18" fill="{colour}"/>')
            if wide > 8 * len(bar.text):
                text(x + 6, top + 13, bar.text, ' fill="#fff"')
        for marker in row.markers:
            if marker.kind == "scored":
                x = left + marker.at * width / 100
                parts.append(f'<path d="M{x:.1f} {top + 17}l3 3-3 3-3-3z" fill="{_COLOURS["scoring"]}"/>')
    bottom = 20 + len(page.rows) * height + 14
    x = 0.0
    for state in [state for state in STATE_TEXTS if state.value in _COLOURS]:
        parts.append(
            f'<rect x="{x:.1f}" y="{bottom - 9}" width="10" height="10" fill="{_COLOURS[state.value]}"/>'
        )
        text(x + 14, bottom, state.value, ' class="soft"')
        x += 32 + 7 * len(state.value)
    style = "text { font: 12px system-ui, sans-serif; } .soft, text:not([fill]) { fill: #7d8793; }"
    box = f"0 0 {left + width + 20} {bottom + 8}"
    head = f'<svg viewBox="{box}" xmlns="http://www.w3.org/2000/svg">\n<style>{style}</style>\n'
    return head + "\n".join(parts) + "\n</svg>\n"


def pictures() -> dict[Path, str]:
    """What each file holds."""
    moments = json.loads(RECORDED.read_text())
    return {
        LIVE_VIEW: live_view_picture(moments["middle"]),
        TIMELINE: timeline_picture(moments["end"]),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        record(sys.argv[2])
    for path, text in pictures().items():
        path.write_text(text)
