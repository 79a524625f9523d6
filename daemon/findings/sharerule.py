"""Rules that one share of the time decides: of a phase, or of stacks that a rule picks out."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from profd.daemon.analyze.phases import OTHER
from profd.daemon.findings.bounds import bound
from profd.daemon.findings.context import FindingContext, Share
from profd.daemon.findings.finding import LOSS, Finding, Line, Measure, Scale, at, speeds_up
from profd.daemon.units import percent


class ShareRule(msgspec.Struct, frozen=True):
    """A share of the time that is too large: of a phase, or of what a rule measures.

    ``title``, ``cause`` and ``remedy`` may name {share}, {at} (the line) and {speeds_up}. ``measure`` names the share
    in the evidence, the phase where it is empty; ``is_sampled`` says that the share has an interval and samples.
    """

    rule: str
    label: str
    title: str
    cause: str
    remedy: str
    phase: str | None = None
    measure: str = ""
    scale: Scale = LOSS
    series: tuple[str, ...] = ()
    is_sampled: bool = True

    def __call__(self, context: FindingContext, busy: float | None = None) -> Finding | None:
        """Return the finding where the GPU, ``busy`` for this share of the time, leaves room to lose the phase.

        Steps take at least as long as the GPU works for them.
        """
        share = context.share(self.phase or OTHER)
        surely = share.low if busy is None else min(share.low, 1 - busy)
        return self.of(context, share, surely, limit=1 / busy if busy else None)

    def of(
        self,
        context: FindingContext,
        share: Share,
        surely: float | None = None,
        *,
        limit: float | None = None,
        line_of: Callable[[], Line | None] | None = None,
        **words: str,
    ) -> Finding | None:
        """Return the finding where a share, at least ``surely``, is too large; ``words`` may stand in the texts too."""
        severity = context.severity(share.low if surely is None else surely, self.scale)
        if severity is None:
            return None
        line = line_of() if line_of else context.line(self.phase or OTHER)
        gain = bound(context, share, limit)
        words |= {"share": percent(share.value), "at": at(line), "speeds_up": speeds_up(gain)}
        name = (self.measure or self.phase or "").format(**words)
        return context.finding(
            share.measure(name) if self.is_sampled else Measure(name, share.value),
            rule=self.rule,
            severity=severity,
            label=self.label,
            title=self.title.format(**words),
            cause=self.cause.format(**words),
            remedy=self.remedy.format(**words),
            gain=gain,
            phase=self.phase,
            line=line,
            series=self.series,
        )
