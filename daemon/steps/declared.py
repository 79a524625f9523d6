"""The loops around a line of source, and what they count by, as the source says.

Parses the function around the line.

A ``for`` loop counts by what ``range`` and ``enumerate`` give, any loop by a variable that goes up
by a number in each round. A variable that the loop also sets in another way does not count.
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
# What a source numbers that nobody can see through, as Keras' does: (begin_step, end_step, batch).
_NUMBERED = re.compile(r"(\w+_)?(step|iteration)|batch_(idx|index)")
_PATH = re.compile(r"""[^\W\d]\w*(\.\w+|\["[^"]*"\])*""")
Loops = ast.For | ast.AsyncFor | ast.While


class Counter(msgspec.Struct, frozen=True):
    """A variable that changes by ``stride`` in each round of a loop.

    It does so from ``start`` on, if the source says where.

    Names (a stride may be one) are like ``step``, ``self.step`` and ``state["step"]``.
    ``is_added``: the loop adds to it, so that it may go on where the loop begins anew; ``is_late``:
    it does so after the backward pass, or in the second half of the round; ``of_updates``: together
    with the optimizer's step, which is not in each round.
    """

    name: str
    stride: int | str
    start: int | None = None
    is_added: bool = False
    is_late: bool = False
    of_updates: bool = False


class Loop(msgspec.Struct, frozen=True):
    """A loop: its lines, what it counts by, and the names that a ``for`` loop sets (``given``).

    ``bars`` are the variables with ``update()`` called in each round: progress bars. ``updates``:
    the optimizer's step is in its own body. ``every`` is n where the model is updated in every n-th
    round: a number, or the name of one; "" where the step is conditional in another way, and None
    where it is in each round. ``shared`` are the counters that another loop of the function sets,
    too. A loop that ``breaks`` may end before its last round.
    """

    first_line: int
    body_line: int
    last_line: int
    counters: tuple[Counter, ...] = ()
    given: tuple[str, ...] = ()
    bars: tuple[str, ...] = ()
    updates: bool = False
    every: int | str | None = None
    yields: bool = False
    shared: tuple[str, ...] = ()
    breaks: bool = False


class Function(msgspec.Struct, frozen=True):
    """A function, or all of a file: its lines and its loops.

    The loops have more than one line, and the outer ones come first.
    """

    first_line: int
    last_line: int
    loops: tuple[Loop, ...] = ()

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
        """Return the function of a name around a line.

        One without loops where nothing is known of it.
        """
        found = next(
            (one for one in self._functions[file, name] if one.first_line <= line <= one.last_line),
            None,
        )
        if found is None:
            lines = self._sources.lines(file)
            found = _parse(lines, line)
            if len(self._functions) > 256:
                self._functions.clear()
            if len(lines) > 1:  # else the file is not to be had, or not yet
                self._functions[file, name].append(found)
        return found


def _parse(lines: Sequence[str], line: int) -> Function:
    """Return the function around a line.

    Only that line, without loops, where its source cannot be had.
    """
    block = block_around(lines, line)
    tree = parsed(block.text) if block is not None else None
    if block is None or tree is None:
        return Function(line, line)
    body = tree.body
    while len(body) == 1 and isinstance(body[0], ast.If):
        body = body[0].body
    is_function = len(body) == 1 and isinstance(body[0], ast.FunctionDef | ast.AsyncFunctionDef)
    before = block.first_line - 1
    nodes = list(_nodes(ast.iter_child_nodes(body[0]) if is_function else tree.body))
    stores: dict[Loops, Tally[str | None]] = {
        node: Tally() for node in nodes if isinstance(node, Loops)
    }
    for loop, names in stores.items():
        for node in ast.walk(loop):
            if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(
                node.ctx, ast.Load
            ):
                names[path(node)] += 1
    loops = [
        _loop(node, before, nodes, stores)
        for node in stores
        if node.lineno < node.body[0].lineno and not _is_over_optimizers(node)
    ]
    loops.sort(key=lambda loop: (loop.first_line, -loop.last_line))
    return Function(block.first_line, block.first_line + block.text.count("\n"), tuple(loops))


def _nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield what a function does itself: nothing of functions and classes inside."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield node
            yield from _nodes(ast.iter_child_nodes(node))


def _loop(
    node: Loops, before: int, nodes: Sequence[ast.AST], stores: dict[Loops, Tally[str | None]]
) -> Loop:
    """Return the facts of a loop.

    ``nodes`` and ``stores`` are of its function, whose text begins after ``before``.
    """
    last_line = node.end_lineno or node.lineno
    own = list(_own(node.body, ()))
    updates: list[_Ifs] = []
    bars: list[str] = []
    yields = breaks = False
    for part, ifs in ((part, ifs) for statement, ifs in own for part in ast.walk(statement)):
        match part:
            case ast.Call() if _is_update(part):
                updates.append(ifs)
            case ast.Call(
                func=ast.Attribute(ast.Name(bar), "update"),
                args=[] | [ast.Constant(1), *_],
                keywords=[],
            ):
                bars += [] if ifs else [bar]
            case ast.Yield():
                yields = True
            case ast.Break() | ast.Return():
                breaks = True
    backward = [
        one.lineno
        for one in ast.walk(node)
        if isinstance(one, ast.Call) and _name(one.func) == "backward"
    ]
    middle = min(backward, default=(node.body[0].lineno + last_line) / 2)
    counting = [(one.lineno, ifs, _addition(one)) for one, ifs in own if not ifs or ifs in updates]
    every = _every(updates, stores[node])
    in_some = every is not None
    counters = [
        Counter(*by, None, True, line >= middle, bool(ifs) and in_some)
        for line, ifs, by in counting
        if by
    ]
    given: tuple[str, ...] = ()
    if not isinstance(node, ast.While):
        given = tuple(one.id for one in ast.walk(node.target) if isinstance(one, ast.Name))
        source = node.iter
        if isinstance(source, ast.Name):  # what was last assigned to it above
            above = [
                one for one in nodes if isinstance(one, ast.Assign) and one.lineno < node.lineno
            ]
            above = [
                one for one in above if [path(target) for target in one.targets] == [source.id]
            ]
            source = max(above, key=lambda one: one.lineno).value if above else source
        counters += _given(node.target, source)
    # What the loop sets in another way, too, does not count.
    counters = [one for one in counters if stores[node][one.name] <= 1]
    apart = [one for one in stores if one.lineno > last_line or (one.end_lineno or 0) < node.lineno]
    shared = tuple(one.name for one in counters if any(stores[other][one.name] for other in apart))
    first, body, last = (before + line for line in (node.lineno, node.body[0].lineno, last_line))
    named = tuple(counters), given, tuple(bars)
    return Loop(first, body, last, *named, bool(updates), every, yields, shared, breaks)


def _is_over_optimizers(node: Loops) -> bool:
    """Say whether a loop has the optimizers of one step in its rounds.

    They make a step each, so it is no loop of steps.
    """
    if isinstance(node, ast.While) or any(
        _name(one.func) == "backward" for one in ast.walk(node) if isinstance(one, ast.Call)
    ):
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


_Ifs = tuple[ast.If, ...]


def _own(body: Sequence[ast.stmt], ifs: _Ifs) -> Iterator[tuple[ast.stmt, _Ifs]]:
    """Yield the simple statements of a loop's own rounds with conditions around them.

    The conditions of ``continue`` are included.
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
    """Return what a statement adds a number above 0 to, and this number.

    A scheduler of torch's counts its calls.
    """
    match statement:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=owner, attr="step"), args=[], keywords=[])
        ):
            name = path(owner)
            return (f"{name}.last_epoch", 1) if name and "sched" in name.lower() else None
        case ast.AugAssign(target=target, op=ast.Add(), value=ast.Constant(value=int(by))):
            name = path(target)
        case ast.Assign(
            targets=[target],
            value=ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(value=int(by))),
        ):
            name = path(target) if path(target) == path(left) else None
        case _:
            return None
    return (name, by) if name and by > 0 else None


def path(node: ast.expr) -> str | None:
    """Return a variable, an attribute or an entry of a dictionary as it stands in the source.

    None for all else.
    """
    text = (
        ast.unparse(node).replace("'", '"')
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
        else ""
    )
    return text if _PATH.fullmatch(text) else None


def _given(target: ast.expr, source: ast.expr) -> list[Counter]:
    """Return the variable that a loop's source numbers.

    The source is bare, or in whatever wraps it, as a progress bar does.

    Of a source that does not show it, that is the first of several whose name says so.
    """
    if isinstance(target, ast.Tuple) and not (found := _numbered(target, source)):
        first = path(target.elts[0]) if target.elts else None
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
    first, by, name = _number(start, 0), _number(stride, 1), path(target)
    if not name or by is None or (isinstance(by, int) and by <= 0):
        return []
    return [Counter(name, by, first if isinstance(first, int) else None)]


def _number(given: Sequence[ast.expr], default: int) -> int | str | None:
    """Return the number that is given, or its name, or the default where none is.

    None for all else.
    """
    if not given or not isinstance(given[0], ast.Constant):
        return path(given[0]) if given else default
    return given[0].value if type(given[0].value) is int else None


def _is_update(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(ast.Subscript(value=owner) | owner, "step")):
            return bool(_OPTIMIZER.search(_name(owner)))
    return False


def _every(updates: Sequence[_Ifs], stored: Tally[str | None]) -> int | str | None:
    """Return n if the model is updated in every n-th round.

    The condition asks for a remainder of n.
    """
    conditions = [
        [one for one in ifs if not _is_always(one) and not _is_setting(one.test, stored)]
        for ifs in updates
    ]
    if not conditions or not all(conditions):
        return None
    binary = (
        node for one in conditions[0] for node in ast.walk(one.test) if isinstance(node, ast.BinOp)
    )
    return next(
        (_number([node.right], 1) or "" for node in binary if isinstance(node.op, ast.Mod)), ""
    )


def _is_always(condition: ast.If) -> bool:
    """Say whether the model is updated either way: with a scaler of gradients, or without."""
    return all(
        any(_is_update(node) for one in body for node in ast.walk(one))
        for body in (condition.body, condition.orelse)
    )


def _is_setting(test: ast.expr, stored: Tally[str | None]) -> bool:
    """Say whether a condition is the same in all rounds of a loop.

    The loop sets the names in ``stored``.
    """
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
    return (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else ""
    )
