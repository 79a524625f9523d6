"""Draws each view of the dashboard on a run, as SVG."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from profd.tui.app import ProfdApp
from profd.tui.dialogs import Leaving
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.header import VerdictLine
from profd.tui.widgets.operators import OperatorTable
from profd.tui.widgets.output import OutputPane

SIZE = (120, 36)
PATIENCE_S = 60.0
KEYS = {
    "lines": ("1",),
    "hot": ("2",),
    "flame": ("3", *["down"] * 4),
    "processes": ("4",),
    "torch": ("5",),
    "findings": ("6",),
    "events": ("7",),
    "output": ("8",),
}
"""What leads to each view.

In the flame graph down to the user's own frame, which is told below then.
"""


async def draw_views(run_file: Path) -> dict[str, str]:
    """Return the pictures by the names of the views."""
    os.environ["COLORTERM"] = "truecolor"  # whatever the terminal is that the pictures are taken in
    app = ProfdApp(run_file, may_end=False)
    async with app.run_test(size=SIZE) as pilot:
        await _until(pilot, lambda: _is_diagnosed(app))
        return {view: await _draw(app, pilot, view) for view in KEYS}


async def _draw(app: ProfdApp, pilot: Pilot[Leaving], view: str) -> str:
    first, *others = KEYS[view]
    await pilot.press(first)
    await _until(pilot, lambda: _has_come(app, view))
    await pilot.press(*others)
    await pilot.pause()
    return app.export_screenshot(title="profd")


def _is_diagnosed(app: ProfdApp) -> bool:
    snapshot = app.screen.query_one(VerdictLine).snapshot
    return snapshot is not None and snapshot.is_diagnosed


def _has_come(app: ProfdApp, view: str) -> bool:
    """Say whether that has been read which is read when the view is opened."""
    if view == "flame":
        return app.screen.query_one(FlameView).cursor.tree is not None
    if view == "torch":
        return app.screen.query_one(OperatorTable).shown is not None
    return view != "output" or bool(app.screen.query_one(OutputPane).picture.lines)


async def _until(pilot: Pilot[Leaving], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"the dashboard showed too little within {PATIENCE_S:.0f} s")
        await pilot.pause(0.1)
