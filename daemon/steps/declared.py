"""The loops around a line of source, and the counters that the source declares for them.

It parses the function around the line. A ``for`` loop counts by what ``range`` and ``enumerate``
give, any loop by a variable that goes up by a number in each round. A variable that this loop or
another one beside it also sets does not count: its value may be of an evaluation.
"""

from __future__ import annotations

import ast
import re
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from profd.daemon.stacks.origin import ANY, Origin
from profd.daemon.stacks.source import SourceTree, block_around, parsed
from profd.daemon.userfiles import UserFiles

_SETTINGS = re.compile(r"(self\.)?(args|opts?|cfg|config|conf|hparams|flags|FLAGS|settings)\b")
_OPTIMIZER = re.compile(
    r"(?i)(^|_)(opt|optim|optimi[sz]ers?|scaler|accelerator|engine|model_engine)\d*(_|$)"
)
# A number's name that an opaque iterable yields, as Keras' does: (begin_step, end_step, batch).
_NUMBERED = re.compile(r"(\w+_)?(step|iteration)|batch_(idx|index)")
Loops = ast.For | ast.AsyncFor | ast.While
_Ifs = tuple[ast.If, ...]


class Counter(msgspec.Struct, frozen=True):
    """A variable that changes by ``stride`` in each round of a loop.

    It begins at ``start``, if the source says so. A stride may be the name of a variable.
    ``is_added``: the loop adds to it, so that it may go on
    when the loop begins anew; ``is_late``: it does so after the backward pass, or in the second
    half of the round; ``of_updates``: together with the optimizer's step, which is not in each
    round.
    """

    name: str
    stride: int | str
    start: int | None = None
    is_added: bool = False
    is_late: bool = False
    of_updates: bool = False


class Loop(msgspec.Struct, frozen=True):
    """A loop: its lines, its counters, and the names that a ``for`` loop sets (``given``).

    ``updates``: the optimizer's step is in its own body. ``every`` is n if the model is updated in
    every n-th round: a number, or the name of one; "" if the step is conditional in another way,
    and None if it is in each round.
    """

    first_line: int
    last_line: int
    counters: tuple[Counter, ...] = ()
    given: tuple[str, ...] = ()
    updates: bool = False
    every: int | str | None = None


class Function(msgspec.Struct, frozen=True):
    """A function, or all of a file: its lines, and its loops of several lines, outer ones first.

    ``updates``: the optimizer's step is in it, and in none of its loops.
    """

    first_line: int
    last_line: int
    loops: tuple[Loop, ...] = ()
    updates: bool = False

    def around(self, line: int) -> tuple[Loop, ...]:
        """Return the loops around a line, the outermost first."""
        return tuple(one for one in self.loops if one.first_line <= line <= one.last_line)


class Declared:
    """The loops in source files, as a target sees these files."""

    def __init__(self, files: UserFiles | None = None, origin: Origin = ANY) -> None:
        self._sources = SourceTree(files, origin=origin)
        self.path_of, self.absolute = self._sources.module_path, self._sources.absolute
        self._functions: defaultdict[tuple[str, str], list[Function]] = defaultdict(list)

    def function_at(self, file: str, name: str, line: int) -> Function:
        """Return the function of a name around a line: without loops if its source is unknown."""
        found = next(
            (one for one in self._functions[file, name] if one.first_line <= line <= one.last_line),
            None,
        )
        if found is None:
            lines = self._sources.lines(file)
            found = _parse(lines, line)
            if len(self._functions) > 256:
                self._functions.clear()
            if len(lines) > 1:  # else the file cannot be read, or not yet
                self._functions[file, name].append(found)
        return found


def _parse(lines: Sequence[str], line: int) -> Function:
    """Return the function around a line: only that line, without loops, if it cannot be parsed."""
    block = block_around(lines, line)
    tree = parsed(block.text) if block is not None else None
    if block is None or tree is None:
        return Function(line, line)
    body = tree.body
    while len(body) == 1 and isinstance(body[0], ast.If):
        body = body[0].body
    first = body[0] if len(body) == 1 else None
    whole = first if isinstance(first, ast.FunctionDef | ast.AsyncFunctionDef) else tree
    nodes = list(_nodes(ast.iter_child_nodes(whole)))
    stores = {node: _stored(node) for node in nodes if isinstance(node, Loops)}
    loops = [
        _loop(node, block.first_line - 1, nodes, stores)
        for node in stores
        if node.lineno < node.body[0].lineno and not _is_over_optimizers(node)
    ]
    loops.sort(key=lambda loop: (loop.first_line, -loop.last_line))
    updates = bool(_updates([*_own(whole.body, ())]))
    return Function(
        block.first_line, block.first_line + block.text.count("\n"), tuple(loops), updates
    )


def _stored(loop: Loops) -> Tally[str]:
    """Return how often a loop sets each name."""
    return Tally(
        node.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    )


def _nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield what a function does itself: nothing of functions and classes inside."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield node
            yield from _nodes(ast.iter_child_nodes(node))


def _loop(
    node: Loops, before: int, nodes: Sequence[ast.AST], stores: dict[Loops, Tally[str]]
) -> Loop:
    """Return the facts of a loop.

    ``nodes`` and ``stores`` are of its function, whose text begins after ``before``.
    """
    statements = list(_own(node.body, ()))
    updates = _updates(statements)
    first_line, last_line = node.lineno, node.end_lineno or node.lineno
    every = _every(updates, stores[node])
    counters = _additions(node, statements, updates, is_in_some=every is not None)
    given: tuple[str, ...] = ()
    if not isinstance(node, ast.While):
        given = tuple(one.id for one in ast.walk(node.target) if isinstance(one, ast.Name))
        counters += _given(node.target, _assigned(node.iter, first_line, nodes))
    # What the loop, or another one beside it, sets in another way does not count.
    set_by = [
        names
        for other, names in stores.items()
        if other is node or other.lineno > last_line or (other.end_lineno or 0) < first_line
    ]
    counters = [one for one in counters if sum(names[one.name] for names in set_by) <= 1]
    return Loop(
        before + first_line,
        before + last_line,
        tuple(counters),
        given,
        updates=bool(updates),
        every=every,
    )


def _updates(statements: Sequence[tuple[ast.stmt, _Ifs]]) -> list[_Ifs]:
    """Return the conditions around each update of the model."""
    return [
        ifs
        for statement, ifs in statements
        for part in ast.walk(statement)
        if isinstance(part, ast.Call) and _is_update(part)
    ]


def _additions(
    node: Loops,
    statements: Sequence[tuple[ast.stmt, _Ifs]],
    updates: Sequence[_Ifs],
    *,
    is_in_some: bool,
) -> list[Counter]:
    """Return the variables that a loop adds to in each round, or when it updates the model.

    ``statements`` are the simple ones of its rounds, ``updates`` the conditions around each update
    of the model. What is added to then counts updates if those are ``is_in_some`` rounds only.
    """
    last_line = node.end_lineno or node.lineno
    middle = min(_backward_lines(node), default=(node.body[0].lineno + last_line) / 2)
    counters = []
    for statement, ifs in statements:
        addition = _addition(statement) if not ifs or ifs in updates else None
        if addition is not None:
            name, by = addition
            is_late, of_updates = statement.lineno >= middle, bool(ifs) and is_in_some
            counters.append(
                Counter(name, by, is_added=True, is_late=is_late, of_updates=of_updates)
            )
    return counters


def _assigned(source: ast.expr, line: int, nodes: Sequence[ast.AST]) -> ast.expr:
    """Return what was last assigned above a line to the variable that a loop goes over."""
    if not isinstance(source, ast.Name):
        return source
    above = [
        one
        for one in nodes
        if isinstance(one, ast.Assign)
        and one.lineno < line
        and [_name_of(target) for target in one.targets] == [source.id]
    ]
    return max(above, key=lambda one: one.lineno).value if above else source


def _backward_lines(loop: Loops) -> list[int]:
    """Return the lines of a loop that run a backward pass."""
    return [
        one.lineno
        for one in ast.walk(loop)
        if isinstance(one, ast.Call) and _name(one.func) == "backward"
    ]


def _is_over_optimizers(node: Loops) -> bool:
    """Say whether a loop goes over the optimizers of one step: then it is no loop of steps."""
    if isinstance(node, ast.While) or _backward_lines(node):
        return False
    given = {one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)}
    for part in (part for statement, _ in _own(node.body, ()) for part in ast.walk(statement)):
        match part:
            case ast.Call(func=ast.Attribute(ast.Name(owner), "step"), args=[]) if owner in given:
                return True
            case ast.Call(func=ast.Attribute(_, "step"), args=[ast.Name(argument), *_]) if (
                argument in given
            ):
                return bool(_OPTIMIZER.search(argument))
    return False


def _own(body: Sequence[ast.stmt], ifs: _Ifs) -> Iterator[tuple[ast.stmt, _Ifs]]:
    """Yield the simple statements of a loop's own rounds, each with the conditions around it.

    Those of a ``continue`` before it are conditions, too.
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
        elif not isinstance(
            statement, Loops | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ):
            yield statement, ifs


def _addition(statement: ast.stmt) -> tuple[str, int] | None:
    """Return the variable to which a statement adds a number above 0, and this number."""
    match statement:
        case ast.AugAssign(target=target, op=ast.Add(), value=ast.Constant(value=int(by))):
            name = _name_of(target)
        case ast.Assign(
            targets=[target],
            value=ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(value=int(by))),
        ):
            name = _name_of(target) if _name_of(target) == _name_of(left) else None
        case _:
            return None
    return (name, by) if name and by > 0 else None


def _name_of(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _given(target: ast.expr, source: ast.expr) -> list[Counter]:
    """Return the variable that a loop's iterable numbers.

    The iterable is bare, or in whatever wraps it, as a progress bar does. If it does not show the
    number, that is the first variable of several if its name says so.
    """
    if isinstance(target, ast.Tuple) and not (found := _numbered(target, source)):
        first = _name_of(target.elts[0]) if target.elts else None
        return [Counter(first, 1)] if first and _NUMBERED.fullmatch(first) else found
    return _numbered(target, source)


def _numbered(target: ast.expr, source: ast.expr) -> list[Counter]:
    if not isinstance(source, ast.Call):
        return []
    args, called = source.args, _name(source.func)
    if called == "enumerate" and isinstance(target, ast.Tuple | ast.List) and target.elts:
        target = target.elts[0]
        start, stride = [*args[1:2], *(one.value for one in source.keywords)], args[:0]
    elif called == "count":
        start, stride = args[:1], args[1:2]
    elif called in ("range", "trange"):  # also `tqdm.trange`
        start, stride = args[: len(args) > 1], args[2:3]
    else:
        return _numbered(target, args[0]) if args else []
    first, by, name = _number(start, 0), _number(stride, 1), _name_of(target)
    if not name or by is None or (isinstance(by, int) and by <= 0):
        return []
    return [Counter(name, by, first if isinstance(first, int) else None)]


def _number(given: Sequence[ast.expr], default: int) -> int | str | None:
    """Return the number that is given, or its name, or the default if none is; else None."""
    if not given or not isinstance(given[0], ast.Constant):
        return _name_of(given[0]) if given else default
    return given[0].value if type(given[0].value) is int else None


def _is_update(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(ast.Subscript(value=owner) | owner, "step")):
            return bool(_OPTIMIZER.search(_name(owner)))
    return False


def _every(updates: Sequence[_Ifs], stored: Tally[str]) -> int | str | None:
    """Return n if the model is updated in every n-th round: a condition asks for a remainder."""
    conditions = [
        [one for one in ifs if not _is_always(one) and not _is_setting(one.test, stored)]
        for ifs in updates
    ]
    if not conditions or not all(conditions):
        return None
    for node in (node for one in conditions[0] for node in ast.walk(one.test)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return _number([node.right], 1) or ""
    return ""


def _is_always(condition: ast.If) -> bool:
    """Say whether both branches update the model: with a scaler of gradients, or without."""
    return all(
        any(_is_update(node) for one in body for node in ast.walk(one))
        for body in (condition.body, condition.orelse)
    )


def _is_setting(test: ast.expr, stored: Tally[str]) -> bool:
    """Say whether a condition is the same in all rounds of a loop that sets ``stored``."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call | ast.BinOp) or (
            isinstance(node, ast.Name) and stored[node.id]
        ):
            return False
        if isinstance(node, ast.Attribute | ast.Subscript) and not _SETTINGS.match(
            ast.unparse(node)
        ):
            return False
    return True


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
