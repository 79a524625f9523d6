"""The daemon's side of Kineto's protocol, byte by byte, against a client made of a plain socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kinetoclient import KinetoClient, context, inquiry, message
from support.waiting import DEADLINE_S

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import SessionFailed
from profd.daemon.windows import kineto
from profd.daemon.windows.kineto import Context, Inquiry, KinetoDaemon, decode

PID = 4711
ASKED = "ACTIVITIES_ITERATIONS=5\n"


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("k")


@pytest.fixture(autouse=True)
def patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients that wait for their answers, however busy the machine is."""
    monkeypatch.setattr(kineto, "ANSWERED_WITHIN_NS", int(DEADLINE_S * SECOND_NS))


@contextlib.contextmanager
def daemon_in(folder: Path) -> Iterator[KinetoDaemon]:
    daemon = KinetoDaemon(folder)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.close()


def test_messages_are_read_as_kineto_lays_them_out() -> None:
    asked = struct.pack("=Q32s", 28, b"req") + struct.pack("=iiq3i", 3, 3, 99, 10, 9, 1)
    assert decode(asked) == Inquiry(kinds=3, pids=(10, 9, 1))
    there = struct.pack("=Q32s", 16, b"ctxt") + struct.pack("=iiq", 2, 10, 99)
    assert decode(there) == Context(pid=10, gpu=2)
    assert decode(struct.pack("=Q32s", 15, b"ctxt") + there[40:]) is None  # longer than it says


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"req",
        message(b"req", b""),
        message(b"req", struct.pack("=iiq", 3, 0, 0)),
        message(b"req", struct.pack("=iiq", 3, 5, 0) + struct.pack("=i", 10)),
        message(b"req", struct.pack("=iiq", 3, -1, 0)),
        message(b"req", struct.pack("=iiq", 3, 1 << 30, 0)),
        message(b"ctxt", b"\0" * 15),
        message(b"stop", b"\0" * 16),
        struct.pack("=Q32s", 1 << 63, b"req") + struct.pack("=iiqi", 3, 1, 0, 10),
        inquiry(10)[:-1],
        inquiry(10) + b"\0",
    ],
)
def test_what_is_no_message_is_none(datagram: bytes) -> None:
    assert decode(datagram) is None


@given(
    st.binary(max_size=200) | st.binary(max_size=60).map(lambda payload: message(b"req", payload))
)
def test_no_bytes_raise(datagram: bytes) -> None:
    decode(datagram)


async def test_a_process_not_asked_gets_no_config_and_a_context_gets_a_count(folder: Path) -> None:
    with daemon_in(folder) as daemon, KinetoClient(folder) as client:
        for nonsense in (b"", b"\xff" * 4096, inquiry(PID)[:-2], message(b"req", b"\xff" * 16)):
            client.send(nonsense)
        assert await client.ask(inquiry(PID, 1)) == message(b"req", b"")
        assert daemon.clients == {PID}
        assert await client.ask(context(PID)) == message(b"ctxt", struct.pack("=i", 1))
        daemon.ask(PID, lambda: ASKED)
        daemon.withdraw(PID)
        assert await client.ask(inquiry(PID)) == message(b"req", b"")


async def test_a_configuration_goes_once_to_its_process_when_that_is_free(folder: Path) -> None:
    with daemon_in(folder) as daemon, KinetoClient(folder) as one, KinetoClient(folder) as other:
        daemon.ask(PID, lambda: ASKED)
        assert await other.ask(inquiry(PID + 1, PID)) == message(b"req", b"")
        one.send(inquiry(PID, kinds=1))  # it is at a trace
        assert await one.answer() == message(b"req", b"")
        assert await one.ask(inquiry(PID, 1)) == message(b"req", ASKED.encode())
        assert daemon.given == {PID: 0}
        assert await one.ask(inquiry(PID, 1)) == message(b"req", b"")
        assert daemon.given == {PID: 1}
        one.send(inquiry(PID, kinds=1))
        other.send(inquiry(PID + 1, PID))
        await asyncio.gather(one.answer(), other.answer())
        assert daemon.given == {PID: 1}  # it was at a trace, and the other has got nothing
        daemon.ask(PID, lambda: ASKED)
        assert daemon.given == {}


async def test_a_client_that_no_longer_waits_for_an_answer_gets_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon_in(folder) as daemon, KinetoClient(folder) as late, KinetoClient(folder) as client:
        daemon.ask(PID, lambda: ASKED)
        with monkeypatch.context() as too_late:
            too_late.setattr(kineto, "ANSWERED_WITHIN_NS", -1)
            for datagram in (inquiry(PID), context(PID)):
                late.send(datagram)
            daemon._read()
        assert daemon.clients == {PID}
        assert daemon.given == {}
        await client.ask(inquiry(PID + 1))
        assert await late.ask(inquiry(PID)) == message(b"req", ASKED.encode())


def test_age_of_a_datagram_is_since_the_kernel_took_it() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, kineto._TIMESTAMP_NOTE, 1)
        before_ns = time.time_ns()
        theirs.send(b"x")
        sent_ns = time.time_ns()
        _, notes, _, _ = ours.recvmsg(10, kineto._NOTES_BYTES)
        asked_ns = time.time_ns()
        age_ns = kineto._age_ns(notes)
        answered_ns = time.time_ns()
    assert asked_ns - age_ns <= sent_ns
    assert before_ns <= answered_ns - age_ns
    assert kineto._age_ns([]) == 0


async def test_client_that_is_gone_is_asked_again_when_it_is_back(folder: Path) -> None:
    with daemon_in(folder) as daemon:
        daemon.ask(PID, lambda: ASKED)
        with KinetoClient(folder) as gone:
            gone.send(inquiry(PID))
        with KinetoClient(folder) as client:
            await client.ask(inquiry(PID + 1))  # so that the one before it was read, too
            assert daemon.given == {}
            assert await client.ask(inquiry(PID)) == message(b"req", ASKED.encode())


async def test_the_socket_closes_with_the_daemon_and_a_folder_that_takes_none_is_said(
    folder: Path,
) -> None:
    with daemon_in(folder), KinetoClient(folder) as client:
        assert await client.ask(inquiry(PID)) == message(b"req", b"")
    with KinetoClient(folder) as client, pytest.raises(ConnectionRefusedError):
        client.send(inquiry(PID))
    with pytest.raises(SessionFailed, match="takes no socket"):
        KinetoDaemon(folder / "missing").start()


async def test_those_that_have_ended_are_forgotten_where_they_are_many(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto, "_MOST_HEARD", 3)
    gone = 1 << 22
    with daemon_in(folder) as daemon, KinetoClient(folder) as client:
        for pid in (gone, gone + 1, os.getpid(), gone + 2):
            await client.ask(inquiry(pid))
        assert daemon.clients == {os.getpid(), gone + 2}
