"""How near the memory of a process is to what bounds it: the machine, a control group, a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import SeriesRow

GPU_SERIES = "gpu_process_memory_bytes"


class Limit(msgspec.Struct, frozen=True):
    """What ends growth first: ``kind`` is host, cgroup or gpu, ``name`` the path of the cgroup or the device."""

    kind: str
    name: str
    limit_bytes: int
    used_bytes: int

    @property
    def left_bytes(self) -> int:
        """How much there is before the limit."""
        return max(self.limit_bytes - self.used_bytes, 0)


def tightest(reader: RunReader, row: SeriesRow, selection: Selection) -> Limit | None:
    """Return the limit that a series of a process is nearest to at the end of a selection; None if none is known."""
    limits = _of_gpu(reader, row, selection) if row.name == GPU_SERIES else _of_process(reader, row, selection)
    return min(limits, key=lambda limit: limit.left_bytes, default=None)


def _of_gpu(reader: RunReader, row: SeriesRow, selection: Selection) -> Iterator[Limit]:
    total = _last(reader, reader.find_series("gpu_memory_total_bytes", device=row.device), selection)
    used = _last(reader, reader.find_series("gpu_memory_used_bytes", device=row.device), selection)
    if total is not None and used is not None:
        yield Limit("gpu", row.device or "", int(total), int(used))


def _of_process(reader: RunReader, row: SeriesRow, selection: Selection) -> Iterator[Limit]:
    """Yield what bounds main memory: that of the machine, and of each control group that the process is in."""
    total = _last(reader, reader.find_series("host_memory_total_bytes"), selection)
    used = _last(reader, reader.find_series("host_memory_used_bytes"), selection)
    if total is not None and used is not None:
        yield Limit("host", reader.info.host, int(total), int(used))
    for bound in reader.series.values():
        if bound.name == "cgroup_memory_limit_bytes" and bound.process == row.process:
            limit = _last(reader, bound, selection)
            held = reader.find_series("cgroup_memory_working_set_bytes", device=bound.device)
            used = _last(reader, held, selection)
            if limit is not None and used is not None:
                yield Limit("cgroup", bound.device or "", int(limit), int(used))


def _last(reader: RunReader, row: SeriesRow | None, selection: Selection) -> float | None:
    """Return the newest value of a series, as of the end of the selection."""
    if row is None:
        return None
    point = reader.last_point(row.id, selection.to_ns)
    return point.value if point else None
