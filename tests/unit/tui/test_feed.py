from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
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
from profd.daemon.store.rows import RunInfo
from profd.tui import feed as feed_module
from profd.tui.feed import LOOKS_TO_RETRY, Feed, FeedFailed, SnapshotTaken, Watch
from profd.tui.view import View

Kind = TypeVar("Kind", bound=Message)


class Connection(ControlClient):
    """A session that can be watched."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_watched = False
        self.is_closed = threading.Event()

    def watch(self) -> SessionStatus:
        self.is_watched = True
        return SessionStatus("run", "a.profd", rate_hz=100, watchers=1)

    def close(self) -> None:
        self.is_closed.set()


class Running:
    """A feed with its thread, and what it posts."""

    def __init__(self, path: Path) -> None:
        self.posted: queue.Queue[Message] = queue.Queue()
        self.connections: list[Connection] = []
        self.feed = Feed(path, self.posted.put, self.connect)
        self.thread = threading.Thread(target=self.feed.run)

    def connect(self, path: Path) -> Connection:
        self.connections.append(Connection(path))
        return self.connections[-1]

    def take(self, kind: type[Kind], accept: Callable[[Kind], bool] = lambda message: True) -> Kind:
        while True:
            message = self.posted.get(timeout=DEADLINE_S)
            if isinstance(message, kind) and accept(message):
                return message


@contextlib.contextmanager
def running(path: Path) -> Iterator[Running]:
    run = Running(path)
    run.thread.start()
    try:
        yield run
    finally:
        run.feed.stop()
        run.thread.join(DEADLINE_S)
        assert not run.thread.is_alive()


def test_nothing_new_is_no_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "REFRESH_S", 0.01)
    with synthetic.live_run(tmp_path / "a.profd", seconds=1) as run, running(run.path) as found:
        first = found.take(SnapshotTaken).snapshot
        assert (first.samples, first.is_diagnosed) == (100, False)
        # What was found comes after what was seen, and is new.
        assert run.writer.put(records.FindingsTaken(run.started_ns, ()))
        run.advance(0)
        found.take(SnapshotTaken, lambda message: message.snapshot.is_diagnosed)

        with pytest.raises(queue.Empty):
            found.posted.get(timeout=0.3)
        found.feed.look(View(by_line=True))
        assert found.take(SnapshotTaken).snapshot.view.by_line

        run.advance()
        found.take(SnapshotTaken, lambda message: message.snapshot.samples == 200)


def test_while_paused_nothing_is_posted_and_nothing_is_lost(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=1) as run, running(run.path) as found:
        found.take(SnapshotTaken, lambda message: message.snapshot.samples == 100)
        found.feed.pause(is_paused=True)

        run.advance(2)
        with pytest.raises(queue.Empty):
            found.posted.get(timeout=1.2)

        found.feed.pause(is_paused=False)
        assert found.take(SnapshotTaken).snapshot.samples == 300


def test_a_file_that_is_no_run_is_posted(tmp_path: Path) -> None:
    (tmp_path / "a.profd").write_text("no run")
    with running(tmp_path / "a.profd") as found:
        error = found.take(FeedFailed).error

    assert isinstance(error, RunUnreadable)
    assert error.remedy


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    """Give a live run with a session that can be reached."""
    started = msgspec.structs.replace(synthetic.run_started(live=True), control_socket="/run/session.sock")
    return synthetic.write_records(tmp_path / "a.profd", [synthetic.main_process(started.started_ns)], started)


def test_a_live_session_is_told_that_it_is_watched_until_the_view_ends(watched: Path) -> None:
    with running(watched) as found:
        found.take(SnapshotTaken)
        (connection,) = found.connections
        assert (connection.path, connection.is_watched) == (Path("/run/session.sock"), True)
        assert not connection.is_closed.is_set()

    assert connection.is_closed.is_set()


def info(state: str = "live") -> RunInfo:
    started = synthetic.run_started()
    fields = {name: getattr(started, name) for name in RunInfo.__struct_fields__ if hasattr(started, name)}
    fields.update(pid=1, start_ticks=1, state=state, end_ns=1, why_ended=None, exit_code=None, exit_signal=None)
    return RunInfo(**{**fields, "recorder": records.Identity(1, 0), "control_socket": "/run/session.sock"})


def test_a_session_that_cannot_be_reached_is_tried_again_later_and_one_that_has_ended_let_go() -> None:
    tried: list[Connection] = []

    def connect(path: Path) -> Connection:
        tried.append(Connection(path))
        if len(tried) == 1:
            raise SessionFailed("not there")
        return tried[-1]

    watch = Watch(connect)
    watch.keep(info())
    for _ in range(LOOKS_TO_RETRY):
        watch.keep(info())
        assert len(tried) == 1

    watch.keep(info())
    watch.keep(info())
    assert len(tried) == 2
    watch.keep(info("ended"))
    assert tried[1].is_closed.is_set()
