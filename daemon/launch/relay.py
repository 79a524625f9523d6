"""Copy the output of a script's pseudo-terminal.

A process always reads that output, and shows it if it should be shown.

A script stands still if no one reads its terminal, and is hung up if its terminal is closed. So a
process that depends on nobody reads the terminal and holds it open. It has a session of its own,
out of reach of the terminal's keys and of job control, ignores all signals but SIGKILL and SIGSTOP,
and is not found by profd's name. It stays until the last of the script's processes has closed the
terminal. It passes the output to the session. It also passes it to the real terminal while the
script is shown, or once the launcher is gone. Output that no one takes is dropped. If the launcher
was killed, the relay ends the dashboard.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
from dataclasses import dataclass

import msgspec

from profd.daemon import processes
from profd.daemon.forks import become_helper, let_go_of_all_but
from profd.daemon.launch.channel import CHUNK_BYTES, ScriptChannel, is_ready, offer, packet_pair
from profd.daemon.launch.terminal import RESET
from profd.daemon.store.records import Identity

_DONE = b"\0"  # the answer to all orders


class Orders(msgspec.Struct, frozen=True):
    """All that the launcher wants of the relay at a time.

    ``script`` has the terminal; its output is copied to the real one while it ``is_shown``. If the
    launcher is killed, ``dashboard`` is ended and the terminal cleaned up. ``has_ended`` says that
    the script has been reaped. ``notice`` is written to the real terminal once, before anything
    else; at most ``CHUNK_BYTES`` of it.
    """

    script: Identity | None = None
    dashboard: Identity | None = None
    is_shown: bool = False
    has_ended: bool = False
    notice: bytes = b""


class Relay:
    """The process that reads, as its launcher sees it.

    It is a child that outlives this process if it has to.
    """

    def __init__(
        self, master_fd: int, screen_fd: int, channel: ScriptChannel, anchor_fd: int
    ) -> None:
        """Start the relay; this process has one thread, and has blocked the signals that it takes.

        Raises OSError.

        The relay keeps ``anchor_fd`` open for as long as it reads.
        """
        self._master_fd = master_fd
        self._screen_fd = screen_fd
        self._channel = channel
        self._orders = Orders()
        its_end = self._open_end()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.setsid()
                os.chdir("/")
                let_go_of_all_but(
                    {master_fd, screen_fd, channel.fileno(), its_end.fileno(), anchor_fd}
                )
                become_helper("output")
                _Copier(master_fd, screen_fd, channel, its_end).run()
            finally:
                os._exit(0)
        its_end.close()

    def _open_end(self) -> socket.socket:
        self._end, its_end = packet_pair()
        self._end.settimeout(10.0)  # a real terminal that takes nothing holds the relay up
        return its_end

    def revive(self) -> None:
        """Restart a stopped relay, and continue a killed one in a thread here.

        Neither should ever be needed.
        """
        pid, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED) if self._pid else (0, 0)
        if pid and os.WIFSTOPPED(status):
            os.kill(pid, signal.SIGCONT)
        elif pid:
            self._pid = 0
            copier = _Copier(
                self._master_fd, os.dup(self._screen_fd), self._channel.copy(), self._open_end()
            )
            threading.Thread(target=copier.run, name="relay", daemon=True).start()
            self.order()

    def order(self, **changes: Identity | bytes | bool | None) -> None:
        """Send changed orders to the relay, and wait until it has carried them out.

        The relay may be gone.
        """
        self._orders = msgspec.structs.replace(self._orders, **changes)
        with contextlib.suppress(OSError):
            while is_ready(self._end.fileno()) and self._end.recv(1):
                pass  # answers that came too late
            self._end.send(msgspec.msgpack.encode(self._orders), socket.MSG_NOSIGNAL)
            self._end.recv(1)
        self._orders = msgspec.structs.replace(self._orders, notice=b"")


@dataclass(eq=False)
class _Copier:
    """The work of the relay's process; the master of the pseudo-terminal does not block."""

    master_fd: int
    screen_fd: int | None
    channel: ScriptChannel
    launcher: socket.socket

    def __post_init__(self) -> None:
        self._orders = Orders()
        self._has_launcher = True
        self._is_closed = False
        """Whether no one had the script's terminal open at the last look.

        A script may open it again.
        """
        self._is_over = False
        self._is_settled = False
        self._is_free = False
        """Whether no process of profd uses the real terminal: launcher and dashboard are gone."""
        # A script leaves far less unread at its end. More comes from a process that it has left
        # behind and that goes on writing.
        self._rest_bytes = 1 << 20
        self._orphan: Identity | None = None
        self._late = self._half_end = self._news = b""
        self._last = b"\n"
        """The last byte on the screen: a notice gets a line of its own."""

    def run(self) -> None:
        """Copy until no one has the script's terminal open and the launcher is gone.

        All output has to be passed on by then too.
        """
        while (
            not self._is_over
            or self._has_launcher
            or self._orphan is not None
            or self.channel.has_backlog
        ):
            ready = dict(self._poller().poll(self._patience_ms()))
            if self.channel.has_backlog and self.channel.fileno() in ready:
                self.channel.flush()
            if self._is_settled and not self.channel.has_backlog:
                self.channel.close()
            if self.launcher.fileno() in ready:
                self._take_orders()
            elif self.master_fd in ready or (self._is_closed and not self._is_over):
                self._read()
            elif self._is_ending and not ready:
                # The processes that still have it open were left behind, and write nothing now.
                self._settle()
            self._succeed_orphan()

    @property
    def _is_ending(self) -> bool:
        """Whether the launcher waits for what the ended script has left unread."""
        return self._orders.has_ended and not self._is_settled

    def _poller(self) -> select.poll:
        poller = select.poll()
        if self._has_launcher:
            poller.register(self.launcher, select.POLLIN)
        if self.channel.has_backlog:
            poller.register(self.channel, select.POLLOUT)
        # Do not read before the launcher says whether to show the output: what is read unshown is
        # not shown later.
        is_begun = self._orders.script is not None or not self._has_launcher
        if is_begun and not self._is_closed:
            poller.register(self.master_fd, select.POLLIN)
        return poller

    def _patience_ms(self) -> int | None:
        if self._is_ending or self._orphan is not None:
            return 50
        # A script that has closed its terminal may open it again, or end.
        return 200 if self._is_closed and not self._is_over else None

    def _take_orders(self) -> None:
        try:
            packet = self.launcher.recv(CHUNK_BYTES + 1024)
        except OSError:
            packet = b""
        if packet:
            self._orders = msgspec.msgpack.decode(packet, type=Orders)
            self._write_screen(self._orders.notice)
            if not self._is_ending:  # else the answer comes at the end
                offer(self.launcher, _DONE)
        else:
            self._miss_launcher()

    def _miss_launcher(self) -> None:
        """Go on without a launcher.

        If it was killed, it has left its dashboard, which may be stopped.
        """
        self._has_launcher = False
        self._orphan = self._orders.dashboard
        for number in (signal.SIGTERM, signal.SIGCONT):
            if self._orphan is not None and processes.is_running(*self._orphan):
                with contextlib.suppress(OSError):
                    os.kill(self._orphan.pid, number)
        if self._orphan is None:
            self._take_screen()

    def _succeed_orphan(self) -> None:
        """Take the screen once a dashboard without its launcher has ended."""
        if self._orphan is not None and not processes.is_running(*self._orphan):
            self._orphan = None
            self._write_screen(RESET)  # its modes are the shell's to restore
            self._take_screen()

    def _take_screen(self) -> None:
        """Show all that comes from now on.

        The terminal is the shell's, and the script is in its background.
        """
        script = self._orders.script
        if script is not None and not self._orders.has_ended and processes.is_running(*script):
            self._news = b"profd was ended; the command (pid %d) runs on\n" % script.pid
        self._write_late(self._late)
        self._late = b""
        self._is_free = True

    def _settle(self) -> None:
        """Answer that all is copied: later output is from processes that the script left behind."""
        is_awaited = self._is_ending
        self._is_settled = True
        self.channel.wrote_all()
        if is_awaited:
            offer(self.launcher, _DONE)

    def _read(self) -> None:
        try:
            data = _read_all(self.master_fd)
        except BlockingIOError:
            return
        except OSError:  # a pseudo-terminal reports so that no one has its other end open
            self._is_closed = True
            script = self._orders.script
            self._is_over = (
                self._orders.has_ended or script is None or not processes.is_running(*script)
            )
            if self._is_over:
                self._settle()
            return
        self._is_closed = False
        if self._is_free:
            self._write_late(data)
        elif self._orders.is_shown:
            self._write_screen(data)
        elif self._is_settled:
            # Late output is kept until the real terminal is free.
            self._late = (self._late + data)[-2 * CHUNK_BYTES :]
        if self._is_settled:
            return
        self.channel.wrote(data)
        if self._orders.has_ended:
            self._rest_bytes -= len(data)
            if self._rest_bytes <= 0:
                self._settle()

    def _write_late(self, data: bytes) -> None:
        """Undo what the script's terminal has done to line ends.

        The shell's terminal does it once more.
        """
        data = self._half_end + data
        self._half_end = b"\r" if data.endswith(b"\r") else b""
        data = data.removesuffix(b"\r").replace(b"\r\n", b"\n")
        if self._news and (b"\n" in data or self._last in b"\r\n"):
            line, end, rest = (b"", b"", data) if self._last in b"\r\n" else data.partition(b"\n")
            data, self._news = line + end + self._news + rest, b""
        self._write_screen(data)

    def _write_screen(self, data: bytes) -> None:
        self._last = data[-1:] or self._last
        while data and self.screen_fd is not None:
            try:
                data = data[os.write(self.screen_fd, data) :]
            except BlockingIOError:
                is_ready(self.screen_fd, select.POLLOUT, None)
            except OSError:
                self._leave_screen()  # it is gone; the script still has to be read

    def _leave_screen(self) -> None:
        if self.screen_fd is not None:
            os.close(self.screen_fd)
            self.screen_fd = None


def _read_all(master_fd: int) -> bytes:
    """Return what a terminal holds, up to one message; raises OSError if that is nothing."""
    data = os.read(master_fd, CHUNK_BYTES)
    with contextlib.suppress(OSError):  # no more, or closed: the next read tells
        # The kernel gives 4 KiB at a time.
        while len(data) < CHUNK_BYTES and (more := os.read(master_fd, CHUNK_BYTES - len(data))):
            data += more
    return data
