"""Sections of a summary as lines: findings, GPUs, memory, hangs, a target's death, ranks, nodes.

Ranks and nodes are also tables of the report.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

from profd.daemon.analyze.gpu import Gpu, GpuIdle
from profd.daemon.analyze.idletime import IdleShare
from profd.daemon.analyze.incidents import Hang, LastPlace, PostMortem
from profd.daemon.analyze.job import RankPart, RankSummary
from profd.daemon.analyze.memory import Growth
from profd.daemon.analyze.phases import STARTUP, STEP
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.findings.finding import INFO, LEAST_SAMPLES, Finding
from profd.daemon.naming import listed
from profd.daemon.render.plaintext import Paragraph, TextLine, aligned, rows_of, visible
from profd.daemon.render.summary import Summary
from profd.daemon.store.merge import JoinedNode
from profd.daemon.store.stepfunction import MEMORY_OF_PROCESS
from profd.daemon.units import UNKNOWN, duration, number, percent, rate, size, step_time

ALARM, WORTH_KNOWING, GOOD = "▲", "·", "✓"

COMPUTE_SHARE = 0.8
"""From this share of time in the phases of a step on, a training computes all the time."""
SEEN_SHARE = 0.1
"""From this share of them on, a program trains."""
MUCH_STARTUP = 0.2
"""If startup takes this share of a range, only the rest of it is called compute."""
SETTLED_S = 60.0
"""After this time the cost of starting is little beside the rest."""
_LARGE_GAIN = 1.5
"""A remark whose remedy may bring as much as that is more than worth knowing."""


def cost_words(cores: float, length_s: float) -> str:
    """Return what profd costs a run of this length: of a short one its CPU time.

    Starting takes as much however long a run is, so its share of a core says little there.
    """
    if length_s < SETTLED_S:
        return f"{duration(cores * length_s)} of CPU"
    return f"{percent(cores, 1)} of a core"


def alarm(findings: Sequence[Finding]) -> Finding | None:
    """Return the first finding if one is above info."""
    return findings[0] if any(one.severity != INFO for one in findings) else None


def verdict(findings: Sequence[Finding], phases: Mapping[str, float], samples: int) -> str:
    """Return the strongest finding, otherwise how much of the time is compute.

    Stacks can't tell whether a step needs all that it computes, nor in which precision it does.

    Empty if hardly any is. ``phases`` are the shares of the main thread's time, which rest on so
    many ``samples``. If startup takes much, only the rest counts.
    """
    if (warned := alarm(findings)) is not None:
        return _said(warned)
    work, startup = worked_share(phases), phases.get(STARTUP, 0.0)
    what = "is forward, backward and optimizer"
    if work < SEEN_SHARE:
        return ""
    if samples < LEAST_SAMPLES:
        return f"{WORTH_KNOWING} too few samples for findings: {samples} of {LEAST_SAMPLES}"
    if work < COMPUTE_SHARE:
        return f"{WORTH_KNOWING} no warning, and {percent(work)} of the training's time {what}"
    if startup >= MUCH_STARTUP:
        begun = f"{percent(startup)} of the time is startup and import"
        return f"{WORTH_KNOWING} {begun}; of the rest {percent(work)} {what}"
    # With a remark on much, a training is not called all compute.
    large = (one for one in findings if (one.gain_bound or 0.0) >= _LARGE_GAIN)
    if (remark := next(large, None)) is not None:
        return _said(remark)
    return f"{GOOD} all compute: {percent(work)} of the training's time {what}"


_ASKING_MORE = (
    "Stacks can't tell whether all of it is needed, nor its precision: a torch window shows its "
    "operators (profd run --torch-window)."
)


def worked_share(phases: Mapping[str, float]) -> float:
    """Return the share of forward, loss, backward and optimizer in the time after startup."""
    return math.fsum(phases.get(name, 0.0) for name in STEP) / (
        (1 - phases.get(STARTUP, 0.0)) or 1.0
    )


def finding_lines(
    findings: Sequence[Finding], phases: Mapping[str, float], samples: int
) -> Iterator[TextLine]:
    """Yield each finding and its remedy, below the verdict if that is no finding."""
    if (whole := verdict(findings, phases, samples)) not in map(_said, findings):
        yield Paragraph(whole)
        if whole.startswith(GOOD):
            yield Paragraph(_ASKING_MORE, "  ")
    for finding in findings:
        yield Paragraph(_said(finding))
        yield Paragraph(finding.remedy, "  ")


def _said(finding: Finding) -> str:
    return f"{mark(finding)} {visible(finding.title)}"


def mark(finding: Finding) -> str:
    """Return the sign before a finding: of an alarm, or of what is worth knowing."""
    return WORTH_KNOWING if finding.severity == INFO else ALARM


_LEAST_IDLE = 0.05
_VAGUE = 0.5
"""A wider range for a share of the idle time says too little."""


def gpu_lines(gpus: Iterable[Gpu]) -> Iterator[str]:
    for gpu in gpus:
        facts = [f"utilized {percent(gpu.utilization)}"]
        if gpu.memory_used_bytes is not None:
            whole = "" if gpu.memory_bytes is None else f" of {size(gpu.memory_bytes)}"
            facts.append(f"memory {size(gpu.memory_used_bytes)}{whole}")
        if gpu.power_watts is not None:
            facts.append(f"{gpu.power_watts:.0f} W")
        if gpu.energy_joules is not None:
            facts.append(f"{number(gpu.energy_joules / 3600)} Wh")
        yield f"  {visible(gpu.device)}  {visible(gpu.name)}: {', '.join(facts)}"


def idle_lines(idle: GpuIdle | None) -> Iterator[TextLine]:
    """Yield for how long the GPUs were idle, if any was read, and in which phases that may lie."""
    if idle is None:
        return
    yield ""
    yield (
        f"GPU idle {percent(idle.share)} of the time: {duration(idle.share * idle.known_s)} of "
        f"{duration(idle.known_s)} of all GPUs"
    )
    for phase, found in idle.phases.items():
        if found.high < _LEAST_IDLE or found.high - found.low > _VAGUE:
            continue
        line = next((one for one in idle.lines if one.phase == phase), None)
        place = f" ({line.module_path}:{line.line}  {line.source or ''})" if line else ""
        yield Paragraph(f"{of_idle(found)} of the idle time is {phase}{place}", "  ")
    yield f"  gaps shorter than {step_time(idle.period_s)} are resolved in windows only"


def of_idle(found: IdleShare) -> str:
    """Return the range of a share of the idle time, with its estimate if there is one."""
    low, high = percent(found.low).removesuffix(" %"), percent(found.high)
    text = high if f"{low} %" == high else f"{low}-{high}"
    is_close = found.high - found.low < _LEAST_IDLE
    return (
        text if found.estimate is None or is_close else f"{text} (about {percent(found.estimate)})"
    )


def growth_lines(memory: Iterable[Growth], names: Mapping[int, str]) -> Iterator[TextLine]:
    """Yield a line for each process that grows, and one for each GPU that it grows on.

    ``names`` are roles by PID.
    """
    growing = [growth for growth in memory if growth.verdict == "growing"]
    resident = {growth.pid for growth in growing if growth.series == "rss_bytes"}
    for growth in growing:
        # PSS is part of RSS: one line is enough.
        if growth.series != "pss_bytes" or growth.pid not in resident:
            name = names.get(growth.pid, "process")
            yield Paragraph(f"{name} {growth.pid} {growth_words(growth)}", "  ▲ ")


def growth_words(growth: Growth) -> str:
    """Return how memory grows, by the second and the step, and when it reaches its limit.

    Empty if unknown.
    """
    if growth.verdict != "growing":
        cached = "grows by pages of files, which the kernel takes back"
        return {"steady": "steady", "cached": cached}.get(growth.verdict, "")
    low, high = growth.interval_bytes_per_s or (0.0, 0.0)
    where = f" on {growth.device}" if growth.series == MEMORY_OF_PROCESS else ""
    text = f"grows{where} by {size(growth.slope_bytes_per_s)}/s ± {size((high - low) / 2)}"
    if growth.bytes_per_step is not None:
        text += f", {size(growth.bytes_per_step)} a step"
    if growth.limit is None or growth.time_to_limit_s is None:
        return text
    limit = {"host": "the machine", "cgroup": "its control group"}.get(
        growth.limit.kind, growth.limit.name
    )
    return f"{text}: {limit} is full in {duration(growth.time_to_limit_s)}"


def hang_lines(hangs: Sequence[Hang]) -> Iterator[TextLine]:
    for hang in hangs:
        yield Paragraph(
            f"{duration(hang.since_s)} into the run: {hang.text}; {went_on(hang)}", "  ▲ "
        )
        for place in hang.places[:6]:
            names = [
                stand.process if stand.is_main else f"{stand.process}, thread {stand.thread}"
                for stand in place.stands
            ]
            waits = sorted({stand.wait for stand in place.stands})
            yield Paragraph(f"{listed(names, 4)}: {' / '.join(waits[:2])}", "    ")
            if place.native:
                yield Paragraph(f"native: {' ← '.join(place.native[:8])}", "      ")
            yield Paragraph(" ← ".join(map(_short, place.frames[:-4:-1])), "      ")
        if len(hang.places) > 6:
            yield f"    and {len(hang.places) - 6} more stacks"
        for fact in hang.facts:
            yield Paragraph(fact, "    ")


def went_on(hang: Hang) -> str:
    """Return whether and when a run went on after a hang."""
    return (
        "it did not go on"
        if hang.ended_s is None
        else f"it went on after {duration(hang.ended_s - hang.since_s)}"
    )


def _short(frame: str) -> str:
    function, _, place = frame.rpartition(" (")
    return f"{function} ({PurePath(place).name}" if function else frame


def post_mortem_sentence(post_mortem: PostMortem) -> str:
    """Return the sentence on a target's end: its cause, last place, memory and last error."""
    facts = [post_mortem.cause]
    if post_mortem.last:
        facts.append(f"last seen {_last(post_mortem.last[0])}")
    if post_mortem.rss_bytes is not None:
        facts.append(f"with {size(post_mortem.rss_bytes)} resident")
    text = ", ".join(facts)
    return visible(f"{text}; {post_mortem.error}" if post_mortem.error else text)


def post_mortem_lines(post_mortem: PostMortem | None) -> Iterator[TextLine]:
    """Yield the sentence on a target's death, if it died, who else died, and its last output."""
    if post_mortem is None:
        return
    yield Paragraph(post_mortem_sentence(post_mortem), "  ")
    if post_mortem.others:
        yield f"  ended shortly before: {', '.join(f'pid {pid}' for pid in post_mortem.others)}"
    for place in post_mortem.last[1:]:
        yield visible(f"  last seen {_last(place)}")
    for line in post_mortem.output[-8:]:
        yield visible(f"  │ {line}")


_LONG_AGO_S = 5.0  # two recordings of a watched run: later, it may have been anywhere


def _last(place: LastPlace) -> str:
    rank = f"rank {place.rank} " if place.rank is not None else ""
    code = f", `{place.source}`" if place.source else ""
    ago = (
        f"{duration(place.before_end_s)} before the end "
        if place.before_end_s >= _LONG_AGO_S
        else ""
    )
    return f"{rank}{ago}in {place.place}{code}"


LEAST_SURPLUS = 0.02
"""A smaller share is noise of sampling, and not worth a place."""
_NODES = 32


def rank_lines(ranks: Sequence[RankSummary]) -> Iterator[str]:
    """Yield the table of the ranks, if there are any; of many, those that wait least."""
    if not ranks:
        return
    shown = _waiting_least(ranks, 16)
    is_of_nodes = len({row.host for row in ranks}) > 1
    rows = []
    for row in shown:
        steps = UNKNOWN if row.steps_per_s is None else rate(row.steps_per_s)
        part = _surplus(row)
        where = f"{part.function}  {part.module_path}:{part.line}  {part.phase}" if part else ""
        longer = f"+{percent(part.surplus)} {where}" if part else ""
        name = "▲" if row.is_late else "", str(row.rank), row.host if is_of_nodes else ""
        rows.append((*name, steps, percent(row.own_share), percent(row.waiting_share), longer))
    heads = ("", "rank", "node", "steps", "own work", "waits", "longer than the others at")
    yield from rows_of(aligned(heads, rows, right=("rank", *heads[3:6])))
    if len(ranks) > len(shown):
        yield f"  and {len(ranks) - len(shown)} more that wait longer"


def _waiting_least(ranks: Sequence[RankSummary], most: int) -> list[RankSummary]:
    """Return the ranks, at most so many, that wait least for the others, in order."""
    by_wait = sorted(ranks, key=lambda row: (row.waiting_share is None, row.waiting_share or 0.0))
    return sorted(by_wait[:most], key=lambda row: row.rank)


def _surplus(row: RankSummary) -> RankPart | None:
    return row.slowest if row.slowest is not None and row.slowest.surplus >= LEAST_SURPLUS else None


def node_lines(nodes: Sequence[JoinedNode]) -> Iterator[str]:
    if not nodes:
        return
    rows = []
    for node in nodes[:_NODES]:
        ahead, known_by = _clock_of(node)
        rows.append((node.host, ahead, node.run, known_by))
    yield from rows_of(aligned(("node", "clock", "run", ""), rows, right=("clock",)))
    if len(nodes) > _NODES:
        yield f"  and {len(nodes) - _NODES} more"


def _clock_of(node: JoinedNode) -> tuple[str, str]:
    """Return by how much a node's clock is ahead, ``+1,500 ms ± 2.1``, and how that is known."""
    if node.number == 0:
        return "0", "the clock that all times are in"
    if node.error_ns is None:
        return "not known", "its clock error is unknown: times are taken as they are"
    pairs = f", {node.matched:,} of them" if node.matched else ""
    ahead = f"{node.offset_ns / MILLISECOND_NS:+,.1f} ms ± {node.error_ns / MILLISECOND_NS:,.1f}"
    return ahead, f"by {node.source}{pairs}"


def rank_tables(summary: Summary) -> dict[str, object]:
    """Return what the tables of ranks and of nodes show; no rows if the run is no job of ranks."""
    rates = [row.steps_per_s for row in summary.ranks if row.steps_per_s]
    step_s = 1 / statistics.median(rates) if rates else None

    def of_step(share: float | None) -> str:
        """Return a share of a step, as time too if the time of a step is known."""
        if share is None or step_s is None:
            return percent(share)
        return f"{step_time(share * step_s)} ({percent(share)})"

    shown = _waiting_least(summary.ranks, 256)
    ranks = [
        (row, of_step(row.own_share), of_step(row.waiting_share), _surplus(row)) for row in shown
    ]
    nodes = [(node.host, node.run, *_clock_of(node)) for node in summary.nodes]
    return {"ranks": ranks, "nodes": nodes, "left_out": len(summary.ranks) - len(shown)}
