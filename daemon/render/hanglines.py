"""Hangs as lines of text: the sentence, then who stands where and waits for what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from profd.daemon.analyze.hangs import Hang, HangPlace
from profd.daemon.render.cells import wrapped
from profd.daemon.units import duration

_PLACES = 6
_NAMED = 4
_FRAMES = 3


def hang_lines(hangs: Sequence[Hang], columns: int) -> Iterator[str]:
    """Yield lines on each hang, none of them wider than ``columns``."""
    for hang in hangs:
        when = (
            "it did not go on" if hang.ended_s is None else f"it went on after {duration(hang.ended_s - hang.since_s)}"
        )
        yield from wrapped(f"{duration(hang.since_s)} into the run: {hang.text}; {when}", columns, "  ▲ ")
        for place in hang.places[:_PLACES]:
            yield from wrapped(_standing(place), columns, "    ")
            yield from wrapped(" ← ".join(map(_short, place.frames[: -_FRAMES - 1 : -1])), columns, "      ")
        if len(hang.places) > _PLACES:
            yield f"    and {len(hang.places) - _PLACES} more stacks"
        for fact in hang.facts:
            yield from wrapped(fact, columns, "    ")


def _standing(place: HangPlace) -> str:
    """Return who stands in a stack and waits for what."""
    names = [stand.who if stand.is_main else f"{stand.who}, thread {stand.thread}" for stand in place.stands]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    waits = sorted({stand.wait for stand in place.stands})
    return f"{', '.join(names[:_NAMED])}{more}: {' / '.join(waits[:2])}"


def _short(frame: str) -> str:
    """Return a frame with the name of its file alone."""
    function, _, place = frame.rpartition(" (")
    return f"{function} ({PurePath(place).name}" if function else frame
