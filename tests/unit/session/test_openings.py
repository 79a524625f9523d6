"""That somebody opens a file is noticed, and for how long that counts."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from profd.daemon.session.openings import LATELY_S, Openings


async def test_an_opening_is_told_and_counts_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened = tmp_path / "a.profd", asyncio.Event()
    path.write_bytes(b"run")
    watched = Openings(path, opened.set)
    assert not watched.were_lately()
    path.read_bytes()
    await opened.wait()
    assert watched.were_lately()
    now_s = time.monotonic()
    monkeypatch.setattr("profd.daemon.session.openings.time.monotonic", lambda: now_s + LATELY_S)
    assert not watched.were_lately()
    watched.close()


async def test_where_nobody_can_tell_it_may_have_been_opened(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    unknown = Openings(tmp_path / "none.profd", lambda: None)
    assert unknown.were_lately()
    unknown.close()
    assert set(os.listdir("/proc/self/fd")) == before
