"""What the dashboard asks the process that looks for findings, and what that answers: a line of JSON each."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.findings.finding import Finding


class Question(msgspec.Struct, frozen=True):
    """A wish to know what slows the run: from a time on, or all in all."""

    from_ns: int | None


class Answer(msgspec.Struct, frozen=True):
    """What was found, and the CPU time that looking took; ``error`` is why it could not be looked, else empty."""

    findings: tuple[Finding, ...] = ()
    spent_s: float = 0.0
    error: str = ""
    remedy: str = ""
