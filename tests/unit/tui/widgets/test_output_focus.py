"""Whose a key is while the output pane begins and ends to type: the next key may come at once."""

from __future__ import annotations

import os
from pathlib import Path

from support import synthetic
from support.dashboard import open_dashboard

from profd.tui.widgets.output import OutputPane


async def test_keys_belong_to_the_pane_from_the_moment_on_in_which_it_begins_to_type(tmp_path: Path) -> None:
    """A message in between would give a key that comes first to the dashboard, or to the script."""
    ours, scripts = os.openpty()
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with open_dashboard(run.path, pty_fd=ours) as opened:
            await opened.press("7")
            pane = opened.widget(OutputPane)
            pane.start_typing()
            assert opened.app.focused is pane  # nothing was awaited
    os.close(ours)
    os.close(scripts)
