"""One reading of the integers that the functions on a main thread's stack hold, by `py-spy dump --locals`.

py-spy shows every local variable. Only those whose value is a plain integer leave this module, with their names; all
others are dropped as the answer is decoded, and are neither stored nor logged. Knows nothing of loops or runs.
"""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from profd.daemon.clock import SECOND_NS, Clock

_TIMEOUT_NS = 5 * SECOND_NS
_TRIES = 2
_CHUNK_BYTES = 1 << 20
IMPORTER = "<frozen importlib._bootstrap>"
# Not those that do not fit into a signed 64-bit number: no loop counts as far.
_INTEGER = re.compile(rb'"(-?\d{1,18})"')


class LoopCounters(NamedTuple):
    """The variables that the loops around a line count by.

    ``current`` are those of loops whose body holds the line. Where a loop waits for what it goes through, its variable
    still shows the round before, which may have been the last one of another epoch.
    """

    declared: frozenset[str] = frozenset()
    current: frozenset[str] = frozenset()


CountersAt = Callable[[str, str, int], LoopCounters]
"""Gives the counters of the loops around a line of a function: ``counters_at(file, function, line)``."""


def nothing_known(_file: str, _function: str, _line: int) -> LoopCounters:
    """Tell of no counters."""
    return LoopCounters()


def is_progress_bar(function: str, file: str) -> bool:
    """Say whether tqdm counts there, in a frame that is on the stack only while the loop waits for its next item."""
    return function.endswith("__iter__") and file.endswith("tqdm/std.py")


class Place(NamedTuple):
    """A function on a stack; ``depth`` counts from the root, which is 0."""

    depth: int
    function: str
    file: str


class IntegerFrame(msgspec.Struct, frozen=True):
    """A frame that holds integers: where it is, the line it stands at, and the integers by name.

    ``counters`` are those of them by which the loops around the line count, as the source says; ``current`` those of
    loops whose body holds it.
    """

    place: Place
    line: int
    integers: Mapping[str, int]
    counters: frozenset[str] = frozenset()
    current: frozenset[str] = frozenset()


class CounterReading(msgspec.Struct, frozen=True):
    """The integers of a main thread, outermost frame first.

    They were read at ``at_ns``, give or take ``error_ns``, when the target's own monotonic clock showed
    ``monotonic_s``. ``cpu_ns`` is what the reading cost. ``is_importing`` says that a module was being imported.
    """

    at_ns: int
    error_ns: int
    monotonic_s: float
    cpu_ns: int
    frames: tuple[IntegerFrame, ...]
    is_importing: bool = False


class CounterUnread(Exception):
    """The process gave no whole stack. ``cpu_ns`` is what the attempts cost."""

    def __init__(self, cpu_ns: int) -> None:
        super().__init__("py-spy gave no whole stack")
        self.cpu_ns = cpu_ns


class _Local(msgspec.Struct):
    """A local variable as py-spy shows it; its value is left undecoded, and so is what else is said of it."""

    name: str
    repr: msgspec.Raw = msgspec.Raw(b"null")


class _Frame(msgspec.Struct):
    name: str
    short_filename: str | None
    filename: str
    line: int
    locals: list[_Local] | None


class _Thread(msgspec.Struct):
    os_thread_id: int | None
    thread_name: str | None
    frames: list[_Frame]


_decoder = msgspec.json.Decoder(list[_Thread])


class Answer(NamedTuple):
    """What py-spy said, between when it was spawned and when it first spoke: in between it read the process.

    ``monotonic_s`` is, as data, what the target would have seen if it had looked at its own clock when that was over.
    """

    said: bytes
    spawned_ns: int
    spoke_ns: int
    cpu_ns: int
    monotonic_s: float


def read_counter(executable: str, pid: int, clock: Clock, counters_at: CountersAt = nothing_known) -> CounterReading:
    """Read the integers of a process's main thread, at most twice; raises CounterUnread.

    Blocks for as long as py-spy takes: a tenth of a second, 10 to 20 ms of it on a CPU.
    """
    cpu_ns = 0
    for _ in range(_TRIES):
        answer = ask(executable, pid, clock)
        cpu_ns += answer.cpu_ns
        reading = read_answer(answer, pid, counters_at)
        if reading is not None:
            return msgspec.structs.replace(reading, cpu_ns=cpu_ns)
    raise CounterUnread(cpu_ns)


def read_answer(answer: Answer, pid: int, counters_at: CountersAt = nothing_known) -> CounterReading | None:
    """Return the integers of a process's main thread by what py-spy said; None where it gave no whole stack."""
    stack = main_stack(answer.said, pid)
    if not stack:
        return None
    return CounterReading(
        at_ns=(answer.spoke_ns + answer.spawned_ns) // 2,
        error_ns=(answer.spoke_ns - answer.spawned_ns) // 2,
        monotonic_s=answer.monotonic_s,
        cpu_ns=answer.cpu_ns,
        frames=integers_of(stack, counters_at),
        is_importing=any(frame.filename == IMPORTER for frame in stack),
    )


def main_stack(said: bytes, pid: int) -> list[_Frame]:
    """Return the frames of the main thread, outermost first; empty where there is no such thread."""
    try:
        threads = _decoder.decode(said)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    main = next((thread for thread in threads if _is_main(thread, pid)), threads[0] if len(threads) == 1 else None)
    return main.frames[::-1] if main else []


def integers_of(stack: list[_Frame], counters_at: CountersAt = nothing_known) -> tuple[IntegerFrame, ...]:
    """Return those frames of a stack, outermost first, that hold integers."""
    found = []
    for depth, frame in enumerate(stack):
        integers = _integers(frame.locals or ())
        if integers:
            place = Place(depth, frame.name, frame.short_filename or frame.filename)
            counters, current = counters_at(frame.filename, frame.name, frame.line)
            found.append(
                IntegerFrame(place, frame.line, integers, counters & integers.keys(), current & integers.keys())
            )
    return tuple(found)


def _is_main(thread: _Thread, pid: int) -> bool:
    return thread.os_thread_id == pid or thread.thread_name == "MainThread"


def _integers(variables: list[_Local] | tuple[()]) -> dict[str, int]:
    """Return the plain integers among some local variables."""
    matches = ((variable.name, _INTEGER.fullmatch(variable.repr)) for variable in variables)
    return {name: int(match[1]) for name, match in matches if match}


def ask(executable: str, pid: int, clock: Clock) -> Answer:
    """Run py-spy once; what it said is empty where it failed."""
    read_end, write_end = os.pipe()
    spawned_ns = clock.now_ns()
    try:
        child = os.posix_spawn(
            executable,
            ["py-spy", "dump", "--nonblocking", "--json", "--locals", "--pid", str(pid)],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, write_end, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setpgroup=0,  # a Ctrl-C at the terminal is not for it
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGPIPE, signal.SIGTERM],
        )
    except OSError:
        os.close(read_end)
        return Answer(b"", spawned_ns, spawned_ns, 0, time.monotonic())
    finally:
        os.close(write_end)
    said, spoke_ns = _hear(read_end, child, clock)
    _, status, usage = os.wait4(child, 0)
    cpu_ns = int((usage.ru_utime + usage.ru_stime) * SECOND_NS)
    return Answer(said if status == 0 else b"", spawned_ns, spoke_ns, cpu_ns, time.monotonic())


def _hear(pipe: int, child: int, clock: Clock) -> tuple[bytes, int]:
    """Return all that comes out of a pipe and when it began; kill the child that takes too long."""
    said, spoke_ns = bytearray(), 0
    deadline_ns = clock.now_ns() + _TIMEOUT_NS
    with open(pipe, "rb", buffering=0) as file:
        while True:
            if not select.select([file], [], [], max(deadline_ns - clock.now_ns(), 0) / SECOND_NS)[0]:
                os.kill(child, signal.SIGKILL)
                return b"", clock.now_ns()
            chunk = file.read(_CHUNK_BYTES)
            spoke_ns = spoke_ns or clock.now_ns()
            if not chunk:
                return bytes(said), spoke_ns
            said += chunk
