"""Rule: compiling goes on while the model trains."""

from __future__ import annotations

from profd.daemon.analyze.findings.phaseloss import PhaseLoss
from profd.daemon.analyze.findings.severity import PRICE
from profd.daemon.analyze.phases import COMPILE

find = PhaseLoss(
    rule="compile-share",
    label="compilation",
    phase=COMPILE,
    title="compiling takes {share} of the time{at}: none of it brings {gain}",
    cause="Code is compiled when it is first called, and again for every new shape, type or Python value that it "
    "depends on.",
    remedy="See with TORCH_LOGS=recompiles what changes from call to call{at}; pad inputs to few shapes, or set "
    "dynamic=True in torch.compile. What is compiled once only gets less by itself in a longer run.",
    scale=PRICE,
)
