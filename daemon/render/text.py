"""A summary as plain text, without control characters, for the end of a session and ``summary``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from profd.daemon.analyze.confidence import margin
from profd.daemon.analyze.phases import phase_named
from profd.daemon.analyze.profile import FunctionRow, PhaseLine
from profd.daemon.analyze.selection import led_by
from profd.daemon.analyze.steps import Steps
from profd.daemon.analyze.steptree import StepPart
from profd.daemon.naming import process_title, script
from profd.daemon.render import sections
from profd.daemon.render.operators import operator_lines
from profd.daemon.render.plaintext import (
    WIDTH,
    Paragraph,
    TextLine,
    bar,
    fit,
    joined,
    visible,
    width,
)
from profd.daemon.render.summary import ProcessSummary, Summary
from profd.daemon.units import UNKNOWN, duration, percent, rate, size, step_time

_PROCESSES = 12
_NAMED = 4
_OUTSIDE = "outside"
_LEAST_LINE = 0.01
"""A line with a smaller share of a step is not listed."""
_BAR_CELLS, _LEAST_SOURCE_CELLS = 12, 12


def closing_lines(summary: Summary, nexts: Mapping[str, str], cells: int = WIDTH) -> str:
    """Return the words at the end of a session: how the run ended, its largest phases, their basis.

    ``nexts`` are by name what there is of the run, each a path or the command that shows it. They
    are never cut, because they are there to be copied. No newline at the end.
    """
    lines: list[TextLine] = [f"profd  {_title(summary)}"]
    shown = [(name, share) for name, share in summary.phases.items() if share >= 0.05][:5]
    known = _lines_of_phases(summary)
    places = [known.get(name, ("", "")) for name, _ in shown]
    name_cells = _widest(name for name, _ in shown)
    place_cells = _widest((place for place, _ in places), _place_cells(cells))
    in_step = _phases_of_step(summary)
    for (name, share), (place, source) in zip(shown, places, strict=True):
        where = f"{fit(name, name_cells)}   {fit(place, place_cells, keep_end=True)}"
        took = _time_of(in_step.get(name)) + "  " if in_step else ""
        lines.append(_with_source(f"  {percent(share):>5}  {took}{where}", source, cells))
    verdict = sections.verdict(summary.findings, summary.phases)
    for hang in summary.hangs[-1:]:
        verdict = f"{sections.ALARM} {hang.text}; {sections.went_on(hang)}"
    lines.append(Paragraph(verdict))
    lines += (Paragraph(f"{sections.ALARM} {text}") for text in _unread(summary)[:1])
    lines.append(Paragraph(_evidence(summary)))
    name_cells = _widest(nexts)
    found = (visible(f"{fit(f'{name}:', name_cells + 1)} {what}") for name, what in nexts.items())
    return "\n".join([joined(lines, cells), *found])


def summary_text(summary: Summary, cells: int = WIDTH) -> str:
    """Return a summary as text, no line wider than ``cells``, no newline at the end."""
    roles = {row.pid: _role(row) for row in summary.processes}
    worked = {} if summary.hangs else summary.phases  # of a run that hung this says nothing
    leader = led_by(summary.leading_threads)
    lines = [
        *_about(summary),
        *_section("How it ended", sections.post_mortem_lines(summary.post_mortem)),
        *_section("Hangs", sections.hang_lines(summary.hangs)),
        *_section(None, sections.finding_lines(summary.findings, worked)),
        *_section(f"Phases of {leader}{_of_a_step(summary)}", _phase_table(summary, cells)),
        *_section(f"Hot functions of {leader}", _function_table(summary.functions, cells)),
        *_section("Operators of the last window", operator_lines(summary.last_window)),
        *_section("Ranks", sections.rank_lines(summary.ranks)),
        *_section("Nodes", sections.node_lines(summary.nodes)),
        *_section("GPUs", sections.gpu_lines(summary.gpus)),
        *sections.idle_lines(summary.gpu_idle),
        *_section("Processes", _process_table(summary.processes)),
        *_section("Growing memory", sections.growth_lines(summary.memory, roles)),
    ]
    return joined(lines, cells)


def _about(summary: Summary) -> Iterator[TextLine]:
    """Yield what the run is, its evidence, and what was lost or not read of it."""
    steps = summary.steps
    yield from (_title(summary), f"pid {summary.target.pid} · {summary.run}")
    if steps.source is not None and steps.per_s_error is not None:
        yield f"steps by {steps.source}, ± {rate(steps.per_s_error)}"
    yield Paragraph(steps.why_unknown or "")
    yield Paragraph(_evidence(summary))
    yield from (Paragraph(f"lost: {text}") for text in summary.losses)
    for gap in summary.gaps:
        yield Paragraph(f"not read for {duration(gap.seconds)}: {gap.reason} ({gap.text})")
    yield from (Paragraph(f"{sections.ALARM} {text}") for text in _unread(summary))


def how_it_ended(summary: Summary) -> str:
    """Return a sentence without its full stop: ``train.py ended with 0 after 20.0 s``."""
    colon = "" if summary.ending.startswith(("ended", "stopped")) else ":"
    name = script(summary.target.command)
    return f"{name}{colon} {summary.ending} after {duration(summary.duration_s)}"


def _title(summary: Summary) -> str:
    title = how_it_ended(summary)
    steps = summary.steps
    if steps.count is not None:
        title += f", {exactness(steps)}{steps.count:,} steps"
        title += f" at {rate(steps.per_s)}" if steps.per_s is not None else ""
    elif steps.per_s is not None:
        title += f", {rate(steps.per_s)} steps"
    return title


def exactness(steps: Steps) -> str:
    """Return the mark before a step count that is less exact than its digits suggest."""
    matters = 0.02 * (steps.count or 0)
    if steps.unseen > matters:
        return "at least "
    error = (steps.count_error or 0) + steps.unseen
    # A step is whole, the moment of a reading lies within one.
    return "~" if error > 1 or error > matters else ""


def _evidence(summary: Summary) -> str:
    if not summary.samples:
        return "no samples"
    facts = [f"{summary.samples:,} samples"]
    if summary.coverage is not None:
        facts[0] += f" over {percent(summary.coverage, 1)} of the run"
    if summary.torn_share:
        facts.append(f"{percent(summary.torn_share, 1)} torn")
    if summary.cost_core_share is not None:
        facts.append(f"profd cost {percent(summary.cost_core_share, 1)} of a core")
    return " · ".join(facts)


def _unread(summary: Summary) -> Sequence[str]:
    """Return what was not read, and why; in a run without samples that is all there is to say."""
    return (summary.no_samples,) if summary.no_samples else summary.unread


def _section(title: str | None, rows: Iterable[TextLine]) -> Iterator[TextLine]:
    """Yield an empty line, a title, if any, and its rows; nothing without rows."""
    found = list(rows)
    if found:
        yield from ("", *([title] if title else []), *found)


def _lines_of_phases(summary: Summary) -> dict[str, tuple[str, str]]:
    """Return by phase the place and the text of the line that most of it was called from."""
    return {line.phase: (_place(line), line.source or "") for line in summary.phase_lines}


def _phases_of_step(summary: Summary) -> dict[str, StepPart]:
    """Return by name what phases take of a step; nothing if its time is unknown."""
    groups = summary.step.parts if summary.step else ()
    return {phase.name: phase for group in groups for phase in group.parts}


def _of_a_step(summary: Summary) -> str:
    return (
        f", with their time in a step of {step_time(summary.step.seconds)}" if summary.step else ""
    )


def _time_of(part: StepPart | None) -> str:
    return f"{step_time(part.seconds) if part else '':>8}"


def _phase_table(summary: Summary, cells: int) -> Iterator[str]:
    """Yield the phases, the largest first; below their groups if the time of a step is known."""
    if summary.step is None:
        yield from _phase_rows(summary, summary.phases, cells)
        return
    outside = dict(summary.phases)
    name_cells = _widest((*summary.phases, _OUTSIDE)) + 3
    groups = [(one, [phase.name for phase in one.parts]) for one in summary.step.parts]
    for group, names in groups:
        share = percent(math.fsum(outside.pop(name) for name in names))
        yield f"  {fit(group.name, name_cells)}  {share:>5} {_time_of(group):>14}"
        yield from _phase_rows(summary, names, cells)
    if outside:
        yield f"  {fit(_OUTSIDE, name_cells)}  {percent(math.fsum(outside.values())):>5}"
        yield from _phase_rows(summary, outside, cells)


def _phase_rows(summary: Summary, names: Iterable[str], cells: int) -> Iterator[str]:
    known, in_step = _lines_of_phases(summary), _phases_of_step(summary)
    name_cells = _widest((*summary.phases, *([_OUTSIDE] if in_step else ())))
    place_cells = _widest((place for place, _ in known.values()), _place_cells(cells))
    bar_cells = min(max((cells - WIDTH) // 2, 0), _BAR_CELLS) if in_step else _BAR_CELLS
    blank = " " * (bar_cells + 2) if bar_cells else ""
    for name in names:
        share, (place, source) = summary.phases[name], known.get(name, ("", ""))
        took = _time_of(in_step.get(name)) if in_step else ""
        shown = f"{percent(share):>5} {_margin(summary.phase_errors[name])}{took}"
        row = (
            f"  {phase_named(name).letter}  {fit(name, name_cells)}  {shown}  "
            f"{bar(share, bar_cells):{len(blank)}}{fit(place, place_cells, keep_end=True)}"
        )
        yield _with_source(row, source, cells)
        for what, part in itertools.islice(summary.rest.get(name, {}).items(), _NAMED):
            yield f"       {percent(part):>5} {what}"
        found = in_step[name].parts if name in in_step else ()
        lines = [line for line in found if line.share >= _LEAST_LINE][:_NAMED]
        for line in lines if len(lines) > 1 else ():
            where = fit(line.name, place_cells, keep_end=True)
            row = f"{_time_of(line):>{name_cells + 27}}  {blank}{where}"
            yield _with_source(row, line.place.source if line.place else None, cells)


def _with_source(row: str, source: str | None, cells: int) -> str:
    """Return a row with the text of its line, if that has room; cut it is of little use."""
    room = cells - width(row) - 2
    return f"{row}  {source}" if source and room >= min(width(source), _LEAST_SOURCE_CELLS) else row


def _place_cells(cells: int) -> int:
    """Return the most cells that a table as wide as this gives to a place."""
    return 22 + (cells - WIDTH) // 3


def _function_table(functions: Sequence[FunctionRow], cells: int) -> Iterator[str]:
    shown = functions[:10]
    name_cells = _widest((row.function for row in shown), 24 + (cells - WIDTH) // 3)
    place_cells = _widest(map(_place, shown), _place_cells(cells))
    with_gpu = any(row.gpu_utilization is not None for row in shown)
    if shown:
        yield (
            f"     self          total{'   GPU' if with_gpu else ''}  "
            f"{fit('function', name_cells)}  {fit('where', place_cells)}  line"
        )
    for row in shown:
        own = f"{percent(row.self_share, 1):>7} {_margin(row.self_error)}"
        gpu = f"{percent(row.gpu_utilization):>6}" if with_gpu else ""
        where = f"{fit(row.function, name_cells)}  {fit(_place(row), place_cells, keep_end=True)}"
        text = f"  {own} {percent(row.total_share, 1):>7}{gpu}  {where}"
        yield _with_source(text, row.source, cells)


def _process_table(processes: Sequence[ProcessSummary]) -> Iterator[str]:
    if processes:
        yield f"      pid  {'role':12}    CPU       RSS  hottest function"
    for process in processes[:_PROCESSES]:
        doing = UNKNOWN
        for row in process.functions[:1]:
            doing = f"{percent(row.self_share):>5}  {row.function}  {_place(row)}"
        use = f"{percent(process.cpu_cores):>5}  {size(process.rss_bytes):>8}"
        yield f"  {process.pid:>7}  {fit(_role(process), 12)}  {use}  {doing}"
    if len(processes) > _PROCESSES:
        yield f"  and {len(processes) - _PROCESSES} more"


def _role(process: ProcessSummary) -> str:
    return process_title(process.role, process.ordinal, process.rank)


def _widest(texts: Iterable[str], limit: int = WIDTH) -> int:
    return min(max((width(visible(text)) for text in texts), default=0), limit)


def _place(line: FunctionRow | PhaseLine) -> str:
    return f"{line.module_path}:{line.line}"


def _margin(error: float) -> str:
    """Return the margin of a share with this standard error, in points, for a 95 % interval."""
    return f"± {100 * min(margin(error), 1):.1f}".ljust(6)
