"""Reads a trace that torch.profiler or Kineto wrote: Chrome's trace format as JSON, plain or gzipped.

Knows which fields Kineto writes, and nothing of what they mean. Fields whose type differs between versions of torch are
kept as raw JSON until someone needs them.
"""

from __future__ import annotations

import gzip
import zlib
from typing import Annotated, BinaryIO

import msgspec

from profd.daemon.errors import ProfdError

LIMIT_BYTES = 1 << 29
_GZIP_MAGIC = b"\x1f\x8b"
_NOTHING = msgspec.Raw(b"")
_LATEST_NS = 1 << 62
"""A century from now: what is later is no time, and a time that is added to it no longer a number of a run file."""
Microseconds = Annotated[float, msgspec.Meta(ge=-_LATEST_NS / 4000, le=_LATEST_NS / 4000)]


class TraceUnreadable(ProfdError):
    """A file is no trace of torch.profiler, or a damaged one."""


class Details(msgspec.Struct, frozen=True, gc=False):
    """What Kineto says of an event beside name and time; raw JSON, empty where it says nothing."""

    external_id: msgspec.Raw = msgspec.field(name="External id", default=_NOTHING)
    sequence_number: msgspec.Raw = msgspec.field(name="Sequence number", default=_NOTHING)
    input_dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    concrete_inputs: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NOTHING)
    bytes: msgspec.Raw = msgspec.field(name="Bytes", default=_NOTHING)
    device_type: msgspec.Raw = msgspec.field(name="Device Type", default=_NOTHING)


_NO_DETAILS = Details()


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event; ``ts`` and ``dur`` are microseconds, with nanoseconds as decimals, ``ts`` counted from the base."""

    ph: str
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: Microseconds = 0.0
    dur: Microseconds = 0.0
    args: Details = _NO_DETAILS


class Trace(msgspec.Struct, frozen=True):
    """A trace as it stands in the file; ``base_ns`` is the time since the epoch that events are counted from."""

    events: list[Event] = msgspec.field(name="traceEvents")
    base_ns: Annotated[int, msgspec.Meta(ge=0, le=_LATEST_NS)] = msgspec.field(name="baseTimeNanoseconds", default=0)


_decoder = msgspec.json.Decoder(Trace)


def read_text(file: BinaryIO) -> bytes:
    """Return the JSON in a file, unpacked; raises TraceUnreadable, also where it is larger than ``LIMIT_BYTES``."""
    try:
        is_packed = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        if is_packed:
            with gzip.GzipFile(fileobj=file) as unpacked:
                text = unpacked.read(LIMIT_BYTES + 1)
        else:
            text = file.read(LIMIT_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceUnreadable(f"the trace cannot be read ({error})") from error
    if len(text) > LIMIT_BYTES:
        raise TraceUnreadable(
            f"the trace is larger than {LIMIT_BYTES >> 20} MiB", "take fewer steps, or leave stacks out"
        )
    return text


def decode(text: bytes) -> Trace:
    """Return the trace that JSON describes; raises TraceUnreadable."""
    try:
        return _decoder.decode(text)
    except UnicodeDecodeError:
        # A kernel or a range may be called anything; its name is no reason to lose the window.
        return decode(text.decode(errors="replace").encode())
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceUnreadable(f"the trace is damaged ({error})", "the process may have ended while it wrote") from error
