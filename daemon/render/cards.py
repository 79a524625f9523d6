"""Findings, hangs and a target's death as cards of the report; ``selection.js`` reads addresses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from profd.daemon.analyze.incidents import Hang, PostMortem
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.finding import Evidence, Finding
from profd.daemon.render.buckets import ASKED_FOR
from profd.daemon.render.plaintext import visible
from profd.daemon.render.sections import post_mortem_sentence, went_on
from profd.daemon.store.reader import RunReader
from profd.daemon.units import duration, size

CURVE_WIDTH, CURVE_HEIGHT = 320, 60
"""The memory curve, in pixels."""


class Fact(NamedTuple):
    """A fact about a run, with a hint that helps to read it."""

    name: str
    value: str
    hint: str = ""


def measures(finding: Finding) -> list[Fact]:
    """Return the numbers that a finding rests on, and how much faster steps get at most."""
    facts = [
        Fact(measure.name, measure.shown, " · ".join(measure.basis))
        for measure in finding.evidence.measures
    ]
    if finding.at_most:
        facts.append(Fact("steps get", f"at most {finding.at_most} as fast"))
    return facts


def proof_address(reader: RunReader, evidence: Evidence) -> str:
    """Return the address that sets the page's range and filters to what a finding rests on."""
    info, selection = reader.info, evidence.selection
    words = {}
    if evidence.from_ns > info.started_ns or evidence.to_ns < info.end_ns:
        from_s, to_s = (
            (at_ns - info.started_ns) / SECOND_NS for at_ns in (evidence.from_ns, evidence.to_ns)
        )
        words["t"] = f"{max(from_s, 0):.2f}-{to_s:.2f}"
    # Processes and threads, unless they are those that the page opens with.
    if selection.processes is not None:
        words["process"] = _process_places(reader, selection, selection.processes)
    elif not selection.main_threads:
        words["process"] = "all"
    if selection.thread is not None:
        words["thread"] = f"={visible(selection.thread)}"
    elif not selection.main_threads:
        words["thread"] = "all"
    if selection.rank is not None:
        words["rank"] = str(selection.rank)
    if selection.phase is not None:
        words["phase"] = selection.phase
    return urlencode(words | {one.name: "1" for one in selection.when if one.name in ASKED_FOR})


def _process_places(reader: RunReader, selection: Selection, processes: Collection[int]) -> str:
    """Return the places of some processes in the page's list."""
    return ",".join(
        str(place)
        for place, row in enumerate(reader.processes.values())
        if row.id in processes and (row.is_main or not selection.main_threads)
    )


def death_card(post_mortem: PostMortem | None) -> dict[str, Any] | None:
    """Put the death of a target on a card; None if it did not die.

    ``curve`` are the points of a line over its last minute, empty if memory is unknown.
    """
    if post_mortem is None:
        return None
    memory, text = post_mortem.memory, ""
    if memory:
        held = [held_bytes for _, held_bytes in memory]
        text = (
            f"memory of the main process (RSS) over its last {duration(memory[0][0])}: "
            f"{size(held[0])} at first, {size(max(held))} at most, {size(held[-1])} at last"
        )
    sentence = post_mortem_sentence(post_mortem)
    return {
        "sentence": sentence[0].upper() + sentence[1:],
        "others": post_mortem.others,
        "last": post_mortem.last,
        "output": post_mortem.output,
        "memory": text,
        "curve": _curve(memory),
    }


def _curve(memory: Sequence[tuple[float, int]]) -> str:
    """Return memory over time as points of an SVG line, from nothing to the most at the top."""
    if len(memory) < 2:
        return ""
    longest, most = max(memory[0][0], 1e-9), max(max(held for _, held in memory), 1)
    places = ((1 - before_s / longest, 1 - held / most) for before_s, held in memory)
    return " ".join(
        f"{CURVE_WIDTH * across:.1f},{(CURVE_HEIGHT - 2) * down + 1:.1f}" for across, down in places
    )


def hang_card(hang: Hang) -> dict[str, Any]:
    """Put a hang on a card; its address selects the minute before and the hang itself."""
    from_s = max(hang.since_s - 60, 0.0)
    to_s = hang.reported_s if hang.ended_s is None else hang.ended_s
    return {
        "hang": hang,
        "when": f"{duration(hang.since_s)} into the run, reported after "
        f"{duration(hang.reported_s - hang.since_s)}; {went_on(hang)}",
        "address": urlencode({"t": f"{from_s:.2f}-{to_s:.2f}", "process": "all", "thread": "all"}),
    }
