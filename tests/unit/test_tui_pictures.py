"""Every view as a picture, at three sizes, in light colors and in none; `pytest --snapshot-update` draws them anew.

A picture that has changed is to be looked at before it is kept: syrupy lays the new one beside no old one, git does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from exhibition import write_exhibition
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from svg import compact
from theater import Theater, play

from profd.tui.reading.exhibits import FlameGrown, OperatorsRead
from profd.tui.reading.feed import OutputDrawn

SIZES = {"80x24": (80, 24), "120x36": (120, 36), "200x60": (200, 60)}
VIEWS = ("hot", "flame", "processes", "torch", "findings", "events", "output")
READ_LATER = {"flame": FlameGrown, "torch": OperatorsRead, "output": OutputDrawn}
"""The message that brings what a view shows, where that is not read before it is opened."""


class SvgExtension(SingleFileSnapshotExtension):
    """A file a picture."""

    _write_mode = WriteMode.TEXT
    file_extension = "svg"


@pytest.fixture
def pictures(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(SvgExtension)


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_exhibition(tmp_path_factory.mktemp("exhibition") / "a.profd")


@pytest.fixture(autouse=True)
def same_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draw as a terminal of many colors in Greenwich does, wherever this runs."""
    for name in ("NO_COLOR", "COLORFGBG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def draw(run_file: Path, view: str, size: tuple[int, int]) -> str:
    """Open a view on a run, and return its picture."""
    async with play(run_file, size=size) as theater:
        await theater.snapshot(lambda snapshot: snapshot.is_diagnosed)
        await theater.press(str(VIEWS.index(view) + 1))
        if view in READ_LATER:
            await theater.until(READ_LATER[view])
        return picture(theater)


def picture(theater: Theater) -> str:
    """Return what is on the screen as SVG."""
    return compact(theater.app.export_screenshot(title="profd"))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", VIEWS)
async def test_every_view_at_three_sizes(run_file: Path, pictures: SnapshotAssertion, view: str, size: str) -> None:
    assert await draw(run_file, view, SIZES[size]) == pictures


@pytest.mark.parametrize("view", ["hot", "flame"])
async def test_on_a_light_terminal(
    run_file: Path, pictures: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    monkeypatch.setenv("COLORFGBG", "0;15")
    assert await draw(run_file, view, SIZES["120x36"]) == pictures


@pytest.mark.parametrize("view", ["hot", "flame"])
async def test_without_color(
    run_file: Path, pictures: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert await draw(run_file, view, SIZES["120x36"]) == pictures
