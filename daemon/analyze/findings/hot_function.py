"""Rule: a function of the user's computes in Python loops, between the steps or in the model itself."""

from __future__ import annotations

import re
from collections import defaultdict

import msgspec

from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.findings.severity import severity_of
from profd.daemon.analyze.findings.wording import at, at_most
from profd.daemon.analyze.phases import DATA_LOAD, DATA_WAIT, STARTUP, SYNCHRONIZE
from profd.daemon.store.rows import FrameRow
from profd.daemon.units import percent

_LOOP = re.compile(r"^\s*(for|while)\b|\bfor\b.+\bin\b")
# Where lines call into C, which has no frames, the line of the loop itself is hardly ever seen.
_LEAST_OF_LOOP = 0.02
# Each has a rule of its own that says more.
_TOLD_ELSEWHERE = frozenset({DATA_LOAD, DATA_WAIT, STARTUP, SYNCHRONIZE})

_Key = tuple[str, str]


class _Function(msgspec.Struct):
    own_ns: float = 0.0
    looping_ns: float = 0.0


def find(case: Case) -> Finding | None:
    """Return the finding where one function surely takes its part by itself, and is seen at the line of a loop."""
    name = _hottest(case)
    if name is None:
        return None

    def of_it(stack: int) -> bool:
        return _counts(case, stack) and _key(_leaf(case, stack)) == name

    share = case.share_of(case.profile, of_it)
    severity = severity_of(share.low, case.profile.total_samples)
    if severity is None:
        return None
    line = case.heaviest_line(case.profile, of_it, lambda stack: _leaf(case, stack))
    gain = bound(case, share)
    return Finding(
        rule="hot-function",
        severity=severity,
        label="Python-bound",
        title=f"Python-bound: {name[0]} loops in Python for {percent(share.value)} of the time{at(line)}: "
        f"whole tensors at once bring {at_most(gain)}",
        cause="Python goes through the elements one by one: each takes longer by far than the arithmetic does.",
        remedy=f"Replace the loop in {name[0]}{at(line)} by operations on whole tensors or arrays.",
        gain_bound=gain,
        evidence=case.evidence(share.measure(f"{name[0]} itself"), line=line),
        page="hot-function",
    )


def _hottest(case: Case) -> _Key | None:
    """Return the function of the user's with most time of its own, of those that loop."""
    found: defaultdict[_Key, _Function] = defaultdict(_Function)
    for stack, time_ns in case.profile.time_ns.items():
        if _counts(case, stack):
            frame = _leaf(case, stack)
            function = found[_key(frame)]
            function.own_ns += time_ns
            function.looping_ns += time_ns if _LOOP.search(frame.source or "") else 0.0
    looping = [key for key, one in found.items() if one.looping_ns > _LEAST_OF_LOOP * one.own_ns]
    return max(looping, key=lambda key: found[key].own_ns, default=None)


def _counts(case: Case, stack: int) -> bool:
    return not _leaf(case, stack).is_library and case.phases.of_stack(stack) not in _TOLD_ELSEWHERE


def _leaf(case: Case, stack: int) -> FrameRow:
    return case.reader.frames[case.reader.stacks[stack].frame]


def _key(frame: FrameRow) -> _Key:
    return frame.function, frame.file
