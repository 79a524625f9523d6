"""The loops around a line of source, and what they count by, as the source says. Parses the function around the line.

A ``for`` loop counts by what ``range`` and ``enumerate`` give, any loop by a variable that goes up by a number in each
round. A variable that the loop also sets in another way counts nothing.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from profd.daemon.stacks.source import SourceTree, block_around
from profd.daemon.userfiles import UserFiles

_FUNCTIONS_HELD = 256
# By the last part of the name of what is called: `itertools.count`, `tqdm.trange`.
_NUMBERS = ("range", "trange", "count")
_OPTIMIZER = re.compile(
    r"(^|_)(opt|optim|optimi[sz]ers?|scaler|accelerator|engine|model_engine)\d*(_|$)", re.IGNORECASE
)
_SCHEDULER = re.compile("sched", re.IGNORECASE)

Loops = ast.For | ast.AsyncFor | ast.While


class Counter(msgspec.Struct, frozen=True):
    """What changes by ``stride`` in each round of a loop, from ``start`` on; None: the source does not say.

    Its name is that of a variable, or one like ``self.step`` and ``state["step"]``; so is a stride that is no number.
    ``is_added`` says that the loop adds to it, so that it may go on where the loop begins anew; ``is_late`` that this
    comes after the backward pass, or in the second half of the round. ``of_updates`` says that it is together with the
    optimizer's step, which is not in each round.
    """

    name: str
    stride: int | str
    start: int | None = None
    is_added: bool = False
    is_late: bool = False
    of_updates: bool = False


class Loop(msgspec.Struct, frozen=True):
    """A loop: its lines, from which on its body begins, what it counts by, and the names that its rounds are given.

    ``bars`` are the variables with ``update()`` called in each round: progress bars. ``updates`` says that the
    optimizer's step is in its own body. ``every`` is n where the model is updated in every n-th round: a number, or
    the name of one; "" where the step is conditional in another way, and None where it is in each round. ``shared``
    are the counters that another loop of the function sets, too.
    """

    first_line: int
    body_line: int
    last_line: int
    counters: tuple[Counter, ...] = ()
    given: tuple[str, ...] = ()
    is_for: bool = False
    bars: tuple[str, ...] = ()
    updates: bool = False
    every: int | str | None = None
    yields: bool = False
    shared: tuple[str, ...] = ()

    def holds(self, line: int) -> bool:
        """Say whether a line is in the body, or is the head of a loop of more than one line."""
        return self.first_line <= line <= self.last_line and self.first_line < self.body_line


class Function(msgspec.Struct, frozen=True):
    """A function, or all of a file: its lines, and its loops, the outer ones first."""

    first_line: int
    last_line: int
    loops: tuple[Loop, ...] = ()

    def around(self, line: int) -> tuple[Loop, ...]:
        """Return the loops around a line, the outermost first."""
        return tuple(loop for loop in self.loops if loop.holds(line))


class Declared:
    """The loops in source files, as a target sees these files."""

    def __init__(self, files: UserFiles | None = None) -> None:
        """Read ``files``, as ``SourceTree`` does."""
        self._sources = SourceTree(files)
        self._functions: defaultdict[tuple[str, str], list[Function]] = defaultdict(list)

    def path_of(self, file: str) -> str:
        """Return the path of a file from its outermost package down."""
        return self._sources.module_path(file)

    def function_at(self, file: str, name: str, line: int) -> Function:
        """Return the function of a name around a line; one without loops where nothing is known of it."""
        known = self._functions[file, name]
        found = next((one for one in known if one.first_line <= line <= one.last_line), None)
        if found is None:
            lines = self._sources.lines(file)
            found = _parse(lines, line)
            if len(self._functions) > _FUNCTIONS_HELD:
                self._functions.clear()
            if len(lines) > 1:  # else the file is not to be had, or not yet
                self._functions[file, name].append(found)
        return found


def _parse(lines: Sequence[str], line: int) -> Function:
    """Return the function around a line; only that line, without loops, where it is not to be had."""
    block = block_around(lines, line)
    if block is None:
        return Function(line, line)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(block.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # another Python's syntax, no Python, or cut in two
        return Function(line, line)
    before = block.first_line - 1
    nodes = list(_nodes(_body(tree)))
    loops = [_loop(node, before, nodes) for node in nodes if isinstance(node, Loops)]
    loops.sort(key=lambda loop: (loop.first_line, -loop.last_line))
    return Function(block.first_line, before + block.text.count("\n") + 1, tuple(loops))


def _body(tree: ast.Module) -> list[ast.stmt]:
    """Return the body of the function that a text is, else all of it."""
    body = tree.body
    while len(body) == 1 and isinstance(body[0], ast.If | ast.FunctionDef | ast.AsyncFunctionDef):
        if not isinstance(body[0], ast.If):
            return body[0].body
        body = body[0].body
    return tree.body


def _nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield what a function does itself: nothing of functions and classes inside."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield node
            yield from _nodes(ast.iter_child_nodes(node))


def _loop(node: Loops, before: int, nodes: Sequence[ast.AST]) -> Loop:
    """Return what a loop of a function says of itself; the function's text begins after so many lines."""
    own = list(_own(node.body, ()))
    given: list[str] = []
    counters: list[Counter] = []
    if not isinstance(node, ast.While):
        given = [one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)]
        source = _assigned(nodes, node.iter, node.lineno) or node.iter
        counters = [one for one in _given(node.target, source) if not _sets(node.body, one.name)]
    updates = [ifs for statement, ifs in own if any(_is_update(call) for call in _calls(statement))]
    counters = [*_added(node, own, updates), *counters]
    return Loop(
        before + node.lineno,
        before + node.body[0].lineno,
        before + (node.end_lineno or node.lineno),
        tuple(counters),
        tuple(given),
        is_for=not isinstance(node, ast.While),
        bars=tuple(name for statement, ifs in own if not ifs for call in _calls(statement) if (name := _bar(call))),
        updates=bool(updates),
        every=_every(updates),
        yields=any(isinstance(one, ast.Yield) for statement, _ in own for one in ast.walk(statement)),
        shared=tuple(one.name for one in counters if any(_shares(other, node, one.name) for other in nodes)),
    )


def _assigned(nodes: Sequence[ast.AST], name: ast.expr, line: int) -> ast.expr | None:
    """Return what was last assigned to a variable above a line."""
    found = [
        node
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(name, ast.Name) and node.lineno < line
        if [_name(target) for target in node.targets] == [name.id]
    ]
    return max(found, key=lambda node: node.lineno).value if found else None


def _shares(other: ast.AST, loop: Loops, name: str) -> bool:
    """Say whether another loop, which neither is in this one nor around it, sets a variable."""
    if not isinstance(other, Loops) or other is loop:
        return False
    is_apart = other.lineno > (loop.end_lineno or 0) or (other.end_lineno or 0) < loop.lineno
    return is_apart and _sets([other], name)


_Ifs = tuple[ast.If, ...]


def _own(body: Sequence[ast.stmt], ifs: _Ifs) -> Iterator[tuple[ast.stmt, _Ifs]]:
    """Yield the simple statements of a loop's own rounds, with the conditions around them: none of loops inside.

    What follows on a condition to go on with the next round is conditional, too.
    """
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _own(statement.body, (*ifs, statement))
            yield from _own(statement.orelse, (*ifs, statement))
            if any(isinstance(one, ast.Continue) for one in ast.walk(statement)):
                ifs = (*ifs, statement)
        elif isinstance(statement, ast.With | ast.AsyncWith):
            yield from _own(statement.body, ifs)
        elif isinstance(statement, ast.Try):
            yield from _own([*statement.body, *statement.orelse, *statement.finalbody], ifs)
        elif not isinstance(statement, Loops | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement, ifs


def _added(node: Loops, own: Sequence[tuple[ast.stmt, _Ifs]], updates: Sequence[_Ifs]) -> Iterator[Counter]:
    """Yield the variables that a loop adds a number to, once in each round or in each that updates the model."""
    backward = [one.lineno for one in ast.walk(node) if isinstance(one, ast.Call) and _name(one.func) == "backward"]
    middle = min(backward, default=(node.body[0].lineno + (node.end_lineno or node.lineno)) / 2)
    for statement, ifs in own:
        found = _addition(statement)
        if found is None or _sets(node.body, found[0], but=statement):
            continue
        if not ifs or (updates and ifs in updates):
            yield Counter(*found, is_added=True, is_late=statement.lineno >= middle, of_updates=bool(ifs))


def _addition(statement: ast.stmt) -> tuple[str, int] | None:
    """Return what a statement adds a number above 0 to, and this number; a scheduler of torch's counts its calls."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        owner = path(call.func.value) if isinstance(call.func, ast.Attribute) and call.func.attr == "step" else None
        is_bare = not call.args and not call.keywords
        return (f"{owner}.last_epoch", 1) if owner and is_bare and _SCHEDULER.search(owner) else None
    target: ast.expr | None = None
    added: ast.expr | None = None
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        target, added = statement.target, statement.value
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        value = statement.value
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and path(value.left):
            is_same = path(statement.targets[0]) == path(value.left)
            target, added = (statement.targets[0], value.right) if is_same else (None, None)
    name = path(target) if target is not None else None
    if name and isinstance(added, ast.Constant) and type(added.value) is int:
        return (name, added.value) if added.value > 0 else None
    return None


def path(node: ast.expr) -> str | None:
    """Return a variable, an attribute or an entry of a dictionary as it stands in the source; None for all else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := path(node.value)):
        return f"{owner}.{node.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and (owner := path(node.value)):
        return f'{owner}["{node.slice.value}"]' if isinstance(node.slice.value, str) else None
    return None


def _sets(body: Sequence[ast.stmt], name: str, but: ast.stmt | None = None) -> bool:
    """Say whether statements set a variable; one of them is passed over."""
    skipped = set(map(id, ast.walk(but))) if but else set()
    return any(
        isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
        and isinstance(node.ctx, ast.Store | ast.Del)
        and path(node) == name
        for statement in body
        for node in ast.walk(statement)
        if id(node) not in skipped
    )


def _given(target: ast.expr, source: ast.expr) -> Iterator[Counter]:
    """Yield the variable that takes up the numbers of a loop's source, bare or in whatever wraps it: a progress bar."""
    if not isinstance(source, ast.Call):
        return
    called = _name(source.func)
    start: Sequence[ast.expr]
    stride: Sequence[ast.expr]
    if called == "enumerate" and isinstance(target, ast.Tuple | ast.List) and target.elts:
        target = target.elts[0]
        start, stride = (*source.args[1:2], *(one.value for one in source.keywords)), ()
    elif called in _NUMBERS:
        start = source.args[:1] if called == "count" or len(source.args) > 1 else ()
        stride = source.args[1:2] if called == "count" else source.args[2:3]
    else:
        if source.args:
            yield from _given(target, source.args[0])
        return
    by = _number(stride, 1)
    name = path(target)
    if name and by is not None and (isinstance(by, str) or by > 0):
        first = _number(start, 0)
        yield Counter(name, by, first if isinstance(first, int) else None)


def _number(given: Sequence[ast.expr], default: int) -> int | str | None:
    """Return the number that is given, or its name, or the one that is meant where none is; None for all else."""
    if not given:
        return default
    if isinstance(given[0], ast.Constant):
        return given[0].value if type(given[0].value) is int else None
    return path(given[0])


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    return (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def _is_update(call: ast.Call) -> bool:
    """Say whether a call is the optimizer's step, by the names in it."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return False
    owner = call.func.value.value if isinstance(call.func.value, ast.Subscript) else call.func.value
    return bool(_OPTIMIZER.search(_name(owner)))


def _bar(call: ast.Call) -> str | None:
    """Return the variable whose ``update`` is called for one round."""
    func = call.func
    if not (isinstance(func, ast.Attribute) and func.attr == "update" and isinstance(func.value, ast.Name)):
        return None
    is_one = not call.args or (isinstance(call.args[0], ast.Constant) and call.args[0].value == 1)
    return func.value.id if is_one and not call.keywords else None


def _every(updates: Sequence[_Ifs]) -> int | str | None:
    """Return n where the model is updated in every n-th round: the condition asks for a remainder of n."""
    if not updates or not all(updates):
        return None
    for condition in updates[0]:
        for node in ast.walk(condition.test):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                return _number([node.right], 1) or ""
    return ""


def _name(node: ast.expr) -> str:
    """Return the last part of a name."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
