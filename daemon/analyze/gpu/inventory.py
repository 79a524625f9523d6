"""The GPUs of a run as its summary has them: which they are, how busy and how full they were."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.course import Course, take_course
from profd.daemon.analyze.gpu.usage import UTILIZATION
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import DeviceRow
from profd.daemon.store.stepfunction import step_function


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
    used = _course(reader, "gpu_memory_used_bytes", row.name, selection).most
    return Gpu(
        index=row.index,
        name=row.model,
        device=row.name,
        uuid=row.uuid,
        memory_bytes=row.memory_bytes,
        utilization=_mean(_course(reader, UTILIZATION, row.name, selection)),
        memory_used_bytes=None if used is None else int(used),
        power_watts=_mean(_course(reader, "gpu_power_watts", row.name, selection)),
    )


def _course(reader: RunReader, name: str, device: str, selection: Selection) -> Course:
    series = reader.find_series(name, device=device)
    return take_course(reader, series.id, selection.from_ns, selection.to_ns) if series else Course([], [], [])


def _mean(course: Course) -> float | None:
    """Return the mean over the time that the points tell of: they need not be equally far apart."""
    points = course.head
    if course.minutes or len(points) < 2:
        return course.mean()
    return step_function(points).mean(points[0].at_ns, points[-1].at_ns)[0]
