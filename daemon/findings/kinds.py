"""The kinds of calls that are no part of a step, by ``overhead.toml``, and names of functions."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from profd.daemon.analyze.phases import OTHER, WAITING, PhaseIndex, own_frame, own_frames
from profd.daemon.analyze.profile import Profile
from profd.daemon.frameworks.frames import any_means
from profd.daemon.frameworks.patterns import FramePattern, frame_test, read_patterns, tables
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow

BUILT_IN = Path(__file__).with_name("overhead.toml")
_LEAST_NAMED = 0.01


class Kind(FramePattern, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a call does, as a [[kind]] of the table says.

    The call is of such a frame, or made by such a line of the user's.
    """

    what: str
    instead: str
    remedy: str
    anywhere: bool = False
    waits: bool = False
    polls: bool = False
    perhaps: bool = False


def load_kinds() -> tuple[Kind, ...]:
    """Return the kinds in the order in which they are tried: the user's, then the built-in ones.

    Raises UsageError if the user's file is wrong.
    """
    hint = "docs/findings.md shows what it holds"
    found = (read_patterns(table, "kind", Kind, hint) for table in tables(BUILT_IN))
    return tuple(itertools.chain.from_iterable(found))


class _Found(NamedTuple):
    kind: Kind
    by_call: bool  # not by the text of a line alone


@functools.lru_cache(1)
def _kind_by_frame(kinds: tuple[Kind, ...]) -> Callable[[FrameRow], _Found | None]:
    """Return the function that gives the kind of a frame; it caches, as live runs ask often."""
    tests: list[tuple[_Found, Callable[[FrameRow], bool]]] = []
    for kind in kinds:
        if kind.function or kind.module or kind.means:
            tests.append(
                (_Found(kind, by_call=True), frame_test(msgspec.structs.replace(kind, source="")))
            )
        if kind.source:
            tests.append(
                (
                    _Found(kind, by_call=False),
                    frame_test(FramePattern(source=kind.source, library=False)),
                )
            )
    return functools.lru_cache(8_192)(
        lambda frame: next((found for found, test in tests if test(frame)), None)
    )


class Kinds:
    """The kind of each stack of a training."""

    def __init__(self, reader: RunReader) -> None:
        self._reader, self._of_frame = reader, _kind_by_frame(load_kinds())
        self._found = functools.cache(self._find)

    def of_stack(self, stack: int) -> Kind | None:
        """Return the kind of the innermost frame that has one, up to the user's line.

        Kinds that are overhead anywhere come first, in any frame.
        """
        found = self._found(stack)
        return found.kind if found else None

    def of_frame(self, frame: FrameRow) -> Kind | None:
        found = self._of_frame(frame)
        return found.kind if found else None

    def is_no_pass(self, stack: int) -> bool:
        """Say whether a stack computes nothing of a model, even within its passes.

        The text of a line alone does not prove it there.
        """
        found = self._found(stack)
        return found is not None and (
            found.kind.perhaps or (found.by_call and not found.kind.waits)
        )

    def _find(self, stack: int) -> _Found | None:
        frames = self._reader.frames_of(stack)
        own = max((depth for depth, frame in enumerate(frames) if not frame.is_library), default=0)
        below = self._innermost_first(frames[own:])
        # A call says more than the text of a line.
        is_call = any(one.by_call for one in below)
        anywhere = (
            one
            for one in self._innermost_first(frames)
            if one.kind.anywhere and (one.by_call or not is_call)
        )
        found = next(itertools.chain(anywhere, below), None)
        if found is None or found.by_call:
            return found
        return None if any_means(frames[own + 1 :], "in a pass") else found

    def _innermost_first(self, frames: Sequence[FrameRow]) -> list[_Found]:
        return [found for frame in reversed(frames) if (found := self._of_frame(frame))]


def named_rest(
    reader: RunReader, profile: Profile, phases: PhaseIndex
) -> dict[str, dict[str, float]]:
    """Return the known parts of *other* and *waiting* as shares of the profile, largest first.

    Parts have the names of the kinds. Time of no kind has the name of the user's function, or of
    the library that a script calls for all of it. Parts below 1 % are left out.
    """
    kinds = Kinds(reader)
    named: dict[str, dict[str, float]] = {OTHER: {}, WAITING: {}}

    def part_of(stack: int) -> tuple[str, str] | None:
        phase = phases.of_stack(stack)
        if phase not in named:
            return None
        kind = kinds.of_stack(stack)
        return phase, kind.what if kind else part_name(reader.frames_of(stack))

    least_ns = _LEAST_NAMED * profile.total_ns
    for (phase, name), time_ns in profile.time_by(part_of).items():
        if name and time_ns >= least_ns > 0:
            named[phase][name] = time_ns / profile.total_ns
    return {phase: some for phase, some in named.items() if some}


def part_name(frames: Sequence[FrameRow]) -> str:
    """Return the name of the user's innermost function, or empty.

    If that is the script or its main, which says nothing of a part, return the library that it
    calls.
    """
    name = next((name for name, _ in own_functions(frames)), "") if own_frame(frames) else ""
    if name not in (_SCRIPT, "main"):
        return name
    below = list(itertools.takewhile(lambda one: one.is_library, reversed(frames)))
    return library_of(below[-1]) if below else name


def library_of(frame: FrameRow) -> str:
    """Return the name of the package, or of the module, that a frame of a library is in."""
    return frame.module_path.partition("/")[0].removesuffix(".py")


_SCRIPT = "the script"
_WITHIN_A_FUNCTION = re.compile(r"((^|\.)(<locals>\.)?<(lambda|\w+comp|genexpr)>)+$")


def spoken(function: str) -> str:
    """Return a function's name as findings say it.

    Code without a name of its own has the name of the function around it, or none if that is not
    told, as in Python up to 3.10.
    """
    return _WITHIN_A_FUNCTION.sub("", function).replace("<module>", _SCRIPT)


OwnFunction = tuple[str, str]
"""A function of the user's: its spoken name and its file."""


def own_functions(frames: Sequence[FrameRow]) -> Iterator[OwnFunction]:
    """Yield the user's functions of a stack, the innermost first."""
    own = reversed(own_frames(frames))
    return ((name, one.file) for one in own if (name := spoken(one.function)))
