"""The answers of a fleet in words and tables, on the terminal and as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from profd.daemon.fleet.answers import (
    FindingCost,
    Fleet,
    FunctionCost,
    Hours,
    PhaseCost,
)
from profd.daemon.naming import listed
from profd.daemon.render.htmlpage import render_page
from profd.daemon.render.plaintext import (
    Paragraph,
    TextLine,
    aligned,
    joined,
    rows_of,
    visible,
)
from profd.daemon.units import UNKNOWN, number, percent, plural


class AnswerTable(NamedTuple):
    """A question with its answer.

    ``note`` says what the numbers are, ``numbers`` which columns are numbers. ``nothing`` is said
    if there are no rows.
    """

    title: str
    note: str
    heads: Sequence[str]
    numbers: Sequence[str]
    rows: Sequence[Sequence[str]]
    nothing: str = ""


def unit_of(fleet: Fleet) -> str:
    """Return the unit of hours: those of GPUs, or of ranks if no run has GPUs."""
    return "GPU hours" if fleet.hours.gpus > 0 else "rank hours"


def _spent(hours: Hours, unit: str) -> tuple[float, float]:
    """Return the hours that are lost, and all."""
    return (hours.gpus_lost, hours.gpus) if unit == "GPU hours" else (hours.ranks_lost, hours.ranks)


def headline(fleet: Fleet) -> str:
    unit = unit_of(fleet)
    lost, whole = _spent(fleet.hours, unit)
    share = percent(lost / whole) if whole else UNKNOWN
    return (
        f"{plural(fleet.runs, 'run')} of {plural(fleet.jobs, 'job')} on "
        f"{plural(fleet.nodes, 'node')}: "
        f"{number(whole)} {unit}, {number(lost)} of them lost ({share})"
    )


def verdict(fleet: Fleet) -> str:
    """Return what to look at first, one sentence for each kind."""
    unit, said = unit_of(fleet), []
    if fleet.phases and (lost := _spent(fleet.phases[0].hours, unit)[0]):
        said.append(f"Most is lost in {visible(fleet.phases[0].phase)}: {number(lost)} {unit}.")
    if fleet.slow_nodes:
        node = fleet.slow_nodes[0]
        said.append(f"{visible(node.node)} takes {node.times:.2f} times as long as other nodes.")
    return " ".join(said)


def tables(fleet: Fleet) -> list[AnswerTable]:
    """Return all questions with their answers; all text is visible."""
    unit = unit_of(fleet)
    name = f"{unit[0].upper()}{unit[1:]}"
    found = [
        AnswerTable(
            f"{name} lost by phase",
            "Lost is the time for which a GPU was idle; where nobody read it, that of phases "
            "that leave it idle.",
            ("lost", "of", "share", "measured", "phase", "jobs"),
            ("lost", "of", "share", "measured", "jobs"),
            [_phase(one, unit) for one in fleet.phases],
        ),
        AnswerTable(
            "Findings that cost most",
            f"{name} that fixes give back at most; two findings may mean the same ones.",
            ("at most", "finding", "rule", "jobs", "runs", "most in"),
            ("at most", "jobs", "runs"),
            [_finding(one, unit) for one in fleet.findings],
            "No findings.",
        ),
        _functions(
            fleet.functions,
            unit,
            "Functions of your code that cost most, with what they call in libraries",
        ),
        _functions(fleet.leaves, unit, "Functions that cost most by themselves"),
        AnswerTable(
            "Slow nodes",
            "Steps against those of the same job, command and week on other nodes, without time "
            "in collectives; bounds hold for all nodes at once (95 %).",
            ("times", "bounds", "node", "runs", "jobs"),
            ("times", "bounds", "runs"),
            [
                (
                    f"{one.times:.2f}",
                    f"{one.low:.2f} to {one.high:.2f}",
                    one.node,
                    f"{one.runs:,}",
                    listed(one.jobs, 4),
                )
                for one in fleet.slow_nodes
            ],
            f"None of {plural(fleet.nodes_compared, 'node')} that could be compared is surely "
            "slow.",
        ),
    ]
    return [
        table._replace(rows=[tuple(map(visible, row)) for row in table.rows]) for table in found
    ]


def _phase(one: PhaseCost, unit: str) -> tuple[str, ...]:
    lost, whole = _spent(one.hours, unit)
    measured = (
        percent(min(one.hours.gpus_idle / lost, 1.0)) if unit == "GPU hours" and lost else UNKNOWN
    )
    share = percent(lost / whole) if whole else UNKNOWN
    return number(lost), number(whole), share, measured, one.phase, f"{one.jobs:,}"


def _finding(one: FindingCost, unit: str) -> tuple[str, ...]:
    lost = one.gpus_lost_at_most if unit == "GPU hours" else one.ranks_lost_at_most
    return number(lost), one.label, one.rule, f"{one.jobs:,}", f"{one.runs:,}", one.most_in


def _functions(functions: Sequence[FunctionCost], unit: str, title: str) -> AnswerTable:
    rows = []
    for one in functions:
        lost, whole = _spent(one.hours, unit)
        rows.append(
            (
                number(whole),
                number(lost),
                one.function,
                PurePath(one.file).name,
                one.phase,
                f"{one.jobs:,}",
            )
        )
    heads = (unit, "lost", "function", "file", "phase", "jobs")
    return AnswerTable(
        title, "Of the main threads of all ranks.", heads, (unit, "lost", "jobs"), rows
    )


ROWS = 12


def fleet_text(fleet: Fleet, cells: int = 100) -> str:
    """Return the answers as text; of long tables the first rows. No newline at the end."""
    lines: list[TextLine] = [Paragraph(headline(fleet)), f"{fleet.since} to {fleet.until}"]
    if said := verdict(fleet):
        lines += ["", Paragraph(said)]
    for table in tables(fleet):
        lines += ["", *_section(table, cells)]
    return joined(lines, cells)


def _section(table: AnswerTable, cells: int) -> Iterator[TextLine]:
    yield table.title
    if not table.rows:
        yield Paragraph(table.nothing or "Nothing.", "  ")
        return
    yield Paragraph(table.note, "  ")
    text = aligned(table.heads, table.rows[:ROWS], right=table.numbers, cells=cells - 2)
    yield from rows_of(text)
    if len(table.rows) > ROWS:
        yield f"  and {len(table.rows) - ROWS} more"


BAR_WIDTH = 160


def render_fleet_page(fleet: Fleet) -> str:
    """Return the answers as HTML; the page holds them as data too."""
    unit = unit_of(fleet)
    hours = [_spent(one.hours, unit) for one in fleet.phases]
    most = max((whole for _, whole in hours), default=0.0) or 1.0
    # How wide the bars of all and of lost hours are.
    bars = [(BAR_WIDTH * whole / most, BAR_WIDTH * lost / most) for lost, whole in hours[:16]]
    words = {
        "headline": headline(fleet),
        "verdict": verdict(fleet),
        "since": fleet.since,
        "until": fleet.until,
    }
    shown = {
        "samples": f"{fleet.samples:,}",
        "tables": tables(fleet),
        "bars": bars,
        "bar_width": BAR_WIDTH,
    }
    return render_page("fleet.html.j2", (), fleet, **words, **shown)
