"""Findings as the report shows them: a card each, with the address on the page that selects its proof.

An address is what stands after ``#``; the page's ``selection.js`` reads it. Nothing here knows how a card looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import msgspec

from profd.daemon.analyze.findings.finding import INFO, Evidence, Finding, Measure
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.visible import visible
from profd.daemon.store.reader import RunReader
from profd.daemon.units import plural, quantity, times

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
