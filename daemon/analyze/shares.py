"""Shares of a profile by phase and by line of the user's code."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import Profile

_Place = tuple[str, str, str, str, int, str | None]


class PhaseLine(msgspec.Struct, frozen=True):
    """A line of the user's code in a phase; ``share`` is of all the time of the profile that it is taken from."""

    phase: str
    function: str
    file: str
    module_path: str
    line: int
    source: str | None
    share: float


def phase_shares(profile: Profile, phases: PhaseIndex) -> dict[str, float]:
    """Return the share of each phase that a profile has time of, the largest first."""
    spent_ns: defaultdict[str, float] = defaultdict(float)
    for stack, time_ns in profile.time_ns.items():
        spent_ns[phases.of_stack(stack)] += time_ns
    whole_ns = profile.total_ns or 1.0
    return {phase: spent_ns[phase] / whole_ns for phase in sorted(spent_ns, key=lambda phase: -spent_ns[phase])}


def user_lines(profile: Profile, phases: PhaseIndex) -> list[PhaseLine]:
    """Return the lines of the user's code by the time that went by at them or below, those with the most first.

    A line that belongs to two phases is there twice.
    """
    spent_ns: defaultdict[_Place, float] = defaultdict(float)
    for stack, time_ns in profile.time_ns.items():
        frame = phases.user_line(stack)
        if frame is not None:
            place = (phases.of_stack(stack), frame.function, frame.file, frame.module_path, frame.line, frame.source)
            spent_ns[place] += time_ns
    whole_ns = profile.total_ns or 1.0
    lines = [PhaseLine(*place, share=time_ns / whole_ns) for place, time_ns in spent_ns.items()]
    return sorted(lines, key=lambda line: -line.share)


def phase_lines(profile: Profile, phases: PhaseIndex) -> tuple[PhaseLine, ...]:
    """Return the hottest line of the user's code of each phase, in the order of ``phase_shares``.

    A phase without any user code in its stacks is left out.
    """
    hottest: dict[str, PhaseLine] = {}
    for line in user_lines(profile, phases):
        hottest.setdefault(line.phase, line)
    return tuple(hottest[phase] for phase in phase_shares(profile, phases) if phase in hottest)
