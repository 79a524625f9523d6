"""What the tests of pages share: the browser, and a run of two ranks with its report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import rankrun
from support.browser import OpenReport, ReportPage, launched_chromium

from profd.daemon.render.report import write_report
from profd.daemon.store.reader import RunReader

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all that lies here."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.requires("chromium"))


# Of the package, not of the session: Playwright keeps an event loop in the main thread, in which no
# other can run.
@pytest.fixture(scope="package")
def chromium() -> Iterator[BrowserContext]:
    with launched_chromium() as launched:
        yield launched


@pytest.fixture(scope="package")
def ranked_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of two ranks, which no test changes."""
    return rankrun.write_run(tmp_path_factory.mktemp("ranks") / "run.profd")


@pytest.fixture
def open_report(chromium: BrowserContext) -> Iterator[OpenReport]:
    """Give a function that opens the report of a run, or a page.

    What a page complains of fails the test.
    """
    opened: list[ReportPage] = []

    def open_one(path: Path, address: str = "") -> ReportPage:
        file = path.with_suffix(".html")
        if not file.exists():
            with RunReader(path) as reader:
                write_report(reader, file)
        report = ReportPage(chromium.new_page(), file)
        opened.append(report)
        report.open(address)
        return report

    yield open_one
    for report in opened:
        report.page.close()
        assert report.complaints == []
        assert {url.split(":")[0] for url in report.requests} <= {"file", "about"}


@pytest.fixture
def report(open_report: OpenReport, ranked_run: Path) -> ReportPage:
    """Open the report of the run of two ranks."""
    return open_report(ranked_run)
