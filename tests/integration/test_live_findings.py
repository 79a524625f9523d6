"""How soon a finding is in the dashboard when its cause begins, and how soon it is gone when the cause has ended."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launching import PROFD, until
from textual.message import Message

from profd.daemon.paths import list_runs
from profd.tui.reading.feed import Feed, SnapshotTaken

PROGRAM = Path(__file__).parents[1] / "programs" / "stalling.py"
RULE = "input-bound-in-process"
FOUND_WITHIN_S, GONE_WITHIN_S = 20.0, 60.0

pytestmark = [pytest.mark.requires("torch"), pytest.mark.timeout(300)]


class Training:
    """A training under profd that begins to stall, and stops stalling, when told."""

    def __init__(self) -> None:
        words = [PROFD, "run", "--headless", "--quiet", "--", sys.executable, str(PROGRAM)]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )

    def say(self, word: bytes) -> None:
        """Wait until the script says a word."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == word

    def turn(self, word: bytes) -> float:
        """Have the script begin or end to stall; return when it did."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        self.say(word)
        return time.monotonic()


class Dashboard:
    """What the dashboard's feed posts of a run."""

    def __init__(self, path: Path) -> None:
        self.posted: queue.Queue[Message] = queue.Queue()
        self.feed = Feed(path, self.posted.put)
        self.thread = threading.Thread(target=self.feed.run)

    def until(self, holds: Callable[[bool], bool], deadline_s: float) -> float:
        """Wait until the finding is shown, or is not; return when that was."""
        while True:
            message = self.posted.get(timeout=max(deadline_s - time.monotonic(), 0.01))
            if not isinstance(message, SnapshotTaken) or not message.snapshot.is_diagnosed:
                continue
            if holds(any(one.rule == RULE for one in message.snapshot.findings)):
                return time.monotonic()


@contextlib.contextmanager
def training() -> Iterator[Training]:
    started = Training()
    try:
        yield started
    finally:
        started.process.communicate(timeout=60)


@contextlib.contextmanager
def dashboard(path: Path) -> Iterator[Dashboard]:
    shown = Dashboard(path)
    shown.thread.start()
    try:
        yield shown
    finally:
        shown.feed.stop()
        shown.thread.join()


def test_a_finding_comes_soon_after_its_cause_and_goes_soon_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFD_HOME", str(tmp_path))
    with training() as script:
        script.say(b"training")
        path = until(lambda: next(iter(list_runs()), None), "a run file")
        with dashboard(path) as shown:
            shown.until(lambda is_found: not is_found, time.monotonic() + GONE_WITHIN_S)
            began_s = script.turn(b"slow")
            assert shown.until(lambda is_found: is_found, began_s + FOUND_WITHIN_S) > began_s
            ended_s = script.turn(b"quick")
            assert shown.until(lambda is_found: not is_found, ended_s + GONE_WITHIN_S) > ended_s
