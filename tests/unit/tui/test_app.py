"""The keys of the dashboard as a whole: leaving to the shell."""

from __future__ import annotations

import os
import selectors
import time
from pathlib import Path

import pytest
from support.dashboard import open_dashboard
from support.findingruns import HEALTHY, write_case
from textual.drivers import linux_driver

from profd.tui import app
from profd.tui.app import LOOKS_EVERY_S, ProfdApp


async def test_the_key_for_the_shell_says_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "has_shell", lambda: False)
    async with open_dashboard(write_case(tmp_path / "a.profd", *[HEALTHY] * 2, seconds=2)) as opened:
        await opened.press("ctrl+z")
        await opened.until_notice("there is no shell")


def test_the_driver_waits_in_short_stretches_once_there_is_an_app_and_no_other_module_does(tmp_path: Path) -> None:
    ProfdApp(tmp_path / "none.profd")
    offered = vars(linux_driver)["selectors"]
    assert selectors.SelectSelector.__module__ == "selectors"
    assert offered is not selectors
    assert LOOKS_EVERY_S < 0.1
    read_end, write_end = os.pipe()
    try:
        with offered.SelectSelector() as selector:
            selector.register(read_end, offered.EVENT_READ)
            begun_s = time.monotonic()
            assert selector.select(60) == []
            assert time.monotonic() - begun_s < 30
            os.write(write_end, b"?")
            assert selector.select(60)
    finally:
        os.close(read_end)
        os.close(write_end)
