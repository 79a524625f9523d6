"""Hangs and the death of a target as the report shows them, in full: who stood where and waited for what.

All of it is put into harmless words here; nothing knows how a card looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec

from profd.daemon.analyze.hangs import Hang, HangPlace
from profd.daemon.analyze.postmortem import LastPlace, PostMortem
from profd.daemon.render.postmortemlines import post_mortem_sentence
from profd.daemon.render.visible import visible
from profd.daemon.store.records import Stand
from profd.daemon.units import duration, size

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
