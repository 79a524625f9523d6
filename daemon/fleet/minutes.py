"""What threads did in each minute of a run, stack by stack, with the time for which their GPUs were idle.

A long run is read from its sums by the minute, and what these do not tell interval by interval: both say the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from profd.daemon.analyze.conditions import covers_of, within
from profd.daemon.analyze.gpu.usage import GpuTracks
from profd.daemon.analyze.lives import take_lives
from profd.daemon.analyze.profile import process_weights
from profd.daemon.analyze.selection import Condition
from profd.daemon.store.reader import RunReader
from profd.daemon.store.sums.held import MINUTE_NS
from profd.daemon.store.sums.split import Rest


class Minute(msgspec.Struct):
    """A thread in one stack over the minute that begins at ``minute_ns``.

    ``time_ns`` is how long it stood there, and ``gpu_idle_ns`` for how much of ``gpu_known_ns`` its GPUs were idle; all
    of the time that the process lived, of which no more than a part may have been recorded.
    """

    thread: int
    stack: int
    minute_ns: int
    samples: int = 0
    time_ns: float = 0.0
    gpu_known_ns: float = 0.0
    gpu_idle_ns: float = 0.0


def take_minutes(reader: RunReader) -> Iterator[Minute]:
    """Yield the minutes of all threads, those of a thread in order of time."""
    weights = process_weights(reader, take_lives(reader))
    found: dict[tuple[int, int, int], Minute] = {}
    for one in reader.sums.split(None, None, reader.threads):
        for row in reader.sums.by_minute(one, 1):
            minute = _minute(found, reader, row.thread, row.minute, row.stack)
            _add(minute, row.samples, row.duration_ns, row.known_ns, row.idle_ns)
        for rest in one.rest:
            _read(found, reader, rest)
    for key in sorted(found):
        minute = found.pop(key)
        weight = weights[reader.threads[minute.thread].process]
        minute.time_ns *= weight
        minute.gpu_known_ns *= weight
        minute.gpu_idle_ns *= weight
        yield minute


def _read(found: dict[tuple[int, int, int], Minute], reader: RunReader, rest: Rest) -> None:
    """Add what the intervals of a range of time say."""
    tracks = GpuTracks(reader, rest.from_ns, rest.to_ns)
    condition = (Condition("gpu-idle"),) if tracks.devices else ()
    covers = covers_of(reader, condition, rest.threads, within(rest.from_ns, rest.to_ns))
    for interval in reader.intervals(rest.from_ns, rest.to_ns, rest.threads):
        end_ns = interval.start_ns + interval.duration_ns
        known_ns = idle_ns = 0
        if covers:
            track = tracks.of_process(reader.threads[interval.thread].process)
            known_ns = track.mean(interval.start_ns, end_ns)[1]
            idle_ns = covers[interval.thread].between(interval.start_ns, end_ns)
        number = (interval.start_ns - reader.info.started_ns) // MINUTE_NS
        minute = _minute(found, reader, interval.thread, number, interval.stack)
        _add(minute, interval.samples, interval.duration_ns, known_ns, idle_ns)


def _minute(
    found: dict[tuple[int, int, int], Minute], reader: RunReader, thread: int, number: int, stack: int
) -> Minute:
    key = (thread, number, stack)
    if key not in found:
        found[key] = Minute(thread, stack, reader.info.started_ns + number * MINUTE_NS)
    return found[key]


def _add(minute: Minute, samples: int, time_ns: int, known_ns: int, idle_ns: int) -> None:
    minute.samples += samples
    minute.time_ns += time_ns
    minute.gpu_known_ns += known_ns
    minute.gpu_idle_ns += idle_ns
