"""Every filter of the report selects what `profd export` selects with the option of the same meaning."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import rankrun
from support.browser import ReportPage

from profd.cli.main import run_command_line

Exported = pytest.CaptureFixture[str]
Controls = dict[str, str]
"""What to choose in the list of an id; an empty choice presses the button of that id."""


def exported(run: Path, capsys: Exported, *options: str) -> int:
    """Return the samples that the command exports."""
    capsys.readouterr()
    assert run_command_line(["export", str(run), "--format", "collapsed", *options]) == 0
    return sum(int(line.rpartition(" ")[2]) for line in capsys.readouterr().out.splitlines())


MAIN_OF_RANK_1 = str(rankrun.RANKS[1].pid)
WORKER_1 = str(rankrun.WORKERS[1].pid)
CASES: dict[str, tuple[Controls, tuple[str, ...], int]] = {
    "as it opens": ({}, (), 4_000),
    "rank": ({"rank": "rank 1"}, ("--rank", "1"), 2_000),
    "phase": ({"phase": "D data wait"}, ("--phase", "data wait"), 2_000),
    "process": (
        {"process": f"worker 1 · {WORKER_1}", "thread": "all threads"}, ("--process", WORKER_1), 2_000,
    ),
    "all threads": ({"process": "all processes", "thread": "all threads"}, ("--threads",), 12_000),
    "thread": (
        {"process": "all processes", "thread": "Thread-1 (_pin_memory_loop)"},
        ("--thread", "Thread-1 (_pin_memory_loop)"), 4_000,
    ),
    "GPU idle": ({"gpu-idle": ""}, ("--gpu-idle",), 2_000),
    "on CPU": ({"on-cpu": ""}, ("--when", "on-cpu"), 2_000),
    "on CPU of a rank in a phase": (
        {"on-cpu": "", "rank": "rank 1", "phase": "B backward"},
        ("--when", "on-cpu", "--rank", "1", "--phase", "backward"), 500,
    ),
    "on CPU while the GPU idles": (
        {"on-cpu": "", "gpu-idle": ""}, ("--when", "on-cpu", "--gpu-idle"), 500,
    ),
}  # fmt: skip


def test_a_filter_selects_what_the_export_selects_and_its_address_brings_it_back_with_a_range(
    report: ReportPage, ranked_run: Path, capsys: Exported
) -> None:
    for name, (controls, options, about) in CASES.items():
        report.open()
        use(report, controls)
        expected = exported(ranked_run, capsys, *options)
        assert expected == pytest.approx(about, rel=0.03), name
        assert report.samples == report.shown("profd.graph.tree.samples[0]") == expected, name
        report.open(f"#{str(report.shown('location.hash')).removeprefix('#')}&t=3.5-9.25")
        assert report.samples == exported(ranked_run, capsys, "--from", "3.5", "--to", "9.25", *options), name


def use(report: ReportPage, controls: Controls) -> None:
    for name, choice in controls.items():
        if choice:
            report.page.select_option(f"#{name}", label=choice)
        else:
            report.page.click(f"#{name}")


def test_roles_of_processes_and_threads_that_are_not_main(report: ReportPage) -> None:
    report.page.select_option("#process", label="workers")
    assert report.samples == 4_000
    report.page.select_option("#process", label="all processes")
    report.page.select_option("#thread", label="other threads")
    assert report.samples == 4_000
    assert {label.partition(":")[0] for label in report.labels()} >= {"Thread._bootstrap", "_pin_memory_loop"}
    assert not {"main", "<module>"} & {label.partition(":")[0] for label in report.labels()}


def test_several_processes_stand_in_an_address(report: ReportPage) -> None:
    report.open("#process=1,3&thread=all")
    assert report.samples == 4_000
    assert report.shown("document.getElementById('process').selectedOptions[0].text") == "2 processes"


def test_the_row_of_filters_says_what_is_selected(report: ReportPage) -> None:
    use(report, {"rank": "rank 0", "phase": "B backward", "on-cpu": ""})
    basis = report.shown("document.getElementById('basis').textContent")
    assert basis.startswith("main threads · backward · rank 0 · on CPU · whole run")
    assert report.page.get_attribute("#on-cpu", "aria-pressed") == "true"
