"""Turn a py-spy recording into a record of the run.

This module decodes and cuts the recording, applies the run's clock, and apportions the samples. It
is pure.

py-spy reads a stack from the leaf to the root, frame by frame, out of the memory of another
process. It notes the time once it has read all threads, so a deep stack is noted later after it was
true than a flat one. If the noted times were used as they are, deep stacks would lose that time to
flat ones with every sample: 15 points in a recursion 200 deep, one or two in a training loop. The
CPU time of the recording tells how long a read takes, in proportion to its frames.

py-spy reports how many stacks it read in all, and the trace shows when each stack was first seen.
Every sample stands for the time up to the next one, so a thread's samples are given to its
intervals by their length: the share of time is the one estimate that is unbiased whatever the
program's own rhythm (docs/decisions-measurements.md, 3).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from profd.daemon.clock import MICROSECOND_NS, SECOND_NS
from profd.daemon.stacks import misreads
from profd.daemon.stacks.evidence import StackEvidence
from profd.daemon.stacks.pyspy import RawRecording, StackChange, ThreadTrace, decode
from profd.daemon.stacks.reads import Known, unread
from profd.daemon.store.records import Identity, Interval, RecordingTaken, Stack, ThreadTimeline
from profd.daemon.store.stepfunction import IntervalSet
from profd.daemon.timerange import TimeRange

START_US = 15_000
"""CPU time of a recording that is not spent on reading stacks.

It goes into starting py-spy, finding the interpreter, and writing the file.
"""
FRAMES_AROUND = 12
"""The fixed cost of reading all threads once, expressed in frames.

It is 210 µs of CPU time, and a frame costs 17 µs.
"""
USUAL_US_PER_FRAME = 8.0


def as_read(traces: Sequence[ThreadTrace], samples: int, cpu_ns: int) -> list[ThreadTrace]:
    """Return the traces with each change moved to the time when it was read, in the same order.

    ``samples`` is how many stacks were read of all threads together. ``cpu_ns`` is the CPU time
    that the recording took, or 0 if it is not known: then changes keep the times that py-spy noted.
    """
    lengths = [trace.length_us for trace in traces]
    longest = max(lengths, default=0)
    if not longest or not samples or not cpu_ns:
        return list(traces)
    depths = [_mean_depth(trace) for trace in traces]
    frames = sum(depth * length for depth, length in zip(depths, lengths, strict=True)) / longest
    moments, per_frame_us = samples * longest / sum(lengths), USUAL_US_PER_FRAME
    if moments >= 50:
        per_frame_us = (cpu_ns / MICROSECOND_NS - START_US) / moments / (FRAMES_AROUND + frames)
        per_frame_us = min(max(per_frame_us, 2.0), 40.0)
    around = [FRAMES_AROUND + max(frames - depth, 0.0) for depth in depths]
    return [
        _shifted(trace, per_frame_us, beside) for trace, beside in zip(traces, around, strict=True)
    ]


def _mean_depth(trace: ThreadTrace) -> float:
    frames_us = sum(len(frames) * length_us for frames, length_us in trace.stays())
    return frames_us / trace.length_us if trace.length_us else 0.0


def _shifted(trace: ThreadTrace, per_frame_us: float, frames_around: float) -> ThreadTrace:
    """Return a thread's changes, each earlier by the time that reading its stack took.

    The end of the trace keeps its time.
    """
    *seen, end = trace.changes
    shifted: list[StackChange] = []
    for change in seen:
        at_us = change.at_us - round(per_frame_us * (frames_around + len(change.frames)))
        if shifted:
            at_us = max(at_us, shifted[-1].at_us)
        shifted.append(StackChange(at_us, change.frames))
    return msgspec.structs.replace(trace, changes=(*shifted, end))


_MAIN_THREAD = "MainThread"


class Threads(msgspec.Struct, frozen=True):
    """The threads of a process when a recording was about to end, as the kernel knew them.

    ``ids`` maps the id that a thread has inside the process to its id here. ``is_current`` is False
    if the process was gone by then: which of its threads had ended earlier is unknown.
    ``main_seen_ns`` is when the main thread was last seen, if the process went on without it; else
    None.
    """

    ids: Mapping[int, int] = {}
    is_current: bool = False
    main_seen_ns: int | None = None


class _Piece(NamedTuple):
    """A part of a thread's time; its stack is empty if it was torn.

    A torn read that is no sample of a stack has no length.
    """

    start_ns: int
    length_ns: int
    stack: Stack
    samples: int


_Seen = tuple[ThreadTimeline, Sequence[_Piece]]
"""What a recording saw of a thread."""


def assemble(
    raw: RawRecording,
    identity: Identity,
    rate_hz: int,
    keep: TimeRange,
    threads: Threads | None = None,
    evidence: StackEvidence | None = None,
) -> tuple[RecordingTaken, ...]:
    """Return a recording cut to ``keep``: one record for each stretch that was read, at least one.

    Adds what the stacks show to ``evidence``. Raises TraceDamaged.
    """
    threads, evidence = threads or Threads(), evidence or StackEvidence()
    noted, raw = _of_living(decode(raw.data), raw, identity, rate_hz, threads)
    gaps = _unread(noted, raw, rate_hz, keep)
    is_gone = not threads.is_current
    read = [
        _read(trace, samples, raw, evidence, is_gone=is_gone)
        for trace, samples in zip(noted, _samples_by_thread(noted, raw.samples), strict=True)
    ]
    traces = as_read([one.trace for one in read], raw.samples, raw.cpu_ns)
    if threads.is_current:
        living = {None, *threads.ids}
        traces = [trace if trace.os_tid in living else _ended(trace, rate_hz) for trace in traces]
    stretches = _stretches(keep, gaps)
    seen: list[_Seen] = []
    for trace, one, total in zip(
        traces, read, _samples_by_thread(traces, raw.samples), strict=True
    ):
        pieces, samples = _pieces(trace, raw, keep, stretches), max(total - len(one.torn_us), 0)
        # py-spy makes up for late samples at once, and reads a process that is stopped.
        if gaps.length_ns:
            read_ns = sum(length_ns for _, length_ns, _ in pieces)
            samples = min(samples, read_ns * rate_hz // SECOND_NS)
        known = _timeline(trace, identity, threads, is_alone=len(traces) == 1)
        counted = _with_shares(pieces, samples, is_seldom_in_python=one.is_seldom_in_python)
        torn = [_Piece(raw.at_ns(at_us), 0, (), 1) for at_us in one.torn_us]
        seen.append((known, [*counted, *torn]))
    first_us = min((trace.changes[0].at_us for trace in traces), default=0)
    last_us = max((trace.changes[-1].at_us for trace in traces), default=0)
    whole = TimeRange(raw.at_ns(first_us), raw.at_ns(last_us))
    errors = raw.errors - sum(gaps.between(one.at_ns, one.at_ns + 1) for one in raw.failed)
    empty = RecordingTaken(
        identity, 0, 0, rate_hz, 0, 0, errors, raw.clock_error_ns, raw.cpu_ns, (), ()
    )
    return tuple(_records(seen, stretches, whole, empty))


def _with_shares(
    pieces: Sequence[tuple[int, int, Stack]], samples: int, *, is_seldom_in_python: bool
) -> list[_Piece]:
    """Return each piece of a thread's time with its share of the samples.

    A thread that is seldom in Python is out of it, and not torn, if it has no stack.
    """
    shares = apportion(samples, [length_ns for _, length_ns, _ in pieces])
    return [
        _Piece(*piece, share)
        for piece, share in zip(pieces, shares, strict=True)
        if piece[2] or not is_seldom_in_python
    ]


def _records(
    seen: Sequence[_Seen], stretches: Sequence[TimeRange], whole: TimeRange, empty: RecordingTaken
) -> list[RecordingTaken]:
    """Return a record for each stretch, or for the last one if none has any length."""
    found: list[RecordingTaken] = []
    for span in stretches:
        record = _stretch(seen, span, whole, empty)
        if record.end_ns > record.start_ns or (not found and span is stretches[-1]):
            found.append(record)
            empty = msgspec.structs.replace(empty, errors=0, cpu_ns=0)
    return found


def _stretches(keep: TimeRange, gaps: IntervalSet) -> list[TimeRange]:
    """Return the parts of ``keep`` that were read."""
    edges = [keep.from_ns, *itertools.chain.from_iterable(gaps.ranges()), keep.to_ns]
    return list(map(TimeRange, edges[::2], edges[1::2]))


def _unread(
    noted: Sequence[ThreadTrace], raw: RawRecording, rate_hz: int, keep: TimeRange
) -> IntervalSet:
    """Return when, within ``keep``, nothing was read while a recording ran."""

    def times_ns(first: int) -> list[int]:
        """Return when a thread was seen in another stack, from its ``first`` one on."""
        # The last change of each trace marks its end and is no sample. A sample reads all threads.
        seen_us = {change.at_us for trace in noted for change in trace.changes[first:-1]}
        return list(map(raw.at_ns, sorted(seen_us)))

    seen_ns = times_ns(0)
    if not seen_ns:
        return IntervalSet()
    failed_ns = sorted(one.at_ns for one in raw.failed)
    # The first stack of a thread says only that it was read.
    known = Known(seen_ns, times_ns(1), failed_ns, raw.pulses, raw.spells)
    begin_ns = min(keep.from_ns or seen_ns[0], seen_ns[0])
    time = TimeRange(begin_ns, raw.at_ns(noted[0].changes[-1].at_us))
    return IntervalSet(unread(known, rate_hz, time).ranges_between(*keep))


def _timeline(
    trace: ThreadTrace, identity: Identity, threads: Threads, *, is_alone: bool
) -> ThreadTimeline:
    if trace.os_tid is None:  # the interpreter knows only its own id of the thread
        os_tid, is_main = trace.ident, trace.name == _MAIN_THREAD or is_alone
    else:
        os_tid = threads.ids.get(trace.os_tid, trace.os_tid)
        is_main = os_tid == identity.pid
    name = trace.name or (_MAIN_THREAD if is_main else "")
    return ThreadTimeline(os_tid, name, is_main, (), trace.ident)


def _stretch(
    seen: Sequence[_Seen], span: TimeRange, whole: TimeRange, empty: RecordingTaken
) -> RecordingTaken:
    """Return ``empty`` with what was seen in a span of the ``whole`` recording."""
    timelines: list[ThreadTimeline] = []
    stacks: dict[Stack, int] = {}
    samples = torn = 0
    for timeline, pieces in seen:
        inside = [piece for piece in pieces if span.holds(piece.start_ns)]
        intervals = tuple(
            Interval(start_ns, length_ns, stacks.setdefault(stack, len(stacks)), share)
            for start_ns, length_ns, stack, share in inside
            if stack
        )
        torn += sum(piece.samples for piece in inside if not piece.stack)
        samples += sum(interval.samples for interval in intervals)
        timelines.append(msgspec.structs.replace(timeline, intervals=intervals))
    start_ns, end_ns = whole.within(span)
    counts = {"start_ns": start_ns, "end_ns": end_ns, "samples": samples + torn, "torn": torn}
    return msgspec.structs.replace(empty, **counts, stacks=tuple(stacks), threads=tuple(timelines))


class _Read(NamedTuple):
    """A thread without impossible stacks, and the times of its torn reads.

    A thread of a C library is ``is_seldom_in_python``.
    """

    trace: ThreadTrace
    torn_us: list[int]
    is_seldom_in_python: bool


_MOST_TORN = 20
"""More samples in a row than this are hardly ever torn.

If they are, Python is shutting down, which takes seconds if much was imported.
"""


def _read(
    trace: ThreadTrace, samples: int, raw: RawRecording, evidence: StackEvidence, *, is_gone: bool
) -> _Read:
    """Return what was read of a thread.

    Like a failed read, a torn read is no sample: the stack seen before it lasts until the next
    sample, unless the thread was most likely in another one. If many samples in a row are torn,
    what the thread did meanwhile is unknown.

    Threads of C libraries, such as those of autograd and of compilers, call into Python now and
    then and have no frames in between. A thread that has frames most of the time always has some: a
    stack of it without any is torn.
    """
    end, stays, whole_us = trace.changes[-1], trace.stays(), trace.length_us
    is_seldom_in_python = 2 * sum(length_us for frames, length_us in stays if not frames) > whole_us
    roots = misreads.valid_roots(stays)
    mended = misreads.mend([frames for frames, _ in stays], roots, evidence)
    ran = _count_to_last_root(stays, roots)
    is_ending = is_gone or _is_end(stays[ran:], samples, whole_us)
    # What Python calls as it shuts down has no caller, and would be taken for the inner end of
    # another stack.
    if is_ending:
        mended = [*mended[:ran], *[None] * (len(mended) - ran)]
    found, torn_us = _without_torn(trace, mended, samples, is_seldom_in_python=is_seldom_in_python)
    failed_us = [raw.at_us(one.at_ns) for one in raw.failed if one.ident == trace.ident]
    times_us, known = [*failed_us, *torn_us], samples - len(torn_us)
    if is_ending:
        times_us = _without_its_end(
            found, times_us, end.at_us, whole_us / max(samples + len(failed_us), 1)
        )
    visited = misreads.with_visits((*found, end), times_us, known, evidence.torn_shares)
    return _Read(msgspec.structs.replace(trace, changes=visited), torn_us, is_seldom_in_python)


def _count_to_last_root(stays: Sequence[tuple[Stack, int]], roots: frozenset[str]) -> int:
    """Return how many stacks there are up to the last one that has a root."""
    with_root = (
        place for place, (frames, _) in enumerate(stays) if frames and frames[0].function in roots
    )
    return max(with_root, default=-1) + 1


def _is_end(rootless: Sequence[tuple[Stack, int]], samples: int, whole_us: int) -> bool:
    """Say whether the stacks after the last one that has a root are those of an ending Python."""
    has_frames = any(frames for frames, _ in rootless)
    return has_frames and sum(us for _, us in rootless) * samples > _MOST_TORN * whole_us


def _without_torn(
    trace: ThreadTrace,
    mended: Sequence[Stack | None],
    samples: int,
    *,
    is_seldom_in_python: bool,
) -> tuple[list[StackChange], list[int]]:
    """Return a thread's changes that were read whole or mended, and the times of the others."""
    found: list[StackChange] = []
    torn_us: list[int] = []
    whole_us = trace.length_us
    for change, (frames, length_us), stack in zip(
        trace.changes, trace.stays(), mended, strict=False
    ):
        is_out = is_seldom_in_python and not frames
        is_long = length_us * samples > 5 * whole_us
        # One read is given as many samples as its interval is long; hardly ever more than five.
        if stack is not None or is_out or not found or is_long:
            found.append(StackChange(change.at_us, stack or ()))
        else:
            torn_us.append(change.at_us)
    return found, torn_us


def _without_its_end(
    found: list[StackChange], times_us: Sequence[int], end_us: int, distance_us: float
) -> list[int]:
    """Return when reads failed while a process that ends still ran.

    Also end its last stack before the other failed reads.

    The last reads of a process that ends fail whatever it does: they say nothing of what it did.
    """
    last = max((place for place, change in enumerate(found) if change.frames), default=-1)
    after = [change.at_us for change in found[last : last + 2]] if last >= 0 else [0]
    next_us = after[1] if len(after) > 1 else end_us
    tail = sorted(at_us for at_us in times_us if after[0] <= at_us < next_us)
    if tail and 2 * len(tail) * distance_us >= next_us - tail[0]:  # most of them failed
        found.insert(last + 1, StackChange(tail[0], ()))
    return [at_us for at_us in times_us if at_us < after[0]]


def apportion(total: int, lengths: Sequence[int]) -> list[int]:
    """Split ``total`` samples over intervals by their length.

    The running sum is rounded, not each share, so the shares add up and none is favored by its
    position. They add up to ``total``, or to 0 if all lengths are 0.
    """
    whole = sum(lengths)
    shares, before, reached = [], 0, 0
    for length in lengths:
        reached += length
        upto = (2 * total * reached + whole) // (2 * whole) if whole else 0
        shares.append(upto - before)
        before = upto
    return shares


def _of_living(
    traces: list[ThreadTrace], raw: RawRecording, identity: Identity, rate_hz: int, threads: Threads
) -> tuple[list[ThreadTrace], RawRecording]:
    """Return the traces by the ids that the threads have, and the recording without dead reads.

    The dead reads are those of a main thread that has ended: Python does not learn of its end, and
    py-spy goes on reading it.
    """
    traces = _renumbered(traces, threads)
    has_lost_main = threads.is_current and identity.pid not in threads.ids.values()
    if not has_lost_main and threads.main_seen_ns is None:
        return traces, raw
    found, lost = [], 0
    seen_us = raw.at_us(threads.main_seen_ns or 0)
    for trace, samples in zip(traces, _samples_by_thread(traces, raw.samples), strict=True):
        is_main = trace.os_tid == identity.pid or (
            trace.name == _MAIN_THREAD and trace.os_tid not in threads.ids
        )
        found.append(_ended(trace, rate_hz, seen_us) if is_main else trace)
        lost += samples - samples * found[-1].length_us // max(trace.length_us, 1)
    return found, msgspec.structs.replace(raw, samples=raw.samples - lost)


def _renumbered(traces: list[ThreadTrace], threads: Threads) -> list[ThreadTrace]:
    """Return the traces of a process's threads by the ids that they have now.

    If an extension forks, Python does not learn of it: it keeps the ids of the parent's threads, of
    which only one goes on. That is the one whose stack changes.
    """
    is_known = any(trace.os_tid is None or trace.os_tid in threads.ids for trace in traces)
    if is_known or not traces or not threads.is_current or len(threads.ids) != 1:
        return traces
    living = max(traces, key=lambda trace: (len(trace.changes), trace.name == _MAIN_THREAD))
    renumbered = msgspec.structs.replace(living, os_tid=next(iter(threads.ids)))
    return [renumbered if trace is living else trace for trace in traces]


def _ended(trace: ThreadTrace, rate_hz: int, seen_us: int = 0) -> ThreadTrace:
    """Return the trace of a thread that is gone, cut shortly after its last sample.

    It ends one mean sampling interval after that sample, or at ``seen_us``, when the thread was
    last seen, if that is later.
    """
    *changes, seen, end = trace.changes
    latest_us = max(seen.at_us + SECOND_NS // MICROSECOND_NS // rate_hz, seen_us)
    end = msgspec.structs.replace(end, at_us=min(end.at_us, latest_us))
    return msgspec.structs.replace(trace, changes=(*changes, seen, end))


def _samples_by_thread(traces: Sequence[ThreadTrace], samples: int) -> list[int]:
    """Split the total over the threads by how long each was there.

    Every sample reads every thread.
    """
    lengths = [trace.length_us for trace in traces]
    whole = max(sum(lengths), 1)
    return [round(samples * length / whole) for length in lengths]


def _pieces(
    trace: ThreadTrace, raw: RawRecording, keep: TimeRange, stretches: Sequence[TimeRange]
) -> list[tuple[int, int, Stack]]:
    """Return the parts of a thread's time before, within and after what is kept.

    Each is its start, its length and its stack.

    A stack that was left at the very time at which it was first seen has no piece: it has no time,
    and the next one begins there. Time in none of the stretches has no piece either.
    """
    spans = [TimeRange(to_ns=keep.from_ns), *stretches, TimeRange(keep.to_ns)]
    times_ns = [raw.at_ns(change.at_us) for change in trace.changes]
    pieces = []
    for change, start_ns, end_ns in zip(trace.changes, times_ns, times_ns[1:], strict=False):
        for from_ns, to_ns in spans:
            first_ns, last_ns = max(start_ns, from_ns), min(end_ns, to_ns)
            if first_ns < last_ns:
                pieces.append((first_ns, last_ns - first_ns, change.frames))
    return pieces
