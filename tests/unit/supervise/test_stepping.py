"""What the readers of loop counters learn from the recordings of their processes."""

from __future__ import annotations

import asyncio

import pytest
from support.synthetic import COMMAND, MAIN, MAIN_TID, STARTED_NS, recording

from profd.daemon.clock import AnchoredClock
from profd.daemon.collect.steps.counter import IMPORTER
from profd.daemon.store.records import Frame
from profd.daemon.supervise import stepping
from profd.daemon.supervise.roles import MAIN as MAIN_ROLE
from profd.daemon.supervise.stepping import Stepping
from profd.daemon.supervise.tree import Member

SCRIPT = (Frame("<module>", "/home/ada/train.py", 80),)
IMPORT = (*SCRIPT, Frame("_find_and_load", IMPORTER, 1176))
BAR = (*SCRIPT, Frame("tqdm.__iter__", "/usr/lib/python3/site-packages/tqdm/std.py", 1181), Frame("load", "x.py", 3))


class Listener:
    """A reader that reads nothing."""

    seen: list[tuple[bool, bool]]
    samples: list[tuple[object, ...]]

    def __init__(self, *_: object) -> None:
        Listener.seen, Listener.samples = [], []

    async def run(self) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        pass

    def take_samples(self, *said: object) -> None:
        Listener.samples.append(said)

    def see(self, *, is_importing: bool, has_bar: bool) -> None:
        Listener.seen.append((is_importing, has_bar))


@pytest.mark.parametrize(
    ("spans", "seen"),
    [
        ([(IMPORT, 500), (SCRIPT, 500)], (False, False)),
        ([(SCRIPT, 500), (IMPORT, 500)], (True, False)),
        ([(BAR, 10), (SCRIPT, 990)], (False, True)),
    ],
)
async def test_a_recording_tells_of_imports_at_its_end_and_of_a_progress_bar_in_it(
    spans: list[tuple[tuple[Frame, ...], int]], seen: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepping, "StepReader", Listener)
    monkeypatch.setattr(stepping, "CLOSING_TIMEOUT_S", 0.0)
    followed = Stepping("py-spy", AnchoredClock(), lambda _: None)
    followed.begin(Member(MAIN, None, COMMAND, MAIN_ROLE, None, None, None, 1))
    worker_thread = (MAIN_TID + 1, "Thread-1", False, [(IMPORT, 1000)])
    taken = recording(MAIN, STARTED_NS, [worker_thread, (MAIN_TID, "MainThread", True, spans)])
    followed.take_recording(taken)
    assert Listener.seen == [seen]
    assert Listener.samples == [(taken.threads[1].intervals, taken.stacks, taken.rate_hz)]
    await followed.close()
