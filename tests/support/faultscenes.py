"""A script that makes steps on command, under each way to profile it, with every process of profd's
that may be hurt.

The script goes on while everything around it is stopped, killed and hung up: how far it is, and
which signals it was given, stands in a page of memory that it shares with the test.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

from profd.daemon import processes
from support import launches
from support.launches import state
from support.scriptterminals import COLUMNS, DASHBOARD, LAUNCHER, ROWS
from support.waiting import Found, until

STEPPING = """
import mmap, os, signal, sys
page = memoryview(mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4096)).cast("q")
taken = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, taken)
page[3] = os.getpid()
while not page[2]:
    came = signal.sigtimedwait(taken, 0.001 if page[1] == page[0] else 0)
    if came:
        page[8 + came.si_signo] += 1
    if page[1] < page[0]:
        page[1] += 1
        sys.stdout.write("step %06d %s\\n" % (page[1], "x" * 986))
        sys.stdout.flush()
print("the end", flush=True)
sys.exit(3)
"""
"""Makes steps of 1,000 bytes of output each while ``page[1] < page[0]``, counts its signals, and
ends with 3.

The signals are blocked: one that comes while a line is written to a terminal may cost bytes of it,
without profd too.
"""
EXIT_CODE = 3
STEPS = 100
"""More than all the buffers between a script and its terminal hold."""
_LINE = re.compile(rb"step (\d{6}) x{986}\r?\n")


class Page:
    """The memory that a stepping script shares with the test."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(4096))
        self.path = path
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), 4096)).cast("q")

    @property
    def steps(self) -> int:
        return self._numbers[1]

    @property
    def script_pid(self) -> int:
        """The script's PID; 0 while it starts."""
        return self._numbers[3]

    def signals(self, number: int) -> int:
        return self._numbers[8 + number]

    def make_steps(self) -> None:
        self._numbers[0] += STEPS

    @property
    def is_at_goal(self) -> bool:
        """Whether the script has made all the steps that were asked for."""
        return self._numbers[0] == self._numbers[1]

    def end(self) -> None:
        self._numbers[2] = 1


class Scene:
    """One script and all of profd's that has to do with it, below a stand-in for a shell on a
    terminal.
    """

    def __init__(self, home: Path, folder: Path) -> None:
        self.page = Page(folder / "page")
        self.output = folder / "output"
        self.shown = b""
        self._mark = (
            f"PROFD_HOME={home}".encode()
        )  # of all that is started; the test itself was not
        self._status_fd = -1
        self._target: subprocess.Popen[bytes] | None = None
        self._shell: subprocess.Popen[bytes] | None = None
        self._keys_fd = -1
        self.pids: dict[str, int] = {}

    @property
    def script(self) -> list[str]:
        return [sys.executable, "-S", "-c", STEPPING, str(self.page.path)]

    def launch_with_dashboard(self) -> None:
        """Launch the script on a terminal, with a stand-in for the dashboard."""
        self._begin([sys.executable, "-c", LAUNCHER, DASHBOARD, *self.script])
        self.until(lambda: re.search(rb"dashboard (\d+)\r\n", self.shown), "the dashboard")
        self._know_all()
        found = re.search(rb"dashboard (\d+)\r\n", self.shown)
        assert found
        self.pids["dashboard"] = int(found[1])
        (self.pids["relay"],) = (
            pid
            for pid in processes.children(self.pids["launcher"])
            if processes.command_line(pid) == ("run-helper", "output")
        )

    def launch_headless(self) -> None:
        """Launch the script with its output in a file."""
        with self.output.open("wb") as output:
            self._begin([launches.PROFD, "run", "--headless", "--", *self.script], output.fileno())
        self._know_all()

    def attach(self) -> None:
        self._start_target()
        self._begin([launches.PROFD, "attach", "--headless", str(self.page.script_pid)])
        self._know_all()

    def attach_with_dashboard(self) -> None:
        """Attach to the script on a terminal, with the real dashboard, which is in the launcher's
        process.
        """
        self._start_target()
        self._begin([launches.PROFD, "attach", str(self.page.script_pid)])
        self._know_all()
        self.until(lambda: b"\x1b[?1049h" in self.shown, "the dashboard")
        self.pids["dashboard"] = self.pids.pop("launcher")

    def _start_target(self) -> None:
        with self.output.open("wb") as output:
            self._target = subprocess.Popen(self.script, stdin=subprocess.DEVNULL, stdout=output)
        self.until(lambda: self.page.script_pid, "the script")

    def _begin(self, command: list[str], stdout: int | None = None) -> None:
        self._keys_fd, terminal_fd = os.openpty()
        fcntl.ioctl(terminal_fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._status_fd, status_fd = os.pipe()
        self._shell = subprocess.Popen(
            command,
            stdin=terminal_fd,
            stdout=stdout or terminal_fd,
            stderr=terminal_fd,
            preexec_fn=lambda: _under_a_shell(status_fd),
        )
        os.close(terminal_fd)
        os.close(status_fd)
        os.set_blocking(self._keys_fd, False)

    def _know_all(self) -> None:
        assert self._shell
        shell_pid = self._shell.pid
        (self.pids["launcher"],) = self.until(lambda: processes.children(shell_pid), "the launcher")
        self.until(lambda: self.page.script_pid, "the script")
        launcher = self.pids["launcher"]
        self.pids["session"] = self.until(
            lambda: launches.recording_session(launcher), "a session that records"
        )

    def until(self, condition: Callable[[], Found | None], what: str) -> Found:
        """Wait as ``support.waiting.until``, and read the terminal meanwhile, as every real one is."""

        def holds() -> Found | None:
            self._look()
            return condition()

        return until(
            holds, lambda: f"{what}; on the terminal: {self.shown[-500:]!r}; {self.left()}"
        )

    def _look(self) -> None:
        with contextlib.suppress(OSError):
            while self._keys_fd >= 0 and (data := os.read(self._keys_fd, 65536)):
                self.shown += data

    def type(self, keys: bytes) -> None:
        os.write(self._keys_fd, keys)

    def strike(self, victim: str, fault: str) -> None:
        """Do something to a process, or to the terminal, and wait until it has come about."""
        if fault == "closed":
            self._look()
            os.close(self._keys_fd)
            self._keys_fd = -1
            # As it ends of the hang-up, the kernel sends SIGCONT to its foreground group: later it
            # would undo a stop.
            self.until(
                lambda: self._shell is None or self._shell.poll() is not None,
                "the end of the shell",
            )
            return
        pid = self.pids[victim]
        if self._is_ours(pid):  # it may have ended of an earlier one
            os.kill(pid, getattr(signal, fault))
        if fault == "SIGSTOP":
            self.until(lambda: state(pid) in "TZX" or victim == "relay", "its stop")
        elif fault == "SIGKILL":
            self.until(lambda: state(pid) in "ZX", "its end")

    def goes_on(self) -> None:
        """Have the script make more steps than any buffer has room for."""
        self.page.make_steps()
        self.until(lambda: self.page.is_at_goal, "the steps")

    def end_script(self) -> None:
        """Let the script end, and let go on and end what was stopped."""
        self.page.end()
        self.until(lambda: state(self.page.script_pid) in "ZX", "the script's end")
        if self._target is not None:
            assert self._target.wait() == EXIT_CODE

    def leave(self) -> None:
        """Let go on what was stopped, leave the dashboard, and wait until nothing of profd's is
        left.
        """

        def is_over() -> bool:
            left = [pid for pid in self.left() if self._shell is None or pid != self._shell.pid]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    if state(pid) == "T":
                        os.kill(pid, signal.SIGCONT)
            if left and self._keys_fd >= 0 and "dashboard" in self.pids:
                with contextlib.suppress(OSError):
                    self.type(b"q")
            return not left

        self.until(is_over, "the end of all")

    def left(self) -> dict[int, str]:
        """Return all processes that belong to this scene, each with its state and command."""
        found = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                pid = int(entry.name)
                if self._is_ours(pid):
                    found[pid] = f"{state(pid)} {' '.join(processes.command_line(pid))[:200]}"
        return found

    def _is_ours(self, pid: int) -> bool:
        """Say whether a process runs that has the environment of this scene."""
        try:
            return self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def exit_code(self) -> int:
        """Return the launcher's exit code as the shell has it, once it has."""
        self.until(lambda: select.select([self._status_fd], [], [], 0)[0], "the exit code")
        return int(os.read(self._status_fd, 100))

    def close(self) -> None:
        """End whatever is left."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in (self._shell, self._target):
            if process is not None:
                process.kill()
                process.wait()
        for fd in (self._keys_fd, self._status_fd):
            if fd >= 0:
                os.close(fd)


def steps_in(output: bytes) -> list[int]:
    """Return the steps whose output stands whole in some output."""
    return [int(number) for number in _LINE.findall(output)]


def _under_a_shell(status_fd: int) -> None:
    """Make a child the foreground job of a shell on this terminal, which says how it ended.

    Called before an exec.
    """
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        return
    os.closerange(3, status_fd)
    os.closerange(status_fd + 1, 1024)
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED | os.WCONTINUED)
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, pid if os.WIFCONTINUED(status) else os.getpid())
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            os.write(status_fd, str(os.waitstatus_to_exitcode(status)).encode())
            while True:
                signal.pause()
