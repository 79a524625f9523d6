"""The operators of the last window as lines of a summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profd.daemon.analyze.operators import OperatorSummary, WindowSummary
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.cells import cut, fit
from profd.daemon.render.visible import visible
from profd.daemon.units import percent, plural, step_time

_OPERATORS = 6
_NAME_CELLS = 34


def operator_lines(windows: Sequence[WindowSummary], columns: int) -> Iterator[str]:
    """Yield what took most in the last window, of each process of it; nothing where none was taken."""
    for window in windows:
        rank = "" if window.rank is None else f"rank {window.rank}, "
        on_gpu = any(row.self_cuda_share is not None for row in window.operators)
        length = step_time((window.end_ns - window.start_ns) / SECOND_NS)
        yield f"  {rank}{plural(window.steps, 'whole step')} in {length}"
        yield f"  {'self CUDA  ' if on_gpu else ''}self CPU    calls  operator"
        for row in window.operators[:_OPERATORS]:
            yield cut(_line(row, on_gpu), columns)


def _line(row: OperatorSummary, on_gpu: bool) -> str:
    cuda = f"{percent(row.self_cuda_share or 0.0):>9}  " if on_gpu else ""
    place = visible(row.line.label) if row.line else ""
    return f"  {cuda}{percent(row.self_cpu_share):>8}  {row.calls:>7,}  {fit(visible(row.name), _NAME_CELLS)}  {place}"
