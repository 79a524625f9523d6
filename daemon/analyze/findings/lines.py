"""The line of the user's code that most of a profile went by at, whosever profile it is."""

from __future__ import annotations

from profd.daemon.analyze.findings.case import Case, line_of
from profd.daemon.analyze.findings.finding import Line
from profd.daemon.analyze.profile import Profile


def heaviest_line(case: Case, profile: Profile) -> Line | None:
    """Return the line of the user's code at which most time of a profile went by; None where it has none."""
    spent_ns: dict[int, float] = {}
    for stack, time_ns in profile.time_ns.items():
        frame = case.phases.user_line(stack)
        if frame is not None:
            spent_ns[frame.id] = spent_ns.get(frame.id, 0.0) + time_ns
    return line_of(case.reader.frames[max(spent_ns, key=spent_ns.__getitem__)]) if spent_ns else None
