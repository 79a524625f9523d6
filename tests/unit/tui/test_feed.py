from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from support import synthetic
from support.waiting import DEADLINE_S
from textual.message import Message

from profd.daemon.errors import RunUnreadable, SessionFailed
from profd.daemon.session.control import ControlClient, SessionStatus
from profd.daemon.store import records
from profd.daemon.store.bound import MemoryBound
from profd.daemon.store.reader import RunReader
from profd.tui import feed as feed_module
from profd.tui.feed import LOOKS_TO_RETRY, Feed, FeedFailed, SnapshotTaken, Watch
from profd.tui.view import OutputView, View

Kind = TypeVar("Kind", bound=Message)


class Connection(ControlClient):
    """A session that can be watched."""

    def __init__(self, path: Path) -> None:
        self.path, self.is_watched, self.is_closed = path, False, threading.Event()

    def watch(self) -> SessionStatus:
        self.is_watched = True
        return SessionStatus("run", "a.profd", rate_hz=100, watchers=1)

    def close(self) -> None:
        self.is_closed.set()


class Bound(MemoryBound):
    """One that bounds nothing, and how often it was to be renewed."""

    def __init__(self) -> None:
        self.renewed = 0

    def renew(self) -> None:
        self.renewed += 1

    def spare(self, pid: int) -> None:
        pass


class Running:
    """A feed that runs until it is closed, and what it posts."""

    def __init__(self, path: Path) -> None:
        self.posted: queue.Queue[Message] = queue.Queue()
        self.connections: list[Connection] = []
        self.bound = Bound()
        self.feed = Feed(path, self.posted.put, self.connect, self.bound)
        self._thread = threading.Thread(target=self.feed.run)
        self._thread.start()

    def connect(self, path: Path) -> Connection:
        self.connections.append(Connection(path))
        return self.connections[-1]

    def take(self, kind: type[Kind], accept: Callable[[Kind], bool] = lambda message: True) -> Kind:
        while True:
            message = self.posted.get(timeout=DEADLINE_S)
            if isinstance(message, kind) and accept(message):
                return message

    def close(self) -> None:
        self.feed.stop()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


def test_nothing_new_is_no_snapshot_nor_is_anything_while_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "REFRESH_S", 0.01)
    with (
        synthetic.live_run(tmp_path / "a.profd", seconds=1) as run,
        closing(Running(run.path)) as found,
    ):
        first = found.take(SnapshotTaken).snapshot
        assert (first.samples, first.is_diagnosed) == (100, False)
        # What was found comes after what was seen, and is new.
        assert run.writer.put(records.FindingsTaken(run.started_ns, ()))
        run.advance(0)
        found.take(SnapshotTaken, lambda message: message.snapshot.is_diagnosed)
        with pytest.raises(queue.Empty):
            found.posted.get(timeout=0.3)
        found.feed.look(View(startup=True))
        assert found.take(SnapshotTaken).snapshot.view.startup
        found.feed.pause(is_paused=True)
        run.advance(2)
        with pytest.raises(queue.Empty):
            found.posted.get(timeout=0.3)
        before = found.bound.renewed
        run.advance(1)
        found.feed.pause(is_paused=False)
        found.take(
            SnapshotTaken, lambda message: message.snapshot.samples == 400
        )  # nothing is lost
        assert found.bound.renewed > before > 0  # the run has grown
    (tmp_path / "b.profd").write_text("no run")
    with closing(Running(tmp_path / "b.profd")) as found:
        error = found.take(FeedFailed).error
    assert isinstance(error, RunUnreadable)
    assert error.remedy


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    """Give a live run with a session that can be reached."""
    started = msgspec.structs.replace(
        synthetic.run_started(live=True), control_socket="/run/session.sock"
    )
    return synthetic.write_records(
        tmp_path / "a.profd", [synthetic.main_process(started.started_ns)], started
    )


def test_a_run_is_looked_at_less_often_once_nobody_chooses_anything(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "a.profd", print)
    assert feed._pause_s() == feed_module.REFRESH_S
    feed._woken_s -= feed_module.RESTS_AFTER_S
    feed._pause_s()
    assert feed._pause_s() == feed_module.RESTS * feed_module.REFRESH_S
    feed._spent_s -= 0.04  # what a look has cost
    assert feed._pause_s() == pytest.approx(0.04 / feed_module.RESTING_SHARE, rel=0.2)
    feed._spent_s -= 4.0
    assert feed._pause_s() == feed_module.RESTS_AFTER_S
    feed.look(View())
    assert feed._pause_s() == feed_module.REFRESH_S
    feed.look_at_output(OutputView(is_typing=True))
    feed._woken_s -= feed_module.RESTS_AFTER_S
    assert feed._pause_s() == feed_module.TYPING_S


def test_a_live_session_counts_as_watched_until_the_view_ends(watched: Path) -> None:
    with closing(Running(watched)) as found:
        found.take(SnapshotTaken)
        (connection,) = found.connections
        assert (connection.path, connection.is_watched) == (Path("/run/session.sock"), True)
        assert not connection.is_closed.is_set()
    assert connection.is_closed.is_set()


def test_a_session_that_cannot_be_reached_is_tried_again_later_and_one_that_has_ended_let_go(
    watched: Path,
) -> None:
    tried: list[Connection] = []

    def connect(path: Path) -> Connection:
        tried.append(Connection(path))
        if len(tried) == 1:
            raise SessionFailed("not there")
        return tried[-1]

    with RunReader(watched) as reader:
        live = reader.info
    watch = Watch(connect)
    watch.keep(live)
    for _ in range(LOOKS_TO_RETRY):
        watch.keep(live)
        assert len(tried) == 1
    watch.keep(live)
    watch.keep(live)
    assert len(tried) == 2
    watch.keep(msgspec.structs.replace(live, state="ended"))
    assert tried[1].is_closed.is_set()
