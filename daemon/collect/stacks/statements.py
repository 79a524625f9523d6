"""What the statement at a line of a source file may call. Parses the function around it, and holds the answer alone.

Knows nothing of stacks. What cannot be read or parsed tells nothing.
"""

from __future__ import annotations

import ast
import warnings
from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from profd.daemon.collect.stacks.blocks import Block, block_around
from profd.daemon.collect.stacks.source import SourceTree
from profd.daemon.userfiles import UserFiles

# A millisecond or two each.
PARSED_AT_ONCE = 8
_ANSWERS_HELD = 2048

# What these are made of enters no function: names that are read, bound and returned. Everything else may: a call, an
# operator, an attribute, a loop, a truth value (`__bool__`), an import, a decorator, an await.
_HARMLESS = (
    *(ast.Expr, ast.Return, ast.Assign, ast.AnnAssign, ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal),
    *(ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.arguments, ast.arg, ast.Lambda),
    *(ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Load, ast.Store),
)


class Statement(msgspec.Struct, frozen=True):
    """A statement, of a compound one its head: what it names, and whether it may enter a function at all.

    ``calls_unnamed`` where it calls what an expression gave, as decorators do, whatever that is called.
    """

    names: frozenset[str]
    may_call: bool
    calls_unnamed: bool


class Statements:
    """The statements of the source files that a target sees; processes that see the same files share them."""

    def __init__(self, files: UserFiles | None = None) -> None:
        """Read ``files``, as ``SourceTree`` does."""
        self._sources = SourceTree(files)
        self._answers: dict[tuple[str, int], Statement | None] = {}
        self._left = PARSED_AT_ONCE
        self.line = self._sources.line
        """``line(file, line)``: the text of a line, None where it cannot be read."""

    def allow_more(self) -> None:
        """Let another few functions be parsed: whoever asks is not to be held up by many at once."""
        self._left = PARSED_AT_ONCE

    def at(self, file: str, line: int) -> Statement | None:
        """Return the statement at a line; None where nothing is known of it, or too much was parsed already."""
        place = (file, line)
        if place not in self._answers:
            if not self._left:
                return None
            self._left -= 1
            if len(self._answers) >= _ANSWERS_HELD:
                self._answers.clear()
            block = block_around(self._sources.lines(file), line)
            self._answers[place] = _parse(block, line) if block else None
        return self._answers[place]


def _parse(block: Block, line: int) -> Statement | None:
    try:
        return _Parsed(block.text).at(line - block.first_line + 1)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # another Python's syntax, no Python, or cut in two
        return None


class _Parsed:
    """The statements of a text by their first lines."""

    def __init__(self, source: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        found = sorted(((_first_line(node), node) for node in _statements(tree)), key=lambda place: place[0])
        self._firsts = [first for first, _ in found]
        self._nodes = [node for _, node in found]

    def at(self, line: int) -> Statement | None:
        """Return the statement that holds a line; None where none does or several begin on it."""
        index = bisect_right(self._firsts, line) - 1
        if index < 0 or (index and self._firsts[index - 1] == self._firsts[index]):
            return None
        node = self._nodes[index]
        return describe(node) if line <= _last_line(node) else None


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a file, whatever they are nested in; expressions, of which there are many more, aside."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        for child in ast.iter_child_nodes(waiting.pop()):
            if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                waiting.append(child)
                if isinstance(child, ast.stmt):
                    yield child


def describe(node: ast.stmt) -> Statement:
    """Return what a statement names and may call, leaving out the statements inside it."""
    parts = list(_own_parts(node))
    is_decorated = bool(getattr(node, "decorator_list", ()))
    return Statement(
        names=frozenset(name for part in parts for name in _names(part)),
        may_call=is_decorated or not all(isinstance(part, _HARMLESS) for part in parts),
        calls_unnamed=is_decorated or any(_is_call_of_expression(part) for part in parts),
    )


def _is_call_of_expression(part: ast.AST) -> bool:
    return isinstance(part, ast.Call) and not isinstance(part.func, (ast.Name, ast.Attribute))


def _own_parts(node: ast.stmt) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [node]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += [
            child
            for child in ast.iter_child_nodes(part)
            if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case))
        ]


def _names(part: ast.AST) -> Iterator[str]:
    for name in (getattr(part, "id", None), getattr(part, "attr", None), getattr(part, "name", None)):
        if isinstance(name, str):
            yield name


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _last_line(node: ast.stmt) -> int:
    """Return the last line of a statement; of a compound one, that of its head."""
    body: list[ast.stmt] = getattr(node, "body", [])
    return body[0].lineno - 1 if body else node.end_lineno or node.lineno
