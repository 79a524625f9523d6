"""Reads a trace of torch.profiler or Kineto, some events at a time: a trace may have millions.

Fields whose type differs between versions of torch are kept as raw JSON until they are needed.

Times are nanoseconds since the trace's base. The categories of events are those of Kineto's
ActivityType. An event that ends on another thread looks in a trace like any other: it counts for
the thread that started it.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Annotated, BinaryIO

import msgspec

from profd.daemon.errors import ProfdError
from profd.daemon.frameworks.kineto import LIMIT_BYTES, parse
from profd.daemon.timerange import EVER

_PART_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_NOTHING = msgspec.Raw(b"")
# A later time is an error, and sums with it would not fit into a run file.
Microseconds = Annotated[float, msgspec.Meta(ge=-EVER.to_ns / 1000, le=EVER.to_ns / 1000)]
"""Up to torch 2.3 they count from the epoch, and the trace has no base."""


class TraceUnreadable(ProfdError):
    """A file is no trace of torch.profiler, or a damaged one."""


class Details(msgspec.Struct, frozen=True, gc=False):
    """The other fields of an event as raw JSON, empty if Kineto wrote none."""

    external_id: msgspec.Raw = msgspec.field(name="External id", default=_NOTHING)
    correlation: msgspec.Raw = _NOTHING
    input_dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    bytes: msgspec.Raw = msgspec.field(name="Bytes", default=_NOTHING)
    device_type: msgspec.Raw = msgspec.field(name="Device Type", default=_NOTHING)


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event.

    ``ts`` and ``dur`` are microseconds, with nanoseconds as decimals, ``ts`` counted from the base.
    """

    ph: str
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: Microseconds = 0.0
    dur: Microseconds = 0.0
    args: Details = Details()


class TraceRest(msgspec.Struct, frozen=True):
    """The last events of a trace, and what is around all: their base is in ns since the epoch.

    ``cupti`` is the version of CUPTI's interface as raw JSON, empty if torch did not write it.
    """

    events: list[Event] = msgspec.field(name="traceEvents")
    base_ns: Annotated[int, msgspec.Meta(ge=0, le=EVER.to_ns)] = msgspec.field(
        name="baseTimeNanoseconds", default=0
    )
    cupti: msgspec.Raw = msgspec.field(name="cupti_version", default=_NOTHING)


def read_text(file: BinaryIO) -> Iterator[bytes]:
    """Yield the JSON in a file, unpacked, part by part.

    Raises TraceUnreadable, also if it is larger than ``LIMIT_BYTES``.
    """
    try:
        is_packed = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        unpacked: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=file) if is_packed else file
        text_bytes = 0
        while part := unpacked.read(_PART_BYTES):
            text_bytes += len(part)
            if text_bytes > LIMIT_BYTES:
                what = f"the trace is larger than {LIMIT_BYTES >> 20} MiB"
                raise TraceUnreadable(what, "take fewer steps, or leave stacks out")
            yield part
    except (OSError, EOFError, zlib.error) as error:
        raise TraceUnreadable(f"the trace cannot be read ({error})") from error


_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
"""Between two events, and between objects within one: only what reads as whole events is split."""
_MOST_TRIES = 8
_MOST_BYTES = 16 << 20
"""The most text around the events of a trace, and of one event."""


class TraceReader:
    """The events of a trace, in the order of the file; ``rest`` is there once all were read."""

    rest: TraceRest

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[list[Event]]:
        """Yield some events at a time; raises TraceUnreadable."""
        begin, rest = b"", b""
        for part in self._parts:
            rest += part
            if not begin and (found := _BEGIN.search(rest)):
                begin, rest = rest[: found.end()], rest[found.end() :]
            events, rest = _split(rest) if begin else ([], rest)
            yield events
            if len(rest) > _MOST_BYTES:
                break
        try:
            self.rest = parse(begin + rest, TraceRest)
        except (msgspec.DecodeError, RecursionError) as error:
            raise TraceUnreadable(
                f"the trace is damaged ({error})", "the process may have ended while it wrote"
            ) from error
        yield self.rest.events


def _split(text: bytes) -> tuple[list[Event], bytes]:
    """Return the events that a text begins with, and the rest of it."""
    for between in list(_BETWEEN.finditer(text))[: -_MOST_TRIES - 1 : -1]:
        try:
            events = parse(b"[%b]" % text[: between.start() + 1], list[Event])
        except (msgspec.DecodeError, RecursionError):
            continue
        return events, text[between.end() :]
    return [], text


def whole_number(raw: msgspec.Raw) -> int:
    """Return the integer in raw JSON; 0 if it is none, or one that no machine counts up to."""
    try:
        number = int(bytes(raw))
    except ValueError:
        return 0
    return number if abs(number) < 1 << 53 else 0
