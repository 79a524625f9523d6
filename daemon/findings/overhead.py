"""Time of a step that no other rule explains: the line that takes it, and what kind of time it is.

Loops in Python.

Stacks outside of forward, loss, backward and optimizer form a tree of the user's lines. From its
root the heaviest line is followed until nothing below it is of a step, and then as long as one line
has nearly all of its time: that is the line to look at. A model may run below it, for a preview or
a score, but not the passes that the step is for. The table ``overhead.toml`` says what the calls
below it do; some kinds, such as debug modes, are overhead wherever they are.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

from profd.daemon.analyze.phases import (
    BACKWARD,
    DATA_LOAD,
    DATA_WAIT,
    EVALUATION,
    FORWARD,
    LOSS,
    OPTIMIZER,
    OTHER,
    STARTUP,
    STEP,
    SYNCHRONIZE,
    WAITING,
)
from profd.daemon.findings.bounds import bound
from profd.daemon.findings.context import MOST, FindingContext, line_of
from profd.daemon.findings.finding import Finding, Line
from profd.daemon.findings.kinds import MODULE, Kind, OwnFunction, own_functions, spoken
from profd.daemon.findings.loading import is_apart_from_environment
from profd.daemon.findings.memory import collects_garbage
from profd.daemon.store.rows import FrameRow

_UNEXPLAINED = frozenset({OTHER, WAITING, STARTUP})
_PASSES = frozenset({FORWARD, LOSS, BACKWARD})
_OF_INPUT = frozenset({DATA_LOAD, DATA_WAIT})  # whose rules count it
_STEP_BESIDE = 0.1  # of the time below a line; with more of a step it is a line around the step
_NEARLY_ALL = 0.9
_LOOPS = 0.8
_MOST = 0.5

LinePath = tuple[int, ...]


def _lost(context: FindingContext) -> set[int]:
    """Return the stacks that are no part of a step and that no other rule counts.

    Where not all of a step is known, as in NumPy, what is left may be any part of one: only its
    kind says that it is none, or that it goes element by element. What waits there may have nothing
    to do, unless it trains.
    """
    phase_of, by_element, knows_step = (
        context.phases.of_stack,
        context.once(_by_element),
        context.once(_knows_step),
    )
    # Without a GPU nothing is waited for: a line computes what it brings to Python.
    unexplained = _UNEXPLAINED | {SYNCHRONIZE} if context.uses_gpu is False else _UNEXPLAINED

    in_passes = context.once(_functions_of_passes)

    def is_lost(stack: int) -> bool:
        kind, phase = context.kinds.of_stack(stack), phase_of(stack)
        if (
            phase == OTHER
            and kind is None
            and next(own_functions(context.reader.frames_of(stack)), None) in in_passes
        ):
            return False
        if phase == DATA_LOAD:
            return is_apart_from_environment(context, stack)
        if phase in _PASSES or (phase == EVALUATION and not context.trains):
            return context.kinds.is_no_pass(stack) or _is_hook(context.reader.frames_of(stack))
        if phase not in unexplained or knows_step or (kind is not None and not kind.waits):
            return phase in unexplained
        return context.trains and (kind is not None or stack in by_element)

    # The collection of garbage has a rule of its own.
    return {
        stack
        for stack in context.profile.time_ns
        if is_lost(stack) and not collects_garbage(context, stack)
    }


def _functions_of_passes(context: FindingContext) -> frozenset[OwnFunction]:
    """Return the user's functions that torch calls in its passes.

    A model of functions runs elsewhere, too.
    """
    found: set[OwnFunction] = set()
    for stack in context.by_torch:
        if context.phases.of_stack(stack) in (FORWARD, LOSS):
            frames = context.reader.frames_of(stack)
            at = next(
                depth for depth, one in enumerate(frames) if one.module_path.startswith("torch/")
            )
            found.update(own_functions(frames[at:]))
    return frozenset(found)


def overhead(context: FindingContext) -> Finding | None:
    of_stack, phase_of = context.kinds.of_stack, context.phases.of_stack
    spent_ns, knows_step, lost = context.profile.time_ns, context.once(_knows_step), _lost(context)
    step = {stack for stack in spent_ns.keys() - lost if not knows_step or phase_of(stack) in STEP}
    anchor, paths, below = _heaviest_line(context, lost, step)
    aside = {stack for stack in spent_ns if (one := of_stack(stack)) is not None and one.anywhere}
    stacks = max(below, aside, key=lambda some: sum(spent_ns[stack] for stack in some))
    if not stacks:
        return None
    by_kind: Counter[Kind | None] = Counter()
    for stack in stacks:
        by_kind[of_stack(stack)] += int(spent_ns[stack])
    kind, most_ns = by_kind.most_common(1)[0]
    whole = context.share_of(context.profile, stacks.__contains__)
    brought = {stack for stack in stacks if phase_of(stack) == SYNCHRONIZE}
    if (
        context.is_all_work(whole)
        or sum(spent_ns[stack] for stack in brought) > _NEARLY_ALL * by_kind.total()
    ):
        return None  # the latter has a rule that says more of it
    function, hot = _function(context, stacks), context.once(hot_function)
    hot_line = spoken(hot.evidence.line.function) if hot and hot.evidence.line else None
    if hot and hot_line == function and hot.evidence.measures[0].value >= _LOOPS * whole.value:
        return None  # which says more of it

    def line() -> Line | None:
        if stacks is aside:
            return context.heaviest_line(context.profile, stacks.__contains__)
        return line_of(context.reader.frames[anchor[-1]])

    # Work in C on whole arrays may be what a step needs; known kinds and loops in Python are a loss
    # at any size.
    perhaps = (
        stack for stack in stacks - brought if (one := of_stack(stack)) is None or one.perhaps
    )
    perhaps_ns = sum(spent_ns[stack] for stack in perhaps)
    callee, named = context.innermost({stack: _below(paths[stack], anchor) for stack in stacks})
    step_ns = Counter[LinePath]()
    for stack in step:
        step_ns[paths[stack]] += int(spent_ns[stack])
    is_input = stacks is below and _is_input(context, anchor, step_ns, has_callee=bool(callee))
    is_loss = is_input or hot_line == function or perhaps_ns < _MOST * by_kind.total()
    severity = context.severity("overhead" if is_loss else "own-function", whole.low)
    if severity is None:
        return None
    # The share is that of what is named; what only waits is apart from the rest of a line. All of
    # it may be gained.
    kind = kind if most_ns >= MOST * by_kind.total() else None
    if kind is not None:
        named = {stack for stack in stacks if of_stack(stack) == kind} if kind.waits else stacks
    share, gain = (
        context.share_of(context.profile, named.__contains__),
        partial(bound, context, whole),
    )
    others = () if named == stacks else (whole.measure("all of that line"),)
    if kind is None:
        elements_ns = sum(spent_ns[stack] for stack in named & context.once(_by_element))
        is_by_element = elements_ns > _NEARLY_ALL * sum(spent_ns[stack] for stack in named)
        # Without a callee no function of the user's below the line has most of it.
        cases = {"line": callee is None, "elements": is_by_element, "input": is_input}
        name = (
            callee
            or (spoken(context.reader.frames[anchor[-1]].function) if anchor else "")
            or function
        )
        return context.finding(
            "own-function",
            share,
            *others,
            severity=severity,
            gain=gain,
            line=line,
            cases=cases,
            function=name,
        )
    cases = {"mixed": named == stacks and most_ns < _NEARLY_ALL * by_kind.total()}
    what, instead, what_helps = kind.what, kind.instead, kind.remedy
    return context.finding(
        "overhead",
        share,
        *others,
        severity=severity,
        gain=gain,
        line=line,
        cases=cases,
        function=function,
        what=what,
        instead=instead,
        what_helps=what_helps,
    )


def _knows_step(context: FindingContext) -> bool:
    """Say whether all passes of a step are known: what is neither is then none of it.

    torch's own backward pass is enough; of passes by the user's hand all are to be seen.
    """
    by_torch = any(context.phases.of_stack(stack) == BACKWARD for stack in context.by_torch)
    return by_torch or min(context.share(BACKWARD).value, context.share(OPTIMIZER).value) > 0


_TAKES = re.compile(r"^\s*(async )?for\b.+\bin\b|\bnext\(")


def _is_input(
    context: FindingContext, line: LinePath, step_ns: Counter[LinePath], *, has_callee: bool
) -> bool:
    """Say whether what a line does is done by a generator, or within one.

    The loop of the steps goes through that generator.

    A torn sample may have a little of a step below the line of such a loop.
    """
    sources = [context.reader.frames[frame].text for frame in line]
    for depth in range(1, len(line) + has_callee):
        if not _TAKES.search(sources[depth - 1]):
            continue
        around_ns = sum(
            ns for path, ns in step_ns.items() if path[: depth - 1] == line[: depth - 1]
        )
        below_ns = sum(ns for path, ns in step_ns.items() if path[:depth] == line[:depth])
        if below_ns < _STEP_BESIDE * around_ns:
            return True
    return False


_LOOP, _COMPREHENSION = re.compile(r"^\s*(for|while)\b"), re.compile(r"\bfor\b.+\bin\b")
# Where lines call into C, which has no frames, the line of the loop itself is hardly ever seen.
_LEAST_OF_LOOP = 0.02
_LEAST_OF_COMPREHENSION = 1 / 3  # whose line is all of it
# Each has a rule of its own that says more.
_OTHER_RULES = frozenset({DATA_LOAD, DATA_WAIT, STARTUP, SYNCHRONIZE})


def hot_function(context: FindingContext) -> Finding | None:
    """Return the function that loops for most of the time; what its lines call may say more of it.

    Of a function all of its own time counts where the lines of its loops have enough of it; else
    the lines of its comprehensions alone, but those of an update, which go through tensors.
    """
    kinds, phase_of, time_ns = context.kinds, context.phases.of_stack, context.profile.time_ns
    functions = {stack: key for stack in time_ns if (key := _function_of(context, stack))}

    def spent_ns(stacks: Iterable[int]) -> Counter[OwnFunction]:  # by function
        spent = Counter[OwnFunction]()
        for stack in stacks:
            spent[functions[stack]] += int(time_ns[stack])
        return spent

    def at(lines: re.Pattern[str]) -> set[int]:
        return {stack for stack in functions if lines.search(context.leaf(stack).text)}

    loops, lines = (
        at(_LOOP),
        {stack for stack in at(_COMPREHENSION) if phase_of(stack) != OPTIMIZER},
    )
    own_ns, loops_ns, lines_ns = spent_ns(functions), spent_ns(loops), spent_ns(lines - loops)

    def loops_all_the_time(key: OwnFunction) -> bool:
        return (
            loops_ns[key] > _LEAST_OF_LOOP * own_ns[key]
            or lines_ns[key] > _LEAST_OF_COMPREHENSION * own_ns[key]
        )

    stacks = [
        stack for stack, key in functions.items() if stack in lines or loops_all_the_time(key)
    ]
    known = (
        one
        for one in stacks
        if kinds.is_no_pass(one) or (kinds.of_stack(one) and phase_of(one) in _UNEXPLAINED)
    )
    loop_ns, known_ns = spent_ns(stacks), spent_ns(known)
    unknown = (key for key in loop_ns if known_ns[key] < _MOST * loop_ns[key])
    name = max(unknown, key=loop_ns.__getitem__, default=None)
    of_it = {stack for stack in stacks if functions[stack] == name}.__contains__
    share = context.share_of(context.profile, of_it)
    if name is None or context.is_all_work(share):
        return None
    gain, line = (
        partial(bound, context, share),
        partial(context.heaviest_line, context.profile, of_it, context.leaf),
    )
    return context.finding("hot-function", share, gain=gain, line=line, name=name[0])


def _by_element(context: FindingContext) -> frozenset[int]:
    """Return the stacks in which a user's comprehension calls what takes the time.

    A comprehension that calls a whole step does not count.
    """
    frames_of, phase_of, stacks = (
        context.reader.frames_of,
        context.phases.of_stack,
        context.profile.time_ns,
    )
    updates = {
        one.id
        for stack in stacks
        if phase_of(stack) in (BACKWARD, OPTIMIZER)
        for one in frames_of(stack)
    }

    def is_element(frame: FrameRow) -> bool:
        source = frame.text
        is_comprehension = _COMPREHENSION.search(source) and not _LOOP.match(source)
        return bool(is_comprehension) and not frame.is_library and frame.id not in updates

    return frozenset(stack for stack in stacks if any(map(is_element, frames_of(stack))))


def _function_of(context: FindingContext, stack: int) -> OwnFunction | None:
    """Return the user's function at the leaf of a stack, and its file.

    None where another rule speaks of the stack.

    What a comprehension takes is its function's, as Python has it itself from 3.12 on.
    """
    if context.leaf(stack).is_library or context.phases.of_stack(stack) in _OTHER_RULES:
        return None
    return next(own_functions(context.reader.frames_of(stack)), None)


def _is_hook(frames: Sequence[FrameRow]) -> bool:
    """Say whether a stack is in a hook of the user's.

    A hook is a function that autograd or a module calls beside its own work.
    """
    for caller, frame in itertools.pairwise(frames):
        if frame.is_library or not caller.is_library:
            continue
        # What autograd calls from C stands right below its engine; functions of its own are called
        # by way of a class.
        if (
            caller.function.endswith("_engine_run_backward")
            or caller.module_path == "torch/utils/hooks.py"
        ):
            return True
        is_call = caller.function.endswith(("_call_impl", "inner"))
        is_module = is_call and caller.module_path == MODULE
        if is_module and "forward" not in frame.function and "lambda" not in frame.function:
            return True
    return False


def _heaviest_line(
    context: FindingContext, lost: set[int], step: set[int]
) -> tuple[LinePath, dict[int, LinePath], set[int]]:
    """Return the path to the line to look at, all stacks' paths, and the stacks below it.

    A path is the ids of the user's frames from the outermost one on; it is empty where there is no
    such line.
    """
    paths: dict[int, LinePath] = {}
    spent_ns: defaultdict[LinePath, float] = defaultdict(float)
    lost_ns: defaultdict[LinePath, float] = defaultdict(float)
    updates_ns: defaultdict[LinePath, float] = defaultdict(
        float
    )  # by the backward pass and the optimizer
    passes_ns: defaultdict[LinePath, float] = defaultdict(float)
    within: set[LinePath] = set()  # lines that a forward pass runs
    lines_below: defaultdict[LinePath, set[LinePath]] = defaultdict(set)
    for stack, time_ns in context.profile.time_ns.items():
        frames = context.reader.frames_of(stack)
        path = paths[stack] = tuple(frame.id for frame in frames if not frame.is_library)
        called = next(
            (depth for depth, frame in enumerate(frames) if frame.module_path == MODULE),
            len(frames),
        )
        outside = sum(not frame.is_library for frame in frames[:called])
        within.update(path[:depth] for depth in range(outside + 1, len(path) + 1))
        is_update = stack in step and context.phases.of_stack(stack) in (BACKWARD, OPTIMIZER)
        for depth in range(len(path) + 1):
            spent_ns[path[:depth]] += time_ns
            lost_ns[path[:depth]] += time_ns if stack in lost else 0
            updates_ns[path[:depth]] += time_ns if is_update else 0
            passes_ns[path[:depth]] += time_ns if stack in step and not is_update else 0
            if depth:
                lines_below[path[: depth - 1]].add(path[:depth])

    def is_extra(
        line: LinePath,
    ) -> bool:  # the passes below a line are not those that the step is for
        return line not in within and passes_ns[line] < _MOST * passes_ns[()]

    def of_step_ns(line: LinePath) -> float:
        return updates_ns[line] + (0 if is_extra(line) else passes_ns[line])

    found: LinePath = ()
    while lines_below[found]:
        heaviest = max(lines_below[found], key=lost_ns.__getitem__)
        is_apart = bool(found) and of_step_ns(found) <= _STEP_BESIDE * lost_ns[found]
        if not lost_ns[heaviest] or (
            is_apart and spent_ns[heaviest] <= _NEARLY_ALL * spent_ns[found]
        ):
            break
        found = heaviest
    of_step = of_step_ns(found)
    if of_step > _STEP_BESIDE * lost_ns[found] or lost_ns[found] < _MOST * (
        spent_ns[found] - of_step
    ):
        return (), paths, set()  # other rules explain it
    below = {stack for stack, path in paths.items() if path[: len(found)] == found}
    below = {
        stack for stack in below if stack in lost or context.phases.of_stack(stack) not in _OF_INPUT
    }
    # Other lines of a step may call the same one.
    also = {stack for stack in lost if found and found[-1] in paths[stack]}
    return found, paths, also | (below if is_extra(found) else below - step)


def _below(path: LinePath, anchor: LinePath) -> LinePath:
    """Return what follows the last frame of ``anchor`` in a path.

    All of the path where it does not have that frame.
    """
    return path[path.index(anchor[-1]) + 1 :] if anchor and anchor[-1] in path else path


def _function(context: FindingContext, stacks: set[int]) -> str:
    """Return the name of the user's function in which most of the time of some stacks goes by."""
    spent: Counter[str] = Counter()
    for stack in stacks:
        name, _ = next(own_functions(context.reader.frames_of(stack)), ("", ""))
        spent[name] += int(context.profile.time_ns[stack])
    return spent.most_common(1)[0][0]
