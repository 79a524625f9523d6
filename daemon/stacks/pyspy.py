"""Find py-spy, give it what it needs, and read what it wrote.

``recording`` and ``dump`` run it: a command that only takes a snapshot need not import an event
loop.

Its trace holds *changes*: if the stack of a sample differs from the one before, the frames that
went are ended and the new ones begun. A sample that repeats the stack before leaves no trace.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import msgspec

from profd.daemon.clock import MICROSECOND_NS, SECOND_NS
from profd.daemon.errors import MissingTool
from profd.daemon.installation import install_command
from profd.daemon.stacks.reads import Pulse, Spell
from profd.daemon.store.records import Frame, Stack

EXECUTABLE_VARIABLE = "PROFD_PY_SPY"
"""Names another py-spy than the one installed beside profd."""

KNOWN_VERSIONS = ((0, 4, 3), (0, 5))
"""profd is known to understand the output of py-spy from the first version to below the second."""
LOG_FAILURES = {"RUST_LOG": "py_spy=warn"}
"""Makes py-spy write a line with the time for each read that fails."""
_LOGGED = re.compile(
    rb"(?m)^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{1,9})Z +WARN +py_spy\] Failed to get stack "
    rb"trace from \d+: (.*)"
)
_TOTALS = re.compile(rb"Samples: (\d+) Errors: (\d+)")
# With RUST_BACKTRACE in the environment py-spy would unwind its own stack at every failed read.
ENVIRONMENT = {"RUST_LIB_BACKTRACE": "0", **LOG_FAILURES}


class PySpyOutput(msgspec.Struct, frozen=True):
    """The output of one py-spy process.

    ``trace`` is its file. ``said`` is all that it wrote to stdout and stderr: its log and its
    totals. ``sampling_ns`` is when it reported that it samples, 0 if it never did. ``wall_jump_ns``
    is by how much the wall clock, which its log uses, was ahead of the run's clock.
    """

    trace: bytes
    said: bytes
    spawned_ns: int
    sampling_ns: int
    ended_ns: int
    cpu_ns: int
    wall_jump_ns: int


class FailedRead(msgspec.Struct, frozen=True):
    """A read that failed: when, at which thread, and why.

    ``ident`` is the interpreter's id of the thread, or None if py-spy does not say.
    """

    at_ns: int
    ident: int | None
    why: str = ""


class RawRecording(msgspec.Struct, frozen=True):
    """A py-spy recording.

    ``zero_ns`` is the time of the trace's zero: the middle of the range in which it must lie.
    ``clock_error_ns`` is half the width of that range. ``samples`` counts the stacks read of all
    threads. ``errors`` counts the failed reads; ``failed`` has those with a time. ``pulses`` show
    when py-spy ran, ``spells`` when the process did.
    """

    data: bytes
    zero_ns: int
    clock_error_ns: int
    samples: int
    errors: int
    cpu_ns: int
    failed: tuple[FailedRead, ...] = ()
    pulses: tuple[Pulse, ...] = ()
    spells: tuple[Spell, ...] = ()

    def at_ns(self, at_us: int) -> int:
        """Return the time on the run's clock of a time in the trace."""
        return self.zero_ns + at_us * MICROSECOND_NS

    def at_us(self, at_ns: int) -> int:
        """Return the time in the trace of a time on the run's clock."""
        return (at_ns - self.zero_ns) // MICROSECOND_NS


_SAMPLE_S, _THREAD_S, _CROWD = 0.0006, 0.0001, 1_000
_START_S, _READS = 0.1, 4
"""The cost of a recording with one sample, in reads.

py-spy counts a sample once it has the next one and reads a third while it ends. What profd makes of
the recording takes as long as a fourth.
"""


def read_cost_s(threads: int) -> float:
    """Return the CPU seconds of one read, as estimated from the number of threads.

    It assumes that one thread is in a loop of some depth and the others wait. With many threads
    each takes longer: py-spy looks for it among all of them.
    """
    return _SAMPLE_S + _THREAD_S * (threads - 1) * (1 + threads / _CROWD)


def shortest_cost_s(threads: int) -> float:
    """Return the CPU seconds of the shortest recording that has a sample."""
    return _START_S + _READS * read_cost_s(threads)


class RecordingFailed(Exception):
    """py-spy gave no recording; the message is py-spy's own reason, on one line."""


def find_py_spy() -> str:
    """Return the path of py-spy: the one that the user names, or else the one beside profd.

    Raises MissingTool.
    """
    if named := os.environ.get(EXECUTABLE_VARIABLE):
        # A session runs in another folder than the command that starts it, so a relative path would
        # mean another file there.
        if (
            not Path(named).is_absolute()
            or not Path(named).is_file()
            or not os.access(named, os.X_OK)
        ):
            what = (
                f"{EXECUTABLE_VARIABLE} is {named}, which is not the absolute path of an "
                "executable file"
            )
            raise MissingTool(what, "name a py-spy, or unset the variable")
        return named
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    if beside.exists():
        return str(beside)
    from shutil import which

    found = which("py-spy")
    if not found:
        raise MissingTool(
            "py-spy is not installed beside profd",
            f"install it with `{install_command('py-spy')}`",
        )
    return found


def version_of(py_spy: str) -> str:
    """Return the version that py-spy reports, or an empty text if it reports none.

    Raises OSError if it does not run.
    """
    try:
        said = subprocess.run(
            [py_spy, "--version"], capture_output=True, text=True, timeout=10
        ).stdout
    except subprocess.TimeoutExpired as error:
        raise OSError(str(error)) from None
    return said.strip().removeprefix("py-spy ")


def read_output(output: PySpyOutput) -> RawRecording:
    """Return the recording that py-spy wrote; raises RecordingFailed if there is none."""
    totals = _TOTALS.search(output.said)
    if not totals or not output.trace:
        raise RecordingFailed(reason_of(output.said))
    # The trace's zero lies after py-spy was spawned and before it first wrote a word; its last
    # events are stamped just before it writes the file and ends. (The file's modification time
    # would be a closer bound, but it comes from the kernel's coarse clock, which a virtual machine
    # may update late.)
    earliest_ns, last_ns = output.spawned_ns, last_timestamp_us(output.trace) * 1000
    latest_ns = max(
        min(output.sampling_ns or output.ended_ns, output.ended_ns - last_ns), earliest_ns
    )
    zero_ns, clock_error_ns = (earliest_ns + latest_ns) // 2, (latest_ns - earliest_ns) // 2
    samples, errors = map(int, totals.groups())
    failed = read_log(output.said, output.wall_jump_ns)
    return RawRecording(
        output.trace, zero_ns, clock_error_ns, samples, errors, output.cpu_ns, failed
    )


def read_log(said: bytes, wall_ahead_ns: int) -> tuple[FailedRead, ...]:
    """Return the failed reads that py-spy logged with a time.

    py-spy stamps them by the wall clock, which is ``wall_ahead_ns`` ahead of the run's clock.
    """
    found = []
    for seconds, fraction, why in _LOGGED.findall(said):
        try:
            at = datetime.fromisoformat(f"{seconds.decode()}+00:00")
        except ValueError:
            continue
        wall_ns = int(at.timestamp()) * SECOND_NS + int(fraction.ljust(9, b"0"))
        thread = re.search(rb" for thread (\d{1,20})\b", why)
        words = " ".join(why.decode(errors="replace").split())
        found.append(FailedRead(wall_ns - wall_ahead_ns, int(thread[1]) if thread else None, words))
    return tuple(found)


def without_log(said: bytes) -> bytes:
    return _LOGGED.sub(b"", said)


def reason_of(said: bytes) -> str:
    """Return why py-spy failed, from its log, on one line and without its backtrace."""
    text = without_log(said).decode(errors="replace")
    text = re.sub(r"(?m)^py-spy> .*", "", text)  # what it says of its work
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("Error:").strip() for line in lines if line.startswith("Error:")]
    cause = re.search(r"^Caused by:\n\s*(?:\d+: )?(.+)$", text, re.MULTILINE)
    causes = [line.partition(":")[2].strip() for line in lines if re.match(r"\d+: (?!.*::)", line)]
    last = lines[-1] if lines else "py-spy ended without a word"
    return " — ".join([*errors, *([cause[1]] if cause else causes[:1])]) or last


def last_timestamp_us(data: bytes) -> int:
    """Return the timestamp of a trace's last event without decoding the trace.

    Returns 0 if there is none.
    """
    found = re.search(rb'"ts":(\d+)[^{}]*\}\s*\]\s*$', data[-4096:])
    return int(found[1]) if found else 0


_THREAD = re.compile(r"thread \((?:0x[0-9a-fA-F]+|(\d{1,9}))\)(?:: (.*))?", re.DOTALL)


class StackChange(msgspec.Struct, frozen=True, gc=False):
    """The thread stood in ``frames`` from ``at_us`` on, until the next change.

    ``frames`` begins with the root; it is empty if the thread had no frames.
    """

    at_us: int
    frames: Stack


class ThreadTrace(msgspec.Struct, frozen=True):
    """The changes of one thread in order of time; the last one only marks the end of the trace.

    ``ident`` is the interpreter's id of the thread. ``os_tid`` is the kernel's, in the process's
    own PID namespace; it is None up to Python 3.10, which does not have it.
    """

    ident: int
    os_tid: int | None
    name: str
    changes: tuple[StackChange, ...]

    @property
    def length_us(self) -> int:
        return self.changes[-1].at_us - self.changes[0].at_us

    def stays(self) -> list[tuple[Stack, int]]:
        """Return each stack, and for how many microseconds the thread stood in it."""
        return [
            (change.frames, after.at_us - change.at_us) for change, after in pairwise(self.changes)
        ]


class TraceDamaged(Exception):
    """The bytes are no trace of py-spy; the message says why."""


# A recording has thousands of events, which form no cycles: the garbage collector need not track
# them.
class _Arguments(msgspec.Struct, gc=False):
    filename: str = ""
    # 32 bits, with or without a sign: a frame that was read torn may have any line.
    line: Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 32)] | None = None


class _Event(msgspec.Struct, gc=False):
    ph: str
    tid: int
    ts: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]  # decades: no later time is real
    name: str = ""
    args: _Arguments = msgspec.field(default_factory=_Arguments)


_decoder = msgspec.json.Decoder(list[_Event])
_PART_BYTES = 1 << 17
"""How much of a trace is decoded at a time: decoded, it takes three times the memory."""
BETWEEN = b'},{"args":'
"""The bytes that py-spy writes between two events.

No text within an event contains them, since quotation marks are escaped there.
"""


def _events(data: bytes) -> Iterator[list[_Event]]:
    """Yield the events of a trace, part by part; raises TraceDamaged."""
    begin = 0
    try:
        while (end := data.find(BETWEEN, begin + _PART_BYTES)) >= 0:
            yield _decoder.decode(b"%b%b]" % (b"[" if begin else b"", data[begin : end + 1]))
            begin = end + 2
        yield _decoder.decode(b"%b%b" % (b"[" if begin else b"", data[begin:]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceDamaged(f"py-spy wrote no trace ({error})") from error


def decode(data: bytes) -> list[ThreadTrace]:
    """Return what each thread did according to py-spy's chrometrace, in order of appearance.

    Raises TraceDamaged.
    """
    threads: defaultdict[int, _Stacks] = defaultdict(_Stacks)
    for events in _events(data):
        by_thread: defaultdict[int, list[_Event]] = defaultdict(list)
        for event in events:
            if event.ph in ("B", "E"):
                by_thread[event.tid].append(event)
        for ident, of_thread in by_thread.items():
            threads[ident].take(of_thread)
    # A thread's id in the target may have 64 bits; a run file holds one less.
    traces = (stacks.trace(ident & ((1 << 63) - 1)) for ident, stacks in threads.items())
    return [trace for trace in traces if trace is not None]


# Keep one object for each frame: later look-ups, in any recording, need not compare text.
_frame = functools.lru_cache(1 << 11)(Frame)


class _Stacks:
    """The stacks of one thread, rebuilt from its events.

    Several events with the same time are one change.
    """

    def __init__(self) -> None:
        self._stack: list[Frame] = []
        self._changes: list[StackChange] = []
        self._at_us = -1
        self._roots: dict[str, None] = {}

    def take(self, events: Sequence[_Event]) -> None:
        stack, at_us = self._stack, self._at_us
        for event in events:
            if event.ts != at_us:
                if event.ts < at_us:
                    raise TraceDamaged("py-spy went back in time")
                if at_us >= 0:
                    self._add(at_us)
                at_us = event.ts
            if event.ph == "B":
                # The root names a single thread: the roots of workers that come and go would fill
                # the cache.
                make = _frame if stack else Frame
                stack.append(make(event.name, event.args.filename, event.args.line or 0))
            elif stack:
                stack.pop()
            else:
                raise TraceDamaged("py-spy ended a frame that it had not begun")
        self._at_us = at_us

    def _add(self, at_us: int) -> None:
        self._changes.append(StackChange(at_us, tuple(self._stack[1:])))
        self._roots |= {frame.function: None for frame in self._stack[:1]}

    def trace(self, ident: int) -> ThreadTrace | None:
        """Return what the thread did, or None if nothing was seen; raises TraceDamaged."""
        self._add(self._at_us)
        # py-spy names a thread once it can: hardly before the program has imported threading.
        if not self._roots or len(self._changes) < 2:
            return None
        os_tid, name = None, ""
        for root in self._roots:
            match = _THREAD.fullmatch(root)
            if not match:
                raise TraceDamaged("py-spy did not name the threads")
            os_tid, name = int(match[1]) if match[1] else os_tid, name or match[2] or ""
        return ThreadTrace(ident, os_tid, name, tuple(self._changes))
