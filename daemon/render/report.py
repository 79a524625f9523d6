"""The report: a run as one HTML file that needs nothing else, for a pull request or a colleague.

What is shown comes from ``extract`` (everything that the page counts again) and ``words`` (everything that it merely
says); ``htmlpage`` makes one file of it.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.summary import summarize
from profd.daemon.render.extract import take_extract
from profd.daemon.render.htmlpage import render_page
from profd.daemon.render.incidents import CURVE_HEIGHT, CURVE_WIDTH
from profd.daemon.render.outfile import write_whole
from profd.daemon.render.ranktable import rank_tables
from profd.daemon.render.words import take_words
from profd.daemon.store.reader import RunReader

SCRIPTS = (
    "text.js",
    "run.js",
    "selection.js",
    "doubt.js",
    "counts.js",
    "tree.js",
    "colors.js",
    "canvas.js",
    "tooltip.js",
    "boxes.js",
    "place.js",
    "flamegraph.js",
    "chart.js",
    "brush.js",
    "band.js",
    "timeline.js",
    "panel.js",
    "table.js",
    "tables.js",
    "memory.js",
    "operators.js",
    "legend.js",
    "tabs.js",
    "opening.js",
    "page.js",
)
"""In the order of their use; each may name what stands in one before it."""
VIEWS = (
    ("functions", "Hot functions"),
    ("lines", "Hot lines"),
    ("operators", "Operators"),
    ("processes", "Processes"),
    ("memory", "Memory"),
    ("events", "Events"),
    ("about", "About this run"),
)


def write_report(reader: RunReader, path: Path) -> None:
    """Write the report of a run to ``path``, whole or not at all.

    Raises OutputUnwritable, and RunUnreadable where the run turns out to be damaged.
    """
    with reader.one_moment():
        page = render_report(reader)
    write_whole(path, page.encode())


def render_report(reader: RunReader) -> str:
    """Return the report of a run as HTML."""
    with _uncollected():
        summary = summarize(reader)
        extract = take_extract(reader, PhaseIndex(reader), summary.memory)
        words = take_words(reader, summary, extract.slot_ms)
        curve, ranks = (CURVE_WIDTH, CURVE_HEIGHT), rank_tables(summary)
        return render_page("report.html.j2", SCRIPTS, extract, words=words, views=VIEWS, curve=curve, ranks=ranks)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no cycles meanwhile: none are made, and of a long run all that was read would be gone through anew."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
