"""Where a step goes: the seconds of an average step by group, phase and line of the user's code.

A step lasts from one to the next, so what interrupts the steps now and then (an evaluation, a
checkpoint) is a part of each. The time before the first step and after the last one is in none.
"""

from __future__ import annotations

import math
from collections import defaultdict

import msgspec

from profd.daemon.analyze.phases import (
    DATA_LOAD,
    DATA_WAIT,
    PHASES,
    STEP,
    PhaseIndex,
    training_range,
)
from profd.daemon.analyze.profile import PhaseLine, Profile, phase_shares, take_profile, user_lines
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps import Steps
from profd.daemon.store.reader import RunReader

INPUT, COMPUTE, RESIDUAL = "input wait", "compute", "residual"
_GROUPS = {DATA_WAIT: INPUT, DATA_LOAD: INPUT, **dict.fromkeys(STEP, COMPUTE)}


class StepPart(msgspec.Struct, frozen=True):
    """A part of an average step: ``seconds`` of it, which are ``share`` of it, 0 to 1.

    The whole step has groups as its ``parts``, a group has phases, and a phase the user's lines, if
    any, the most first. Groups and phases have one order in all runs. ``place`` is of a line only,
    whose ``name`` is its path and number.
    """

    name: str
    seconds: float
    share: float
    parts: tuple[StepPart, ...] = ()
    place: PhaseLine | None = None


def take_step_tree(
    reader: RunReader, selection: Selection, phases: PhaseIndex, steps: Steps
) -> StepPart | None:
    """Return where a step of a selection goes; ``steps`` are what ``take_steps`` gives for it.

    None if the time of a step is unknown, or if the selection is not of all that the main threads
    do in it.
    """
    if not steps.per_s or not selection.main_threads or selection.phase or selection.when:
        return None
    training = training_range(reader, selection, phases)
    if training is None:
        return None
    profile = take_profile(reader, selection.during(training), phases, changes={})
    return step_tree(profile, phases, 1 / steps.per_s)


def step_tree(profile: Profile, phases: PhaseIndex, step_s: float) -> StepPart:
    """Divide a step of ``step_s`` seconds as the profile of a time that holds only steps."""
    below: defaultdict[str, list[StepPart]] = defaultdict(list)

    def add(above: str, name: str, share: float, place: PhaseLine | None = None) -> None:
        below[above].append(StepPart(name, share * step_s, share, tuple(below[name]), place))

    for line in user_lines(profile, phases):
        add(line.phase, f"{line.module_path}:{line.line}", line.share, line)
    shares = phase_shares(profile, phases)
    for phase in PHASES:
        if phase.name in shares:
            add(_GROUPS.get(phase.name, RESIDUAL), phase.name, shares[phase.name])
    for group in (INPUT, COMPUTE, RESIDUAL):
        if below[group]:
            add("step", group, math.fsum(one.share for one in below[group]))
    return StepPart("step", step_s, 1.0, tuple(below["step"]))
