"""When each stack of a recording was read, which is earlier than py-spy notes it. Pure.

py-spy reads a stack from the leaf to the root, frame by frame out of the memory of another process, and notes the time
when it has all threads. A deep stack is noted later after it was true than a flat one. Taken as they are noted, deep
stacks would lose that time to flat ones with every sample: 15 points of a recursion 200 deep, one or two of a training
loop. How long a read takes is known from the CPU time of the recording, in proportion to the frames.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from profd.daemon.clock import MICROSECOND_NS
from profd.daemon.collect.stacks.chrometrace import Change, ThreadTrace

START_US = 15_000
"""CPU time of a recording that is no reading: starting py-spy, finding the interpreter, writing the file."""
FRAMES_AROUND = 12
"""What a moment of reading costs beside the frames themselves, in frames: 210 µs of CPU time, and 17 µs a frame."""
USUAL_US_PER_FRAME = 8.0
_LEAST_US_PER_FRAME, _MOST_US_PER_FRAME = 2.0, 40.0
_ENOUGH_MOMENTS = 50


def as_read(traces: Sequence[ThreadTrace], samples: int, cpu_ns: int) -> list[ThreadTrace]:
    """Return what threads did with each change at the time when it was read; their order stays.

    ``samples`` are the stacks that were read of all threads, ``cpu_ns`` is what the recording took, 0 where that is not
    known: then changes stay as they were noted.
    """
    lengths = [trace.changes[-1].at_us - trace.changes[0].at_us for trace in traces]
    longest = max(lengths, default=0)
    if not longest or not samples or not cpu_ns:
        return list(traces)
    depths = [_mean_depth(trace) for trace in traces]
    frames = sum(depth * length for depth, length in zip(depths, lengths, strict=True)) / longest
    moments = samples * longest / sum(lengths)
    per_frame_us = _us_per_frame(cpu_ns / MICROSECOND_NS, moments, frames)
    return [
        _shifted(trace, per_frame_us, FRAMES_AROUND + max(frames - depth, 0.0))
        for trace, depth in zip(traces, depths, strict=True)
    ]


def _us_per_frame(cpu_us: float, moments: float, frames: float) -> float:
    """Return what a frame takes to be read; the usual where too little was recorded to tell."""
    if moments < _ENOUGH_MOMENTS:
        return USUAL_US_PER_FRAME
    told = (cpu_us - START_US) / moments / (FRAMES_AROUND + frames)
    return min(max(told, _LEAST_US_PER_FRAME), _MOST_US_PER_FRAME)


def _mean_depth(trace: ThreadTrace) -> float:
    """Return the mean number of frames over the time of a thread."""
    whole = trace.changes[-1].at_us - trace.changes[0].at_us
    stays = zip(trace.changes, trace.changes[1:], strict=False)
    return sum(len(now.frames) * (after.at_us - now.at_us) for now, after in stays) / whole if whole else 0.0


def _shifted(trace: ThreadTrace, per_frame_us: float, frames_around: float) -> ThreadTrace:
    """Return a thread's changes each earlier by the time that its stack took to be read; its end stays."""
    *seen, end = trace.changes
    shifted: list[Change] = []
    for change in seen:
        at_us = change.at_us - round(per_frame_us * (frames_around + len(change.frames)))
        if shifted:
            at_us = max(at_us, shifted[-1].at_us)
        shifted.append(Change(at_us, change.frames))
    return msgspec.structs.replace(trace, changes=(*shifted, end))
