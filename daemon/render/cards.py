"""Findings, hangs and the death of a target as cards of the report.

An address is what stands after ``#``; the page's ``selection.js`` reads it. Nothing here knows how a card looks.

All of it is put into harmless words here; nothing knows how a card looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlencode

import msgspec

from profd.daemon.analyze.incidents import Hang, HangPlace, LastPlace, PostMortem
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.finding import INFO, Evidence, Finding, Measure
from profd.daemon.render.plaintext import visible
from profd.daemon.render.sections import post_mortem_sentence
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Stand
from profd.daemon.units import duration, plural, quantity, size, times

ALARM, WORTH_KNOWING = "▲", "·"
_ON_THE_PAGE = ("gpu-idle", "on-cpu")


class Fact(msgspec.Struct, frozen=True):
    """Something that is known of a run, with what helps to read it."""

    name: str
    value: str
    hint: str = ""


class Card(msgspec.Struct, frozen=True):
    """A finding in words that are harmless to show; ``place`` and ``source`` are empty where no line is to blame."""

    severity: str
    mark: str
    label: str
    sentence: str
    place: str
    source: str
    cause: str
    remedy: str
    measures: list[Fact]
    address: str


def take_card(reader: RunReader, finding: Finding) -> Card:
    """Put a finding into words."""
    line = finding.evidence.line
    return Card(
        severity=finding.severity,
        mark=WORTH_KNOWING if finding.severity == INFO else ALARM,
        label=visible(finding.label),
        sentence=visible(finding.title.removeprefix(f"{finding.label}: ")),
        place=visible(f"{line.module_path}:{line.line}") if line else "",
        source=visible(line.source or "") if line else "",
        cause=visible(finding.cause),
        remedy=visible(finding.remedy),
        measures=[*map(_fact, finding.evidence.measures), *_gain(finding)],
        address=proof_address(reader, finding.evidence),
    )


def proof_address(reader: RunReader, evidence: Evidence) -> str:
    """Return the address that sets the page's range and filters to what a finding rests on."""
    selection = evidence.selection
    words = [*_time(reader, evidence), *_threads(reader, selection)]
    if selection.rank is not None:
        words.append(("rank", str(selection.rank)))
    if selection.phase is not None:
        words.append(("phase", selection.phase))
    words += [(one.name, "1") for one in selection.when if one.name in _ON_THE_PAGE]
    return urlencode(words)


def _time(reader: RunReader, evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield the range of time, unless it is the whole run."""
    info = reader.info
    if evidence.from_ns > info.started_ns or evidence.to_ns < info.end_ns:
        from_s, to_s = ((at_ns - info.started_ns) / SECOND_NS for at_ns in (evidence.from_ns, evidence.to_ns))
        yield "t", f"{max(from_s, 0):.2f}-{to_s:.2f}"


def _threads(reader: RunReader, selection: Selection) -> Iterator[tuple[str, str]]:
    """Yield the processes and threads, unless they are those that the page opens with."""
    places = {row.id: place for place, row in enumerate(reader.processes.values())}
    if selection.processes is not None:
        taken = [row for row in reader.processes.values() if row.id in selection.processes]
        if selection.main_threads:
            taken = [row for row in taken if row.role == "main"]
        yield "process", ",".join(str(places[row.id]) for row in taken)
    elif not selection.main_threads:
        yield "process", "all"
    if selection.thread is not None:
        yield "thread", f"={visible(selection.thread)}"
    elif not selection.main_threads:
        yield "thread", "all"


def _gain(finding: Finding) -> Iterator[Fact]:
    if finding.gain_bound is not None:
        yield Fact("steps get", f"at most {times(finding.gain_bound)} as fast")


def _fact(measure: Measure) -> Fact:
    bounds = ""
    if measure.low is not None and measure.high is not None:
        bounds = f"{quantity(measure.low, measure.unit)} to {quantity(measure.high, measure.unit)}"
    samples = "" if measure.samples is None else plural(measure.samples, "sample")
    hint = " · ".join(part for part in (bounds, samples) if part)
    return Fact(visible(measure.name), visible(quantity(measure.value, measure.unit)), visible(hint))


_PLACES = 64
_STANDS = 64
_MINUTES_BEFORE_S = 60.0
CURVE_WIDTH, CURVE_HEIGHT = 320, 60
"""The memory curve, in pixels."""


class Standing(msgspec.Struct, frozen=True):
    """Threads that stood in one stack; ``frames`` are from the leaf to the root, ``waits`` who waited for what."""

    title: str
    waits: list[str]
    frames: list[str]


class HangCard(msgspec.Struct, frozen=True):
    """A hang; ``address`` selects on the page the minute before it and the hang itself."""

    sentence: str
    cause: str
    when: str
    facts: list[str]
    standing: list[Standing]
    left_out: int
    address: str


class LastStack(msgspec.Struct, frozen=True):
    """Where a training process was seen last; ``frames`` are from the leaf to the root."""

    title: str
    source: str
    frames: list[str]


class DeathCard(msgspec.Struct, frozen=True):
    """How a target died; ``curve`` are the points of a line over its last minute, empty where memory is not known."""

    sentence: str
    others: str
    stacks: list[LastStack]
    output: list[str]
    memory: str
    curve: str


def death_card(post_mortem: PostMortem | None) -> DeathCard | None:
    """Put the death of a target into words; None where it did not die."""
    if post_mortem is None:
        return None
    memory = post_mortem.memory
    return DeathCard(
        sentence=post_mortem_sentence(post_mortem),
        others=", ".join(f"pid {pid}" for pid in post_mortem.others),
        stacks=[_last_stack(place) for place in post_mortem.last],
        output=[visible(line) for line in post_mortem.output],
        memory=_memory_words(memory),
        curve=_curve(memory),
    )


def _last_stack(place: LastPlace) -> LastStack:
    who = f"pid {place.pid}" if place.rank is None else f"rank {place.rank}, pid {place.pid}"
    title = f"{who}: last seen {duration(place.before_end_s)} before the end in {visible(place.place)}"
    return LastStack(title, visible(place.source or ""), [visible(frame) for frame in reversed(place.frames)])


def _memory_words(memory: Sequence[tuple[float, int]]) -> str:
    if not memory:
        return ""
    first, last, most = memory[0][1], memory[-1][1], max(held for _, held in memory)
    return (
        f"memory of the main process (RSS) over its last {duration(memory[0][0])}: "
        f"{size(first)} at first, {size(most)} at most, {size(last)} at last"
    )


def _curve(memory: Sequence[tuple[float, int]]) -> str:
    """Return memory over time as points of an SVG line, from nothing at the bottom to the most at the top."""
    if len(memory) < 2:
        return ""
    longest, most = max(memory[0][0], 1e-9), max(max(held for _, held in memory), 1)
    points = (
        (CURVE_WIDTH * (1 - before_s / longest), (CURVE_HEIGHT - 2) * (1 - held / most) + 1)
        for before_s, held in memory
    )
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def hang_card(hang: Hang) -> HangCard:
    """Put a hang into words, with all the stacks that are worth reading."""
    return HangCard(
        sentence=visible(hang.text),
        cause=visible(hang.cause),
        when=_when(hang),
        facts=[visible(fact) for fact in hang.facts],
        standing=[_standing(place) for place in hang.places[:_PLACES]],
        left_out=max(len(hang.places) - _PLACES, 0),
        address=_address(hang),
    )


def _when(hang: Hang) -> str:
    began = f"{duration(hang.since_s)} into the run, told after {duration(hang.told_s - hang.since_s)}"
    if hang.ended_s is None:
        return f"{began}; it did not go on"
    return f"{began}; it went on after {duration(hang.ended_s - hang.since_s)}"


def _standing(place: HangPlace) -> Standing:
    names = [_name(stand) for stand in place.stands]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    waits = [f"{_name(stand)}: {visible(stand.wait)}" for stand in place.stands[:_STANDS]]
    if len(names) > _STANDS:
        waits.append(f"and {len(names) - _STANDS} more")
    return Standing(f"{', '.join(names[:4])}{more}", waits, [visible(frame) for frame in reversed(place.frames)])


def _name(stand: Stand) -> str:
    who = f"{stand.who} (pid {stand.pid})"
    return visible(who if stand.is_main else f"{who}, thread {stand.thread}")


def _address(hang: Hang) -> str:
    from_s = max(hang.since_s - _MINUTES_BEFORE_S, 0.0)
    to_s = hang.told_s if hang.ended_s is None else hang.ended_s
    return urlencode([("t", f"{from_s:.2f}-{to_s:.2f}"), ("process", "all"), ("thread", "all")])
