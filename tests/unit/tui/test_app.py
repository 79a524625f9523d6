"""The keys of the dashboard as a whole: leaving to the shell."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.dashboard import open_dashboard
from support.findingruns import HEALTHY, write_case

from profd.tui import app


async def test_the_key_for_the_shell_says_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "has_shell", lambda: False)
    async with open_dashboard(write_case(tmp_path / "a.profd", *[HEALTHY] * 2, seconds=2)) as opened:
        await opened.press("ctrl+z")
        await opened.until_notice("there is no shell")
