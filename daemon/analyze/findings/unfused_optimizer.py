"""Rule: the optimizer goes through the weights tensor by tensor, with a dozen operations for each."""

from __future__ import annotations

from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.findings.severity import PRICE, severity_of
from profd.daemon.analyze.findings.wording import at, at_most
from profd.daemon.analyze.phases import OPTIMIZER
from profd.daemon.units import percent

# Of those that have a fused form.
_ONE_BY_ONE = frozenset({f"_single_tensor_{name}" for name in ("adam", "adamw", "adagrad", "sgd")})


def find(case: Case) -> Finding | None:
    """Return the finding where an optimizer that could be fused surely takes its part of a step."""
    share = case.share_of(case.profile, lambda stack: _is_one_by_one(case, stack))
    severity = severity_of(share.low, case.profile.total_samples, PRICE)
    if severity is None:
        return None
    line, gain = case.line(OPTIMIZER), bound(case, share)
    return Finding(
        rule="unfused-optimizer",
        severity=severity,
        label="optimizer",
        title=f"optimizer: updating the weights tensor by tensor takes {percent(share.value)} of a step{at(line)}: "
        f"doing it at once brings {at_most(gain)}",
        cause="For each tensor of weights a dozen operations are called one after the other, and each goes through "
        "all of its memory.",
        remedy="Make the optimizer with fused=True (or foreach=True, where its kind or version has no fused form for "
        "this device).",
        gain_bound=gain,
        evidence=case.evidence(share.measure("tensor by tensor"), phase=OPTIMIZER, line=line),
        page="unfused-optimizer",
    )


def _is_one_by_one(case: Case, stack: int) -> bool:
    return any(
        frame.function in _ONE_BY_ONE and frame.module_path.startswith("torch/optim/")
        for frame in case.reader.frames_of(stack)
    )
