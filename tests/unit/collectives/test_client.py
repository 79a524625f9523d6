"""The client of RAS: what it asks, and that no server keeps it longer than it wants to wait."""

from __future__ import annotations

import time

import pytest
from support.ras import RasServer, job_of

from profd.daemon.collectives import client
from profd.daemon.collectives.client import Address, NoAnswer, ask


def test_a_job_is_asked_for_its_status() -> None:
    world = job_of(4)
    world.launch(but=[2])
    with RasServer([world], "2.28.7") as server:
        status = ask(Address("127.0.0.1", server.port))
    assert len(status.communicators) == 1


def test_a_server_that_is_not_ras_is_not_asked() -> None:
    with RasServer([]) as server:
        server.greeting = b"220 mail.example.org\n"
        with pytest.raises(NoAnswer, match="is not NCCL's RAS"):
            ask(Address("127.0.0.1", server.port))
        assert server.asked == 0


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", "no status in JSON"),
        (b"{", "no status in JSON"),
        (b"x" * 5000, "more than it can have to say"),
    ],
)
def test_a_broken_answer_is_said_in_words(
    answer: bytes, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", 4096)
    with RasServer([]) as server:
        server.answer = lambda: answer
        with pytest.raises(NoAnswer, match=text):
            ask(Address("127.0.0.1", server.port))


def test_a_server_that_is_silent_is_left_in_time() -> None:
    with RasServer([]) as server:
        server.greeting = b""
        begun_s = time.monotonic()
        with pytest.raises(NoAnswer, match=r"no answer within 0\.2 s"):
            ask(Address("127.0.0.1", server.port), within_s=0.2)
        assert time.monotonic() >= begun_s + 0.2


def test_a_closed_port_is_said_in_words() -> None:
    with RasServer([]) as server:
        port = server.port
    with pytest.raises(NoAnswer, match="cannot be asked"):
        ask(Address("127.0.0.1", port))
