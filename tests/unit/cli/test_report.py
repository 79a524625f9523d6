"""`profd report`: where it writes the page; what is on it has tests of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commandline import CommandLine


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
