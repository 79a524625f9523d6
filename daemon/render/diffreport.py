"""The comparison of two runs as one HTML file: what changed, how sure that is, and where in the call tree it is.

What changed was decided by ``analyze.compare``; here it is put into words and columns, and nothing is judged again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from profd.daemon import units
from profd.daemon.analyze.compare.change import Change
from profd.daemon.analyze.compare.diff import Diff, Side
from profd.daemon.analyze.compare.readings import Reading
from profd.daemon.analyze.coverage import take_coverage
from profd.daemon.analyze.phases import PHASES
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.naming import script
from profd.daemon.render.difftext import machine_note, verdict
from profd.daemon.render.difftree import DiffTree, compared, take_diff_tree
from profd.daemon.render.entries import PhaseEntry
from profd.daemon.render.htmlpage import render_page
from profd.daemon.render.outfile import write_whole
from profd.daemon.render.visible import visible
from profd.daemon.store.reader import RunReader

SCRIPTS = (
    "text.js",
    "colors.js",
    "canvas.js",
    "tooltip.js",
    "boxes.js",
    "place.js",
    "flamegraph.js",
    "table.js",
    "tabs.js",
    "difftree.js",
    "diffgraph.js",
    "readings.js",
    "opening.js",
    "diffpage.js",
)
VIEWS = (
    ("functions", "Your functions"),
    ("lines", "Your lines"),
    ("leaves", "Functions by themselves"),
    ("phases", "Phases"),
    ("operators", "Operators"),
    ("memory", "Memory"),
    ("gpus", "GPUs"),
    ("runs", "The two runs"),
)
Readers = tuple[RunReader, RunReader]
Selections = tuple[Selection, Selection]


class RunFact(msgspec.Struct, frozen=True):
    """Something that is known of both runs."""

    name: str
    base: str
    new: str

    @property
    def differs(self) -> bool:
        """Whether the runs are not alike in it."""
        return self.base != self.new


class DiffExtract(msgspec.Struct, frozen=True):
    """The content of the page; ``unit`` and the changes are those of the diff, their text harmless to show."""

    unit: str
    least: float
    phases: list[PhaseEntry]
    changes: dict[str, list[Change]]
    readings: dict[str, list[Reading]]
    tree: DiffTree


def write_diff_report(path: Path, readers: Readers, selections: Selections, diff: Diff) -> None:
    """Write the comparison of two runs to ``path``, whole or not at all; raises OutputUnwritable."""
    write_whole(path, render_diff_report(readers, selections, diff).encode())


def render_diff_report(readers: Readers, selections: Selections, diff: Diff) -> str:
    """Return the comparison of two runs as HTML."""
    extract = DiffExtract(
        unit=diff.unit,
        least=diff.least,
        phases=[PhaseEntry(phase.name, phase.letter, phase.color) for phase in PHASES],
        changes={
            "functions": _harmless(diff.functions),
            "lines": _harmless(diff.lines),
            "leaves": _harmless(diff.leaves),
            "phases": _harmless(diff.phases),
        },
        readings={
            "operators": _harmless_readings(diff.operators),
            "memory": _harmless_readings(diff.memory),
            "gpus": _harmless_readings(diff.gpus),
        },
        tree=take_diff_tree(readers, selections, (diff.base, diff.new), diff.unit),
    )
    return render_page(
        "diff.html.j2",
        SCRIPTS,
        extract,
        names=[visible(side.run) for side in (diff.base, diff.new)],
        verdict=verdict(diff),
        step=_step(diff),
        facts=_facts(readers, selections, diff),
        basis=_basis(diff),
        note=machine_note(diff),
        views=VIEWS,
    )


def _harmless(changes: Iterable[Change]) -> list[Change]:
    return [
        msgspec.structs.replace(change, name=visible(change.name), module_path=visible(change.module_path))
        for change in changes
    ]


def _harmless_readings(readings: Iterable[Reading]) -> list[Reading]:
    return [msgspec.structs.replace(one, name=visible(one.name)) for one in readings]


def _step(diff: Diff) -> str:
    """Return how the time of a step changed, in a sentence; empty where a run does not tell its steps."""
    step = diff.step_time
    if step is None:
        return ""
    base, new = map(units.step_time, (step.base, step.new))
    low, high = (units.signed_percent(bound / step.base) for bound in (step.low, step.high))
    sure = "" if step.is_significant else ", which is no more than the unrest of the runs"
    return f"A step takes {new}; it took {base}: {units.signed_percent(step.relative)} ({low} to {high}){sure}."


def _basis(diff: Diff) -> str:
    what = (
        "Seconds a step" if diff.unit == "s/step" else "Shares of the time, as one of the runs does not tell its steps"
    )
    return (
        f"{what}, of the main threads, without the start-up. Bounds hold for all rows at once (95 %), from the unrest "
        f"of {diff.base.blocks} and {diff.new.blocks} blocks of the runs; below {units.percent(diff.least)} of a step "
        "nothing is called a change."
    )


def _facts(readers: Readers, selections: Selections, diff: Diff) -> list[RunFact]:
    columns = [
        _facts_of(reader, selection, side)
        for reader, selection, side in zip(readers, selections, (diff.base, diff.new), strict=True)
    ]
    names = list(dict.fromkeys([*columns[0], *columns[1]]))
    return [RunFact(name, columns[0].get(name, ""), columns[1].get(name, "")) for name in names]


def _facts_of(reader: RunReader, selection: Selection, side: Side) -> dict[str, str]:
    """Return what is known of a run, by name."""
    info = reader.info
    part = compared(reader, selection, side)
    coverage = take_coverage(reader, part)
    facts = {
        "run": info.id,
        "script": script(info.command),
        "command": " ".join(info.command),
        "host": info.host,
        "started": units.moment(info.started_ns),
        "lasted": units.duration((info.end_ns - info.started_ns) / SECOND_NS),
        "compared": units.duration(side.compared_s),
        "coverage": units.percent(coverage.share, 1),
        "torn": units.percent(coverage.torn_share, 1),
        "GPUs": ", ".join(device.model for device in reader.devices()),
        **{name.replace("_", "-"): version for name, version in info.versions.items()},
    }
    return {name: visible(text) for name, text in facts.items()}
