"""What a newcomer does in the dashboard, by no other key than those that the screen names just then.

The protocol of all tasks, with those of the shell, is in docs/dashboard.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from support import synthetic
from support.completerun import write_complete_run
from support.dashboard import OpenDashboard, open_dashboard
from support.synthetic import STARTED_NS

from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.store.records import EventHappened, HangFound, HangReport, Record

SIZES = ((80, 24), (120, 36), (200, 60))
CAUSE = "no progress for 31 s (lock): main waits for a lock that the thread saver holds in save"
HUNG: Sequence[Record] = (
    HangFound(
        STARTED_NS, STARTED_NS, f"{CAUSE} {'and so do others ' * 20}", HangReport("lock", ())
    ),
    EventHappened(STARTED_NS + 41 * SECOND_NS, EventKind.HANG, CAUSE),
)

Step = tuple[str, str]
"""What the screen has to say, and the key that it names by that."""


def words(opened: OpenDashboard) -> str:
    """Return the words on the screen, whatever lies over it; frames and breaks of lines are none."""
    strips = opened.app.screen._compositor.render_strips()
    lines = ("".join(segment.text for segment in strip) for strip in strips)
    return " ".join(re.sub("[│─╭╮╰╯▁-█▌]+", " ", " ".join(lines)).split())


async def does(opened: OpenDashboard, steps: Sequence[Step], result: str) -> None:
    """Press keys, each once the screen names it, until the screen shows a result."""
    for cue, key in steps:
        assert cue in words(opened)
        await opened.press(key)
    for _ in range(9):
        if result in words(opened):
            return
        await opened.pilot.pause()
    pytest.fail(f"no {result!r} in {words(opened)}")


@pytest.mark.parametrize("size", SIZES)
async def test_where_the_time_goes_and_what_to_do(tmp_path: Path, size: tuple[int, int]) -> None:
    async with open_dashboard(write_complete_run(tmp_path / "a.profd"), size=size) as opened:
        await does(opened, (), "train.py:58 for images")
        await does(opened, [("? help", "question_mark")], "open a view by its number")
        await does(opened, [("esc closes", "escape")], "the main thread waits for data 40 %")
        await does(opened, [("6 Findings", "6")], "Making batches keeps 2 workers")
        pages = [("pgdn more of it", "pagedown")] * 3
        await does(opened, pages, "Set num_workers=4 in the DataLoader (train.py:58).")
        await does(opened, [("4 Processes", "4")], "pid CPU RSS")
        assert re.search(r"main ended 4242 \d+ % [\d.,]+ [MG]B", words(opened))


@pytest.mark.parametrize("size", SIZES)
async def test_why_it_hangs(tmp_path: Path, size: tuple[int, int]) -> None:
    path = synthetic.write_run(tmp_path / "a.profd", seconds=40, also=HUNG)
    async with open_dashboard(path, size=size) as opened:
        await does(opened, [("HANG, see 7", "7"), ("⏎ whole text", "enter")], CAUSE)
        await does(opened, [("esc closes", "escape")], "8 Output")


@pytest.mark.parametrize("size", SIZES)
async def test_a_file_for_another_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_dashboard(write_complete_run(tmp_path / "a.profd"), size=size) as opened:
        await does(opened, [("8 Output", "8"), ("e export", "e")], "speedscope: each thread")
        await opened.press("down", "enter")
        await opened.until_notice("a.speedscope.json")
    assert (tmp_path / "a.speedscope.json").exists()
