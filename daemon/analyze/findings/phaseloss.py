"""The shape of rules that go by one phase alone: what it takes of the training is what a fix can give back."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import Case, Share
from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.findings.severity import LOSS, Scale, severity_of
from profd.daemon.analyze.findings.wording import at, at_most
from profd.daemon.units import percent


class PhaseLoss(msgspec.Struct, frozen=True):
    """A phase that takes too much.

    ``title``, ``cause`` and ``remedy`` may name {share}, {at} (the line) and {gain}.
    """

    rule: str
    label: str
    phase: str
    title: str
    cause: str
    remedy: str
    scale: Scale = LOSS

    def __call__(self, case: Case) -> Finding | None:
        """Return the finding where the phase surely takes its part."""
        share = case.share(self.phase)
        severity = severity_of(share.low, case.profile.total_samples, self.scale)
        return None if severity is None else self.finding(case, share, severity)

    def finding(self, case: Case, share: Share, severity: str, limit: float | None = None) -> Finding:
        """Return the finding of a share; ``limit`` where something else limits the gain."""
        line = case.line(self.phase)
        gain = bound(case, share, limit)
        words = {"share": percent(share.value), "at": at(line), "gain": at_most(gain)}
        return Finding(
            rule=self.rule,
            severity=severity,
            label=self.label,
            title=f"{self.label}: {self.title.format(**words)}",
            cause=self.cause.format(**words),
            remedy=self.remedy.format(**words),
            gain_bound=gain,
            evidence=case.evidence(share.measure(self.phase), phase=self.phase, line=line),
            page=self.rule,
        )
