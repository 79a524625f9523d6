"""The GPUs of a run as its summary has them: which they are, how busy and how full they were."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.gpu.usage import UTILIZATION
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.tracks import track_of
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import DeviceRow, PointRow


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
    used = [point.value for point in _points(reader, "gpu_memory_used_bytes", row.name, selection)]
    return Gpu(
        index=row.index,
        name=row.model,
        device=row.name,
        uuid=row.uuid,
        memory_bytes=row.memory_bytes,
        utilization=_mean(_points(reader, UTILIZATION, row.name, selection)),
        memory_used_bytes=int(max(used)) if used else None,
        power_watts=_mean(_points(reader, "gpu_power_watts", row.name, selection)),
    )


def _points(reader: RunReader, name: str, device: str, selection: Selection) -> list[PointRow]:
    series = reader.find_series(name, device=device)
    return reader.points(series.id, selection.from_ns, selection.to_ns) if series else []


def _mean(points: list[PointRow]) -> float | None:
    """Return the mean over the time that the points tell of: they need not be equally far apart."""
    if len(points) < 2:
        return points[0].value if points else None
    return track_of(points).mean(points[0].at_ns, points[-1].at_ns)[0]
