"""The answers of a fleet in words and tables, on the terminal and as an HTML page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from profd.daemon.fleet.answers import FindingCost, Fleet, FunctionCost, Hours, PhaseCost, Slower, SlowNode
from profd.daemon.paths import write_whole
from profd.daemon.render.htmlpage import render_page
from profd.daemon.render.plaintext import fit, visible, width
from profd.daemon.units import UNKNOWN, number, percent, plural, step_time


class Table(NamedTuple):
    """A question with its answer; ``note`` says what the numbers are, ``numbers`` which columns are numbers.

    ``nothing`` is said where there are no rows.
    """

    title: str
    note: str
    heads: Sequence[str]
    numbers: frozenset[str]
    rows: Sequence[Sequence[str]]
    nothing: str = ""


class Unit(NamedTuple):
    """What hours are of: GPUs, or ranks where no run has GPUs."""

    gpus: bool

    @property
    def name(self) -> str:
        """The unit in words."""
        return "GPU hours" if self.gpus else "rank hours"

    def lost(self, hours: Hours) -> float:
        """Return the hours that are lost."""
        return hours.gpus_lost if self.gpus else hours.ranks_lost

    def whole(self, hours: Hours) -> float:
        """Return all hours."""
        return hours.gpus if self.gpus else hours.ranks

    def at_most(self, cost: FindingCost) -> float:
        """Return what a fix can give back at most."""
        return cost.gpus_lost_at_most if self.gpus else cost.ranks_lost_at_most


def unit_of(fleet: Fleet) -> Unit:
    """Return what hours of these answers are of."""
    return Unit(fleet.hours.gpus > 0)


def headline(fleet: Fleet) -> str:
    """Return what was looked at, and how much of it is lost."""
    unit = unit_of(fleet)
    lost, whole = unit.lost(fleet.hours), unit.whole(fleet.hours)
    share = percent(lost / whole) if whole else UNKNOWN
    return (
        f"{plural(fleet.runs, 'run')} of {plural(fleet.jobs, 'job')} on {plural(fleet.nodes, 'node')}: "
        f"{number(whole)} {unit.name}, {number(lost)} of them lost ({share})"
    )


def verdict(fleet: Fleet) -> str:
    """Return the one thing of each kind that is to be looked at first, as sentences."""
    unit, said = unit_of(fleet), []
    if fleet.phases and unit.lost(fleet.phases[0].hours):
        first = fleet.phases[0]
        said.append(f"Most is lost in {visible(first.phase)}: {number(unit.lost(first.hours))} {unit.name}.")
    if fleet.slow_nodes:
        node = fleet.slow_nodes[0]
        said.append(f"{visible(node.node)} takes {node.times:.2f} times as long as other nodes.")
    if fleet.slower:
        job = fleet.slower[0]
        said.append(f"{visible(job.job)} takes {job.times:.2f} times as long as {_week(job.weeks_ago)}.")
    return " ".join(said)


def tables(fleet: Fleet) -> list[Table]:
    """Return all questions with their answers."""
    return [
        _phases(fleet),
        _findings(fleet),
        _functions(fleet, fleet.functions, "Functions of your code that cost most, with what they call in libraries"),
        _functions(fleet, fleet.leaves, "Functions that cost most by themselves"),
        _nodes(fleet),
        _slower(fleet),
        _paces(fleet),
    ]


def _phases(fleet: Fleet) -> Table:
    unit = unit_of(fleet)
    rows = [_phase(one, unit) for one in fleet.phases]
    note = "Lost is the time for which a GPU was idle; where nobody read it, that of phases that leave it idle."
    heads = ("lost", "of", "share", "measured", "phase", "jobs")
    return Table(
        f"{unit.name[0].upper()}{unit.name[1:]} lost by phase", note, heads, frozenset((*heads[:4], "jobs")), rows
    )


def _phase(one: PhaseCost, unit: Unit) -> tuple[str, ...]:
    lost, whole = unit.lost(one.hours), unit.whole(one.hours)
    measured = percent(min(one.hours.gpus_idle / lost, 1.0)) if unit.gpus and lost else UNKNOWN
    share = percent(lost / whole) if whole else UNKNOWN
    return number(lost), number(whole), share, measured, visible(one.phase), f"{one.jobs:,}"


def _findings(fleet: Fleet) -> Table:
    unit = unit_of(fleet)
    rows = [
        (
            number(unit.at_most(one)),
            visible(one.label),
            visible(one.rule),
            f"{one.jobs:,}",
            f"{one.runs:,}",
            visible(one.most_in),
        )
        for one in fleet.findings
    ]
    note = f"{unit.name[0].upper()}{unit.name[1:]} that fixes give back at most; two findings may mean the same ones."
    heads = ("at most", "finding", "rule", "jobs", "runs", "most in")
    return Table("Findings that cost most", note, heads, frozenset(("at most", "jobs", "runs")), rows, "No findings.")


def _functions(fleet: Fleet, functions: Sequence[FunctionCost], title: str) -> Table:
    unit = unit_of(fleet)
    rows = [
        (
            number(unit.whole(one.hours)),
            number(unit.lost(one.hours)),
            visible(one.function),
            visible(PurePath(one.file).name),
            visible(one.phase),
            f"{one.jobs:,}",
        )
        for one in functions
    ]
    heads = (unit.name, "lost", "function", "file", "phase", "jobs")
    return Table(title, "Of the main threads of all ranks.", heads, frozenset((unit.name, "lost", "jobs")), rows)


def _nodes(fleet: Fleet) -> Table:
    rows = [_node(one) for one in fleet.slow_nodes]
    note = (
        "Steps against those of the same job, command and week on other nodes, without time in collectives; bounds "
        "hold for all nodes at once (95 %)."
    )
    nothing = f"None of {plural(fleet.nodes_compared, 'node')} that could be compared is surely slow."
    heads = ("times", "bounds", "node", "runs", "jobs")
    return Table("Slow nodes", note, heads, frozenset(("times", "bounds", "runs")), rows, nothing)


def _node(one: SlowNode) -> tuple[str, ...]:
    jobs = ", ".join(visible(job) for job in one.jobs[:4]) + (f" and {len(one.jobs) - 4} more" if one.jobs[4:] else "")
    return f"{one.times:.2f}", f"{one.low:.2f} to {one.high:.2f}", visible(one.node), f"{one.runs:,}", jobs


def _slower(fleet: Fleet) -> Table:
    compared = sum(1 for one in fleet.paces if one.why_untold is None)
    rows = [row for one in fleet.slower for row in _job(one)]
    note = (
        "Seconds a step in the last seven days against the week before, by how much runs differ by chance; bounds hold "
        "for all jobs at once (95 %). Below a job the phases that grew."
    )
    heads = ("times", "bounds", "before", "now", "job", "runs", "against")
    nothing = f"None of {plural(compared, 'job')} that could be compared is surely slower."
    return Table("Slower than last week", note, heads, frozenset(("times", "bounds", "before", "now")), rows, nothing)


def _job(one: Slower) -> list[tuple[str, ...]]:
    runs = f"{one.before} and {one.now}{'' if one.basis == 'runs' else f' {one.basis}'}"
    found: list[tuple[str, ...]] = [
        (
            f"{one.times:.2f}",
            f"{one.low:.2f} to {one.high:.2f}",
            step_time(one.before_s),
            step_time(one.now_s),
            visible(one.job),
            runs,
            _week(one.weeks_ago),
        )
    ]
    for phase in one.phases:
        bounds = f"+{step_time(phase.difference_low_s)} to +{step_time(phase.difference_high_s)}"
        found.append(
            ("", bounds, step_time(phase.before_s), step_time(phase.now_s), f"  {visible(phase.phase)}", "", "")
        )
    return found


def _paces(fleet: Fleet) -> Table:
    rows = []
    for one in fleet.paces:
        weeks = ", ".join(f"{step_time(week.step_s)} ({plural(week.runs, 'run')})" for week in one.weeks)
        rows.append((visible(one.job), weeks, one.why_untold or ""))
    note = "Seconds a step by the week, the last one last, without runs on slow nodes."
    return Table("Steps of each job", note, ("job", "weeks", "not compared, as"), frozenset(), rows)


def _week(weeks_ago: int) -> str:
    return "last week" if weeks_ago == 1 else f"{weeks_ago} weeks ago"


ROWS = 12
_CELLS = 48
_COLUMNS = 100


def fleet_text(fleet: Fleet) -> str:
    """Return the answers as text; of long tables the first rows. No newline at the end."""
    lines = [headline(fleet), f"{fleet.since} to {fleet.until}"]
    if said := verdict(fleet):
        lines += ["", said]
    for table in tables(fleet):
        lines += ["", *_section(table)]
    return "\n".join(line.rstrip() for line in lines)


def _section(table: Table) -> Iterator[str]:
    yield table.title
    if not table.rows:
        yield f"  {table.nothing or 'Nothing.'}"
        return
    yield from textwrap.wrap(table.note, _COLUMNS, initial_indent="  ", subsequent_indent="  ")
    shown = [table.heads, *table.rows[:ROWS]]
    widths = [min(max(width(row[column]) for row in shown), _CELLS) for column in range(len(table.heads))]
    for row in shown:
        yield "  " + "  ".join(
            _cell(text, cells, head in table.numbers)
            for text, cells, head in zip(row, widths, table.heads, strict=True)
        )
    if len(table.rows) > ROWS:
        yield f"  and {len(table.rows) - ROWS} more"


def _cell(text: str, cells: int, is_number: bool) -> str:
    return " " * max(cells - width(text), 0) + fit(text, min(cells, width(text))) if is_number else fit(text, cells)


BAR_WIDTH = 160
_BARS = 16


def write_fleet_page(path: Path, fleet: Fleet) -> None:
    """Write the answers to ``path``, whole or not at all; raises OutputUnwritable."""
    write_whole(path, render_fleet_page(fleet).encode())


def render_fleet_page(fleet: Fleet) -> str:
    """Return the answers as HTML; the page holds them as data too."""
    return render_page(
        "fleet.html.j2",
        (),
        fleet,
        headline=headline(fleet),
        verdict=verdict(fleet),
        since=fleet.since,
        until=fleet.until,
        samples=f"{fleet.samples:,}",
        tables=tables(fleet),
        bars=_bars(fleet),
        bar_width=BAR_WIDTH,
    )


def _bars(fleet: Fleet) -> list[tuple[str, float, float]]:
    """Return of each phase how wide the bars of its hours and of those lost are."""
    unit = unit_of(fleet)
    most = max((unit.whole(one.hours) for one in fleet.phases), default=0.0) or 1.0
    return [
        (visible(one.phase), BAR_WIDTH * unit.whole(one.hours) / most, BAR_WIDTH * unit.lost(one.hours) / most)
        for one in fleet.phases[:_BARS]
    ]
