"""A summary as plain text, without control characters, for the end of a session and ``summary``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from profd.daemon.analyze.confidence import margin
from profd.daemon.analyze.phases import phase_named
from profd.daemon.analyze.profile import FunctionRow, PhaseLine
from profd.daemon.analyze.selection import led_by
from profd.daemon.analyze.steps import Steps
from profd.daemon.naming import process_title, script
from profd.daemon.render import sections
from profd.daemon.render.operators import operator_lines
from profd.daemon.render.plaintext import WIDTH, bar, fit, joined, visible, width, wrapped
from profd.daemon.render.summary import ProcessSummary, Summary
from profd.daemon.units import UNKNOWN, duration, percent, rate, size

_PROCESSES = 12
_NAMED = 4
_BAR_CELLS, _FUNCTION_CELLS, _PLACE_CELLS = 12, 24, 22


def closing_lines(summary: Summary, report: str) -> str:
    """Return the words at the end of a session: how the run ended, its largest phases, their basis.

    ``report`` is the path of its report, or the command that writes one. No newline at the end.
    """
    lines = [f"profd  {_title(summary)}"]
    shown = [(name, share) for name, share in summary.phases.items() if share >= 0.05][:5]
    known = _lines_of_phases(summary)
    places = [known.get(name, ("", "")) for name, _ in shown]
    name_cells = _widest(name for name, _ in shown)
    place_cells = _widest((place for place, _ in places), _PLACE_CELLS)
    for (name, share), (place, source) in zip(shown, places, strict=True):
        where = f"{fit(name, name_cells)}   {fit(place, place_cells, keep_end=True)}"
        lines.append(f"  {percent(share):>5}  {where}   {source}")
    verdict = sections.verdict(summary.findings, summary.phases)
    for hang in summary.hangs[-1:]:
        verdict = f"{sections.ALARM} {hang.text}; {sections.went_on(hang)}"
    lines += wrapped(verdict)
    for text in _unread(summary)[:1]:
        lines += wrapped(f"{sections.ALARM} {text}")
    # Never cut: these two are there to be copied.
    facts = [f"{_evidence(summary)} · {summary.run}", f"report: {report}"]
    return "\n".join([joined(lines, WIDTH), *map(visible, facts)])


def summary_text(summary: Summary) -> str:
    """Return a summary as text, no line wider than ``WIDTH``, no newline at the end."""
    roles = {row.pid: _role(row) for row in summary.processes}
    worked = {} if summary.hangs else summary.phases  # of a run that hung this says nothing
    leader = led_by(summary.leading_threads)
    lines = [
        *_about(summary),
        *_section("How it ended", sections.post_mortem_lines(summary.post_mortem)),
        *_section("Hangs", sections.hang_lines(summary.hangs)),
        *_section(None, sections.finding_lines(summary.findings, worked)),
        *_section(f"Phases of {leader}", _phase_table(summary)),
        *_section(f"Hot functions of {leader}", _function_table(summary.functions)),
        *_section("Operators of the last window", operator_lines(summary.last_window)),
        *_section("Ranks", sections.rank_lines(summary.ranks)),
        *_section("Nodes", sections.node_lines(summary.nodes)),
        *_section("GPUs", sections.gpu_lines(summary.gpus)),
        *sections.idle_lines(summary.gpu_idle),
        *_section("Processes", _process_table(summary.processes)),
        *_section("Growing memory", sections.growth_lines(summary.memory, roles)),
    ]
    return joined(lines, WIDTH)


def _about(summary: Summary) -> Iterator[str]:
    """Yield what the run is, its evidence, and what was lost or not read of it."""
    steps = summary.steps
    yield from (_title(summary), f"pid {summary.target.pid} · {summary.run}")
    if steps.source is not None and steps.per_s_error is not None:
        yield f"steps by {steps.source}, ± {rate(steps.per_s_error)}"
    yield from wrapped(steps.why_unknown or "")
    yield _evidence(summary)
    yield from (f"lost: {text}" for text in summary.losses)
    for gap in summary.gaps:
        yield f"not read for {duration(gap.seconds)}: {gap.reason} ({gap.text})"
    for text in _unread(summary):
        yield from wrapped(f"{sections.ALARM} {text}")


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


def _section(title: str | None, rows: Iterable[str]) -> Iterator[str]:
    """Yield an empty line, a title, if any, and its rows; nothing without rows."""
    found = list(rows)
    if found:
        yield from ("", *([title] if title else []), *found)


def _lines_of_phases(summary: Summary) -> dict[str, tuple[str, str]]:
    """Return by phase the place and the text of the line that most of it was called from."""
    return {line.phase: (_place(line), line.source or "") for line in summary.phase_lines}


def _phase_table(summary: Summary) -> Iterator[str]:
    known = _lines_of_phases(summary)
    name_cells = _widest(summary.phases)
    place_cells = _widest((place for place, _ in known.values()), _PLACE_CELLS)
    for name, share in summary.phases.items():
        place, source = known.get(name, ("", ""))
        shown = f"{percent(share):>5} {_margin(summary.phase_errors[name])}"
        yield (
            f"  {phase_named(name).letter}  {fit(name, name_cells)}  {shown}  "
            f"{bar(share, _BAR_CELLS):{_BAR_CELLS}}  {fit(place, place_cells, keep_end=True)}  "
            f"{source}"
        )
        for what, part in itertools.islice(summary.rest.get(name, {}).items(), _NAMED):
            yield f"       {percent(part):>5} {what}"


def _function_table(functions: Sequence[FunctionRow]) -> Iterator[str]:
    shown = functions[:10]
    name_cells = _widest((row.function for row in shown), _FUNCTION_CELLS)
    place_cells = _widest(map(_place, shown), _PLACE_CELLS)
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
        yield f"  {own} {percent(row.total_share, 1):>7}{gpu}  {where}  {row.source or ''}"


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
