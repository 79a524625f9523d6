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
    aligned,
    bar,
    cut,
    joined,
    rows_of,
    visible,
)
from profd.daemon.render.summary import ProcessSummary, Summary
from profd.daemon.units import UNKNOWN, duration, percent, rate, size, step_time

_PROCESSES = 12
_NAMED = 4
_OUTSIDE = "outside"
_LEAST_LINE = 0.01
"""A line with a smaller share of a step is not listed."""


def closing_lines(summary: Summary, nexts: Mapping[str, str], cells: int = WIDTH) -> str:
    """Return the words at the end of a session: how the run ended, its largest phases, their basis.

    ``nexts`` are by name what there is of the run, each a path or the command that shows it. They
    are never cut, because they are there to be copied. No newline at the end.
    """
    lines: list[TextLine] = [f"profd  {_title(summary)}"]
    in_step = {one.name: one for group in _groups(summary) for one in group.parts}
    rows: list[Sequence[str]] = []
    for name in [name for name, share in summary.phases.items() if share >= 0.05][:5]:
        rows += itertools.islice(_phase_rows(summary, name, in_step.get(name)), 1)
    lines += _table(_HEADS, rows, cells)
    verdict = sections.verdict(summary.findings, summary.phases, summary.samples)
    for hang in summary.hangs[-1:]:
        verdict = f"{sections.ALARM} {hang.text}; {sections.went_on(hang)}"
    lines.append(Paragraph(verdict))
    lines += (Paragraph(f"{sections.ALARM} {text}") for text in _unread(summary)[:1])
    lines.append(Paragraph(_evidence(summary)))
    found = (visible(f"{name}: {what}") for name, what in nexts.items())
    return "\n".join([joined(lines, cells), *found])


def summary_text(summary: Summary, cells: int = WIDTH) -> str:
    """Return a summary as text, no line wider than ``cells``, no newline at the end."""
    roles = {row.pid: _role(row) for row in summary.processes}
    worked = {} if summary.hangs else summary.phases  # of a run that hung this says nothing
    leader = led_by(summary.leading_threads)
    step = f"; a step takes {step_time(summary.step.seconds)}" if summary.step else ""
    lines = [
        *_about(summary),
        *_section("How it ended", sections.post_mortem_lines(summary.post_mortem)),
        *_section("Hangs", sections.hang_lines(summary.hangs)),
        *_section(None, sections.finding_lines(summary.findings, worked, summary.samples)),
        *_section(f"Phases of {leader}{step}", _phase_table(summary, cells)),
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
        cost = sections.cost_words(summary.cost_core_share, summary.duration_s)
        facts.append(f"profd cost {cost}")
    return " · ".join(facts)


def _unread(summary: Summary) -> Sequence[str]:
    """Return what was not read, and why; in a run without samples that is all there is to say."""
    return (summary.no_samples,) if summary.no_samples else summary.unread


def _section(title: str | None, rows: Iterable[TextLine]) -> Iterator[TextLine]:
    """Yield an empty line, a title, if any, and its rows; nothing without rows."""
    found = list(rows)
    if found:
        yield from ("", *([title] if title else []), *found)


_HEADS = ("phase", "share", "a step", "", "where", "line")
_RIGHT = ("share", "a step", "self", "total", "GPU")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], cells: int) -> Iterator[str]:
    """Yield a table of phases or functions; nothing without rows."""
    whole = ("phase", "function")
    text = aligned(heads, rows, right=_RIGHT, whole=whole, paths=("where",), cells=cells - 2)
    yield from rows_of(text) if rows else ()


def _groups(summary: Summary) -> Sequence[StepPart]:
    return summary.step.parts if summary.step else ()


def _phase_table(summary: Summary, cells: int) -> Iterator[str]:
    """Yield the phases, the largest first; below their groups if the time of a step is known."""
    rows: list[Sequence[str]] = []
    left = dict(summary.phases)
    for group in _groups(summary):
        share = math.fsum(left.pop(phase.name) for phase in group.parts)
        rows.append((group.name, _share(share), step_time(group.seconds), "", "", ""))
        for phase in group.parts:
            rows += _phase_rows(summary, phase.name, phase)
    if left and rows:
        rows.append((_OUTSIDE, _share(math.fsum(left.values())), "", "", "", ""))
    for name in left:
        rows += _phase_rows(summary, name, None)
    yield from _table(_HEADS, rows, cells)


def _phase_rows(summary: Summary, name: str, in_step: StepPart | None) -> Iterator[Sequence[str]]:
    """Yield the cells of a phase, and of what is known of its rest."""
    share = summary.phases[name]
    line = [(_place(one), one.source or "") for one in summary.phase_lines if one.phase == name]
    yield (
        f"{phase_named(name).letter}  {name}",
        _share(share, _margin(summary.phase_errors[name])),
        step_time(in_step.seconds) if in_step else "",
        bar(share),
        *(line[0] if line else ("", "")),
    )
    for what, of_rest in itertools.islice(summary.rest.get(name, {}).items(), _NAMED):
        yield f"     {what}", _share(of_rest), "", "", "", ""
    if in_step:
        yield from _line_rows(in_step)


def _line_rows(phase: StepPart) -> Iterator[Sequence[str]]:
    """Yield the cells of the lines of a phase, if it has several."""
    parts = [one for one in phase.parts if one.share >= _LEAST_LINE]
    for one in parts[:_NAMED] if len(parts) > 1 else ():
        source = one.place.source if one.place else None
        yield "", "", step_time(one.seconds), "", one.name, source or ""


def _share(share: float, error: str = "") -> str:
    return f"{percent(share):>5} {error:6}"


def _function_table(functions: Sequence[FunctionRow], cells: int) -> Iterator[str]:
    heads = ("self", "total", "GPU", "function", "where", "line")
    rows = []
    for row in functions[:10]:
        own = f"{percent(row.self_share, 1)} {_margin(row.self_error)}"
        gpu = "" if row.gpu_utilization is None else percent(row.gpu_utilization)
        name = cut(row.function, cells // 3)
        rows.append((own, percent(row.total_share, 1), gpu, name, _place(row), row.source or ""))
    yield from _table(heads, rows, cells)


def _process_table(processes: Sequence[ProcessSummary]) -> Iterator[str]:
    heads = ("pid", "role", "CPU", "RSS", "hottest function")
    rows = []
    for process in processes[:_PROCESSES]:
        hot = [
            f"{percent(row.self_share):>5}  {row.function}  {_place(row)}"
            for row in process.functions[:1]
        ]
        use = percent(process.cpu_cores), size(process.rss_bytes)
        rows.append((str(process.pid), _role(process), *use, *(hot or [UNKNOWN])))
    if rows:
        yield from rows_of(aligned(heads, rows, right=("pid", "CPU", "RSS")))
    if len(processes) > _PROCESSES:
        yield f"  and {len(processes) - _PROCESSES} more"


def _role(process: ProcessSummary) -> str:
    return process_title(process.role, process.ordinal, process.rank)


def _place(line: FunctionRow | PhaseLine) -> str:
    return f"{line.module_path}:{line.line}"


def _margin(error: float) -> str:
    """Return the margin of a share with this standard error, in points, for a 95 % interval."""
    return f"± {100 * min(margin(error), 1):.1f}".ljust(6)
