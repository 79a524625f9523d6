"""A diff as plain text: what changed first, with its bounds, then what it rests on."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from profd.daemon.compare.blocks import slowing
from profd.daemon.compare.diff import Change, Diff
from profd.daemon.compare.readings import Reading
from profd.daemon.render.plaintext import fit, joined, visible
from profd.daemon.units import difference, duration, percent, quantity, signed_percent, step_time

WIDTH = 100
_ROWS, _NAME_CELLS, _PLACE_CELLS = 8, 26, 18
_TITLES = (
    ("functions", "Your functions, with the libraries they call"),
    ("lines", "Lines of your code, with the libraries they call"),
    ("leaves", "Functions by themselves"),
    ("phases", "Phases"),
)


def diff_text(diff: Diff) -> str:
    """Return a diff as text, no line wider than ``WIDTH``. No newline at the end."""
    lines = []
    for name, side in (("base", diff.base), ("new", diff.new)):
        step = "" if side.step_s is None else f", {step_time(side.step_s)} a step"
        lines.append(
            f"{name:4}  {visible(side.run)}: {duration(side.compared_s)} of training{step}"
        )
    lines += ["", verdict(diff)]
    for field, title in _TITLES:
        changes: Sequence[Change] = getattr(diff, field)
        shown = [change for change in changes if change.is_significant or change == diff.likeliest][
            :_ROWS
        ]
        if shown:
            lines += ["", _heads(title), *_rows(diff, shown)]
    # All rows of GPUs and peaks are shown, alike or not.
    lines += _section("GPUs", diff.gpus)
    lines += _section(
        "Memory, by role", [one for one in diff.memory if one.is_significant or one.unit == "bytes"]
    )
    lines += _section(
        "Operators by themselves, a step", [one for one in diff.operators if one.is_significant]
    )
    lines += ["", *_basis(diff)]
    return joined(lines, WIDTH)


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


def _heads(title: str) -> str:
    return f"{title:{_NAME_CELLS + _PLACE_CELLS + 4}}      base       new    change  95 % bounds"


def _rows(diff: Diff, changes: Sequence[Change]) -> Iterator[str]:
    for change in changes:
        place = change.module_path + (f":{change.line}" if change.line else "")
        what = f"  {fit(change.name, _NAME_CELLS)}  {fit(place, _PLACE_CELLS, keep_end=True)}"
        base, new = (quantity(value, diff.unit) for value in (change.base, change.new))
        amounts = f"{base:>10}{new:>10}{signed_percent(change.relative):>10}"
        whole = change.difference / change.relative if change.relative else 1.0
        yield (
            f"{what}{amounts}  {signed_percent(change.low / whole)} to "
            f"{signed_percent(change.high / whole)}"
        )


def _basis(diff: Diff) -> Iterator[str]:
    if diff.unit == "s/step":
        yield "Times are of the main threads, a step; changes are parts of the base's step."
    else:
        yield (
            "The steps of one of the runs are unknown: shares of the main threads' time are "
            "compared."
        )
    blocks = f"{diff.base.blocks} and {diff.new.blocks}"
    yield f"Bounds hold for all rows at once, from the unrest of {blocks} blocks of the runs;"
    yield f"below {percent(diff.least)} of a step nothing is called a change."
    if note := machine_note(diff):
        yield from ("", *textwrap.wrap(note, WIDTH))


def _section(title: str, readings: Sequence[Reading]) -> Iterator[str]:
    if not readings:
        return
    yield from ("", _heads(title))
    for one in sorted(readings, key=lambda one: not one.is_significant)[:_ROWS]:
        what = f"  {fit(one.name, _NAME_CELLS)}  {fit(one.measure, _PLACE_CELLS)}"
        numbers = f"{quantity(one.base, one.unit):>10}{quantity(one.new, one.unit):>10}"
        changed = difference(one.difference, one.unit) if one.is_significant else "alike"
        bounds = ""
        if one.low is not None and one.high is not None:
            low, high = difference(one.low, one.unit), difference(one.high, one.unit)
            bounds = f"{low.removesuffix(high[high.rindex(' ') :])} to {high}"
        yield f"{what}{numbers}{changed:>10}  {bounds}"
