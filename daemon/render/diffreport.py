"""The comparison of two runs as one HTML file, with a differential flame graph.

``daemon.compare`` decides what changed; this module puts it into words and columns.

Functions are matched by name and module path, so that a checkout elsewhere, and lines that moved,
change nothing. Values are in the unit of the diff: seconds a step, or shares of the time.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec

from profd.daemon import units
from profd.daemon.analyze.coverage import take_coverage
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.compare.diff import Diff, Side
from profd.daemon.compare.readings import Readers, Selections
from profd.daemon.naming import script
from profd.daemon.render.difftext import machine_note, verdict
from profd.daemon.render.htmlpage import render_page
from profd.daemon.render.payload import NumberedFunctions
from profd.daemon.render.plaintext import visible
from profd.daemon.store.reader import RunReader
from profd.daemon.timerange import TimeRange


def take_diff_tree(readers: Readers, selections: Selections, diff: Diff) -> dict[str, Any]:
    """Return nodes as columns, callers first.

    The columns are the values of a node and all below in both runs, and its function, -1 at the
    root. ``up`` is how far back the caller lies, 0 at the root.
    """
    functions = NumberedFunctions(lambda frame: frame.module_path)
    nodes = {(0, -1): 0}  # by caller and function
    values = defaultdict[int, list[float]](lambda: [0.0, 0.0])
    sides = zip(readers, selections, (diff.base, diff.new), strict=True)
    for place, (reader, selection, side) in enumerate(sides):
        whole = side.step_s if diff.unit == "s/step" and side.step_s else 1.0
        profile = take_profile(reader, compared(reader, selection, side))
        for stack, time_ns in profile.time_ns.items():
            # The part compared may have no time of any stack.
            value, node = time_ns * (whole / (profile.total_ns or 1.0)), 0
            values[node][place] += value
            for frame in reader.frames_of(stack):
                node = nodes.setdefault((node, functions.of(frame)), len(nodes))
                values[node][place] += value
    # Nodes with less of either run's time are counted with their caller: nobody sees them.
    least = [0.0003 * value for value in values[0]]
    kept = {
        node: key
        for key, node in nodes.items()
        if not node or any(map(float.__gt__, values[node], least))
    }
    places = {node: place for place, node in enumerate(kept)}
    return {
        **functions.columns(),
        "up": [places[node] - places[caller] for node, (caller, _) in kept.items()],
        "key": [function for _, function in kept.values()],
        "base": [float(f"{values[node][0]:.5g}") for node in kept],
        "new": [float(f"{values[node][1]:.5g}") for node in kept],
    }


def compared(reader: RunReader, selection: Selection, side: Side) -> Selection:
    """Return the part of a selection that is compared: its range without the start-up."""
    end_ns = min(selection.time.to_ns, reader.info.end_ns)
    return selection.during(TimeRange(end_ns - round(side.compared_s * SECOND_NS), end_ns))


SCRIPTS = ("text.js", "elements.js", "canvas.js", "flamegraph.js", "table.js", "diff.js")


def render_diff_report(readers: Readers, selections: Selections, diff: Diff) -> str:
    """Return the page on what changed between two runs."""
    facts = list(map(_facts, readers, selections, (diff.base, diff.new)))

    def shown(name: str, *fields: str) -> list[Any]:
        rows = getattr(diff, name)
        return [
            msgspec.structs.replace(one, **{each: visible(getattr(one, each)) for each in fields})
            for one in rows
        ]

    shares = "Shares of the time, as the steps of one of the runs are unknown"
    what = "Seconds a step" if diff.unit == "s/step" else shares
    return render_page(
        "diff.html.j2",
        SCRIPTS,
        {
            "unit": diff.unit,
            "least": diff.least,
            "changes": {
                name: shown(name, "name", "module_path")
                for name in ("functions", "lines", "leaves", "phases")
            },
            "readings": {name: shown(name, "name") for name in ("operators", "memory", "gpus")},
            "tree": take_diff_tree(readers, selections, diff),
        },
        names=[side.run for side in (diff.base, diff.new)],
        verdict=verdict(diff),
        step=_step(diff),
        facts=[
            (name, *(fact.get(name, "") for fact in facts))
            for name in dict.fromkeys([*facts[0], *facts[1]])
        ],
        basis=f"{what}, of the main threads, without the start-up. Bounds hold for all rows at "
        f"once (95 %), from the unrest of {diff.base.blocks} and {diff.new.blocks} blocks of the "
        f"runs; below {units.percent(diff.least)} of a step nothing is called a change.",
        note=machine_note(diff),
    )


def _step(diff: Diff) -> str:
    """Return how the time of a step changed, in a sentence; empty if steps are unknown."""
    step = diff.step_time
    if step is None:
        return ""
    base, new = map(units.step_time, (step.base, step.new))
    low, high = (units.signed_percent(bound / step.base) for bound in (step.low, step.high))
    sure = "" if step.is_significant else ", which is no more than the unrest of the runs"
    return (
        f"A step takes {new}; it took {base}: {units.signed_percent(step.relative)} ({low} to "
        f"{high}){sure}."
    )


def _facts(reader: RunReader, selection: Selection, side: Side) -> dict[str, str]:
    info = reader.info
    coverage = take_coverage(reader, compared(reader, selection, side))
    return {
        "run": info.id,
        "script": script(info.command),
        "command": " ".join(info.command),
        "host": info.host,
        "started": units.moment(info.started_ns),
        "lasted": units.duration(info.time.length_s),
        "compared": units.duration(side.compared_s),
        "coverage": units.percent(coverage.share, 1),
        "torn": units.percent(coverage.torn_share, 1),
        "GPUs": ", ".join(device.model for device in reader.devices()),
        **{name.replace("_", "-"): version for name, version in info.versions.items()},
    }
