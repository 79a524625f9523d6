"""The report: a run as one HTML file, with its title, verdict and facts.

``payload`` has the data that the page counts, ``take_words`` its words; ``htmlpage`` makes one file
of both.
"""

from __future__ import annotations

import functools
import gc
from collections import defaultdict
from pathlib import Path
from typing import Any

from profd.daemon import units
from profd.daemon.analyze.incidents import last_output
from profd.daemon.analyze.phases import PhaseIndex, phase_named
from profd.daemon.analyze.selection import MAIN_THREADS, led_by
from profd.daemon.analyze.steptree import StepPart, take_step_tree
from profd.daemon.findings.catalog import answered, shows_imports
from profd.daemon.naming import script
from profd.daemon.paths import write_whole
from profd.daemon.render import cards
from profd.daemon.render.cards import Fact
from profd.daemon.render.htmlpage import render_page
from profd.daemon.render.payload import take_payload
from profd.daemon.render.plaintext import visible
from profd.daemon.render.sections import mark, rank_tables
from profd.daemon.render.summary import Summary, summarize
from profd.daemon.render.text import how_it_ended
from profd.daemon.store.reader import RunReader


def take_words(reader: RunReader, summary: Summary, bucket_ms: int) -> dict[str, Any]:
    """Return the words outside of the charts; the page selects time in steps of ``bucket_ms``."""
    info = reader.info
    command = " ".join(info.command)
    length = units.duration(max(info.time.length_s, 0.0))
    how = "profd launched it" if info.mode == "launched" else "profd attached to it"
    versions = ", ".join(
        f"{name.replace('_', '-')} {version}" for name, version in info.versions.items()
    )
    options = ", ".join(f"{name} = {value}" for name, value in info.options.items())
    precision = f"{bucket_ms} ms" if bucket_ms < 1000 else f"{bucket_ms // 1000} s"
    if bucket_ms >= 60_000:
        precision = f"{bucket_ms // 60_000} min, since the run is long"
    return {
        "title": script(info.command),
        "subtitle": [info.host, units.moment(info.started_ns), length, _ending(summary)],
        "command": command,
        "verdict": take_verdict(summary),
        "death": cards.death_card(summary.post_mortem),
        "ended": how_it_ended(summary),
        "output": last_output(reader),
        "hangs": [cards.hang_card(hang) for hang in summary.hangs[:20]],
        "findings": summary.findings,
        "mark": mark,
        "measures": cards.measures,
        "proof": functools.partial(cards.proof_address, reader),
        "facts": _facts(summary),
        **rank_tables(summary),
        "percent": units.percent,
        "duration": units.duration,
        "about": [
            Fact("command", command),
            Fact("folder", info.cwd),
            Fact("process", f"{info.target.pid} of {info.user} on {info.host}", how),
            Fact("started", units.moment(info.started_ns)),
            Fact("lasted", length, _ending(summary)),
            Fact("versions", versions),
            Fact("options", options),
            Fact("samples",
                 "Taken from outside without stopping the script; a share is as sure as its "
                 "samples are many.",
                 "Shares in gray have a 95 % interval wider than themselves."),
            Fact("time",
                 "Wall time, waiting included. What C++ or CUDA takes counts for the Python line "
                 "that called it.",
                 "GPU kernels run after the line that started them."),
            Fact("ranges", f"Selected ranges snap to {precision}.",
                 "Counts within them are exact."),
        ],
    }  # fmt: skip


def take_verdict(summary: Summary) -> dict[str, Any]:
    """Return a sentence with one number, the user's line that it is about, and the next phases."""
    if not summary.phases:
        lead = (
            "No sample of a main thread was taken: the run was too short, or its stacks could "
            "not be read."
        )
        return {"lead": lead, "line": None, "rest": ""}
    (first, share), *others = summary.phases.items()
    line = next((line for line in summary.phase_lines if line.phase == first), None)
    following = [f"{name} {units.percent(part)}" for name, part in others[:3] if part >= 0.01]
    return {
        "lead": f"{units.percent(share)} of the time {led_by(summary.leading_threads)} "
        f"{phase_named(first).doing}",
        "line": line,
        "rest": f"Next: {', '.join(following)}" if following else "",
    }


def seconds_by_name(step: StepPart) -> dict[str, float]:
    """Return the seconds of an average step by phase, and by ``module:line`` of the user's code."""
    found: defaultdict[str, float] = defaultdict(float)
    for group in step.parts:
        for phase in group.parts:
            found[phase.name] = phase.seconds
            for line in phase.parts:
                found[line.name] += line.seconds
    return {visible(name): seconds for name, seconds in found.items()}


def _ending(summary: Summary) -> str:
    if summary.state != "live" and summary.post_mortem is not None:
        return summary.post_mortem.cause
    return summary.ending


def _facts(summary: Summary) -> list[Fact]:
    shares = (
        ("coverage", summary.coverage, "", "share of the run's time that has samples"),
        (
            "torn",
            summary.torn_share,
            "",
            "stacks caught between two moments, recognized and dropped",
        ),
        (
            "profd's cost",
            summary.cost_core_share,
            " of a core",
            "profd and its samplers, mean over the run",
        ),
    )
    return [
        Fact(
            "samples",
            f"{summary.samples:,}",
            summary.no_samples or "of the main threads of training processes",
        ),
        *(Fact("not read", text.partition(":")[0], text) for text in summary.unread),
        *(
            Fact(name, units.percent(share, 1) + of, hint)
            for name, share, of, hint in shares
            if share is not None
        ),
        Fact("processes", str(len(summary.processes)), "seen in the run's process tree"),
        Fact("run", summary.run, "the id of the run file"),
    ]


SCRIPTS = (
    "text.js",
    "elements.js",
    "run.js",
    "selection.js",
    "counts.js",
    "canvas.js",
    "flamegraph.js",
    "tree.js",
    "timeline.js",
    "table.js",
    "tables.js",
    "operators.js",
    "waits.js",
    "panel.js",
    "page.js",
)
"""In the order of their use: each may use names of those before it."""


def write_report(reader: RunReader, path: Path) -> None:
    """Write the report of a run to ``path``, whole or not at all.

    Raises OutputUnwritable, and RunUnreadable if the run turns out to be damaged.
    """
    with reader.one_moment():
        page = render_report(reader)
    write_whole(path, page.encode())


def render_report(reader: RunReader) -> str:
    was_enabled = gc.isenabled()
    # The report makes no cycles, and the collector would search all that was read of a long run for
    # them again and again.
    gc.disable()
    try:
        summary = answered(summarize, reader)
        phases = PhaseIndex(reader)
        payload = take_payload(reader, phases, summary.memory)
        step = take_step_tree(reader, MAIN_THREADS, phases, summary.steps)
        payload["step"] = seconds_by_name(step) if step else None
        payload["showsImports"] = shows_imports(summary.findings)
        words = take_words(reader, summary, payload["bucketMs"])
        return render_page(
            "report.html.j2",
            SCRIPTS,
            payload,
            **words,
            curve=(cards.CURVE_WIDTH, cards.CURVE_HEIGHT),
        )
    finally:
        if was_enabled:
            gc.enable()
