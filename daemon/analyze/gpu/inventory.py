"""The GPUs of a run as its summary has them: which they are, how busy and how full they were."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.course import take_course
from profd.daemon.analyze.gpu.usage import UTILIZATION
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import DeviceRow
from profd.daemon.store.stepfunction import Aggregate


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that the run used, or a MIG instance of one.

    ``index`` is the number that nvidia-smi gives the GPU, ``device`` the name of its series. ``utilization`` and
    ``power_watts`` are means, ``memory_used_bytes`` is the most that was used, by anyone; None where it was not told.
    """

    index: int
    name: str
    device: str
    uuid: str
    memory_bytes: int | None
    utilization: float | None
    memory_used_bytes: int | None
    power_watts: float | None


def take_gpus(reader: RunReader, selection: Selection) -> tuple[Gpu, ...]:
    """Return the GPUs with what they did in a selection's range of time."""
    return tuple(_gpu(reader, row, selection) for row in reader.devices())


def _gpu(reader: RunReader, row: DeviceRow, selection: Selection) -> Gpu:
    used = _total(reader, "gpu_memory_used_bytes", row.name, selection)
    return Gpu(
        index=row.index,
        name=row.model,
        device=row.name,
        uuid=row.uuid,
        memory_bytes=row.memory_bytes,
        utilization=_total(reader, UTILIZATION, row.name, selection).mean,
        memory_used_bytes=int(used.most) if used.is_known else None,
        power_watts=_total(reader, "gpu_power_watts", row.name, selection).mean,
    )


def _total(reader: RunReader, name: str, device: str, selection: Selection) -> Aggregate:
    series = reader.find_series(name, device=device)
    return take_course(reader, series.id, selection.from_ns, selection.to_ns).total() if series else Aggregate()
