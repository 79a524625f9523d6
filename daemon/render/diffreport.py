"""The comparison of two runs as one HTML file, with a differential flame graph.

What changed was decided by ``analyze.compare``; here it is put into words and columns, and nothing is judged again.

Functions are matched by name and module path, so that a checkout elsewhere, and lines that moved, change nothing.
Values are in the unit of the diff: seconds a step, or shares of the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from profd.daemon import units
from profd.daemon.analyze.coverage import take_coverage
from profd.daemon.analyze.phases import PHASES
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.compare.change import Change
from profd.daemon.compare.diff import Diff, Side
from profd.daemon.compare.readings import Reading
from profd.daemon.naming import script
from profd.daemon.paths import write_whole
from profd.daemon.render.difftext import machine_note, verdict
from profd.daemon.render.entries import FileEntry, FunctionColumns, PhaseEntry
from profd.daemon.render.htmlpage import render_page
from profd.daemon.render.plaintext import visible
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow

LEAST_SHARE = 0.0003
"""Nodes with less of either run's time are counted with their caller: nobody sees them."""


class DiffTree(msgspec.Struct, frozen=True):
    """Nodes as columns, callers first; ``up`` is how far back the caller lies, 0 at the root.

    ``function`` indexes the functions, -1 at the root. ``base`` and ``new`` are what was spent in a node and below.
    """

    files: list[FileEntry]
    functions: FunctionColumns
    up: list[int]
    function: list[int]
    base: list[float]
    new: list[float]


class _Node:
    __slots__ = ("children", "function", "values")

    def __init__(self, function: int) -> None:
        self.function = function
        self.values = [0.0, 0.0]
        self.children: dict[int, _Node] = {}


def take_diff_tree(
    readers: tuple[RunReader, RunReader], selections: tuple[Selection, Selection], sides: tuple[Side, Side], unit: str
) -> DiffTree:
    """Lay the parts of two runs that a diff compares over each other."""
    functions = _Functions()
    root = _Node(-1)
    for place, (reader, selection, side) in enumerate(zip(readers, selections, sides, strict=True)):
        whole = side.step_s if unit == "s/step" and side.step_s else 1.0
        _add(root, place, reader, compared(reader, selection, side), functions, whole)
    return _columns(root, functions)


def compared(reader: RunReader, selection: Selection, side: Side) -> Selection:
    """Return the part of a selection that is compared: the end of its range, without the start-up."""
    end_ns = reader.info.end_ns if selection.to_ns is None else min(selection.to_ns, reader.info.end_ns)
    return msgspec.structs.replace(selection, from_ns=end_ns - round(side.compared_s * SECOND_NS), to_ns=end_ns)


class _Functions:
    """Functions and their files, interned over both runs."""

    def __init__(self) -> None:
        self.files: list[FileEntry] = []
        self.columns = FunctionColumns([], [])
        self._file_index: dict[str, int] = {}
        self._index: dict[tuple[str, str], int] = {}

    def of(self, frame: FrameRow) -> int:
        key = (frame.function, frame.module_path)
        if key not in self._index:
            self._index[key] = len(self.columns.name)
            self.columns.name.append(visible(frame.function))
            self.columns.file.append(self._file(frame))
        return self._index[key]

    def _file(self, frame: FrameRow) -> int:
        if frame.module_path not in self._file_index:
            self._file_index[frame.module_path] = len(self.files)
            self.files.append(FileEntry(visible(frame.file), visible(frame.module_path), frame.is_library))
        return self._file_index[frame.module_path]


def _add(root: _Node, place: int, reader: RunReader, selection: Selection, functions: _Functions, whole: float) -> None:
    profile = take_profile(reader, selection)
    if not profile.total_ns:
        return
    scale = whole / profile.total_ns
    for stack, time_ns in profile.time_ns.items():
        node = root
        node.values[place] += time_ns * scale
        for frame in reader.frames_of(stack):
            node = node.children.setdefault(functions.of(frame), _Node(functions.of(frame)))
            node.values[place] += time_ns * scale


def _columns(root: _Node, functions: _Functions) -> DiffTree:
    tree = DiffTree(functions.files, functions.columns, [], [], [], [])
    least = [LEAST_SHARE * value for value in root.values]
    waiting = [(root, 0)]
    while waiting:
        node, caller = waiting.pop()
        place = len(tree.up)
        tree.up.append(place - caller)
        tree.function.append(node.function)
        tree.base.append(float(f"{node.values[0]:.5g}"))
        tree.new.append(float(f"{node.values[1]:.5g}"))
        kept = [child for child in node.children.values() if any(map(float.__gt__, child.values, least))]
        waiting += [(child, place) for child in kept]
    return tree


SCRIPTS = ("text.js", "elements.js", "canvas.js", "flamegraph.js", "table.js", "diff.js")
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
