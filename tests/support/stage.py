"""Starts small programs as a shell or a supervisor does, plainly and under the launcher, and tells
what both came to.

    python stage.py WAY [NAME ...]

It is a process of its own, which forks for each program: what a program finds of sessions, groups
and terminals depends on its parent. Prints, as JSON on its stdout, what each program saw and did:
{name: [plain, launched]}.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import tempfile
import termios
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from profd.cli.main import end_with
from profd.daemon import program as beginning
from profd.daemon.errors import ProfdError, SessionFailed
from profd.daemon.launch import launch as launching
from profd.daemon.standardstreams import open_streams
from support.launchprograms import PROGRAMS, SmallProgram
from support.waiting import DEADLINE_S

WAYS = ("leader", "job", "member", "terminal", "terminal-leader", "terminal-member", "dashboard")
"""How a program is started: without a terminal, as the leader of a session or group, or in its
parent's group; the same on a terminal; and below the dashboard, which has not begun yet.
"""
MEMBERS = ("member", "terminal-member")
_HEARD = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGTSTP,
    signal.SIGUSR1,
)
"""What a program that is in this process's group may have sent to it."""
_LIFE_FD = 9
"""Open in all that a program starts, unless it closes it: at its end all of them have ended."""


class LaunchStage:
    """The parent of the programs: a session's leader, with a terminal if the way has one."""

    def __init__(self, way: str) -> None:
        self._way = way
        os.setsid()
        self._master_fd = self._terminal_fd = -1
        self.shown = b""
        if way.startswith(("terminal", "dashboard")):
            self._open_terminal()
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        for number in _HEARD:
            signal.signal(number, lambda *_: None)

    def _open_terminal(self) -> None:
        self._master_fd, self._terminal_fd = os.openpty()
        if self._way != "terminal-leader":
            fcntl.ioctl(self._terminal_fd, termios.TIOCSCTTY, 0)

    def play(self, program: SmallProgram, folder: Path, *, is_launched: bool) -> dict[str, Any]:
        """Run a program to its end, and to that of all that it leaves behind.

        Returns what it came to.
        """
        self._trail = folder / "trail"
        self._trail.touch()
        life_fd, theirs = os.pipe()
        self.shown, events, acts = b"", [], list(program.acts)
        pid = os.fork()
        if pid == 0:
            try:
                os.dup2(theirs, _LIFE_FD)
                self._become(program, folder, is_launched)
            except SystemExit as leaving:
                os._exit(leaving.code)  # type: ignore[arg-type]
            except BaseException:  # noqa: BLE001  a fault of the launcher's, or of this stage
                self._trail.write_text(traceback.format_exc())
            finally:
                os._exit(99)
        os.close(theirs)
        if self._way in ("job", "terminal", "dashboard"):
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)
            if self._terminal_fd >= 0:
                os.tcsetpgrp(self._terminal_fd, pid)
        deadline_s = time.monotonic() + DEADLINE_S / 4
        status = None
        while status is None or not self._has_ended(life_fd):
            if time.monotonic() > deadline_s:
                events.append("stands still")
                for kill in (os.kill, os.killpg) if self._way not in MEMBERS else (os.kill,):
                    with contextlib.suppress(OSError):
                        kill(pid, signal.SIGKILL)
                break
            self._look()
            if status is None:
                ended, found = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
                if ended and os.WIFSTOPPED(found):
                    events.append(f"stopped by {os.WSTOPSIG(found)}")
                    self._go_on(pid)
                elif ended:
                    status = found
                    events.append(
                        f"exit {os.WEXITSTATUS(found)}"
                        if os.WIFEXITED(found)
                        else f"died of {os.WTERMSIG(found)}"
                    )
                    if self._terminal_fd >= 0 and self._way != "terminal-leader":
                        os.tcsetpgrp(self._terminal_fd, os.getpgrp())
            if acts and acts[0].after in self._trail.read_text():
                self._act(acts.pop(0).what, pid)
        os.close(life_fd)
        self._look()
        if self._way == "terminal-leader":  # it was hung up, or is somebody else's
            os.close(self._master_fd)
            os.close(self._terminal_fd)
            self._open_terminal()
        return {"events": events, "trail": self._trail.read_text().splitlines()}

    def _become(self, program: SmallProgram, folder: Path, is_launched: bool) -> None:
        """Be the program, in its process."""
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTOU, *_HEARD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._way == "leader":
            os.setsid()
        elif self._way == "terminal-leader":
            os.setsid()
            fcntl.ioctl(self._terminal_fd, termios.TIOCSCTTY, 0)
        elif self._way in ("job", "terminal", "dashboard"):
            os.setpgid(0, 0)
            if self._terminal_fd >= 0:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
                os.tcsetpgrp(self._terminal_fd, os.getpid())
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTTOU})
        streams = self._terminal_fd if self._terminal_fd >= 0 else os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(streams, fd)
        os.chdir(folder)
        os.environ["TRAIL"] = str(self._trail)
        program.before()
        words = program.words()
        if not is_launched:
            try:
                os.execvp(words[0], words) if words[0] else os._exit(127)
            except (FileNotFoundError, NotADirectoryError):
                os._exit(127)
            except OSError:
                os._exit(126)
        open_streams()
        # In place of the entry of profd and of the kernel, which have what this process itself
        # began with.
        entries = [b"=".join(pair) for pair in os.environb.items()]
        setattr(beginning, "inherited_environment", lambda: entries)  # noqa: B010  mypy takes a function for constant
        try:
            dashboard = (lambda *_: ["true"]) if self._way == "dashboard" else None
            code = launching.launch(
                launching.Plan(tuple(words), _record_nothing, None, lambda line: None, dashboard)
            )
        except ProfdError as error:
            code = error.exit_code
        end_with(code)

    def _act(self, what: str, pid: int) -> None:
        """Do something to a program: type keys, or signal its process or its group."""
        kind, _, rest = what.partition(" ")
        if kind == "type":
            if self._master_fd >= 0:
                os.write(self._master_fd, rest.encode().decode("unicode_escape").encode())
        elif kind == "signal":
            os.kill(pid, signal.Signals[rest])
        elif kind == "group" and self._way not in MEMBERS:
            os.killpg(pid, signal.Signals[rest])
        elif kind == "resize" and self._master_fd >= 0:
            fcntl.ioctl(self._master_fd, termios.TIOCSWINSZ, bytes.fromhex(rest))

    def _go_on(self, pid: int) -> None:
        """Let a stopped job go on, in the foreground, as ``fg`` does."""
        if self._way in (*MEMBERS, "leader", "terminal-leader"):
            os.kill(pid, signal.SIGCONT)
            return
        if self._terminal_fd >= 0:
            os.tcsetpgrp(self._terminal_fd, os.getpgrp())
            os.tcsetpgrp(self._terminal_fd, pid)
        os.killpg(pid, signal.SIGCONT)

    def _look(self) -> None:
        """Take what the terminal shows, and wait a moment."""
        fds = [self._master_fd] if self._master_fd >= 0 else []
        while select.select(fds, [], [], 0.005)[0]:
            try:
                self.shown += os.read(self._master_fd, 1 << 16)
            except OSError:
                return

    @staticmethod
    def _has_ended(life_fd: int) -> bool:
        return bool(select.select([life_fd], [], [], 0)[0])


def _record_nothing(*_: object) -> tuple[Path, Callable[[float], bool]]:
    raise SessionFailed("not wanted here")


def main(way: str, *names: str) -> None:
    results_fd = os.dup(1)
    stage = LaunchStage(way)
    results: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as made:
        for name, program in PROGRAMS.items():
            if way not in program.ways or (names and name not in names):
                continue
            found = []
            for is_launched in (False, True):
                folder = Path(made) / f"{len(results)}-{is_launched}"
                folder.mkdir(mode=0o777)
                found.append(stage.play(program, folder, is_launched=is_launched))
            results[name] = found
    os.write(results_fd, json.dumps(results).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
