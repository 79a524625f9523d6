"""Rule: matrix products and convolutions in float32 on a GPU whose tensor cores stand by."""

from __future__ import annotations

import re

from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import Case, Share
from profd.daemon.analyze.findings.devices import used_devices
from profd.daemon.analyze.findings.finding import Finding, Measure
from profd.daemon.analyze.findings.kernels import take_kernels
from profd.daemon.analyze.findings.severity import PRICE, severity_of
from profd.daemon.analyze.findings.wording import at, at_most
from profd.daemon.analyze.phases import FORWARD
from profd.daemon.units import percent

# Volta, Turing, Ampere, Ada, Hopper, Blackwell.
_TENSOR_CORES = re.compile(
    r"\b(TITAN (V|RTX)|RTX|V100\w*|T4|A\d{1,3}[A-Z]?|L\d{1,2}[A-Z]?|[HB]\d{2,3}|G[HB]\d{3})\b", re.I
)
# What cuBLAS, cuDNN and CUTLASS call kernels that multiply in float32 without tensor cores.
_FLOAT32 = re.compile(r"sgemm|scudnn|simt|ffma|f32f32_f32f32_f32", re.I)
_NOT_FLOAT32 = re.compile(r"tensorop|tf32|bf16|fp16|f16|half|hmma|dgemm|f64", re.I)


def find(case: Case) -> Finding | None:
    """Return the finding where such kernels take much of the time on a GPU that has tensor cores."""
    kernels = take_kernels(case) if _has_tensor_cores(case) else None
    share = kernels.share(_FLOAT32, but=_NOT_FLOAT32) if kernels else None
    severity = severity_of(share.low, case.profile.total_samples, PRICE) if share else None
    return _finding(case, share, severity) if share and severity else None


def _has_tensor_cores(case: Case) -> bool:
    used = used_devices(case)
    models = [row.model for row in case.reader.devices() if not used or row.name in used]
    return bool(models) and all(_TENSOR_CORES.search(model) for model in models)


def _finding(case: Case, share: Share, severity: str) -> Finding:
    line, gain = case.line(FORWARD), bound(case, share, share.gain)
    return Finding(
        rule="precision",
        severity=severity,
        label="precision",
        title=f"precision: products in float32 take {percent(share.value)} of the time beside idle tensor cores: "
        f"lower precision brings {at_most(gain)}",
        cause="Matrix products and convolutions compute in float32, which tensor cores do not do: they multiply "
        "TF32, bfloat16 and float16, several times as fast.",
        remedy=f'Compute forward and loss{at(line)} within torch.autocast("cuda", dtype=torch.bfloat16), or let '
        'float32 be rounded for products: torch.set_float32_matmul_precision("high") and '
        "torch.backends.cudnn.allow_tf32 = True (from Ampere on). See whether the model trains as well.",
        gain_bound=gain,
        evidence=case.evidence(
            Measure("float32 products", share.value), phase=FORWARD, line=line, series=("gpu_utilization_share",)
        ),
        page="precision",
    )
