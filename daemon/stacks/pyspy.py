"""py-spy: where it is, what it is given, and what it wrote.

What runs it is in ``recording`` and ``dump``: a command that only looks need not import an event loop.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from datetime import datetime
from pathlib import Path

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import MissingTool

EXECUTABLE_VARIABLE = "PROFD_PY_SPY"
"""Names another py-spy than the one installed beside profd."""

KNOWN_VERSIONS = ((0, 4, 3), (0, 5))
"""From this py-spy on, and before that one, what it writes is known to be understood."""
LOG_FAILURES = {"RUST_LOG": "py_spy=warn"}
"""What has py-spy write a line with the time for each read that fails."""
_LOGGED = re.compile(
    rb"(?m)^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{1,9})Z +WARN +py_spy\] Failed to get stack trace from \d+: (.*)"
)
_TOTALS = re.compile(rb"Samples: (\d+) Errors: (\d+)")
# With RUST_BACKTRACE in the environment py-spy would unwind its own stack at every read that fails.
ENVIRONMENT = {"RUST_LIB_BACKTRACE": "0", **LOG_FAILURES}


class PySpyOutput(msgspec.Struct, frozen=True):
    """The output of one py-spy process.

    ``trace`` is its file, ``said`` all that it wrote to stdout and stderr: its log and its totals. It reported that it
    samples at ``sampling_ns``, 0 where it never did. ``wall_jump_ns`` is by how much the wall clock, which its log goes
    by, was ahead of the run's clock.
    """

    trace: bytes
    said: bytes
    spawned_ns: int
    sampling_ns: int
    ended_ns: int
    cpu_ns: int
    wall_jump_ns: int


class FailedRead(msgspec.Struct, frozen=True):
    """A read that failed: when, and at which thread as the interpreter calls it (None: it does not say)."""

    at_ns: int
    ident: int | None


class RawRecording(msgspec.Struct, frozen=True):
    """A py-spy recording.

    ``zero_ns`` is the time of the trace's zero, in the middle of the bracket that it must lie in, ``clock_error_ns``
    half of the bracket's width. ``samples`` counts the stacks read of all threads, ``errors`` the failed reads, of
    which ``failed`` has those with a time.
    """

    data: bytes
    zero_ns: int
    clock_error_ns: int
    samples: int
    errors: int
    cpu_ns: int
    failed: tuple[FailedRead, ...] = ()


class RecordingFailed(Exception):
    """py-spy gave no recording; the message is its own reason, one line."""


def find_py_spy() -> str:
    """Return the path of py-spy: the one that the user names, else that beside profd; raises MissingTool."""
    if named := os.environ.get(EXECUTABLE_VARIABLE):
        # A session runs in another folder than the command that starts it: a relative path would be another file there.
        if not Path(named).is_absolute() or not Path(named).is_file() or not os.access(named, os.X_OK):
            what = f"{EXECUTABLE_VARIABLE} is {named}, which is not the absolute path of an executable file"
            raise MissingTool(what, "name a py-spy, or unset the variable")
        return named
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    if beside.exists():
        return str(beside)
    from shutil import which

    found = which("py-spy")
    if not found:
        raise MissingTool("py-spy is not installed beside profd", "install it with `pip install py-spy`")
    return found


def version_of(py_spy: str) -> str:
    """Return the version that py-spy says it has, empty where it says none; raises OSError where it does not run."""
    try:
        said = subprocess.run([py_spy, "--version"], capture_output=True, text=True, timeout=10).stdout
    except subprocess.TimeoutExpired as error:
        raise OSError(str(error)) from None
    return said.strip().removeprefix("py-spy ")


def read_output(output: PySpyOutput) -> RawRecording:
    """Return the recording that py-spy wrote; raises RecordingFailed where there is none."""
    totals = _TOTALS.search(output.said)
    if not totals or not output.trace:
        raise RecordingFailed(reason_of(output.said))
    # The trace counts from a moment after py-spy was spawned and before it first spoke; its last events are stamped
    # just before it writes and ends. (The file's own time of writing would be a closer bound, but it comes from
    # the kernel's coarse clock, which a virtual machine may update late.)
    earliest_ns, last_ns = output.spawned_ns, last_timestamp_us(output.trace) * 1000
    latest_ns = max(min(output.sampling_ns or output.ended_ns, output.ended_ns - last_ns), earliest_ns)
    zero_ns, clock_error_ns = (earliest_ns + latest_ns) // 2, (latest_ns - earliest_ns) // 2
    samples, errors = map(int, totals.groups())
    failed = read_log(output.said, output.wall_jump_ns)
    return RawRecording(output.trace, zero_ns, clock_error_ns, samples, errors, output.cpu_ns, failed)


def read_log(said: bytes, wall_ahead_ns: int) -> tuple[FailedRead, ...]:
    """Return the failed reads with a time that py-spy logged, by a clock that the wall clock is ahead of."""
    found = []
    for seconds, fraction, why in _LOGGED.findall(said):
        try:
            at = datetime.fromisoformat(f"{seconds.decode()}+00:00")
        except ValueError:
            continue
        wall_ns = int(at.timestamp()) * SECOND_NS + int(fraction.ljust(9, b"0"))
        thread = re.search(rb" for thread (\d{1,20})\b", why)
        found.append(FailedRead(wall_ns - wall_ahead_ns, int(thread[1]) if thread else None))
    return tuple(found)


def without_log(said: bytes) -> bytes:
    return _LOGGED.sub(b"", said)


def reason_of(said: bytes) -> str:
    """Return why py-spy failed, by its log, on one line and without its backtrace."""
    text = without_log(said).decode(errors="replace")
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("Error:").strip() for line in lines if line.startswith("Error:")]
    cause = re.search(r"^Caused by:\n\s*(?:\d+: )?(.+)$", text, re.MULTILINE)
    causes = [line.partition(":")[2].strip() for line in lines if re.match(r"\d+: (?!.*::)", line)]
    last = lines[-1] if lines else "py-spy ended without a word"
    return " — ".join([*errors, *([cause[1]] if cause else causes[:1])]) or last


def last_timestamp_us(data: bytes) -> int:
    """Return the timestamp of a trace's last event without decoding the trace; 0 where there is none."""
    found = re.search(rb'"ts":(\d+)[^{}]*\}\s*\]\s*$', data[-4096:])
    return int(found[1]) if found else 0
