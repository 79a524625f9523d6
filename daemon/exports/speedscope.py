"""Samples for speedscope: one profile a thread, its stacks in order of time, as https://speedscope.app opens them.

Where nothing is known of a thread, between two recordings or where a stack was dropped, stands an empty stack.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from profd.daemon.analyze.profile import selected_intervals
from profd.daemon.analyze.selection import Selection
from profd.daemon.render.plaintext import thread_title, visible
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class SpeedscopeFrame(msgspec.Struct, frozen=True):
    """A function at a line of a file."""

    name: str
    file: str
    line: int


class SampledProfile(msgspec.Struct, frozen=True, tag="sampled", tag_field="type", rename="camel"):
    """Stacks in order of time, frames from the root to the leaf, each with how long it stood there."""

    name: str
    unit: str
    start_value: int
    end_value: int
    samples: list[list[int]]
    weights: list[int]


class Shared(msgspec.Struct, frozen=True):
    """What all profiles index."""

    frames: list[SpeedscopeFrame]


class SpeedscopeFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A whole file."""

    schema: str = msgspec.field(name="$schema")
    name: str
    exporter: str
    active_profile_index: int
    shared: Shared
    profiles: list[SampledProfile]


def speedscope(reader: RunReader, selection: Selection) -> bytes:
    """Return the samples of a selection as a speedscope file; times are ns since the run's start."""
    pieces: defaultdict[int, list[IntervalRow]] = defaultdict(list)
    for piece in selected_intervals(reader, selection, selection.threads(reader)):
        pieces[piece.thread].append(piece)
    frames = _Frames(reader)
    profiles = [_profile(reader, thread, pieces[thread], frames) for thread in sorted(pieces)]
    file = SpeedscopeFile(
        schema=SCHEMA,
        name=visible(reader.info.id),
        exporter=f"profd {reader.info.versions.get('profd', '')}".strip(),
        active_profile_index=0,
        shared=Shared(frames.shared),
        profiles=profiles,
    )
    return msgspec.json.encode(file)


def _profile(reader: RunReader, thread: int, pieces: list[IntervalRow], frames: _Frames) -> SampledProfile:
    origin_ns = reader.info.started_ns
    samples: list[list[int]] = []
    weights: list[int] = []
    at_ns = pieces[0].start_ns
    for piece in pieces:
        if piece.start_ns > at_ns:
            samples.append([])
            weights.append(piece.start_ns - at_ns)
        samples.append(frames.of_stack(piece.stack))
        weights.append(piece.duration_ns)
        at_ns = piece.end_ns
    start_ns = pieces[0].start_ns - origin_ns
    return SampledProfile(thread_title(reader, thread), "nanoseconds", start_ns, at_ns - origin_ns, samples, weights)


class _Frames:
    """The frames of a file, each once, and the stacks as indices into them."""

    def __init__(self, reader: RunReader) -> None:
        self.shared: list[SpeedscopeFrame] = []
        self._reader = reader
        self._index: dict[int, int] = {}
        self._stacks: dict[int, list[int]] = {}

    def of_stack(self, stack: int) -> list[int]:
        if stack not in self._stacks:
            self._stacks[stack] = [self._add(frame.id) for frame in self._reader.frames_of(stack)]
        return self._stacks[stack]

    def _add(self, frame: int) -> int:
        if frame not in self._index:
            self._index[frame] = len(self.shared)
            row = self._reader.frames[frame]
            self.shared.append(SpeedscopeFrame(visible(row.function), visible(row.module_path), row.line))
        return self._index[frame]
