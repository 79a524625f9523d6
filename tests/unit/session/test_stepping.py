"""The readers of steps of a tree: one for each process that trains, polled in one thread."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import msgspec
import pytest
from support.synthetic import COMMAND, MAIN
from support.waiting import until

from profd.daemon.clock import Clock
from profd.daemon.interpreter.garbage import Collector
from profd.daemon.session import stepping
from profd.daemon.session.stepping import Stepping
from profd.daemon.stacks.origin import ANY, Origin
from profd.daemon.store.records import EventHappened, Identity, Record
from profd.daemon.tree.roles import MAIN as MAIN_ROLE
from profd.daemon.tree.roles import WORKER
from profd.daemon.tree.tree import Member

OTHER = Identity(MAIN.pid + 1, 7)


class Listener:
    """A stand-in for the reader: it counts its polls and keeps what it is given."""

    made: list[Listener]
    usual_s = 0.001

    def __init__(self, identity: Identity, *_: object, **__: object) -> None:
        self.identity = identity
        self.polls = 0
        self.has_ended = threading.Event()
        self.fails = False
        self.pause_s = self.usual_s
        self.is_idle = False
        self.renewals: list[Origin | None] = []
        Listener.made.append(self)

    def renew(self, origin: Origin | None) -> None:
        self.is_idle = origin is None
        self.renewals.append(origin)

    def poll(self) -> float:
        self.polls += 1
        if self.fails:
            raise ValueError("of its own")
        return self.pause_s

    def end(self) -> None:
        self.has_ended.set()


class Collections:
    """A stand-in for the readers of garbage collections and of the lock."""

    fails = False
    ended: list[Identity]
    pause_s = 0.001
    polls = 0

    def __init__(self, identity: Identity, *parts: object) -> None:
        self.identity, self.part = identity, parts[-1]

    def poll(self) -> float:
        if self.fails and self.part is Collector:
            raise ValueError("of the collector")
        Collections.polls += 1
        return self.pause_s

    def end(self) -> None:
        Collections.ended.append(self.identity)


def member(identity: Identity = MAIN, role: str = MAIN_ROLE) -> Member:
    return Member(identity, None, COMMAND, role, None, None, None, 1)


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """Give the place for records, with listeners instead of readers."""
    Listener.made, Collections.ended = [], []
    monkeypatch.setattr(stepping, "StepReader", Listener)
    monkeypatch.setattr(stepping, "LookReader", Collections)
    return []


def test_each_process_that_trains_is_read_until_it_ends(records: list[Record]) -> None:
    followed = Stepping(Clock(), records.append)
    for one in (member(), member(), member(OTHER), member(Identity(1, 1), WORKER)):
        followed.begin(one)
    first, second = Listener.made
    until(lambda: first.polls > 3 and second.polls > 3, "both to be read")
    followed.end(MAIN)
    assert first.has_ended.wait(60)
    polls = first.polls
    until(lambda: second.polls > polls + 10, "the other one to be read")
    assert first.polls == polls
    assert not second.has_ended.is_set()
    assert Collections.ended == [MAIN] * 2
    followed.close()
    assert second.has_ended.is_set()
    assert Collections.ended == [MAIN, MAIN, OTHER, OTHER]


def test_a_reader_goes_on_with_each_python_that_its_process_becomes_and_trains(
    records: list[Record],
) -> None:
    followed, python = (
        Stepping(Clock(), records.append),
        msgspec.structs.replace(member(), python="3.11"),
    )
    followed.begin(python)
    (reader,) = Listener.made
    followed.begin(python)
    followed.renew(msgspec.structs.replace(python, python=None))
    followed.begin(python)  # it has loaded Python since
    followed.begin(python)
    followed.renew(msgspec.structs.replace(python, role=WORKER))
    followed.renew(python)
    followed.renew(member(OTHER))  # not followed
    assert reader.renewals == [None, ANY, None, ANY]
    assert Listener.made == [reader]
    followed.close()


def test_a_process_that_comes_or_goes_does_not_wait_for_the_next_reading(
    records: list[Record],
) -> None:
    followed = Stepping(Clock(), records.append)
    followed.begin(member())
    (first,) = Listener.made
    first.pause_s = 10_000.0
    until(lambda: first.polls > 0, "the first reading")
    polls = first.polls
    followed.begin(member(OTHER))
    second = Listener.made[1]
    until(lambda: second.polls > 0, "the other one to be read")
    second.pause_s = 10_000.0
    followed.end(OTHER)
    assert second.has_ended.wait(60)
    followed.close()
    assert first.has_ended.is_set()
    assert first.polls <= polls + 1


def test_a_reader_that_fails_is_said_and_is_alone(
    records: list[Record], capsys: pytest.CaptureFixture[str]
) -> None:
    followed = Stepping(Clock(), records.append)
    followed.begin(member())
    followed.begin(member(OTHER))
    failing, other = Listener.made
    failing.fails = True
    until(lambda: records, "the failure")
    polls = other.polls
    until(lambda: other.polls > polls, "the other one to be read")
    followed.close()
    (said,) = records
    assert isinstance(said, EventHappened)
    assert (said.kind, said.identity) == ("error", MAIN)
    assert "ValueError" in capsys.readouterr().err


def test_steps_are_followed_where_collections_cannot_be(
    records: list[Record], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Collections, "fails", True)
    followed = Stepping(Clock(), records.append)
    followed.begin(member())
    until(lambda: records, "the failure")
    (steps,) = Listener.made
    polls = steps.polls
    until(lambda: steps.polls > polls, "the steps to be read")
    followed.close()
    (said,) = records
    assert isinstance(said, EventHappened)
    assert said.text.startswith("garbage collections are not followed: ValueError")
    assert "of the collector" in capsys.readouterr().err


@pytest.mark.parametrize(("is_steady", "factor"), [(False, 1), (True, 4)])
def test_in_a_steady_run_all_but_steps_are_looked_at_more_rarely(
    records: list[Record], monkeypatch: pytest.MonkeyPatch, is_steady: bool, factor: int
) -> None:
    now_s, is_over = [0.0], threading.Event()

    class Waits(threading.Event):
        """Lets the time that is waited for pass at once, up to two minutes."""

        def wait(self, timeout: float | None = None) -> bool:
            if timeout is None or now_s[0] > 120:
                is_over.set()
                return super().wait()
            now_s[0] += timeout
            return False

    parts = SimpleNamespace(Event=Waits, Lock=threading.Lock, Thread=threading.Thread)
    monkeypatch.setattr(stepping, "threading", parts)
    monkeypatch.setattr(stepping, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(Listener, "usual_s", 1.0)
    monkeypatch.setattr(Collections, "pause_s", 1.0)
    monkeypatch.setattr(Collections, "polls", 0)
    followed = Stepping(Clock(), records.append)
    followed.is_steady = is_steady
    followed.begin(member())
    assert is_over.wait(60)
    steps = Listener.made[0].polls
    assert abs(Collections.polls - 2 * steps / factor) <= 4
    assert 118 <= steps <= 124
    followed.close()
