"""Memory, GPUs and operators of two runs as lines of text; the numbers were judged before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profd.daemon.analyze.compare.diff import Diff
from profd.daemon.analyze.compare.readings import Reading
from profd.daemon.render.cells import fit
from profd.daemon.units import change, quantity

ROWS = 8
_NAME_CELLS = 26
_MEASURE_CELLS = 18


def reading_lines(diff: Diff) -> Iterator[str]:
    """Yield the sections: of GPUs and peaks all rows, alike or not, else those that changed."""
    yield from _section("GPUs", diff.gpus)
    yield from _section("Memory, by role", [one for one in diff.memory if one.is_significant or one.unit == "bytes"])
    yield from _section("Operators by themselves, a step", [one for one in diff.operators if one.is_significant])


def _section(title: str, readings: Sequence[Reading]) -> Iterator[str]:
    if not readings:
        return
    yield ""
    yield f"{title:{_NAME_CELLS + _MEASURE_CELLS + 4}}      base       new    change  95 % bounds"
    for one in sorted(readings, key=lambda one: not one.is_significant)[:ROWS]:
        what = f"  {fit(one.name, _NAME_CELLS)}  {fit(one.measure, _MEASURE_CELLS)}"
        numbers = f"{quantity(one.base, one.unit):>10}{quantity(one.new, one.unit):>10}"
        changed = change(one.difference, one.unit) if one.is_significant else "alike"
        yield f"{what}{numbers}{changed:>10}  {reading_bounds(one)}"


def reading_sentence(one: Reading) -> str:
    """Return what changed in a few words: ``GPU 0, idle share: 39 % instead of 12 %``."""
    base, new = (quantity(value, one.unit) for value in (one.base, one.new))
    return f"{one.name}, {one.measure}: {new} instead of {base}"


def reading_bounds(one: Reading) -> str:
    """Return the bounds of a difference; nothing where there are none."""
    if one.low is None or one.high is None:
        return ""
    low, high = change(one.low, one.unit), change(one.high, one.unit)
    return f"{low.removesuffix(high[high.rindex(' ') :])} to {high}"
