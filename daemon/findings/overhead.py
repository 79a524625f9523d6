"""Time of a step that no other rule explains: the line that takes it, and what kind of time it is; loops in Python.

Stacks outside of forward, loss, backward and optimizer form a tree of the user's lines. From its root the heaviest line
is followed until nothing below it is of a step, and then as long as one line has nearly all of its time: that is the
line to look at. A model may run below it, for a preview or a score, but not the passes that the step is for. The table
``overhead.toml`` says what the calls below it do; some kinds, such as debug modes, are overhead wherever they are.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from profd.daemon.analyze.framepatterns import FramePattern, frame_test, own_table, read_patterns
from profd.daemon.analyze.phases import (
    BACKWARD,
    DATA_LOAD,
    DATA_WAIT,
    OPTIMIZER,
    OTHER,
    STARTUP,
    STEP,
    SYNCHRONIZE,
    WAITING,
    PhaseIndex,
    own_frame,
)
from profd.daemon.analyze.profile import Profile
from profd.daemon.findings.bounds import bound
from profd.daemon.findings.context import FindingContext, line_of
from profd.daemon.findings.finding import Finding, Line
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow

BUILT_IN = Path(__file__).with_name("overhead.toml")
_UNEXPLAINED = frozenset({OTHER, WAITING, STARTUP})
_STEP_BESIDE = 0.1  # of the time below a line; with more of a step it is a line around the step
_NEARLY_ALL = 0.9
_LOOPS = 0.8
_MOST = 0.5
_LEAST_NAMED = 0.01

_CALLS = ("_call_impl", "_call_impl.<locals>.inner")
LinePath = tuple[int, ...]


class Kind(FramePattern, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a call does that is of such a frame, a [[kind]] of the table."""

    what: str
    instead: str
    remedy: str
    anywhere: bool = False
    waits: bool = False


@functools.cache
def load_kinds() -> tuple[Kind, ...]:
    """Return the kinds in the order in which they are tried: the user's, then the built-in ones.

    Raises UsageError where the user's file is wrong.
    """
    own, hint = own_table(BUILT_IN.name), "docs/findings.md shows what it holds"
    tables = [own, BUILT_IN] if own.is_file() else [BUILT_IN]
    return tuple(kind for table in tables for kind in read_patterns(table, "kind", Kind, hint))


@functools.lru_cache(1)
def _kind_by_frame(kinds: tuple[Kind, ...]) -> Callable[[FrameRow], Kind | None]:
    """Return what gives the kind of a frame, and knows those that were asked for: a live run is looked at often."""
    tests = [(kind, frame_test(kind)) for kind in kinds]

    @functools.lru_cache(8_192)
    def kind_of(frame: FrameRow) -> Kind | None:
        # The text of a line says what it calls in the user's code alone: libraries have their modules.
        holding = (kind for kind, test in tests if test(frame))
        return next((kind for kind in holding if not (kind.source and frame.is_library)), None)

    return kind_of


class _Kinds:
    """The kind of each stack of a training."""

    def __init__(self, reader: RunReader) -> None:
        self._reader, self._of_frame = reader, _kind_by_frame(load_kinds())
        self._of_stack: dict[int, Kind | None] = {}

    def of_stack(self, stack: int) -> Kind | None:
        """Return the kind of the innermost frame that has one, up to the user's line.

        Kinds that are overhead anywhere come first, and of any frame.
        """
        if stack not in self._of_stack:
            frames = self._reader.frames_of(stack)
            found = [self._of_frame(frame) for frame in reversed(frames)]
            until = next((depth for depth, frame in enumerate(reversed(frames), 1) if not frame.is_library), len(found))
            everywhere = (kind for kind in found if kind is not None and kind.anywhere)
            near = (kind for kind in found[:until] if kind is not None)
            self._of_stack[stack] = next(everywhere, None) or next(near, None)
        return self._of_stack[stack]


def overhead(context: FindingContext) -> Finding | None:
    of_stack, phase_of = _Kinds(context.reader).of_stack, context.phases.of_stack
    spent_ns = context.profile.time_ns

    # Where no backward pass is seen, as in NumPy, what is left may be any part of a step: only its kind says that it is
    # none. What waits there may have nothing to do.
    has_backward = context.share(BACKWARD).value > 0

    def is_lost(stack: int) -> bool:
        kind = of_stack(stack)
        return phase_of(stack) in _UNEXPLAINED and (has_backward or (kind is not None and not kind.waits))

    hooks = {stack for stack in spent_ns if phase_of(stack) in STEP and _is_hook(context.reader.frames_of(stack))}
    lost = {*filter(is_lost, spent_ns), *hooks}
    step = {stack for stack in spent_ns if phase_of(stack) in STEP} - hooks if has_backward else spent_ns.keys() - lost
    anchor, paths, below = _heaviest_line(context, lost, step)
    aside = {stack for stack in spent_ns if (one := of_stack(stack)) is not None and one.anywhere}
    stacks = max(below, aside, key=lambda some: sum(spent_ns[stack] for stack in some))
    if not stacks:
        return None
    by_kind: Counter[Kind | None] = Counter()
    for stack in stacks:
        by_kind[of_stack(stack)] += int(spent_ns[stack])
    kind, most_ns = by_kind.most_common(1)[0]
    share = context.share_of(context.profile, stacks.__contains__)
    if context.is_all_work(share):
        return None
    function, hot = _function(context, stacks), context.once(hot_function)
    hot_line = hot.evidence.line.function if hot and hot.evidence.line else None
    if hot and hot_line == function and hot.evidence.measures[0].value >= _LOOPS * share.value:
        return None  # which says more of it

    def line() -> Line | None:
        if stacks is aside:
            return context.heaviest_line(context.profile, stacks.__contains__)
        return line_of(context.reader.frames[anchor[-1]])

    gain = partial(bound, context, share)
    if kind is not None and most_ns >= _MOST * by_kind.total():
        what, instead, what_helps = kind.what, kind.instead, kind.remedy
        return context.finding(
            "overhead",
            share,
            gain=gain,
            line=line,
            function=function,
            what=what,
            instead=instead,
            what_helps=what_helps,
        )
    # Work in C on whole arrays may be what a step needs; a loop in Python is a loss at any size.
    severity = context.severity("overhead" if hot_line == function else "own-function", share.low)
    if severity is None:
        return None
    cases = {"line": all(paths[stack] == anchor for stack in stacks)}  # no function of the user's is below it
    return context.finding(
        "own-function", share, severity=severity, gain=gain, line=line, cases=cases, function=function
    )


_LOOP = re.compile(r"^\s*(for|while)\b|\bfor\b.+\bin\b")
# Where lines call into C, which has no frames, the line of the loop itself is hardly ever seen.
_LEAST_OF_LOOP = 0.02
# Each has a rule of its own that says more.
_OTHER_RULES = frozenset({DATA_LOAD, DATA_WAIT, STARTUP, SYNCHRONIZE})

_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")

_Key = tuple[str, str]


def hot_function(context: FindingContext) -> Finding | None:
    """Return the function whose own time is largest, of those that loop; what their lines call may say more of it."""
    kind_of, phase_of = _Kinds(context.reader).of_stack, context.phases.of_stack
    functions = {stack: key for stack in context.profile.time_ns if (key := _function_of(context, stack))}
    own_ns, looping_ns, known_ns = Counter[_Key](), Counter[_Key](), Counter[_Key]()
    for stack, key in functions.items():
        time_ns = int(context.profile.time_ns[stack])
        own_ns[key] += time_ns
        looping_ns[key] += time_ns if _LOOP.search(context.leaf(stack).source or "") else 0
        known_ns[key] += time_ns if phase_of(stack) in _UNEXPLAINED and kind_of(stack) else 0
    looping = [key for key in own_ns if looping_ns[key] > _LEAST_OF_LOOP * own_ns[key]]
    unknown = (key for key in looping if known_ns[key] < _MOST * own_ns[key])
    name = max(unknown, key=own_ns.__getitem__, default=None)

    def of_it(stack: int) -> bool:
        return functions.get(stack) == name

    share = context.share_of(context.profile, of_it)
    if name is None or context.is_all_work(share):
        return None
    gain, line = partial(bound, context, share), partial(context.heaviest_line, context.profile, of_it, context.leaf)
    return context.finding("hot-function", share, gain=gain, line=line, name=name[0])


def _function_of(context: FindingContext, stack: int) -> _Key | None:
    """Return the user's function at the leaf of a stack, and its file; None where another rule speaks of the stack.

    What a comprehension takes is its function's, as Python has it itself from 3.12 on.
    """
    if context.leaf(stack).is_library or context.phases.of_stack(stack) in _OTHER_RULES:
        return None
    own = (one for one in reversed(context.reader.frames_of(stack)) if not one.function.endswith(_COMPREHENSIONS))
    return next(((one.function, one.file) for one in own), None)


def named_rest(reader: RunReader, profile: Profile, phases: PhaseIndex) -> dict[str, dict[str, float]]:
    """Return what is known of the time in *other* and *waiting*, by phase: shares of the profile, the largest first.

    Names are those of the kinds; time of no kind has that of the user's function. Below 1 % nothing is named.
    """
    kinds, spent = _Kinds(reader), {OTHER: Counter[str](), WAITING: Counter[str]()}
    for stack, time_ns in profile.time_ns.items():
        if (phase := phases.of_stack(stack)) in spent:
            kind, frame = kinds.of_stack(stack), own_frame(reader.frames_of(stack))
            name = kind.what if kind else frame.function if frame else ""
            spent[phase][name] += int(time_ns)
    whole_ns = profile.total_ns or 1.0
    shares = {
        phase: {name: time_ns / whole_ns for name, time_ns in of_phase.most_common() if name}
        for phase, of_phase in spent.items()
    }
    named = {phase: {name: one for name, one in some.items() if one >= _LEAST_NAMED} for phase, some in shares.items()}
    return {phase: some for phase, some in named.items() if some}


def _is_hook(frames: Sequence[FrameRow]) -> bool:
    """Say whether a stack is in a function of the user's that autograd or a module calls beside its own work."""
    for caller, frame in itertools.pairwise(frames):
        if frame.is_library or not caller.is_library:
            continue
        # What autograd calls from C stands right below its engine; functions of its own are called by way of a class.
        if caller.function.endswith("_engine_run_backward") or caller.module_path == "torch/utils/hooks.py":
            return True
        is_call = caller.function.endswith(("_call_impl", "inner"))
        is_module = is_call and caller.module_path == "torch/nn/modules/module.py"
        if is_module and "forward" not in frame.function and "lambda" not in frame.function:
            return True
    return False


def _heaviest_line(
    context: FindingContext, lost: set[int], step: set[int]
) -> tuple[LinePath, dict[int, LinePath], set[int]]:
    """Return the path to the line to look at, the paths of all stacks, and the stacks below that line.

    A path is the ids of the user's frames from the outermost one on; it is empty where there is no such line.
    """
    paths: dict[int, LinePath] = {}
    spent_ns: defaultdict[LinePath, float] = defaultdict(float)
    lost_ns: defaultdict[LinePath, float] = defaultdict(float)
    updates_ns: defaultdict[LinePath, float] = defaultdict(float)  # by the backward pass and the optimizer
    passes_ns: defaultdict[LinePath, float] = defaultdict(float)
    lines_below: defaultdict[LinePath, set[LinePath]] = defaultdict(set)
    for stack, time_ns in context.profile.time_ns.items():
        path = paths[stack] = tuple(frame.id for frame in context.reader.frames_of(stack) if not frame.is_library)
        is_update = stack in step and context.phases.of_stack(stack) in (BACKWARD, OPTIMIZER)
        for depth in range(len(path) + 1):
            spent_ns[path[:depth]] += time_ns
            lost_ns[path[:depth]] += time_ns if stack in lost else 0
            updates_ns[path[:depth]] += time_ns if is_update else 0
            passes_ns[path[:depth]] += time_ns if stack in step and not is_update else 0
            if depth:
                lines_below[path[: depth - 1]].add(path[:depth])

    def is_extra(line: LinePath) -> bool:  # the passes below a line are not those that the step is for
        return passes_ns[line] < _MOST * passes_ns[()]

    def of_step_ns(line: LinePath) -> float:
        return updates_ns[line] + (0 if is_extra(line) else passes_ns[line])

    found: LinePath = ()
    while lines_below[found]:
        heaviest = max(lines_below[found], key=lost_ns.__getitem__)
        is_apart = bool(found) and of_step_ns(found) <= _STEP_BESIDE * lost_ns[found]
        if not lost_ns[heaviest] or (is_apart and spent_ns[heaviest] <= _NEARLY_ALL * spent_ns[found]):
            break
        found = heaviest
    of_step = of_step_ns(found)
    if of_step > _STEP_BESIDE * lost_ns[found] or lost_ns[found] < _MOST * (spent_ns[found] - of_step):
        return (), paths, set()  # other rules explain it
    below = {stack for stack, path in paths.items() if path[: len(found)] == found}
    return found, paths, below if is_extra(found) else below - step


def _function(context: FindingContext, stacks: set[int]) -> str:
    """Return the name of the user's function in which most of the time of some stacks goes by."""
    spent: Counter[str] = Counter()
    for stack in stacks:
        frame = own_frame(context.reader.frames_of(stack))
        spent[frame.function if frame else ""] += int(context.profile.time_ns[stack])
    return spent.most_common(1)[0][0].replace("<module>", "the script")
