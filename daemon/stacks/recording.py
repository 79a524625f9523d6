"""Run one py-spy recording as a child process: start it, see it sample, end it, collect it.

The result and the log go into anonymous memory files: nothing is left behind if either side is
killed, a full disk does not matter, and no failed read wakes the session. py-spy always gets a
duration, so that it ends by itself if its session is gone. The cost is collected with the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import signal
from collections import deque

import msgspec

from profd.daemon import processes, scheduling
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.stacks.pyspy import (
    ENVIRONMENT,
    PySpyOutput,
    RawRecording,
    RecordingFailed,
    read_output,
)
from profd.daemon.stacks.reads import Pulse

_SAMPLING = b"Sampling process"
_SLEEPS = re.compile(rb"(?m)^voluntary_ctxt_switches:\s+(\d+)")
_KILL_AFTER_S = 5.0
_LOOKS_THAT_FAIL = 4
# times _KILL_AFTER_S, as long as py-spy computes: a sample of 2,000 threads takes a second of CPU
_PATIENCE = 36
_REAPED_AFTER_S = 0.25
"""How long after its last word py-spy is reaped.

While a thread of it leaves /proc, the kernel has whoever reaps it compute until that thread is
gone. As py-spy gives way to the target, that took 20 ms of CPU in the mean on busy cores.
"""
LEAST_CPU_S = 0.05
"""The least CPU time by which the cost of sampling can be judged.

CPU time is counted in hundredths of a second.
"""


class Recording:
    """A running py-spy recording.

    ``sampling`` completes once it samples, or with False if it ended before.
    """

    def __init__(
        self, executable: str, pid: int, rate_hz: int, length_s: float, clock: Clock
    ) -> None:
        """Start py-spy on ``pid`` for at most ``length_s`` seconds and a few to spare."""
        loop = self._loop = asyncio.get_running_loop()
        self.rate_hz, self.length_s = rate_hz, length_s
        self.sampling: asyncio.Future[bool] = loop.create_future()
        self.ended: asyncio.Future[bool] = loop.create_future()
        self._clock = clock
        self._said = b""
        self._cores: frozenset[int] | None = None
        self._sampling_ns = self._ended_ns = self.cpu_ns = 0
        self.spawned_ns = clock.now_ns()
        self._pulses = [Pulse(self.spawned_ns, 0, 0)]
        self._sampler: str | None = None
        self._first_sleeps: int | None = None
        self._log_bytes: deque[int] = deque(maxlen=_LOOKS_THAT_FAIL)
        self._start_cpu_s = 0.0
        duration_s = math.ceil(length_s) + 5
        arguments = (
            "py-spy record --nonblocking --idle --threads --format chrometrace "
            f"--rate {rate_hz} --duration {duration_s} --output /proc/self/fd/3 --pid {pid}"
        ).split()
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
                    passed = [
                        (os.POSIX_SPAWN_DUP2, fd, to)
                        for fd, to in ((write_end, 1), (log, 2), (trace, 3))
                    ]
                    files = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), *passed]
                    signals = [signal.SIGINT, signal.SIGPIPE, signal.SIGTERM]
                    environment = {**os.environ, **ENVIRONMENT}
                    # its own process group: a Ctrl-C at the terminal must not reach it
                    self._pid = os.posix_spawn(
                        executable, arguments, environment,
                        file_actions=files, setpgroup=0, setsigmask=[], setsigdef=signals,
                    )  # fmt: skip
                finally:
                    os.close(write_end)
                opened.pop_all()
        except OSError as error:
            raise RecordingFailed(f"py-spy cannot be started ({error.strerror})") from error
        scheduling.give_way(self._pid)
        self._memory = memory
        loop.add_reader(self._pipe, self._read_pipe)

    def run_on(self, cores: frozenset[int]) -> None:
        """Keep py-spy to these cores from now on; before, it runs on the session's cores."""
        if cores != self._cores and not self.ended.done():
            self._cores = cores
            scheduling.keep_to(self._pid, cores)

    def look(self) -> None:
        """Check whether py-spy has slept and run since the last look.

        Call it several times a second.
        """
        if not self.ended.done() and self._memory:
            sleeps, stat = self._sleeps(), processes.read_stat(self._pid)
            if sleeps is not None and stat is not None:
                busy_ns = round(stat.cpu_s * SECOND_NS)
                self._pulses.append(Pulse(self._clock.now_ns(), sleeps, busy_ns))
                self._log_bytes.append(os.fstat(self._memory[-1]).st_size)

    def _sleeps(self) -> int | None:
        """Return how often py-spy's sampler has slept.

        Returns None if that is not known, for example before the sampler has begun.

        The sampler is the thread that py-spy starts first. The main thread wakes for each sample,
        also for those that the sampler makes up for all at once.
        """
        if self._sampler is None:
            with contextlib.suppress(OSError):
                # The kernel lists threads in the order of their start.
                self._sampler = next(
                    iter(os.listdir(f"{processes.PROC}/{self._pid}/task")[1:]), None
                )
        path = f"{processes.PROC}/{self._pid}/task/{self._sampler}/status"
        found = _SLEEPS.search(processes.read(path) or b"")
        return found and int(found[1])

    @property
    def is_failing(self) -> bool:
        """Whether reads failed in the last second and py-spy hardly slept.

        Then each read takes long, or most reads fail.
        """
        if len(self._log_bytes) < _LOOKS_THAT_FAIL or self._log_bytes[-1] == self._log_bytes[0]:
            return False
        first, last = self._pulses[-_LOOKS_THAT_FAIL], self._pulses[-1]
        return 2 * (last.sleeps - first.sleeps) * SECOND_NS < self.rate_hz * (
            last.at_ns - first.at_ns
        )

    def cpu_s(self) -> float:
        """Return the CPU seconds that py-spy has taken until now."""
        stat = None if self.ended.done() else processes.read_stat(self._pid)
        return self.cpu_ns / SECOND_NS if stat is None else stat.cpu_s

    def sampling_cpu_s(self) -> float:
        """Return the CPU seconds that py-spy has taken since it began to sample."""
        return self.cpu_s() - self._start_cpu_s if self._sampling_ns else 0.0

    def has_sample(self) -> bool:
        """Return whether py-spy has a sample; call it again and again.

        Once py-spy samples, its main thread sleeps until there is a sample.
        """
        status = processes.status(self._pid) if self._sampling_ns else {}
        if not status.get("State", "").startswith("S"):
            return False
        sleeps = int(status.get("voluntary_ctxt_switches", 0))
        if self._first_sleeps is None:
            self._first_sleeps = sleeps
        return sleeps > self._first_sleeps

    def cost_cores(self, length_s: float) -> float:
        """Return the cores that such a recording takes at this length, its start included."""
        cpu_s, sampling_s = (
            self.sampling_cpu_s(),
            (self._clock.now_ns() - self._sampling_ns) / SECOND_NS,
        )
        if cpu_s < LEAST_CPU_S:
            return 0.0
        return cpu_s / sampling_s + self._start_cpu_s / length_s

    def stop(self) -> None:
        self.look()
        self._signal(signal.SIGINT)

    async def collect(self) -> RawRecording:
        """Wait for the end of the recording and return it.

        Raises RecordingFailed if there is none.
        """
        try:
            if not await self._has_ended():
                self._signal(signal.SIGKILL)
                await self.ended
                raise RecordingFailed("py-spy did not answer and was killed")
        finally:
            trace, log = self._release()
        said, times_ns = self._said + log, (self.spawned_ns, self._sampling_ns, self._ended_ns)
        raw = read_output(
            PySpyOutput(trace, said, *times_ns, self.cpu_ns, self._clock.wall_jump_ns())
        )
        # If the kernel does not count sleeps, only the spawn is known.
        pulses = tuple(self._pulses) if len(self._pulses) > 1 else ()
        return msgspec.structs.replace(raw, pulses=pulses)

    async def _has_ended(self) -> bool:
        """Wait for the end, three minutes at most.

        Returns False if py-spy stood still for some seconds before it ended.
        """
        for _ in range(_PATIENCE):
            before_s = self.cpu_s()
            await asyncio.wait({self.ended}, timeout=_KILL_AFTER_S)
            if self.ended.done():
                return True
            if self.cpu_s() - before_s < LEAST_CPU_S:
                break
        return False

    def abandon(self) -> None:
        """Kill py-spy and release what it has written.

        This has no effect on a recording that was collected.
        """
        self._signal(signal.SIGKILL)
        self._release()

    def _release(self) -> list[bytes]:
        """Release what py-spy has written, and return it: trace and log.

        Both are empty if they were released before.
        """
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
                self._sampling_ns, self._start_cpu_s = self._clock.now_ns(), self.cpu_s()
                self.sampling.set_result(True)
            return
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        self._ended_ns = self._clock.now_ns()
        self._loop.call_later(_REAPED_AFTER_S, self._reap)

    def _reap(self) -> None:
        """Collect exit status and cost."""
        # "No such child" means that it was reaped already, as happens in a process that ignores
        # SIGCHLD. Its cost is then not known.
        with contextlib.suppress(ChildProcessError):
            pid, _, usage = os.wait4(self._pid, os.WNOHANG)
            if not pid:
                self._loop.call_later(_REAPED_AFTER_S, self._reap)
                return
            self.cpu_ns = int((usage.ru_utime + usage.ru_stime) * SECOND_NS)
        if not self.sampling.done():
            self.sampling.set_result(False)
        if not self.ended.done():
            self.ended.set_result(True)
