"""One py-spy recording as a child process: started, seen to sample, ended, collected with its cost.

The result and the log go into anonymous memory files: nothing is left behind when either side is killed, a full disk is
no matter, and no failed read wakes the session. py-spy always gets a duration, so that one whose session is gone ends
by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import shutil
import signal
import sysconfig
from datetime import datetime
from pathlib import Path

import msgspec

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.errors import MissingTool

EXECUTABLE_VARIABLE = "PROFD_PY_SPY"
"""Names another py-spy than the one installed beside profd."""

KNOWN_VERSIONS = ((0, 4, 3), (0, 5))
"""From this py-spy on, and before that one, what it writes is known to be understood."""
LOG_FAILURES = {"RUST_LOG": "py_spy=warn"}
"""What has py-spy write a line with the time for each read that fails."""
_SAMPLING = b"Sampling process"
_LOGGED = re.compile(
    rb"(?m)^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{1,9})Z +WARN +py_spy\] Failed to get stack trace from \d+: (.*)"
)
_TOTALS = re.compile(rb"Samples: (\d+) Errors: (\d+)")
_KILL_AFTER_S = 5.0
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
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if not found:
        raise MissingTool("py-spy is not installed beside profd", "install it with `pip install py-spy`")
    return found


class Recording:
    """A running py-spy recording; ``sampling`` completes once it samples: False where it ended before."""

    def __init__(self, executable: str, pid: int, rate_hz: int, length_s: float, clock: Clock) -> None:
        """Start py-spy on ``pid`` for at most ``length_s`` seconds and a few to spare."""
        loop = asyncio.get_running_loop()
        self.rate_hz, self.length_s = rate_hz, length_s
        self.sampling: asyncio.Future[bool] = loop.create_future()
        self.ended: asyncio.Future[bool] = loop.create_future()
        self._clock = clock
        self._said = b""
        self._sampling_ns = self._ended_ns = self.cpu_ns = 0
        self.spawned_ns = clock.now_ns()
        duration_s = math.ceil(length_s) + 5
        arguments = [
            *("py-spy", "record", "--nonblocking", "--idle", "--threads", "--format", "chrometrace"),
            *("--rate", str(rate_hz), "--duration", str(duration_s), "--output", "/proc/self/fd/3", "--pid", str(pid)),
        ]
        try:
            with contextlib.ExitStack() as opened:
                memory = [os.memfd_create(f"profd-{name}") for name in ("recording", "log")]
                for file in memory:
                    opened.callback(os.close, file)
                self._pipe, write_end = os.pipe()
                opened.callback(os.close, self._pipe)
                try:
                    os.set_blocking(self._pipe, False)
                    trace, log = memory
                    passed = [(os.POSIX_SPAWN_DUP2, fd, to) for fd, to in ((write_end, 1), (log, 2), (trace, 3))]
                    files = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), *passed]
                    signals = [signal.SIGINT, signal.SIGPIPE, signal.SIGTERM]
                    environment = {**os.environ, **ENVIRONMENT}
                    self._pid = os.posix_spawn(  # in a group of its own: a Ctrl-C at the terminal is not for it
                        executable, arguments, environment,
                        file_actions=files, setpgroup=0, setsigmask=[], setsigdef=signals,
                    )  # fmt: skip
                finally:
                    os.close(write_end)
                opened.pop_all()
        except OSError as error:
            raise RecordingFailed(f"py-spy cannot be started ({error.strerror})") from error
        self._memory = memory
        loop.add_reader(self._pipe, self._read_pipe)

    def stop(self) -> None:
        self._signal(signal.SIGINT)

    async def collect(self) -> RawRecording:
        """Wait for the end of the recording and return it; raises RecordingFailed where there is none."""
        try:
            await asyncio.wait_for(asyncio.shield(self.ended), _KILL_AFTER_S)
        except asyncio.TimeoutError:
            self._signal(signal.SIGKILL)
            await self.ended
            raise RecordingFailed("py-spy did not answer and was killed") from None
        finally:
            trace, log = self._release()
        said, times_ns = self._said + log, (self.spawned_ns, self._sampling_ns, self._ended_ns)
        return read_output(PySpyOutput(trace, said, *times_ns, self.cpu_ns, self._clock.wall_jump_ns()))

    def abandon(self) -> None:
        """Kill py-spy and let go of what it has written; of no effect on a recording that was collected."""
        self._signal(signal.SIGKILL)
        self._release()

    def _release(self) -> list[bytes]:
        """Let go of what py-spy has written, and return it, trace and log; nothing where that was done before."""
        held, self._memory = self._memory, []
        found = [os.pread(file, os.fstat(file).st_size, 0) for file in held]
        for file in held:
            os.close(file)
        return found or [b"", b""]

    def _signal(self, number: int) -> None:
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _read_pipe(self) -> None:
        try:
            said = os.read(self._pipe, 65536)
        except BlockingIOError:
            return
        self._said += said
        if said:
            if not self.sampling.done() and _SAMPLING in self._said:
                self._sampling_ns = self._clock.now_ns()
                self.sampling.set_result(True)
            return
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
        self._ended_ns = self._clock.now_ns()
        self._reap()

    def _reap(self) -> None:
        """Collect exit status and cost; the process has closed its output, so this is a matter of microseconds."""
        # No such child: it was reaped already, as a process that ignores SIGCHLD has it. Its cost is then not known.
        with contextlib.suppress(ChildProcessError):
            pid, _, usage = os.wait4(self._pid, os.WNOHANG)
            if not pid:
                asyncio.get_running_loop().call_later(0.001, self._reap)
                return
            self.cpu_ns = int((usage.ru_utime + usage.ru_stime) * SECOND_NS)
        if not self.sampling.done():
            self.sampling.set_result(False)
        if not self.ended.done():
            self.ended.set_result(True)


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
