"""Which variables the loops of a function count by, as its source says.

They take what ``range`` and ``enumerate`` give, or go up by a number in each round. Parses the function around a line,
and holds the answer alone. What cannot be read or parsed tells nothing.
"""

from __future__ import annotations

import ast
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from profd.daemon.collect.stacks.blocks import block_around
from profd.daemon.collect.stacks.source import SourceTree
from profd.daemon.collect.steps.counter import LoopCounters
from profd.daemon.userfiles import UserFiles

# A millisecond or two each.
PARSED_AT_ONCE = 4
_PLACES_HELD = 256
# By the last part of the name of what is called: `itertools.count`, `tqdm.trange`.
_NUMBERS = ("range", "trange", "count")
_NUMBERED = ("enumerate",)


class _Loop(NamedTuple):
    """From which line to which a loop goes, where its body begins, and what it counts by."""

    first_line: int
    body_line: int
    last_line: int
    counters: frozenset[str]


class _Function(NamedTuple):
    """From which line to which a function goes, its loops, and whether it yields."""

    first_line: int
    last_line: int
    loops: tuple[_Loop, ...] = ()
    is_generator: bool = False

    def counters_at(self, line: int) -> LoopCounters:
        """Return the variables that the loops around a line count by."""
        around = [loop for loop in self.loops if loop.first_line <= line <= loop.last_line]
        # A loop that stands in one line shows nothing.
        inside = [loop for loop in around if loop.first_line < loop.body_line <= line]
        return LoopCounters(*(frozenset().union(*(loop.counters for loop in loops)) for loops in (around, inside)))


class Declared:
    """The counters that source files declare, as a target sees these files."""

    def __init__(self, files: UserFiles | None = None) -> None:
        """Read ``files``, as ``SourceTree`` does."""
        self._sources = SourceTree(files)
        self._functions: defaultdict[tuple[str, str], list[_Function]] = defaultdict(list)
        self._left = PARSED_AT_ONCE

    def allow_more(self) -> None:
        """Let another few functions be parsed: whoever asks is not to be held up by many at once."""
        self._left = PARSED_AT_ONCE

    def counters_at(self, file: str, function: str, line: int) -> LoopCounters:
        """Return the variables that the loops around a line count by; none where nothing is known of them, yet."""
        return self._function_at(file, function, line).counters_at(line)

    def steps_by(self, file: str, function: str, line: int, counter: str) -> bool:
        """Say whether a loop around a line counts by a variable and is on the stack for as long as it lasts.

        A generator is not: it waits off the stack while the body of the loop that it feeds runs.
        """
        found = self._function_at(file, function, line)
        return not found.is_generator and counter in found.counters_at(line).declared

    def _function_at(self, file: str, function: str, line: int) -> _Function:
        known = self._functions[file, function]
        found = next((one for one in known if one.first_line <= line <= one.last_line), None)
        if found is None and self._left:
            self._left -= 1
            if len(self._functions) > _PLACES_HELD:
                self._functions.clear()
            found = self._parse(file, line)
            self._functions[file, function].append(found)
        return found or _Function(line, line)

    def _parse(self, file: str, line: int) -> _Function:
        """Return the function around a line; only that line, without loops, where it is not to be had."""
        block = block_around(self._sources.lines(file), line)
        nothing = _Function(line, line)
        if block is None:
            return nothing
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(block.text)
        except (
            SyntaxError,
            ValueError,
            RecursionError,
            MemoryError,
        ):  # another Python's syntax, no Python, or cut in two
            return nothing
        before = block.first_line - 1
        last_line = before + block.text.count("\n") + 1
        yields = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(tree))
        return _Function(block.first_line, last_line, tuple(_loops(tree, before)), yields)


def _loops(tree: ast.Module, before: int) -> Iterator[_Loop]:
    """Yield the loops of a text that begins after so many lines."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            given = set() if isinstance(node, ast.While) else set(_given(node.target, node.iter))
            yield _Loop(
                before + node.lineno,
                before + node.body[0].lineno,
                before + (node.end_lineno or node.lineno),
                frozenset(given | set(_going_up(node))),
            )


def _given(target: ast.expr, source: ast.expr) -> Iterator[str]:
    """Yield the variable that takes up the numbers of a loop's source, bare or in whatever wraps it: a progress bar."""
    if not isinstance(source, ast.Call):
        return
    called = getattr(source.func, "id", getattr(source.func, "attr", ""))
    if called in _NUMBERED and isinstance(target, (ast.Tuple, ast.List)) and target.elts:
        target = target.elts[0]
    elif called not in _NUMBERS:
        if source.args:
            yield from _given(target, source.args[0])
        return
    if isinstance(target, ast.Name):
        yield target.id


def _going_up(loop: ast.For | ast.AsyncFor | ast.While) -> Iterator[str]:
    """Yield the variables to which a loop adds a number."""
    for node in ast.walk(loop):
        if (
            isinstance(node, ast.AugAssign)
            and isinstance(node.op, ast.Add)
            and isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, int)
        ):
            yield node.target.id
