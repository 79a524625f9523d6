"""Every view as a picture, at three sizes, in light colors and in none; `pytest --snapshot-update` draws them anew.

Look at a picture that has changed before you keep it: nothing but eyes says whether it is better than the old one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from support.completerun import write_complete_run
from support.dashboard import OpenDashboard, open_dashboard
from support.svg import compact
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from profd.tui.feed import FlameGrown, OperatorsRead, OutputDrawn

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
    return write_complete_run(tmp_path_factory.mktemp("complete") / "a.profd")


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


async def draw(run_file: Path, views: Sequence[str], size: tuple[int, int]) -> dict[str, str]:
    """Open views on a run, one after the other, and return their pictures as SVG."""
    async with open_dashboard(run_file, size=size) as opened:
        return {view: await draw_view(opened, view) for view in views}


async def draw_view(opened: OpenDashboard, view: str) -> str:
    await opened.press(str(VIEWS.index(view) + 1))
    if view in READ_LATER:
        await opened.until(READ_LATER[view])
    return compact(opened.app.export_screenshot(title="profd"))


def changed(drawn: Mapping[str, str], kept: SnapshotAssertion, folder: Path) -> list[Path]:
    """Return the pictures that are not those that are kept, written to where they can be looked at."""
    found = [folder / f"{view}.svg" for view, picture in drawn.items() if picture != kept(name=view)]
    for path in found:
        path.write_text(drawn[path.stem])
    return found


@pytest.mark.parametrize(
    "size", [size if size == "120x36" else pytest.param(size, marks=pytest.mark.dashboard) for size in SIZES]
)
async def test_every_view_at_three_sizes(
    run_file: Path, tmp_path: Path, pictures: SnapshotAssertion, size: str
) -> None:
    assert changed(await draw(run_file, VIEWS, SIZES[size]), pictures, tmp_path) == []


async def test_on_a_light_terminal(
    run_file: Path, tmp_path: Path, pictures: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORFGBG", "0;15")
    assert changed(await draw(run_file, ("hot", "flame"), SIZES["120x36"]), pictures, tmp_path) == []


async def test_without_color(
    run_file: Path, tmp_path: Path, pictures: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert changed(await draw(run_file, ("hot", "flame"), SIZES["120x36"]), pictures, tmp_path) == []
