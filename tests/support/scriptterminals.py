"""Launches scripts on a terminal of their own, with a dashboard that obeys the test, and reads the
screen.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

from profd.daemon import processes
from support.waiting import DEADLINE_S

ROWS, COLUMNS = 36, 120

LAUNCHER = """
import os, sys
import msgspec
from pathlib import Path
from profd.cli.main import end_with
from profd.cli.run import start_recording, narrate
from profd.daemon.metrics.exporter import Exporter
from profd.daemon import paths
from profd.daemon.launch.launch import Plan, launch
from profd.daemon.session.session import SessionOptions

run_id = paths.new_run_id("test")
command = tuple(sys.argv[2:])
options = SessionOptions(
    run_id=run_id, name="test", run_file=paths.new_run_file(run_id), mode="launched", pid=0, start_ticks=0,
    command=command,
)
def start_session(*script):
    if held := os.environ.get("HELD"):
        open(held).close()
    return start_recording(options, Exporter(None, None, narrate), *script)

end_with(launch(Plan(
    command=command,
    start_session=start_session,
    farewell=lambda: "farewell",
    narrate=narrate,
    dashboard=lambda run_file, keys_fd: [sys.executable, "-c", sys.argv[1], str(run_file), str(keys_fd)],
)))
"""
"""What ``profd run`` does on a terminal, but with the program in its first argument for a
dashboard.
"""

DASHBOARD = """
import os, sys, tty
keys_fd = int(sys.argv[2])
tty.setraw(0)
os.write(1, b"\\x1b[?1049hdashboard %d\\r\\n" % os.getpid())
while (key := os.read(0, 1)) != b"q":
    os.write(keys_fd, b"k" + key)
os.write(1, b"\\x1b[?1049l")
"""
"""Gives keys to the script, ends with q, and leaves the terminal raw."""


class OnTerminal:
    """A launch on a pseudo-terminal, whose other end the test holds."""

    def __init__(self, *command: str, held: Path | None = None) -> None:
        """Start a command under the launcher, which leads the terminal's session.

        The recording begins once something opens the pipe ``held`` to write to it.
        """
        self.keys_fd, self.terminal_fd = os.openpty()
        self.resize(ROWS, COLUMNS)
        self.modes = termios.tcgetattr(self.terminal_fd)
        self.seen = b""
        self.launcher = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, DASHBOARD, *command],
            stdin=self.terminal_fd,
            stdout=self.terminal_fd,
            stderr=self.terminal_fd,
            preexec_fn=_own_terminal,
            env=os.environ | ({} if held is None else {"HELD": str(held)}),
        )

    def expect(self, text: bytes) -> bytes:
        """Read the screen until ``text`` comes.

        Returns the rest of its line, which is read up to its end.
        """
        while text not in self.seen or b"\n" not in self.seen.split(text, 1)[1]:
            ready, _, _ = select.select([self.keys_fd], [], [], DEADLINE_S)
            assert ready, f"{text!r} did not come: {self.seen!r}"
            self.seen += os.read(self.keys_fd, 4096)
        _, after = self.seen.split(text, 1)
        line, self.seen = after.split(b"\n", 1)
        return line.strip()

    def type(self, keys: bytes) -> None:
        os.write(self.keys_fd, keys)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.keys_fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def current_modes(self) -> list[object]:
        """Return the terminal's modes, as far as they were set by someone."""
        return list(termios.tcgetattr(self.terminal_fd))

    def close(self) -> None:
        """Close what is open; a launcher that still runs is killed, and all that it started."""
        for pid in list(processes.descendants(self.launcher.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.launcher.kill()
        self.launcher.wait()
        os.close(self.terminal_fd)
        os.close(self.keys_fd)


def _own_terminal() -> None:
    signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # tests that run under nohup ignore it, and so would the script
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
