"""Read the source behind a frame: whose code it is, and what the statement at a line may call.

It reads source files as the target's user sees them; see ``userfiles``. It parses only the function
around a line: a whole file takes tens of milliseconds and megabytes. A function with lines that
stand further left than itself, such as those of a string, is cut in two; it then does not parse at
all, or parses without the line.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from profd.daemon.stacks.cells import Cells
from profd.daemon.stacks.origin import ANY, Origin
from profd.daemon.store.records import CHANGED_SOURCE, Frame, FrameDescription
from profd.daemon.userfiles import Changed, Unanswered, UserFiles


class SourceTree:
    """The source files that a target sees; without ``files``, those that profd itself sees.

    ``own`` is the folder of the target's script, ``origin`` the origin of its code: a file that has
    changed since has no text here, as nobody knows which text runs.
    """

    def __init__(
        self,
        files: UserFiles | None = None,
        own: Path | None = None,
        cells: Cells | None = None,
        origin: Origin = ANY,
    ) -> None:
        self._files, self._cells, self._origin = files or UserFiles(), cells, origin
        self._own = f"{own}/" if own else ""
        # Lines of many files are asked for all through a run: a few files are held as text, the
        # others compressed.
        self._text = functools.lru_cache(4)(self._read)
        self._kept_line = functools.lru_cache(2048)(self._line)
        self._outermost = functools.lru_cache(1024)(self._find_outermost)
        self._found = functools.lru_cache(1024)(self._find)

    def describe(self, frame: Frame) -> FrameDescription:
        """Return what is stored of a frame beside its identity."""
        cell = self._cells.cell(frame.file) if self._cells else None
        if cell is not None:
            lines = split_lines(cell.text.replace("\r\n", "\n").replace("\r", "\n"))
            return FrameDescription(
                f"cell {cell.number}",
                False,
                line_in(lines, frame.line),
                is_without_gradients(lines, frame.line),
            )
        # If the target is a script, code without a file is made by libraries: a dataclass, a lambda
        # of Pyro that is evaluated.
        is_made = bool(self._own) and frame.file == "<string>"
        of_library = is_made or is_library(self.absolute(frame.file).removeprefix(self._own))
        switched_off = not of_library and is_without_gradients(self.lines(frame.file), frame.line)
        text = CHANGED_SOURCE if self.has_changed(frame.file) else self.line(frame.file, frame.line)
        return FrameDescription(self.module_path(frame.file), of_library, text, switched_off)

    def has_changed(self, file: str) -> bool:
        """Return whether a file has, or may have, another text than the code that runs."""
        try:
            self._text(file)
        except Unanswered:
            return False
        except Changed:
            return True
        return False

    def lines(self, file: str) -> list[str]:
        """Return the lines of a file as Python counts them, or none if what ran is unknown."""
        try:
            return self._text(file).split("\n")
        except (Unanswered, Changed):  # not cached: the file is asked for again
            return [""]

    def line(self, file: str, line: int) -> str | None:
        """Return the text of a line without the space around it, or None if it cannot be known."""
        with contextlib.suppress(Unanswered, Changed):
            return self._kept_line(file, line)
        return None

    def _line(self, file: str, line: int) -> str | None:
        return line_in(split_lines(self._text(file)), line)

    def _read(self, file: str) -> str:
        path = self._found(file)
        return (
            decoded(self._files.kept(path, self._origin.since_ns)) if path.startswith("/") else ""
        )

    def absolute(self, file: str) -> str:
        """Return the absolute path of a file whose name is relative; other names stay unchanged."""
        try:
            return self._found(file)
        except Unanswered:  # not cached: it is looked for again
            return file

    def _find(self, file: str) -> str:
        """Return the path behind a name, or the name itself if it means no file, or several."""
        if file.startswith(("/", "<")):
            return file
        paths = [os.path.normpath(f"{folder}/{file}") for folder in self._origin.folders]
        found = [path for path in paths if self._files.kept(path)]
        return found[0] if len(found) == 1 else file

    def module_path(self, file: str) -> str:
        """Return the path from the outermost package down, as py-spy shortens it.

        An example is ``torch/nn/modules/module.py``.
        """
        path = Path(self.absolute(file))
        return str(path.relative_to(self._outermost(path.parent))) if path.is_absolute() else file

    def _find_outermost(self, folder: Path) -> Path:
        """Return the folder that holds the outermost package of a folder."""
        is_package = folder != folder.parent and self._files.is_file(str(folder / "__init__.py"))
        return self._outermost(folder.parent) if is_package else folder


def decoded(data: bytes) -> str:
    """Return the text of a source file as Python decodes it, with each line ended by a newline.

    Bytes that are no text in its encoding, or in UTF-8 if that is unknown, are replaced.
    """
    try:
        head = (line + b"\n" for line in re.split(rb"\r\n?|\n", data, maxsplit=2)[:2])
        text = data.decode(tokenize.detect_encoding(head.__next__)[0], "replace")
    except (SyntaxError, LookupError, ValueError):
        text = data.decode(errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def split_lines(text: str) -> list[str]:
    """Return lines as Python's tokenizer counts them: a form feed or U+2028 ends none.

    Each line of the text ends with a newline.
    """
    return text.removesuffix("\n").split("\n") if text else []


def line_in(lines: Sequence[str], line: int) -> str | None:
    """Return the text of a line, at most 200 characters of it; None if there is no such line."""
    return lines[line - 1].strip()[:200] if 0 < line <= len(lines) else None


@functools.lru_cache(4096)
def is_library(file: str) -> bool:
    """Return whether a file belongs to a library.

    That is an installed package, the standard library, or the interpreter itself.
    """
    if file.startswith("<"):
        return file not in ("<string>", "<stdin>") and not file.startswith("<ipython")
    # The standard library may be that of any interpreter: …/lib/python3.11/threading.py,
    # …/lib64/python3.6/…
    is_installed = not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)
    return is_installed or re.search(r"/lib(64)?/python3\.\d+[a-z]?/", file) is not None


def own_frames(stack: Iterable[Frame]) -> list[Frame]:
    """Return the frames of the user's own code, in their order."""
    return [frame for frame in stack if not is_library(frame.file)]


def parsed(text: str) -> ast.Module | None:
    """Return the syntax tree of a text.

    Returns None if the text is another Python's syntax, no Python, or cut in two.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


MOST_LINES = 1000
_FUNCTION = re.compile(r"(async\s+)?def\b")
_NO_GRADIENTS = re.compile(r"with\b.*\b(no_grad|inference_mode|set_grad_enabled\(\s*False)\b")
# A line that begins with one of these at the left neither begins a statement nor ends a longer one.
_NO_STATEMENT = ("#", ")", "]", "}")
_INDENTED = "if 1:\n"


class SourceBlock(NamedTuple):
    """A text that can be parsed; ``first_line`` is the number, in the file, of its first line."""

    text: str
    first_line: int


def block_around(lines: Sequence[str], line: int) -> SourceBlock | None:
    """Return the function that holds a line, or else the file, unless it is too long.

    Returns None if the bounds are unclear.
    """
    if not 0 < line <= len(lines):
        return None
    start = _head_above(lines, line - 1)
    if start is None:
        return SourceBlock("\n".join(lines), 1) if len(lines) <= MOST_LINES else None
    left = _indent(lines[start])
    for end in range(start + 1, len(lines)):  # up to the first line after the function
        text = lines[end].lstrip()
        if text and _indent(lines[end]) <= left and not text.startswith(_NO_STATEMENT):
            break
    else:
        end = len(lines)
    decorated = _first_decorator(lines, start)
    if decorated is None and start == line - 1:
        return None
    start = start if decorated is None else decorated
    if end - start > MOST_LINES:
        return None
    text = "\n".join(lines[start:end])
    return (
        SourceBlock(_INDENTED + text, start)
        if _indent(lines[start])
        else SourceBlock(text, start + 1)
    )


def _head_above(lines: Sequence[str], index: int) -> int | None:
    """Return the index of the head of the function that holds a line.

    A head holds itself. Returns None for a line outside of any function.
    """
    if _FUNCTION.match(lines[index].lstrip()):
        return index
    return next(
        (above for above in _heads_above(lines, index) if _FUNCTION.match(lines[above].lstrip())),
        None,
    )


def _heads_above(lines: Sequence[str], index: int) -> Iterator[int]:
    """Yield the indexes of the block heads above a line, up to the head of its function.

    Each head stands further left than the line below it.
    """
    left = _indent(lines[index])
    for above in range(index - 1, -1, -1):
        text = lines[above].lstrip()
        indent = _indent(lines[above])
        if text and indent < left and not text.startswith(_NO_STATEMENT):
            yield above
            if _FUNCTION.match(text):
                return
            left = indent


def is_without_gradients(lines: Sequence[str], line: int) -> bool:
    """Return whether a line stands in a block of its function that switches gradients off."""
    above = _heads_above(lines, line - 1) if 0 < line <= len(lines) else ()
    return any(_NO_GRADIENTS.match(lines[index].lstrip()) for index in above)


def _first_decorator(lines: Sequence[str], start: int) -> int | None:
    """Return the index of a function's first decorator, or of its head if it has none.

    Returns None if it is unclear whether it has one.
    """
    left = _indent(lines[start])
    for above in range(start - 1, -1, -1):
        text = lines[above].lstrip()
        if text.startswith("#"):
            continue
        if _indent(lines[above]) != left or not text.startswith(("@", *_NO_STATEMENT)):
            break
        if not text.startswith("@"):
            return None
        start = above
    return start


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# Parsing takes a millisecond or two for each function.
PARSED_AT_ONCE = 8
_BODIES = (ast.stmt, ast.excepthandler, ast.match_case)

# A statement made of these enters no function: it reads, binds and returns names. Everything else
# may: a call, an operator, an attribute, a loop, a truth value (`__bool__`), an import, a
# decorator, an await.
_HARMLESS = (
    *(
        ast.Expr,
        ast.Return,
        ast.Assign,
        ast.AnnAssign,
        ast.Pass,
        ast.Break,
        ast.Continue,
        ast.Global,
        ast.Nonlocal,
    ),
    *(ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.arguments, ast.arg, ast.Lambda),
    *(ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Load, ast.Store),
)


class Statement(msgspec.Struct, frozen=True):
    """A statement or its head; ``calls_unnamed`` is True if it calls the value of an expression."""

    names: frozenset[str]
    may_call: bool
    calls_unnamed: bool


class Statements:
    """The statements of the source files that a target sees.

    Processes that see the same files share them.
    """

    def __init__(self, files: UserFiles | None = None, origin: Origin = ANY) -> None:
        self._sources = SourceTree(files, origin=origin)
        self._answers: dict[tuple[str, int], Statement | None] = {}
        self._left = PARSED_AT_ONCE

    def line(self, file: str, line: int) -> str | None:
        return self._sources.line(file, line)

    def allow_more(self) -> None:
        """Allow another few functions to be parsed: many at once would hold the caller up."""
        self._left = PARSED_AT_ONCE

    def at(self, file: str, line: int) -> Statement | None:
        """Return the statement at a line.

        Returns None if nothing is known of it, or too much was parsed already.
        """
        place = (file, line)
        if place not in self._answers:
            if not self._left:
                return None
            self._left -= 1
            if len(self._answers) >= 2048:
                self._answers.clear()
            block = block_around(self._sources.lines(file), line)
            tree = parsed(block.text) if block else None
            self._answers[place] = (
                _statement(tree, line - block.first_line + 1) if block and tree else None
            )
        return self._answers[place]


def _statement(tree: ast.Module, line: int) -> Statement | None:
    """Return the statement that holds a line.

    Returns None if none does, or several begin on its first line.
    """
    above = [(first, node) for node in _statements(tree) if (first := _first_line(node)) <= line]
    nearest = max((first for first, _ in above), default=0)
    nodes = [node for first, node in above if first == nearest]
    if len(nodes) != 1:
        return None
    body: list[ast.stmt] = getattr(nodes[0], "body", [])
    # The last line of a compound statement is that of its head.
    last = body[0].lineno - 1 if body else nodes[0].end_lineno or nodes[0].lineno
    return describe(nodes[0]) if line <= last else None


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a file, nested ones too, but no expressions: there are many more."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        inside = [one for one in ast.iter_child_nodes(waiting.pop()) if isinstance(one, _BODIES)]
        yield from (child for child in inside if isinstance(child, ast.stmt))
        waiting += inside


def describe(node: ast.stmt) -> Statement:
    """Return what a statement names and may call, leaving out the statements inside it."""
    parts: list[ast.AST] = [node]
    for part in parts:  # parts grows meanwhile
        parts += (child for child in ast.iter_child_nodes(part) if not isinstance(child, _BODIES))
    called = [part.func for part in parts if isinstance(part, ast.Call)]
    named = [getattr(part, field, None) for part in parts for field in ("id", "attr", "name")]
    is_decorated = bool(getattr(node, "decorator_list", ()))
    may_call = is_decorated or not all(isinstance(part, _HARMLESS) for part in parts)
    calls_unnamed = is_decorated or not all(
        isinstance(func, ast.Name | ast.Attribute) for func in called
    )
    return Statement(
        frozenset(name for name in named if isinstance(name, str)), may_call, calls_unnamed
    )


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
