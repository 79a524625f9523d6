"""Every view as a picture, at three sizes, in light colors and in none; `pytest --snapshot-update` draws them anew.

Look at a picture that has changed before you keep it: nothing but eyes says whether it is better than the old one.

Textual draws every run of equal style, often a single cell, by an element for its background and one for its text, all
on a few lines of the file, and has a sum over all of it in each name.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from support.completerun import write_complete_run
from support.dashboard import open_dashboard
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from profd.tui.feed import FlameGrown, OperatorsRead, OutputDrawn

_TYPEFACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_NAME = re.compile(r"terminal-\d+-")
_CLIPS = re.compile(r'<clipPath id="line-\d+">.*?</clipPath>\s*', re.DOTALL)
_RECTANGLES = re.compile(r'(?:<rect fill="[^"]*" x=[^>]*shape-rendering="crispEdges"/>)+')
_RECTANGLE = re.compile(r'<rect fill="([^"]*)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"')
_TEXT = re.compile(
    r'<text class="([^"]*)" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)" clip-path="[^"]*">(.*?)</text>\s*',
    re.DOTALL,
)


class _Piece(NamedTuple):
    """A part of a row: ``look`` is its color or class."""

    look: str
    x: float
    y: float
    width: float
    text: str = ""


def compact(drawn: str) -> str:
    """Return a picture that looks the same: neighbors of one look as one, an element a line, names without sums.

    The typeface is the reader's own; the file fetches nothing.
    """
    named = _CLIPS.sub("", _NAME.sub("", _TYPEFACE.sub("", drawn)))
    return _joined_text(_RECTANGLES.sub(_joined_rectangles, named)).replace("&#160;", "\N{NO-BREAK SPACE}")


def _joined_rectangles(found: re.Match[str]) -> str:
    rows = _RECTANGLE.findall(found[0])
    height = rows[0][4]
    pieces = [_Piece(look, float(x), float(y), float(width)) for look, x, y, width, _ in rows]
    lines = [
        f'<rect fill="{piece.look}" x="{piece.x:g}" y="{piece.y:g}" width="{piece.width:g}" height="{height}"/>'
        for piece in _joined(pieces)
    ]
    return '<g shape-rendering="crispEdges">\n' + "\n".join(lines) + "\n</g>"


def _joined_text(drawn: str) -> str:
    found = list(_TEXT.finditer(drawn))
    pieces = [_Piece(one[1], float(one[2]), float(one[3]), float(one[4]), one[5]) for one in found]
    lines = []
    for piece in _joined(pieces):
        # The length keeps the next character where it belongs, whatever the typeface.
        length = "" if len(piece.text) == 1 else f' textLength="{piece.width:g}"'
        lines.append(f'<text class="{piece.look}" x="{piece.x:g}" y="{piece.y:g}"{length}>{piece.text}</text>')
    return drawn[: found[0].start()] + "\n".join(lines) + "\n" + drawn[found[-1].end() :]


def _joined(pieces: list[_Piece]) -> Iterator[_Piece]:
    """Yield the pieces, neighbors in a row that look the same as one."""
    rows = itertools.groupby(pieces, key=lambda piece: piece.y)
    for _, row in rows:
        last = next(row)
        for piece in row:
            if piece.look == last.look and abs(last.x + last.width - piece.x) < 0.1:
                last = last._replace(width=round(last.width + piece.width, 1), text=last.text + piece.text)
            else:
                yield last
                last = piece
        yield last


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
    drawn = {}
    async with open_dashboard(run_file, size=size) as opened:
        for view in views:
            await opened.press(str(VIEWS.index(view) + 1))
            if view in READ_LATER:
                await opened.until(READ_LATER[view])
            drawn[view] = compact(opened.app.export_screenshot(title="profd"))
    return drawn


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
