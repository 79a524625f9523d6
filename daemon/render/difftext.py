"""A diff as plain text: what changed first, with its bounds, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profd.daemon.compare.blocks import slowing
from profd.daemon.compare.diff import Change, Diff
from profd.daemon.compare.readings import Reading
from profd.daemon.render.plaintext import Paragraph, TextLine, fit, joined, visible
from profd.daemon.units import difference, duration, percent, quantity, signed_percent, step_time

WIDTH = 100
_ROWS, _NAME_CELLS, _PLACE_CELLS = 8, 48, 40
_OF_NAMES = 0.6
"""The share of names in the room that names and places have."""
_NUMBER_CELLS = 51
"""The cells that numbers, bounds and gaps take of a row."""
_TITLES = (
    ("functions", "Your functions and what they call"),
    ("lines", "Your lines and what they call"),
    ("leaves", "Functions by themselves"),
    ("phases", "Phases"),
)


def diff_text(diff: Diff, cells: int = WIDTH) -> str:
    """Return a diff as text, no line wider than ``cells``. No newline at the end."""
    lines: list[TextLine] = []
    rooms = _rooms(cells)
    for name, side in (("base", diff.base), ("new", diff.new)):
        step = "" if side.step_s is None else f", {step_time(side.step_s)} a step"
        told = f"{visible(side.run)}: {duration(side.compared_s)} of training{step}"
        lines.append(Paragraph(told, f"{name:4}  "))
    lines += ["", Paragraph(verdict(diff))]
    for field, title in _TITLES:
        changes: Sequence[Change] = getattr(diff, field)
        shown = [change for change in changes if change.is_significant or change == diff.likeliest][
            :_ROWS
        ]
        if shown:
            lines += ["", _heads(title, rooms), *_rows(diff, shown, rooms)]
    # All rows of GPUs and peaks are shown, alike or not.
    lines += _section("GPUs", diff.gpus, rooms)
    lines += _section(
        "Memory, by role",
        [one for one in diff.memory if one.is_significant or one.unit == "bytes"],
        rooms,
    )
    lines += _section(
        "Operators by themselves, a step",
        [one for one in diff.operators if one.is_significant],
        rooms,
    )
    lines += ["", *_basis(diff)]
    return joined(lines, cells)


def verdict(diff: Diff) -> str:
    largest, step = diff.first, diff.step_time
    longer = ""
    if step is not None and step.is_significant:
        longer = _longer(step)
    if largest is None:
        return f"▲ {longer}: no part differs surely" if longer else _verdict_without_change(diff)
    line = f":{largest.line}" if largest.line else ""
    place = f" ({visible(largest.module_path)}{line})" if largest.module_path else ""
    more = "more" if largest.difference > 0 else "less"
    amount = f"{quantity(abs(largest.difference), diff.unit)} {more}"
    if largest == diff.likeliest:
        return (
            f"▲ {longer or 'times differ'}: most likely {visible(largest.name)}{place}, by {amount}"
        )
    cost = f"{visible(largest.name)}{place} takes {amount}"
    return f"▲ {longer}: {cost}" if longer else f"▲ {cost}"


def _verdict_without_change(diff: Diff) -> str:
    """Return the verdict if no time surely changed."""
    step = diff.step_time
    if diff.readings:
        one = diff.readings[0]
        base, new = (quantity(value, one.unit) for value in (one.base, one.new))
        return (
            "▲ times are alike, but not all else: "
            f"{visible(f'{one.name}, {one.measure}: {new} instead of {base}')}"
        )
    if step is not None and abs(step.relative) >= diff.least:
        return (
            f"· no sure change: {_longer(step)}, no part differs surely; two runs of one script "
            f"may differ by {percent(diff.alike)}"
        )
    return (
        "✓ no change: nothing differs by more than the unrest of the runs and "
        f"{percent(diff.least)} of a step"
    )


def _longer(step: Change) -> str:
    than = "longer" if step.difference > 0 else "less long"
    return f"a step takes {percent(abs(step.relative), 1)} {than}"


def machine_note(diff: Diff) -> str:
    """Return what others took of the machine if that may have changed steps, otherwise nothing."""
    base, new = diff.base.company, diff.new.company
    allowed = slowing(base, new)
    if base is None or new is None or diff.unit != "s/step" or allowed < diff.least:
        return ""
    return (
        f"Others kept {percent(base.others)} of the other cores busy in the base and "
        f"{percent(new.others)} in the new run; the main thread may have waited for a core "
        f"{percent(base.lacking)} and {percent(new.lacking)} of the time. That makes all steps of "
        f"one run up to {percent(allowed)} longer, which the bounds allow for."
    )


def _rooms(cells: int) -> tuple[int, int]:
    """Return the cells of names and of places in a row."""
    free = cells - _NUMBER_CELLS
    names = min(int(free * _OF_NAMES), _NAME_CELLS)
    return names, min(free - names, _PLACE_CELLS)


def _heads(title: str, rooms: tuple[int, int]) -> str:
    return f"{fit(title, sum(rooms) + 4)}     base      new   change  95 % bounds"


def _row(name: str, place: str, rooms: tuple[int, int]) -> str:
    return f"  {fit(name, rooms[0])}  {fit(place, rooms[1], keep_end=True)}"


def _rows(diff: Diff, changes: Sequence[Change], rooms: tuple[int, int]) -> Iterator[str]:
    for change in changes:
        place = change.module_path + (f":{change.line}" if change.line else "")
        base, new = (quantity(value, diff.unit) for value in (change.base, change.new))
        amounts = f"{base:>9}{new:>9}{signed_percent(change.relative):>9}"
        whole = change.difference / change.relative if change.relative else 1.0
        yield (
            f"{_row(change.name, place, rooms)}{amounts}  {signed_percent(change.low / whole)} to "
            f"{signed_percent(change.high / whole)}"
        )


def _basis(diff: Diff) -> Iterator[TextLine]:
    basis = (
        "Times are of the main threads, a step; changes are parts of the base's step."
        if diff.unit == "s/step"
        else "The steps of one of the runs are unknown: shares of the main threads' time are "
        "compared."
    )
    yield Paragraph(
        f"{basis} Bounds hold for all rows at once, from the unrest of {diff.base.blocks} and "
        f"{diff.new.blocks} blocks of the runs; below {percent(diff.least)} of a step nothing is "
        "called a change."
    )
    if note := machine_note(diff):
        yield from ("", Paragraph(note))


def _section(title: str, readings: Sequence[Reading], rooms: tuple[int, int]) -> Iterator[TextLine]:
    if not readings:
        return
    yield from ("", _heads(title, rooms))
    for one in sorted(readings, key=lambda one: not one.is_significant)[:_ROWS]:
        numbers = f"{quantity(one.base, one.unit):>9}{quantity(one.new, one.unit):>9}"
        changed = difference(one.difference, one.unit) if one.is_significant else "alike"
        bounds = ""
        if one.low is not None and one.high is not None:
            low, high = difference(one.low, one.unit), difference(one.high, one.unit)
            bounds = f"{low.removesuffix(high[high.rindex(' ') :])} to {high}"
        yield f"{_row(one.name, one.measure, rooms)}{numbers}{changed:>9}  {bounds}"
