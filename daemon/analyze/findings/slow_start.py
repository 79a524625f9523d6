"""Rule: it takes long until the first step."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.finding import INFO, WARNING, Evidence, Finding, Measure
from profd.daemon.analyze.findings.wording import at
from profd.daemon.clock import SECOND_NS
from profd.daemon.units import duration, percent

_LONG_S, _VERY_LONG_S = 20.0, 60.0
_PART, _LARGE_PART = 0.1, 0.25


def find(case: Case) -> Finding | None:
    """Return the finding where the start of a run took long, by itself and as a part of the run."""
    info = case.reader.info
    if case.whole.from_ns is not None or info.mode != "launched" or not case.is_training:
        return None
    start_s = (case.from_ns - info.started_ns) / SECOND_NS
    part = start_s / ((case.to_ns - info.started_ns) / SECOND_NS)
    if start_s < _LONG_S or part < _PART:
        return None
    selection = msgspec.structs.replace(case.selection, from_ns=info.started_ns, to_ns=case.from_ns)
    line = case.heaviest_line(case.profile_on(selection))
    return Finding(
        rule="slow-start",
        severity=WARNING if start_s >= _VERY_LONG_S and part >= _LARGE_PART else INFO,
        label="slow start",
        title=f"slow start: {duration(start_s)} until the first step, {percent(part)} of the run{at(line)}",
        cause="Modules are imported, data is read and the model is built before anything is trained.",
        remedy=f"See what takes that long{at(line)}: keep what is computed from run to run, read data when it is "
        "needed. A longer run is slowed less by it.",
        gain_bound=None,
        evidence=Evidence(
            (Measure("until the first step", start_s, "s"), Measure("of the run", part)),
            info.started_ns,
            case.from_ns,
            selection,
            line,
        ),
        page="slow-start",
    )
