"""The GPUs of the training processes, as rules ask for them."""

from __future__ import annotations

from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.gpu.usage import MEMORY_OF_PROCESS, mean_utilization


def uses_gpu(case: Case) -> bool:
    """Say whether a training process was seen to hold memory of a GPU."""
    return bool(used_devices(case))


def used_devices(case: Case) -> tuple[str, ...]:
    """Return the names of the GPUs on which a training process was seen to hold memory."""
    trainers = {row.id for row in case.trainers}
    rows = [row for row in case.reader.series.values() if row.name == MEMORY_OF_PROCESS and row.process in trainers]
    return tuple(sorted({row.device for row in rows if row.device is not None}))


def utilization(case: Case) -> float | None:
    """Return the mean utilization of the GPUs that the training uses, 0 to 1; None where none is known."""
    if not uses_gpu(case):
        return None
    means = [mean_utilization(case.reader, row.id, case.from_ns, case.to_ns) for row in case.trainers]
    known = [mean for mean in means if mean is not None]
    return sum(known) / len(known) if known else None
