"""A diff as plain text: what changed first, with its bounds, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profd.daemon.compare.blocks import slowing
from profd.daemon.compare.diff import Change, Diff
from profd.daemon.compare.readings import Reading
from profd.daemon.render.plaintext import Paragraph, TextLine, aligned, joined, visible
from profd.daemon.units import difference, duration, percent, quantity, signed_percent, step_time

_HEADS = ("", "where", "base", "new", "change", "95 % bounds")
_TITLES = (
    ("functions", "Your functions and what they call"),
    ("lines", "Your lines and what they call"),
    ("leaves", "Functions by themselves"),
    ("phases", "Phases"),
)


def diff_text(diff: Diff, cells: int) -> str:
    """Return a diff as text, no line wider than ``cells``. No newline at the end."""
    lines: list[TextLine] = []
    for name, side in (("base", diff.base), ("new", diff.new)):
        step = "" if side.step_s is None else f", {step_time(side.step_s)} a step"
        told = f"{side.run}: {duration(side.compared_s)} of training{step}"
        lines.append(Paragraph(told, f"{name:4}  "))
    lines += ["", Paragraph(verdict(diff))]
    for field, title in _TITLES:
        changes: Sequence[Change] = getattr(diff, field)
        shown = (one for one in changes if one.is_significant or one == diff.likeliest)
        lines += _table(title, [_cells_of_change(diff, one) for one in shown], cells)
    # All rows of GPUs and peaks are shown, alike or not.
    peaks = [one for one in diff.memory if one.is_significant or one.unit == "bytes"]
    operators = [one for one in diff.operators if one.is_significant]
    for title, readings in (
        ("GPUs", diff.gpus),
        ("Memory, by role", peaks),
        ("Operators by themselves, a step", operators),
    ):
        ordered = sorted(readings, key=lambda one: not one.is_significant)
        lines += _table(title, list(map(_cells_of_reading, ordered)), cells)
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


def _table(title: str, rows: Sequence[Sequence[str]], cells: int) -> Iterator[str]:
    if rows:
        table = aligned(
            _HEADS,
            rows[:8],
            right=_HEADS[2:5],
            whole=_HEADS[5:],
            paths=_HEADS[1:2],
            cells=cells,
        )
        yield from ("", title, *table.splitlines())


def _cells_of_change(diff: Diff, change: Change) -> tuple[str, ...]:
    place = change.module_path + (f":{change.line}" if change.line else "")
    base, new = (quantity(value, diff.unit) for value in (change.base, change.new))
    whole = change.difference / change.relative if change.relative else 1.0
    bounds = f"{signed_percent(change.low / whole)} to {signed_percent(change.high / whole)}"
    return f"  {change.name}", place, base, new, signed_percent(change.relative), bounds


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


def _cells_of_reading(one: Reading) -> tuple[str, ...]:
    changed = difference(one.difference, one.unit) if one.is_significant else "alike"
    bounds = ""
    if one.low is not None and one.high is not None:
        low, high = difference(one.low, one.unit), difference(one.high, one.unit)
        bounds = f"{low.removesuffix(high[high.rindex(' ') :])} to {high}"
    base, new = (quantity(value, one.unit) for value in (one.base, one.new))
    return f"  {one.name}", one.measure, base, new, changed, bounds
