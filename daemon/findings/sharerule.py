"""Findings that one share of the time decides: of a phase, or of what a rule measures.

Most rules are of this kind. One on a phase is only its texts in ``texts.toml`` and a line with ``of_phase``. One on
something else measures a share, with its interval, and passes it to ``of_share`` with the words that its texts name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from profd.daemon.analyze.phases import OTHER
from profd.daemon.findings.bounds import bound
from profd.daemon.findings.context import FindingContext, Share
from profd.daemon.findings.finding import Finding, Line, Measure
from profd.daemon.findings.texts import table


def of_phase(
    name: str, context: FindingContext, busy: float | None = None, *, cases: Mapping[str, bool] = {}
) -> Finding | None:
    """Return the finding ``name`` where a GPU, ``busy`` for this share of the time, leaves room to lose its phase.

    Steps take at least as long as the GPU works for them.
    """
    share = context.share(table().finding[name].phase or OTHER)
    surely = share.low if busy is None else min(share.low, 1 - busy)
    return of_share(name, context, share, surely=surely, limit=1 / busy if busy else None, cases=cases)


def of_share(
    name: str,
    context: FindingContext,
    share: Share,
    /,
    *beside: Measure,
    surely: float | None = None,
    limit: float | None = None,
    line_of: Callable[[], Line | None] | None = None,
    cases: Mapping[str, bool] = {},
    series: tuple[str, ...] = (),
    **words: str,
) -> Finding | None:
    """Return the finding ``name`` where a share, at least ``surely``, is too large; None where it is not.

    ``limit`` is the most by which the fix speeds steps up; ``line_of`` looks for the user's line, else it is that of
    the finding's phase.
    """
    severity = context.severity(name, share.low if surely is None else surely)
    if severity is None:
        return None
    line = line_of() if line_of else context.line(table().finding[name].phase or OTHER)
    gain = bound(context, share, limit)
    return context.finding(
        name,
        severity,
        share,
        *beside,
        gain=gain,
        line=line,
        cases=cases,
        selection=None,
        since_ns=None,
        series=series,
        **words,
    )
