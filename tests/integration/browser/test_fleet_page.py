"""The page of many runs in a real browser: it shows the answers, and neither loads nor runs
anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from support import hostiletexts
from support.browser import ReportPage
from support.fleets import asked, make, renamed

from profd.daemon.fleet.dataset import DataSet
from profd.daemon.fleet.export import export_run
from profd.daemon.fleet.fleet import Question, ask
from profd.daemon.fleet.output import render_fleet_page

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext


def cells_of(chromium: BrowserContext, path: Path) -> list[list[str]]:
    """Return the cells of all tables of a page that complains of nothing and asks for nothing."""
    opened = ReportPage(chromium.new_page(), path)
    page = opened.page
    page.goto(path.as_uri())
    cells = [row.locator("td").all_inner_texts() for row in page.locator("tbody tr").all()]
    assert page.evaluate("window.hurt") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()
    assert (opened.complaints, opened.requests) == ([], [path.as_uri()])
    return cells


def test_it_shows_what_is_named_first_and_needs_nothing_else(
    chromium: BrowserContext, tmp_path: Path
) -> None:
    truth = make(tmp_path)
    (tmp_path / "fleet.html").write_text(render_fleet_page(asked(tmp_path)))
    cells = cells_of(chromium, tmp_path / "fleet.html")
    assert truth.cause in cells[0]
    assert any(truth.slow_node in row for row in cells)


def test_hostile_names_stay_text(chromium: BrowserContext, tmp_path: Path) -> None:
    with renamed(hostiletexts.write_run(tmp_path / "a.profd"), host=hostiletexts.EVIL) as reader:
        export_run(reader, DataSet(str(tmp_path / "fleet")))
    answers = ask(DataSet(str(tmp_path / "fleet")), Question())
    (tmp_path / "fleet.html").write_text(render_fleet_page(answers))
    cells = cells_of(chromium, tmp_path / "fleet.html")
    assert any(hostiletexts.MARKUP in cell for row in cells for cell in row)
