"""The call trees of two runs laid over each other, by function: what a differential flame graph draws.

Functions are matched by name and module path, so that a checkout elsewhere, and lines that moved, change nothing.
Values are in the unit of the diff: seconds a step, or shares of the time.
"""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.compare.diff import Side
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.entries import FileEntry, FunctionColumns
from profd.daemon.render.visible import visible
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
