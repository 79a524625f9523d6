"""The answers as a page: bars as long as their hours, and no name of a run that becomes a part of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.fleetanswers import HOSTILE, answers, nothing

from profd.daemon.errors import OutputUnwritable
from profd.daemon.fleet.output import BAR_WIDTH, headline, render_fleet_page, write_fleet_page


def test_bars_are_as_long_as_their_hours() -> None:
    page = render_fleet_page(answers())
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', page)]
    # Of 100 hours 80 are lost, of 300 it is 20; the longest bar has all the width.
    wanted = [BAR_WIDTH * share for share in (100 / 300, 80 / 300, 1.0, 20 / 300)]
    assert widths == pytest.approx(wanted, abs=0.1)


def test_the_page_says_what_the_text_says() -> None:
    page = render_fleet_page(answers())
    assert headline(answers()) in page
    assert "1,234,567" in page
    assert "job-a, job-b, job-c, job-d and 2 more" in page


def test_no_name_becomes_markup() -> None:
    page = render_fleet_page(answers(name=HOSTILE))
    assert "<b>" not in page
    assert "\x1b" not in page
    assert "&lt;b&gt;&amp;" in page


def test_a_page_of_nothing_has_no_bars() -> None:
    assert "<rect" not in render_fleet_page(nothing())


def test_the_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_fleet_page(tmp_path / "fleet.html", answers())
    assert (tmp_path / "fleet.html").read_text() == render_fleet_page(answers())
    with pytest.raises(OutputUnwritable):
        write_fleet_page(tmp_path / "none" / "fleet.html", answers())
    assert [path.name for path in tmp_path.iterdir()] == ["fleet.html"]
