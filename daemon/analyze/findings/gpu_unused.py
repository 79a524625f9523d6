"""Rule: there is a GPU, and the training runs on the CPU."""

from __future__ import annotations

from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.devices import uses_gpu
from profd.daemon.analyze.findings.finding import CRITICAL, Finding, Measure
from profd.daemon.analyze.findings.wording import at
from profd.daemon.analyze.phases import FORWARD
from profd.daemon.units import plural


def find(case: Case) -> Finding | None:
    """Return the finding where the run has GPUs, and none of its training processes holds memory of one."""
    devices = case.reader.devices()
    if not devices or not case.is_training or uses_gpu(case):
        return None
    line = case.line(FORWARD)
    return Finding(
        rule="gpu-unused",
        severity=CRITICAL,
        label="GPU unused",
        title=f"GPU unused: the training runs on the CPU{at(line)} beside {plural(len(devices), devices[0].model)}",
        cause="Neither the model nor its inputs were moved to a GPU.",
        remedy=f'Move the model by .to("cuda") before the optimizer is made, and each batch in the loop{at(line)}.',
        gain_bound=None,
        evidence=case.evidence(Measure("GPUs", len(devices), "devices"), line=line),
        page="gpu-unused",
    )
