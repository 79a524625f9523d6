"""The ranks and nodes of a job in its report, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browser import OpenReport, ReportPage
from support.noderuns import Job

from profd.daemon.analyze.nodes import open_job, read_folder
from profd.daemon.render.report import write_report


@pytest.fixture
def report(open_report: OpenReport, tmp_path: Path) -> ReportPage:
    job = Job()
    for rank in range(3):
        job.write(tmp_path / f"{rank}.profd", rank, own_share=0.9 if rank == 1 else 0.4, ahead_ns=rank * 700_000_003)
    with open_job(read_folder(tmp_path).choose(None)) as reader:
        write_report(reader, tmp_path / "job.html")
    return open_report(tmp_path / "job.html")


def test_ranks_of_the_table_are_picked_and_processes_named_by_them(report: ReportPage) -> None:
    page = report.page
    rows = page.locator(".ranks tbody tr")

    assert rows.count() == 3
    assert rows.nth(1).inner_text().split()[:3] == ["▲", "1", "node1"]
    merged, alone = report.samples, []
    for rank in range(3):
        rows.nth(rank).get_by_role("link").click()
        report.wait_for(f"document.querySelector('#rank').value === '{rank}'")
        assert f"rank {rank}" in page.locator("#basis").inner_text()
        alone.append(report.samples)
    assert sum(alone) == merged
    page.get_by_role("link", name="all ranks").click()
    report.wait_for("document.querySelector('#rank').value === 'all'")
    assert report.samples == merged

    titles = report.page.locator("#process option").all_inner_texts()

    assert [title.partition(" · ")[0] for title in titles if title.startswith("rank")] == [
        "rank 0 node0", "rank 1 node1", "rank 2 node2",
    ]  # fmt: skip
    assert report.page.locator(".nodes tbody tr").nth(2).inner_text().split()[:1] == ["node2"]
