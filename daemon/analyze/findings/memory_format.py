"""Rule: the GPU turns images around for each convolution, since they are not in the order that it computes in."""

from __future__ import annotations

import re

from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.finding import Finding, Measure
from profd.daemon.analyze.findings.kernels import take_kernels
from profd.daemon.analyze.findings.severity import severity_of
from profd.daemon.analyze.findings.wording import at, at_most
from profd.daemon.analyze.phases import FORWARD
from profd.daemon.units import percent

# cuDNN's own, which it puts before and after a convolution on tensor cores.
_TURNING = re.compile(r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw", re.I)


def find(case: Case) -> Finding | None:
    """Return the finding where kernels that do nothing but reorder take their part of the time."""
    kernels = take_kernels(case)
    share = kernels.share(_TURNING) if kernels else None
    severity = severity_of(share.low, case.profile.total_samples) if share else None
    if share is None or severity is None:
        return None
    line, gain = case.line(FORWARD), bound(case, share, share.gain)
    return Finding(
        rule="memory-format",
        severity=severity,
        label="memory format",
        title=f"memory format: turning images around for convolutions takes {percent(share.value)} of the time: "
        f"channels last brings {at_most(gain)}",
        cause="Convolutions on tensor cores want the channels of a pixel side by side. Images and weights have them in "
        "planes, so that cuDNN reorders them before each convolution, and its result after it.",
        remedy="Move the model by .to(memory_format=torch.channels_last), and each batch of images likewise"
        f"{at(line)}; operations in between that return planes undo it.",
        gain_bound=gain,
        evidence=case.evidence(
            Measure("reordering", share.value), phase=FORWARD, line=line, series=("gpu_utilization_share",)
        ),
        page="memory-format",
    )
