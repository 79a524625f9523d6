"""`profd report`: where it writes the page; what is on it has tests of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commandline import CommandLine
from support.synthetic import RUN_ID, write_run


@pytest.mark.parametrize(
    ("rest", "named"), [("", "job.html"), ("/", "job.html"), ("/0.profd", "0.html")]
)
def test_a_report_is_named_after_the_last_part_of_the_url(
    url: str,
    rest: str,
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    profd: CommandLine,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert profd("report", url + rest) == f"{named}\n"
    assert (tmp_path / named).exists()


@pytest.mark.parametrize("has_browser", [True, False])
def test_a_report_is_opened_in_the_browser_or_its_path_is_said(
    has_browser: bool, runs: Path, monkeypatch: pytest.MonkeyPatch, profd: CommandLine
) -> None:
    write_run(runs / f"{RUN_ID}.profd", seconds=1)
    monkeypatch.chdir(runs)
    opened: list[str] = []

    def open_page(url: str) -> bool:
        opened.append(url)
        return has_browser

    monkeypatch.setattr("webbrowser.open", open_page)
    assert profd("report") == f"{RUN_ID}.html\n"
    assert opened == []
    assert profd("report", "--open") == f"{RUN_ID}.html\n"
    page = runs / f"{RUN_ID}.html"
    assert opened == [page.as_uri()]
    assert (str(page) in profd.err) is not has_browser
