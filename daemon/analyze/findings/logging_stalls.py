"""Rule: reporting the training takes a part of it."""

from __future__ import annotations

from profd.daemon.analyze.findings.phaseloss import PhaseLoss
from profd.daemon.analyze.phases import LOGGING

find = PhaseLoss(
    rule="logging-stalls",
    label="logging",
    phase=LOGGING,
    title="reporting takes {share} of the time{at}: reporting seldom brings {gain}",
    cause="Progress bars, log lines or metrics are written in the main thread, between the steps.",
    remedy="Report every hundredth step only{at}.",
)
