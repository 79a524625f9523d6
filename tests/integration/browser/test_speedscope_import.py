"""Speedscope's own importer reads what profd exports to it: the released page of its npm package,
in a real browser.

`npm install -g speedscope` brings it. The schema that the package publishes is tested in any case
(tests/unit/render/exports).
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.synthetic import BACKWARD, PHASE_SHARES, write_run

from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.exports.speedscope import speedscope
from profd.daemon.store.reader import RunReader

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

pytestmark = pytest.mark.requires("speedscope")
SECONDS = 20


@pytest.fixture(scope="module")
def released() -> Path:
    """Return the page of the installed package."""
    program = shutil.which("speedscope")
    assert program is not None
    return Path(program).resolve().parent.parent / "dist" / "release" / "index.html"


def imported(chromium: BrowserContext, released: Path, folder: Path, content: bytes) -> str:
    """Return what speedscope shows of a file, in its table of functions.

    The way in is that of its own program.
    """
    handed = folder / "handed.js"
    handed.write_text(
        'speedscope.loadFileFromBase64("run.speedscope.json", '
        f'"{base64.b64encode(content).decode()}")'
    )
    page = chromium.new_page()
    page.goto(f"{released.as_uri()}#localProfilePath={str(handed).removeprefix('/')}&view=sandwich")
    page.wait_for_selector("text=/Something went wrong|Symbol Name/")
    shown = page.inner_text("body")
    page.close()
    return shown


def test_the_importer_has_the_times_of_the_run(
    chromium: BrowserContext, released: Path, tmp_path: Path
) -> None:
    with RunReader(write_run(tmp_path / "a.profd", seconds=SECONDS)) as reader:
        shown = imported(chromium, released, tmp_path, speedscope(reader, MAIN_THREADS))
    own_s = SECONDS * PHASE_SHARES["backward"]
    row = re.search(
        rf"([\d.]+m?s) \((\d+)%\)\s+([\d.]+m?s) \((\d+)%\)\s+{BACKWARD[-1].function}", shown
    )
    assert row, shown
    assert (row[3], row[4]) == (f"{own_s:.2f}s", f"{100 * PHASE_SHARES['backward']:.0f}")


def test_every_thread_is_a_profile(
    chromium: BrowserContext, released: Path, tmp_path: Path
) -> None:
    with RunReader(write_run(tmp_path / "a.profd", seconds=SECONDS)) as reader:
        content = speedscope(reader, Selection())
    assert f"(1/{len(json.loads(content)['profiles'])})" in imported(
        chromium, released, tmp_path, content
    )


def test_a_file_that_is_none_is_refused(
    chromium: BrowserContext, released: Path, tmp_path: Path
) -> None:
    assert "Something went wrong" in imported(
        chromium, released, tmp_path, b'{"$schema": "x", "profiles": [1]}'
    )
