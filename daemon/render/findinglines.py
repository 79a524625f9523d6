"""Findings in a few lines of text: the verdict, and each finding with what to do about it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from profd.daemon.analyze.findings.finding import INFO, Finding
from profd.daemon.analyze.phases import STARTUP, STEP
from profd.daemon.render.cells import wrapped
from profd.daemon.render.visible import visible
from profd.daemon.units import percent

ALARM, WORTH_KNOWING, HEALTHY = "▲", "·", "✓"

HEALTHY_SHARE = 0.8
"""From so much of its time on, spent on what it is there for, a training without findings is healthy."""
MUCH_STARTUP = 0.2
"""A range that startup takes so much of is not called healthy, only what is left of it."""


def verdict(findings: Sequence[Finding], phases: Mapping[str, float]) -> str:
    """Return the strongest finding above info, else that the run is healthy; empty where neither can be said.

    Of a run that startup takes much of, only what is left can be.
    ``phases`` are the shares of the main thread's time.
    """
    for finding in findings:
        if finding.severity != INFO:
            return f"{ALARM} {visible(finding.title)}"
    work = worked_share(phases)
    if work < HEALTHY_SHARE:
        return ""
    what = "is forward, backward and optimizer"
    startup = phases.get(STARTUP, 0.0)
    if startup >= MUCH_STARTUP:
        return (
            f"{WORTH_KNOWING} {percent(startup)} of the time is startup and import; of the rest {percent(work)} {what}"
        )
    return f"{HEALTHY} healthy: {percent(work)} of the training's time {what}"


def worked_share(phases: Mapping[str, float]) -> float:
    """Return the share of forward, loss, backward and optimizer in the time of a training, its startup aside."""
    return math.fsum(phases.get(name, 0.0) for name in STEP) / ((1 - phases.get(STARTUP, 0.0)) or 1.0)


def verdict_lines(findings: Sequence[Finding], phases: Mapping[str, float], columns: int) -> list[str]:
    """Return the verdict, wrapped to a width in cells."""
    return wrapped(verdict(findings, phases), columns)


def finding_lines(findings: Sequence[Finding], phases: Mapping[str, float], columns: int) -> Iterator[str]:
    """Yield each finding and what to do about it, below the verdict where that is none of them; wrapped."""
    if not findings or findings[0].severity == INFO:
        yield from verdict_lines(findings, phases, columns)
    for finding in findings:
        mark = WORTH_KNOWING if finding.severity == INFO else ALARM
        yield from wrapped(f"{mark} {finding.title}", columns)
        yield from wrapped(finding.remedy, columns, "  ")
