"""The report: a run as one HTML file that needs nothing else, for a pull request or a colleague.

The page is a template, a style sheet and a few scripts, put into one file here. What is shown comes from ``extract``
(everything that the page counts again) and ``words`` (everything that it merely says).

All text of a run is taken for hostile. The template escapes it, the extract travels as base64, the scripts make text
nodes of it, and the policy of the page lets nothing run or load but the one script and the one style sheet put in here.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from pathlib import Path

import jinja2
import markupsafe
import msgspec

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.render.entries import Extract
from profd.daemon.render.extract import take_extract
from profd.daemon.render.outfile import write_whole
from profd.daemon.render.words import take_words
from profd.daemon.store.reader import RunReader

PAGE = Path(__file__).with_name("page")
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
    "flamegraph.js",
    "chart.js",
    "brush.js",
    "timeline.js",
    "panel.js",
    "table.js",
    "tables.js",
    "memory.js",
    "operators.js",
    "legend.js",
    "tabs.js",
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
    phases = PhaseIndex(reader)
    extract = take_extract(reader, phases)
    script = '"use strict";(() => {\n' + "\n".join(_read(name) for name in SCRIPTS) + "\n})();"
    style = _read("report.css")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_read("report.html.j2")).render(
        words=take_words(reader, extract.slot_ms),
        views=VIEWS,
        style=markupsafe.Markup(style),
        style_hash=_policy_hash(style),
        script=markupsafe.Markup(script),
        script_hash=_policy_hash(script),
        packed=pack(extract),
    )


def pack(extract: Extract) -> str:
    """Return an extract as base64 of deflated JSON: small, and no byte of it can be taken for markup."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(extract))).decode("ascii")


def unpack(packed: str) -> Extract:
    """Return the extract that was packed."""
    return msgspec.json.decode(zlib.decompress(base64.b64decode(packed)), type=Extract)


def _read(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _policy_hash(content: str) -> str:
    """Return how a Content-Security-Policy names an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
