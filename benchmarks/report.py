"""Measure the report: its size, how long it takes to write, and how fast it is in headless
Chromium.

    python benchmarks/report.py            # a run of 10 minutes, two of 24 hours; about 45 minutes
    python benchmarks/report.py --quick    # the short one alone, and nothing is written to docs/measurements.md

Bounds: 2 MB in 5 s for 10 minutes, 8 MB in 10 s for 24 hours with 4 ranks of 8 workers, 6 MB in
20 s for 24 hours with 8 ranks of 7 workers; first picture within 1 s, the page scrolls at 50 frames
a second, and from a movement of the brush to the new picture 150 ms. Beside it stands how
long it takes to look for findings.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from longrun import write_long_run
from measurements import write_section
from playwright.sync_api import Browser, sync_playwright

from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.catalog import find
from profd.daemon.store.reader import RunReader

METHOD = (
    "`benchmarks/report.py`: runs made by `benchmarks/longrun.py` through the writer of real "
    "sessions, about 60 samples a second of each rank, as dense as those of ResNet-18, and all "
    "readings. Written by `profd report` in a process of its own, interpreter and imports "
    "counted. Browser: headless Chromium, 1400 by 1000 pixels, a fresh page each time; first "
    "picture from the beginning of navigation until flame graph and timeline are drawn; brush "
    "from the movement of the pointer until both are drawn anew, over {moves} movements across "
    "the run; scrolling to the end in {frames} frames, with the table of processes, each time. "
    "Findings: all rules over ten minutes in the middle of the run, and over the whole run, each "
    "from opening the file."
)
OPENINGS = 5
MOVES = 40
_FIRST_PICTURE = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  while (!(window.profd && profd.graph.boxes)) await frame();
  return performance.now();
}"""
_BRUSH = """async (moves) => {
  const frame = () => new Promise(requestAnimationFrame);
  const node = document.getElementById("timeline");
  const place = node.getBoundingClientRect();
  const at = (share) => place.left + 130 + share * (place.width - 280);
  const send = (kind, x) => node.dispatchEvent(
    new PointerEvent(kind, { clientX: x, clientY: place.top + 20, button: 0, pointerId: 1, bubbles: true }));
  node.setPointerCapture = () => {};
  const drawn = [0, 0];
  [profd.graph.canvas, profd.timeline.canvas].forEach((canvas, which) => {
    const draw = canvas.draw;
    canvas.draw = () => { draw(); drawn[which] += 1; };
  });
  const found = [];
  send("pointerdown", at(0.05));
  for (let move = 1; move <= moves; move += 1) {
    const before = [...drawn];
    const from = performance.now();
    send("pointermove", at(0.05 + 0.9 * move / moves));
    while (drawn.some((count, which) => count === before[which])) await frame();
    found.push(performance.now() - from);
  }
  send("pointerup", at(0.95));
  return found;
}"""


_SCROLL = """async (frames) => {
  const frame = () => new Promise(requestAnimationFrame);
  const end = document.documentElement.scrollHeight - innerHeight;
  const from = await frame();
  let now = from;
  for (let at = 1; at <= frames; at += 1) {
    window.scrollTo(0, (end * at) / frames);
    now = await frame();
  }
  return (1000 * frames) / (now - from);
}"""


class Case(NamedTuple):
    """A run to report, and the bounds that its report has to hold."""

    title: str
    hours: float
    ranks: int
    workers: int
    most_mb: float
    most_s: float


class Measured(NamedTuple):
    """What was measured of a report: size, seconds to write, milliseconds in the browser.

    And seconds for findings.
    """

    mb: float
    written_s: float
    cpu_s: float
    first_picture_ms: list[float]
    brush_ms: list[float]
    frames_per_s: list[float]
    ten_minutes_s: float
    whole_s: float


CASES = (
    Case("10 min, 1 rank", 1 / 6, 1, 0, 2.0, 5.0),
    Case("24 h, 4 ranks of 8 workers", 24.0, 4, 8, 8.0, 10.0),
    Case("24 h, 64 processes", 24.0, 8, 7, 6.0, 20.0),
)
_FIRST_PICTURE_MS, _BRUSH_MS, _FRAMES_PER_S = 1000.0, 150.0, 50.0


def measure(case: Case, folder: Path, browser: Browser) -> Measured:
    """Make a run, report it, and look at the report."""
    run = write_long_run(
        folder / "run.profd",
        seconds=round(case.hours * 3600),
        ranks=case.ranks,
        workers=case.workers,
    )
    report = folder / "report.html"
    started_s, used_s = time.monotonic(), _cpu_of_children_s()
    subprocess.run(
        [sys.executable, "-m", "profd", "report", str(run), "-o", str(report)],
        check=True,
        stdout=-3,
    )
    written_s, cpu_s = time.monotonic() - started_s, _cpu_of_children_s() - used_s
    pictures, brushes, scrolled = [], [], []
    for _ in range(OPENINGS):
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(report.as_uri())
        pictures.append(float(page.evaluate(_FIRST_PICTURE)))
        brushes += [float(took_ms) for took_ms in page.evaluate(_BRUSH, MOVES)]
        page.click("#tab-processes")
        scrolled.append(float(page.evaluate(_SCROLL, MOVES)))
        page.close()
    found_s = _seconds_to_find(run, of_s=600), _seconds_to_find(run)
    run.unlink()
    return Measured(
        report.stat().st_size / 1e6, written_s, cpu_s, pictures, brushes, scrolled, *found_s
    )


def _cpu_of_children_s() -> float:
    """Return the CPU time of the processes that have ended: what a busy machine changes least."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _seconds_to_find(run: Path, of_s: int | None = None) -> float:
    """Return how long it takes to look for findings in so many seconds from the middle of a run, or
    in all of it.
    """
    started_s = time.monotonic()
    with RunReader(run) as reader:
        middle_ns = (reader.info.started_ns + reader.info.end_ns) // 2
        find(
            reader,
            Selection() if of_s is None else Selection(middle_ns, middle_ns + of_s * SECOND_NS),
        )
    return time.monotonic() - started_s


def row(case: Case, found: Measured) -> str:
    """Return a row of the table."""
    brush = sorted(found.brush_ms)
    late_ms = brush[int(0.95 * len(brush))]
    first = found.first_picture_ms
    cells = (
        case.title,
        f"{found.mb:.2f} MB (at most {case.most_mb:g})",
        f"{found.written_s:.1f} s (at most {case.most_s:g}), {found.cpu_s:.1f} s of CPU time",
        f"{statistics.median(first):.0f} ms, slowest {max(first):.0f} (at most "
        f"{_FIRST_PICTURE_MS:.0f})",
        f"{statistics.median(brush):.0f} ms, 95 % within {late_ms:.0f}, slowest {brush[-1]:.0f} "
        f"(at most {_BRUSH_MS:.0f})",
        f"{min(found.frames_per_s):.0f} frames/s (at least {_FRAMES_PER_S:.0f})",
        f"{found.ten_minutes_s:.1f} s, whole {found.whole_s:.1f} s",
        "yes" if _holds(case, found) else "no",
    )
    return f"| {' | '.join(cells)} |"


def _holds(case: Case, found: Measured) -> bool:
    """Say whether a report keeps all of its bounds, the slowest opening and movement included."""
    return (
        found.mb <= case.most_mb
        and found.written_s <= case.most_s
        and max(found.first_picture_ms) <= _FIRST_PICTURE_MS
        and max(found.brush_ms) <= _BRUSH_MS
        and min(found.frames_per_s) >= _FRAMES_PER_S
    )


def main() -> None:
    """Measure, print, and write the section down."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="the short run alone, nothing written down"
    )
    quick = parser.parse_args().quick
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    lines = [
        "| run | report | written in | first picture | brush to picture | scrolling | "
        "findings of 10 min | bounds hold |",
        "|---|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        for case in CASES[:1] if quick else CASES:
            lines.append(row(case, measure(case, Path(folder), browser)))
            print(lines[-1], flush=True)
        browser.close()
    if not quick:
        write_section(
            "The report: size and speed", METHOD.format(moves=OPENINGS * MOVES, frames=MOVES), lines
        )


if __name__ == "__main__":
    main()
