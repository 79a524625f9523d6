"""GPUs in words: which there were, how busy and full, and what ran while they were idle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from profd.daemon.analyze.gpu.idle import GpuIdle
from profd.daemon.analyze.gpu.inventory import Gpu
from profd.daemon.render.cells import cut, fit, width
from profd.daemon.render.visible import visible
from profd.daemon.units import percent, plural, size, step_time

_LINES = 5
_PLACE_CELLS = 22


def gpu_lines(gpus: Iterable[Gpu]) -> Iterator[str]:
    """Yield a line for each GPU: how busy it was on average, and the most of its memory that was used."""
    for gpu in gpus:
        facts = [f"utilized {percent(gpu.utilization)}"]
        if gpu.memory_used_bytes is not None:
            whole = "" if gpu.memory_bytes is None else f" of {size(gpu.memory_bytes)}"
            facts.append(f"memory {size(gpu.memory_used_bytes)}{whole}")
        if gpu.power_watts is not None:
            facts.append(f"{gpu.power_watts:.0f} W")
        yield f"  {visible(gpu.device)}  {visible(gpu.name)}: {', '.join(facts)}"


def idle_lines(idle: GpuIdle | None, columns: int) -> Iterator[str]:
    """Yield for how long the GPU was idle, and the lines of the gaps that readings show; nothing where no GPU was read.

    The mean utilization counts all idle time. Of gaps that are shorter than a reading nothing says what ran in them.
    """
    if idle is None:
        return
    lines = idle.lines[:_LINES]
    yield from ("", f"GPU idle {percent(1 - idle.mean_utilization)} of the time")
    seen = f"  {percent(idle.share)} of the time in gaps of {step_time(idle.period_s)} or more"
    yield f"{seen}, {plural(idle.samples, 'sample')}:" if lines else seen
    places = [f"{line.module_path}:{line.line}" for line in lines]
    place_cells = min(max((width(visible(place)) for place in places), default=0), _PLACE_CELLS)
    name_cells = max((width(line.phase) for line in lines), default=0)
    for line, place in zip(lines, places, strict=True):
        where = f"{fit(line.phase, name_cells)}  {fit(place, place_cells, keep_end=True)}"
        yield cut(f"  {percent(line.share):>5}  {where}  {line.source or ''}", columns)
