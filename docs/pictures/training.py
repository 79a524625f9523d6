"""A training to take pictures of: recorded by ``profd run`` as on a terminal, with a note and a
torch.profiler window.

It starts in the root of the repository and has a home of its own, so that no path of the machine is
in the pictures.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from profd.daemon import paths
from profd.daemon.clock import SECOND_NS
from profd.daemon.session.control import ControlClient
from profd.daemon.store.reader import RunReader

ROOT = Path(__file__).parents[2]
SCRIPT = ("python", "target/cifar_resnet18.py", "--steps", "400", "--workers", "2")
PROFD = (sys.executable, "-m", "profd")
NOTE = "compare with the run of yesterday"
ROWS, COLUMNS = 36, 120
RECORDED_NS = 40 * SECOND_NS
PATIENCE_S = 900.0
_ALTERNATE_SCREEN = b"\x1b[?1049h"


class Training:
    """A training that is being recorded."""

    def __init__(self) -> None:
        """Start it on a terminal of its own, and leave the dashboard there: that in the pictures is
        another one.
        """
        self._has_dashboard = threading.Event()
        self._pid, self._terminal_fd = pty.fork()
        if self._pid == 0:
            os.chdir(ROOT)
            os.execv(PROFD[0], [*PROFD, "run", "--torch-window", "--quiet", "--", *SCRIPT])
        fcntl.ioctl(self._terminal_fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._has_dashboard.wait(PATIENCE_S)
        os.write(self._terminal_fd, b"b")

    def dress(self) -> Path:
        """Return the live run once it has all that the pictures show."""
        _until(lambda: bool(paths.list_runs()), "a run file")
        run_file = paths.find_run("latest")
        _until(_has_taken_window, "a window")
        with RunReader(run_file) as reader:
            with contextlib.closing(ControlClient(Path(reader.info.control_socket))) as session:
                session.mark(NOTE)
            _until(lambda: _length_ns(reader) > RECORDED_NS, "enough of the training")
        return run_file

    def finish(self) -> Path:
        """Wait until the training has ended, and return its run, the name of the machine and its
        user left out.
        """
        self._reader.join(PATIENCE_S)
        run_file = paths.find_run("latest")
        with contextlib.closing(sqlite3.connect(run_file)) as database, database:
            database.execute("UPDATE meta SET value = 'workstation' WHERE name = 'host'")
            database.execute("UPDATE meta SET value = 'ada' WHERE name = 'user'")
        return run_file

    def close(self) -> None:
        """End what still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)
        os.waitpid(self._pid, 0)
        os.close(self._terminal_fd)

    def _read(self) -> None:
        """Take what is written to the terminal, until nobody has it open any more."""
        seen = b""
        with contextlib.suppress(OSError):
            while data := os.read(self._terminal_fd, 65536):
                seen = (seen + data)[-65536:]
                if _ALTERNATE_SCREEN in seen:
                    self._has_dashboard.set()


@contextlib.contextmanager
def training(home: Path) -> Iterator[Training]:
    """Give a training whose run is kept in ``home``; end it where it has not ended by then."""
    os.environ["PROFD_HOME"] = str(home)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    made = Training()
    try:
        yield made
    finally:
        made.close()


def _has_taken_window() -> bool:
    """Ask for a window; as long as the training has not begun there is none."""
    return (
        subprocess.run([*PROFD, "window", "latest"], capture_output=True, check=False).returncode
        == 0
    )


def _length_ns(reader: RunReader) -> int:
    reader.refresh()
    return reader.info.end_ns - reader.info.started_ns


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"there is not {what} after {PATIENCE_S:.0f} s")
        time.sleep(0.5)
