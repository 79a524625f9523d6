"""A control server and its clients, over a real socket; the session behind it is made up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.waiting import DEADLINE_S, eventually

from profd.daemon import paths
from profd.daemon.errors import SessionFailed
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.session import control
from profd.daemon.session.control import (
    LONGEST_NOTE,
    ControlClient,
    ControlServer,
    Request,
    SessionStatus,
    WindowBegun,
)
from profd.daemon.windows.request import WindowRequest


@dataclass
class FakeSession:
    """Notes what it is asked."""

    watchers: list[int] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    rate_hz: int = 100
    budget_percent: float = 10.0

    def status(self) -> SessionStatus:
        return SessionStatus(
            "id", "/runs/id.profd", self.rate_hz, self.watchers[-1] if self.watchers else 0
        )

    def watchers_changed(self, watchers: int) -> None:
        self.watchers.append(watchers)

    def carry_out(self, request: Request) -> SessionStatus | WindowBegun:
        if request.window is not None:
            if request.window.steps > 100:
                raise SessionFailed("a window cannot be that long", "ask for less")
            return WindowBegun(asked_ns=request.window.steps, pids=(4242,))
        if request.command == "mark":
            self.marks.append(request.note)
        self.rate_hz = min(request.rate_hz or self.rate_hz, 200)
        self.budget_percent = request.budget_percent or self.budget_percent
        return self.status()


def serve(path: Path, session: FakeSession) -> ControlServer:
    return ControlServer(path, session.carry_out, session.watchers_changed)


@dataclass
class Served:
    """A session with its server listening."""

    path: Path
    session: FakeSession
    server: ControlServer

    async def ask(self, data: bytes) -> bytes:
        """Send bytes and return the line that comes back; none where the server hangs up."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        line = b""
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
            line = await asyncio.wait_for(reader.readline(), DEADLINE_S)
        writer.close()
        return line


@pytest.fixture
async def served(profd_home: Path) -> AsyncIterator[Served]:
    path = paths.make_private(profd_home / "run") / "s.sock"
    session = FakeSession()
    server = serve(path, session)
    await server.start()
    yield Served(path, session, server)
    await server.close()
    assert not path.exists()


async def connect(served: Served) -> ControlClient:
    return await asyncio.to_thread(ControlClient, served.path)


async def answers(path: Path, pid: int | None = None) -> bool:
    """Say whether the session at a socket answers to one more client."""
    client = await asyncio.to_thread(ControlClient, path, pid)
    status = await asyncio.to_thread(client.hello)
    client.close()
    return status.run_id == "id"


async def test_what_a_client_asks_is_passed_on_or_refused(served: Served) -> None:
    client, session = await connect(served), served.session
    assert await asyncio.to_thread(client.hello) == FakeSession().status()
    assert session.watchers == []
    for note in ("began to diverge: \N{EURO SIGN}\n", "\N{EURO SIGN}" * 3000):
        assert (await asyncio.to_thread(client.mark, note)).run_id == "id"
    assert session.marks == [
        "began to diverge: \N{EURO SIGN}\n",
        "\N{EURO SIGN}" * control.LONGEST_NOTE,
    ]
    for asked_hz, rate_hz in ((50, 50), (1000, 200)):
        assert (await asyncio.to_thread(client.aim_at_rate, asked_hz)).rate_hz == rate_hz
    assert (await asyncio.to_thread(client.aim_at_budget, 2.5)).run_id == "id"
    for aim, value in (
        (client.aim_at_rate, 0),
        (client.aim_at_rate, 1001),
        (client.aim_at_budget, 0),
    ):
        with pytest.raises(SessionFailed, match="not a request"):
            await asyncio.to_thread(aim, value)
    assert (session.rate_hz, session.budget_percent) == (200, 2.5)
    assert await asyncio.to_thread(client.window, WindowRequest(steps=7)) == WindowBegun(
        asked_ns=7, pids=(4242,)
    )
    with pytest.raises(SessionFailed, match="a window cannot be that long: ask for less"):
        await asyncio.to_thread(client.window, WindowRequest(steps=101))
    client.close()


async def test_watchers_are_counted_while_they_stay(served: Served) -> None:
    first, second = await connect(served), await connect(served)
    assert (await asyncio.to_thread(first.watch)).watchers == 1
    assert (await asyncio.to_thread(first.watch)).watchers == 1
    assert (await asyncio.to_thread(second.watch)).watchers == 2
    first.close()
    await eventually(lambda: served.session.watchers[-1:] == [1], "a watcher")
    second.close()
    await eventually(lambda: served.session.watchers[-1] == 0, "the watcher's end")


BAD_REQUESTS = (
    *(b"", b"hello", b"\xff\xfe\x00", b"[]", b"{}", b"[" * 4000),
    *(b'{"command": "\xff"}', b'{"command": "kill"}', b'{"command": 5}'),
    b'{"command": "mark", "note": "%s"}' % (b"x" * (LONGEST_NOTE + 1)),
    *(
        b'{"command": "rate", "rate_hz": %d}' % rate_hz
        for rate_hz in (0, RECORDING.highest_rate_hz + 1)
    ),
    *(b'{"command": "budget", "budget_percent": %d}' % percent for percent in (0, 100_001)),
)


async def test_what_is_no_request_is_refused_and_the_connection_stays(served: Served) -> None:
    reader, writer = await asyncio.open_unix_connection(served.path)
    for line in BAD_REQUESTS:
        writer.write(line + b"\n")
        assert (await asyncio.wait_for(reader.readline(), DEADLINE_S)).startswith(
            b'{"error":"not a request'
        ), line
    writer.write(b'{"command": "hello"}\n')
    assert b'"run_id":"id"' in await asyncio.wait_for(reader.readline(), DEADLINE_S)
    writer.close()


async def test_clients_that_break_off_never_read_or_never_end_a_line_hold_up_no_other(
    served: Served,
) -> None:
    other = await connect(served)
    assert await served.ask(b"x" * 1_000_000) == b""
    assert (await asyncio.to_thread(other.hello)).run_id == "id"
    other.close()
    for data in (b"", b'{"command"', b'{"command": "watch"}\n'):
        _, writer = await asyncio.open_unix_connection(served.path)
        writer.write(data)
        writer.transport.abort()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(str(served.path))
        deaf.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                deaf.send(b'{"command": "hello"}\n' * 100)
        assert await answers(served.path)


@pytest.mark.parametrize(("uid", "is_answered"), [(0, True), (4321, False)])
async def test_another_user_is_hung_up_on_but_root_is_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch, uid: int, is_answered: bool
) -> None:
    monkeypatch.setattr(control, "_peer", lambda connection: (os.getpid(), uid))
    assert bool(await served.ask(b'{"command": "mark"}\n')) == is_answered
    assert bool(served.session.marks) == is_answered


async def test_closing_hangs_up_on_watching_clients(served: Served) -> None:
    client = await connect(served)
    await asyncio.to_thread(client.watch)
    await asyncio.wait_for(served.server.close(), DEADLINE_S)
    with pytest.raises(SessionFailed, match=r"hung up|does not answer"):
        await asyncio.to_thread(client.hello)
    client.close()
    assert served.session.watchers == [1, 0]


async def test_a_socket_whose_folder_goes_away_comes_back_with_it(served: Served) -> None:
    """As ``$XDG_RUNTIME_DIR`` at logout, which is there again after the next login."""
    client = await connect(served)
    served.path.unlink()
    served.path.parent.rmdir()
    served.path.parent.touch()  # nothing can be made there
    await served.server.renew()
    with pytest.raises(SessionFailed):
        await connect(served)
    assert (
        await asyncio.to_thread(client.hello)
    ).run_id == "id"  # a connected client stays connected
    client.close()

    served.path.parent.unlink()
    await served.server.renew()
    assert await answers(served.path)
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o600


async def test_a_socket_is_named_once_it_listens_over_a_dead_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, listen, named = tmp_path / "s.sock", socket.socket.listen, list[bool]()

    def noted(one: socket.socket, backlog: int) -> None:
        named.append(path.exists())
        listen(one, backlog)

    monkeypatch.setattr(socket.socket, "listen", noted)
    for is_left in (False, True):
        server = serve(path, FakeSession())
        before = os.umask(0o027)
        try:
            await server.start()
            assert os.umask(0o027) == 0o027  # files that are made later have the rights of before
        finally:
            os.umask(before)
        assert named[0] is is_left
        named.clear()
        assert await answers(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await server.close()
        assert list(tmp_path.iterdir()) == []
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))


async def test_a_socket_that_cannot_be_bound_or_reached_is_an_error_of_the_session(
    tmp_path: Path,
) -> None:
    for path in (tmp_path / "none" / "s.sock", tmp_path / ("x" * 200)):
        server = serve(path, FakeSession())
        with pytest.raises(SessionFailed, match="cannot be bound"):
            await server.start()
        await server.close()
        with pytest.raises(SessionFailed, match="cannot be reached"):
            ControlClient(path)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        *((b"", "hung up"), (b'{"run_id"', "hung up"), (b"garbage\n", "does not answer")),
        *(
            (b"5\n", "does not answer"),
            (b"\xff\n", "does not answer"),
            (b'{"run_id": 5}\n', "does not answer"),
        ),
        (b'{"error": "not a request"}\n', "refused: not a request"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_of_the_session(
    profd_home: Path, answer: bytes, message: str
) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    server = await asyncio.start_unix_server(say, profd_home / "odd.sock")
    client = await asyncio.to_thread(ControlClient, profd_home / "odd.sock")
    with pytest.raises(SessionFailed, match=message):
        await asyncio.to_thread(client.hello)
    client.close()
    server.close()


def test_a_session_that_keeps_silent_is_given_up(profd_home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(profd_home / "mute.sock"))
        listener.listen(1)
        client = ControlClient(profd_home / "mute.sock", timeout_s=0.01)
        with pytest.raises(SessionFailed, match="does not answer"):
            client.hello()
        client.close()


async def test_only_the_process_that_a_run_file_names_is_spoken_to(served: Served) -> None:
    """A hostile file may name the socket of any program: that program gets no message."""
    assert await answers(served.path, os.getpid())
    with pytest.raises(SessionFailed, match="is not that session"):
        await asyncio.to_thread(ControlClient, served.path, os.getppid())


async def test_only_root_speaks_to_the_sessions_of_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_peer", lambda connection: (os.getpid(), 1001))
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(SessionFailed, match="is not that session"):
        await asyncio.to_thread(ControlClient, served.path)
