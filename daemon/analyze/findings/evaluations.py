"""Rule: a large part of the training is evaluation."""

from __future__ import annotations

from profd.daemon.analyze.findings.phaseloss import PhaseLoss
from profd.daemon.analyze.findings.severity import PRICE
from profd.daemon.analyze.phases import EVALUATION

find = PhaseLoss(
    rule="evaluation-share",
    label="evaluation",
    phase=EVALUATION,
    title="evaluating takes {share} of the time{at}: less of it brings {gain}",
    cause="The model is evaluated often, or on much data, measured by how long it trains in between.",
    remedy="Evaluate less often{at}, on fewer samples, or in larger batches, as no gradients need room.",
    scale=PRICE,
)
