"""Growing memory in words: who grows, how fast, and what that fills when; and what jumped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from profd.daemon.analyze.memory.growth import Growth
from profd.daemon.analyze.memory.headroom import GPU_SERIES, Limit
from profd.daemon.analyze.memory.jumps import Jump
from profd.daemon.units import clock, duration, size

_IN_WORDS = {"host": "the machine", "cgroup": "its control group"}


def growth_lines(memory: Iterable[Growth], names: Mapping[int, str]) -> Iterator[str]:
    """Yield a line for each process that grows, and one for each GPU that it grows on; ``names`` are roles by PID."""
    growing = [growth for growth in memory if growth.verdict == "growing"]
    resident = {growth.pid for growth in growing if growth.series == "rss_bytes"}
    for growth in growing:
        # What is proportional is resident too: said once.
        if growth.series != "pss_bytes" or growth.pid not in resident:
            yield f"  ▲ {names.get(growth.pid, 'process')} {growth.pid} {_pace(growth)}{_end(growth)}"


def growth_words(growth: Growth) -> str:
    """Return how the memory of a process goes on, in words; empty where nobody knows."""
    if growth.verdict == "growing":
        return f"{_pace(growth)}{_end(growth)}"
    return {"steady": "steady", "cached": "grows by pages of files, which the kernel takes back"}.get(
        growth.verdict, ""
    )


def jump_lines(jumps: Iterable[Jump], names: Mapping[int, str]) -> Iterator[str]:
    """Yield a line for each jump: whose memory, by how much, and the line of the user's code that ran meanwhile."""
    for jump in jumps:
        where = f" on {jump.device}" if jump.device is not None else ""
        line = f" at {jump.line.module_path}:{jump.line.line}  {jump.line.source or ''}" if jump.line else ""
        name = names.get(jump.pid, "process")
        yield f"  {clock(jump.at_ns)}  {name} {jump.pid} rose{where} by {size(jump.by_bytes)}{line}"


def _pace(growth: Growth) -> str:
    """Return how fast a process grows, by the second and by the step."""
    low, high = growth.interval_bytes_per_s or (0.0, 0.0)
    where = f" on {growth.device}" if growth.series == GPU_SERIES else ""
    pace = f"grows{where} by {size(growth.slope_bytes_per_s)}/s ± {size((high - low) / 2)}"
    return pace if growth.bytes_per_step is None else f"{pace}, {size(growth.bytes_per_step)} a step"


def _end(growth: Growth) -> str:
    """Return when that fills what bounds it; nothing where no bound is known."""
    if growth.limit is None or growth.time_to_limit_s is None:
        return ""
    return f": {_name(growth.limit)} is full in {duration(growth.time_to_limit_s)}"


def _name(limit: Limit) -> str:
    return _IN_WORDS.get(limit.kind, limit.name)
