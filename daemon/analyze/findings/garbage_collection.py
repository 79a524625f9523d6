"""Rule: the script calls the garbage collector again and again, and the training waits for it.

Collections that Python makes by itself have no frame and no line: their time is that of the line they fell on.
"""

from __future__ import annotations

import re

from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.findings.severity import severity_of
from profd.daemon.analyze.findings.wording import at, at_most
from profd.daemon.units import percent

_CALL = re.compile(r"\bgc\.collect\(")


def find(case: Case) -> Finding | None:
    """Return the finding where calls of ``gc.collect`` surely take their part."""
    share = case.share_of(case.profile, lambda stack: _collects(case, stack))
    severity = severity_of(share.low, case.profile.total_samples)
    if severity is None:
        return None
    line, gain = case.heaviest_line(case.profile, lambda stack: _collects(case, stack)), bound(case, share)
    return Finding(
        rule="garbage-collection",
        severity=severity,
        label="garbage collection",
        title=f"garbage collection: gc.collect() takes {percent(share.value)} of the time{at(line)}: "
        f"leaving it out brings {at_most(gain)}",
        cause="Each call goes through all objects that the process has, whether there is garbage among them or not.",
        remedy=f"Leave out the call{at(line)}: tensors are freed with their last reference. Where cycles have to go, "
        "call it once an epoch, after gc.freeze() has set aside what was there at the start.",
        gain_bound=gain,
        evidence=case.evidence(share.measure("gc.collect()"), line=line),
        page="garbage-collection",
    )


def _collects(case: Case, stack: int) -> bool:
    return bool(_CALL.search(case.reader.frames[case.reader.stacks[stack].frame].source or ""))
