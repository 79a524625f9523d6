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
    """Yield what the user's code did while the GPU was idle, with what that rests on; nothing where no GPU was read."""
    if idle is None:
        return
    rests_on = f"below {percent(idle.below)}, read every {step_time(idle.period_s)}; {plural(idle.samples, 'sample')}"
    yield from ("", f"GPU idle {percent(idle.share)} of the time ({rests_on})")
    lines = idle.lines[:_LINES]
    places = [f"{line.module_path}:{line.line}" for line in lines]
    place_cells = min(max((width(visible(place)) for place in places), default=0), _PLACE_CELLS)
    name_cells = max((width(line.phase) for line in lines), default=0)
    for line, place in zip(lines, places, strict=True):
        where = f"{fit(line.phase, name_cells)}  {fit(place, place_cells, keep_end=True)}"
        yield cut(f"  {percent(line.share):>5}  {where}  {line.source or ''}", columns)
