"""profd and bare py-spy as processes that a benchmark starts, meters and ends."""

from __future__ import annotations

import compileall
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from common.meters import Mark, Memory, cpu_with_children_s, memory_of, own_cpu_s

import profd
from profd.daemon import processes
from profd.daemon.errors import ProfdError, RunUnreadable
from profd.daemon.session.control import ControlClient
from profd.daemon.stacks.pyspy import find_py_spy
from profd.daemon.store.reader import RunReader
from profd.daemon.timerange import TimeRange

_BEGIN_TIMEOUT_S = 30.0


def compile_modules() -> None:
    """Compile profd's modules as an installer does: else each of its processes may do so anew, at
    its start.
    """
    for folder in filter(Path.is_dir, Path(profd.__path__[0]).iterdir()):
        compileall.compile_dir(folder, quiet=1)


class Recorder(Protocol):
    """What records a process."""

    def cpu_s(self) -> float:
        """Return the CPU seconds taken since it was started."""
        ...

    def memory(self) -> Memory:
        """Return the memory that it holds."""
        ...


class Profd:
    """profd's own processes: the command that was given, the session, and every py-spy that the
    session starts.
    """

    def __init__(self, words: Sequence[str], run_file: Path) -> None:
        """Start ``profd`` with these words and wait until it records into ``run_file``."""
        self.run_file = run_file
        # Not a pipe: nobody reads it while profd records.
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  open for as long as profd may speak
        self.process = subprocess.Popen(
            # As users start it: `python -m profd` is one more start of an interpreter.
            [Path(sys.executable).with_name("profd"), *words],
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            text=True,
        )
        self.session_pid, self.control_socket = self._wait_begun()

    @classmethod
    def attach(cls, pid: int, run_file: Path, *options: str) -> Profd:
        """Attach to a process."""
        return cls(["attach", str(pid), "--headless", "-o", str(run_file), *options], run_file)

    @classmethod
    def launch(cls, command: Sequence[str], run_file: Path, *options: str) -> Profd:
        """Launch a command, whose stdout goes nowhere."""
        return cls(
            ["run", "--headless", "--quiet", "-o", str(run_file), *options, "--", *command],
            run_file,
        )

    def cpu_s(self) -> float:
        """Return the CPU seconds taken since it was started, without those of a script that it
        launched.
        """
        return own_cpu_s(self.process.pid) + cpu_with_children_s(self.session_pid)

    def memory(self) -> Memory:
        """Return the memory that all of its processes hold."""
        return memory_of(self.pids())

    def pids(self) -> list[int]:
        """Return the processes that it consists of now."""
        return [self.process.pid, self.session_pid, *processes.children(self.session_pid)]

    def end(self) -> float:
        """End an attached profd that has no duration; returns its CPU seconds as ``wait`` does."""
        self.process.send_signal(
            signal.SIGTERM
        )  # SIGINT is ignored by what a shell starts in its background
        return self.wait()

    def wait(self) -> float:
        """Wait for the end of an attached profd and return its CPU seconds, closing the run and
        summing it up included.

        Ends the benchmark where profd failed.
        """
        cpu_s, code = _reap(self.process)
        if code:
            sys.exit(f"profd ended with {code}:\n{self._words()}")
        self._said.close()
        return cpu_s

    def _words(self) -> str:
        """Return what profd said on stderr."""
        self._said.seek(0)
        return self._said.read()

    def _wait_begun(self) -> tuple[int, Path]:
        deadline_s = time.monotonic() + _BEGIN_TIMEOUT_S
        while time.monotonic() < deadline_s and self.process.poll() is None:
            with contextlib.suppress(RunUnreadable), RunReader(self.run_file) as reader:
                # The file is there a moment before the socket is.
                if (control_socket := Path(reader.info.control_socket)).exists():
                    return reader.info.recorder.pid, control_socket
            time.sleep(0.02)
        self.process.kill()
        sys.exit(f"profd does not record:\n{self._words()}")


class BarePySpy:
    """One long py-spy recording, as it would be made without profd."""

    def __init__(self, pid: int, seconds: int, output: Path, rate_hz: int = 100) -> None:
        """Start recording a process for ``seconds``."""
        words = ["--nonblocking", "--idle", "--threads", "--rate", str(rate_hz), "--format", "raw"]
        self.process = subprocess.Popen(
            [
                find_py_spy(),
                "record",
                *words,
                "--duration",
                str(seconds),
                "--output",
                str(output),
                "--pid",
                str(pid),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def cpu_s(self) -> float:
        """Return the CPU seconds taken since it was started."""
        return own_cpu_s(self.process.pid)

    def memory(self) -> Memory:
        """Return the memory that it holds."""
        return memory_of([self.process.pid])

    def end(self) -> float:
        """End it before its time; returns its CPU seconds as ``wait`` does."""
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> float:
        """Wait for its end and return its CPU seconds; ends the benchmark where it failed."""
        cpu_s, code = _reap(self.process)
        if code:
            sys.exit(f"py-spy ended with {code}: {self.process.args!r}")
        return cpu_s


class Onlooker:
    """Does what a dashboard asks of profd: watches over the control socket, and reads what is new
    on ``look``.

    It is part of the benchmark's own process, so what it costs itself is counted nowhere.
    """

    def __init__(self, profd: Profd) -> None:
        """Begin to watch."""
        self._client = ControlClient(profd.control_socket)
        self._client.hello()
        self._client.watch()
        self._reader = RunReader(profd.run_file)
        self._seen = 0

    def look(self) -> None:
        """Read the recordings since the last look with their intervals.

        A session that ended shows nothing new.
        """
        with self._reader.one_moment():
            new = self._reader.recordings_after(self._seen, limit=100)
            if new:
                self._seen = new[-1].id
                list(self._reader.intervals(TimeRange(min(row.start_ns for row in new))))

    def close(self) -> None:
        """Watch no longer."""
        with contextlib.suppress(ProfdError):
            self._client.close()
        self._reader.close()


def mark(recorder: Recorder, started_s: float) -> Mark:
    """Return what a recorder has taken by now; ``started_s`` is of the monotonic clock."""
    return Mark(time.monotonic() - started_s, recorder.cpu_s())


def _reap(process: subprocess.Popen[str]) -> tuple[float, int]:
    """Wait for a process.

    Returns its CPU seconds with those of all that it waited for, and its exit code.
    """
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, process.returncode
