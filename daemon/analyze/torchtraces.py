"""Reads the parts of torch's traces that exports need; numbers come from the file's own tables."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.analyze.selection import Selection
from profd.daemon.errors import RunUnreadable
from profd.daemon.frameworks.kineto import LIMIT_BYTES, parse, time_ns
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import WindowRow

DEVICE_WORK = frozenset(
    {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync", "collective_comm"}
)
"""Categories of events on a device; their PID is its number."""


class TorchEvent(msgspec.Struct, frozen=True, gc=False):
    """One event; times are microseconds, ``ts`` counted from the trace's base."""

    ph: str
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    id: int | str = 0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class TorchTrace(msgspec.Struct, frozen=True):
    """The events of a window; their times count from ``base_ns`` since the epoch."""

    events: list[TorchEvent] = msgspec.field(name="traceEvents")
    base_ns: int = msgspec.field(name="baseTimeNanoseconds", default=0)

    def start_ns(self, event: TorchEvent) -> int:
        return self.base_ns + time_ns(event.ts)

    def end_ns(self, event: TorchEvent) -> int:
        return self.start_ns(event) + round(event.dur * 1000)


def selected_windows(reader: RunReader, selection: Selection) -> Iterator[WindowRow]:
    """Yield the windows of a selection's processes that lie, or begin, in its range of time."""
    for window in reader.windows():
        is_chosen = not window.error and window.time.overlaps(selection.time)
        if is_chosen and selection.takes_process(reader.processes[window.process]):
            yield window


def of_last_request(reader: RunReader, taken: Sequence[WindowRow]) -> list[WindowRow]:
    """Return the windows of the last request with any, one of each process, by rank."""
    # A damaged file may have one window thousands of times.
    found = {row.process: row for row in taken if row.asked_ns == taken[-1].asked_ns}
    return [found[one] for one in sorted(found, key=lambda one: reader.processes[one].by_rank)]


def last_windows(reader: RunReader, selection: Selection) -> list[WindowRow]:
    """Return the windows of the last request of which a selection has any, by rank."""
    return of_last_request(reader, list(selected_windows(reader, selection)))


def trace_text(reader: RunReader, window: WindowRow) -> bytes | None:
    """Return the JSON of a window's trace, None if not kept; raises RunUnreadable if damaged."""
    packed = reader.window_trace(window.id)
    if packed is None:
        return None
    if window.trace_bytes > LIMIT_BYTES:
        raise RunUnreadable(
            f"the trace of window {window.id} is larger than {LIMIT_BYTES >> 20} MiB", _REMEDY
        )
    unpacked = zlib.decompressobj(16 + zlib.MAX_WBITS)  # of gzip
    try:
        # No more than the run says: a byte may stand for a thousand.
        text = unpacked.decompress(packed, window.trace_bytes + 1)
    except zlib.error as error:
        raise _damaged(window, error) from error
    if len(text) != window.trace_bytes or not unpacked.eof:
        raise _damaged(window, f"it has not the {window.trace_bytes} bytes that the run says")
    return text


def decode(window: WindowRow, text: bytes) -> TorchTrace:
    """Return the trace that a window's JSON describes; raises RunUnreadable."""
    try:
        return parse(text, TorchTrace)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _damaged(window, error) from error


_REMEDY = "choose a range of time without it"


def _damaged(window: WindowRow, error: Exception | str) -> RunUnreadable:
    return RunUnreadable(f"the trace of window {window.id} is damaged ({error})", _REMEDY)
