"""Send commands to a live session over its Unix socket: one JSON object a line, one answer a line.

The server runs in the session's event loop. The client is plain and blocking, for commands and the
dashboard's reading thread. Only the session's own user (and root) is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from profd.daemon import paths
from profd.daemon.errors import OutputUnwritable, SessionFailed
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.windows.request import WindowRequest

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_LINE_LIMIT = 4096
LONGEST_NOTE = 500
"""The most characters of a note; a request has to fit into one line."""


class Request(msgspec.Struct, frozen=True):
    """A command of a client.

    ``hello`` asks for the status, ``watch`` for fresh data while the client stays connected, and
    ``window`` for a torch.profiler window. ``mark`` marks this moment with a note. ``rate`` limits
    the sampling rate to ``rate_hz``, and ``budget`` the cost to ``budget_percent`` of a core.
    """

    command: Literal["hello", "watch", "window", "mark", "rate", "budget"]
    window: WindowRequest | None = None
    note: Annotated[str, msgspec.Meta(max_length=LONGEST_NOTE)] = ""
    rate_hz: Annotated[int, msgspec.Meta(ge=1, le=RECORDING.highest_rate_hz)] | None = None
    budget_percent: Annotated[float, msgspec.Meta(gt=0, le=100_000)] | None = None


class SessionStatus(msgspec.Struct, frozen=True):
    """The status of a session."""

    run_id: str
    run_file: str
    rate_hz: int
    watchers: int


class WindowBegun(msgspec.Struct, frozen=True):
    """These processes were asked for a window; some were not armed for it if ``injected``."""

    asked_ns: int
    pids: tuple[int, ...]
    injected: bool = False

    @property
    def processes(self) -> str:
        """The processes in words: process 42, or 3 processes."""
        return f"process {self.pids[0]}" if len(self.pids) == 1 else f"{len(self.pids)} processes"


class Refusal(msgspec.Struct, frozen=True):
    """Why a request was not carried out, and what to do about it."""

    error: str
    remedy: str = "update profd on both sides"


Answer = TypeVar("Answer", SessionStatus, WindowBegun)


@dataclass(eq=False)
class ControlServer:
    """Listens on a socket that only its owner may reach. ``carry_out`` may raise SessionFailed."""

    path: Path
    carry_out: Callable[[Request], SessionStatus | WindowBegun]
    watchers_changed: Callable[[int], None]

    def __post_init__(self) -> None:
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[object] | None] = {}
        self._watchers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def renew(self) -> None:
        """Bind the socket again if it is gone.

        The folder of a login is removed when its user logs out.
        """
        former = self._server
        if former is not None and not self.path.exists():
            # There may be no such folder until the next login.
            with contextlib.suppress(SessionFailed, OutputUnwritable):
                paths.make_private(self.path.parent)
                await self.start()
                former.close()

    async def start(self) -> None:
        """Bind the socket and answer from now on; raises SessionFailed if it cannot be bound."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unnamed = self.path.with_name(f".{os.getpid()}")
        previous = os.umask(0o177)
        try:
            if len(os.fsencode(self.path)) > 107:
                raise OSError("its path is too long for a socket")
            unnamed.unlink(missing_ok=True)
            listening.bind(str(unnamed))
            listening.listen(100)
            unnamed.rename(self.path)
            self._server = await asyncio.start_unix_server(
                self._serve, sock=listening, limit=_LINE_LIMIT
            )
        except OSError as error:
            listening.close()
            what, remedy = f"{self.path} cannot be bound", "set PROFD_HOME to a local folder"
            raise SessionFailed.of_system(what, error, remedy) from error
        finally:
            os.umask(previous)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = [task for task in self._connections.values() if task]
        for writer in list(self._connections):
            writer.close()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        with contextlib.suppress(OSError):  # its folder may be gone
            self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = asyncio.current_task()
        try:
            if _peer(writer.get_extra_info("socket"))[1] in (0, os.getuid()):
                while line := await reader.readline():
                    writer.write(msgspec.json.encode(self._answer(line, writer)) + b"\n")
                    await writer.drain()
        except (ConnectionError, ValueError, asyncio.LimitOverrunError):
            # a client that breaks off, or sends a line without end, ends only its own connection
            pass
        finally:
            self._connections.pop(writer, None)
            if writer in self._watchers:
                self._watchers.discard(writer)
                self.watchers_changed(len(self._watchers))
            writer.close()

    def _answer(
        self, line: bytes, writer: asyncio.StreamWriter
    ) -> SessionStatus | WindowBegun | Refusal:
        try:
            request = msgspec.json.decode(line, type=Request)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Refusal(f"not a request ({error})")
        if request.command == "watch":
            self._watchers.add(writer)
            self.watchers_changed(len(self._watchers))
        try:
            return self.carry_out(request)
        except SessionFailed as error:
            return Refusal(error.what, error.remedy)


class ControlClient:
    """A connection to a live session.

    Every method raises SessionFailed if the session cannot be reached.
    """

    def __init__(self, path: Path, pid: int | None = None, timeout_s: float = 10.0) -> None:
        """Connect to a socket on which this process of this user listens.

        Check that, because a run file may name any socket. A session that answers nothing for
        ``timeout_s`` is given up.
        """
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            what, remedy = (
                f"the session at {path} cannot be reached",
                "it may have ended: see `profd ls`",
            )
            raise SessionFailed.of_system(what, error, remedy) from error
        # The PID is 0 if the process is in a container and cannot be seen from here.
        found, uid = _peer(self._socket)
        if (uid != os.getuid() and os.getuid() != 0) or (pid is not None and found not in (pid, 0)):
            self._socket.close()
            raise SessionFailed(
                f"what listens at {path} is not that session", "see `profd ls` for those there are"
            )

    def hello(self) -> SessionStatus:
        return self._ask(Request("hello"), SessionStatus)

    def watch(self) -> SessionStatus:
        """Ask for fresh data: until this client is closed, recordings are short."""
        return self._ask(Request("watch"), SessionStatus)

    def window(self, request: WindowRequest) -> WindowBegun:
        return self._ask(Request("window", request), WindowBegun)

    def mark(self, note: str) -> SessionStatus:
        """Mark this moment in the run, with a note of at most LONGEST_NOTE characters."""
        return self._ask(Request("mark", note=note[:LONGEST_NOTE]), SessionStatus)

    def aim_at_rate(self, rate_hz: int) -> SessionStatus:
        """Ask for another rate, of at most RECORDING.highest_rate_hz.

        The status says how much of it the budget allowed.
        """
        return self._ask(Request("rate", rate_hz=rate_hz), SessionStatus)

    def aim_at_budget(self, budget_percent: float) -> SessionStatus:
        return self._ask(Request("budget", budget_percent=budget_percent), SessionStatus)

    def close(self) -> None:
        self._socket.close()

    def _ask(self, request: Request, kind: type[Answer]) -> Answer:
        try:
            self._socket.sendall(msgspec.json.encode(request) + b"\n")
            line = b""
            while not line.endswith(b"\n"):
                part = self._socket.recv(_LINE_LIMIT)
                if not part:
                    raise SessionFailed(
                        "the session hung up", "see `profd ls` for the sessions there are"
                    )
                line += part
            answer = msgspec.json.decode(line, type=dict[str, Any])
            if "error" in answer:
                refusal = msgspec.convert(answer, Refusal)
                raise SessionFailed(f"the session refused: {refusal.error}", refusal.remedy)
            return msgspec.convert(answer, kind)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            reason = f"the session does not answer ({error})"
            raise SessionFailed(reason, "see `profd ls` for the sessions there are") from error


def window_request(*, inject: bool = False) -> WindowRequest:
    """Return the request for a window of the usual length.

    ``inject`` permits starting the profiler inside the process.
    """
    return WindowRequest(inject=inject)


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Return the PID and the user of the process at the other end.

    Both are as they were when that process connected or listened.
    """
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return int(pid), int(uid)
