"""Hangs and deaths of the report in a real browser: stacks unfold, links lead there, hostile text
does nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support import hostiletexts, synthetic
from support.browser import OpenReport, ReportPage
from support.present import there
from support.synthetic import MAIN_TID, STARTED_NS, main_process, recording, write_records
from support.training_stacks import CONV, LOSS

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.records import (
    Frame,
    HangFound,
    HangGroup,
    HangReport,
    OutputWritten,
    RankBehind,
    RunEnded,
    Stand,
)

SECONDS = 100
EVIL = Stand(hostiletexts.EVIL, 1, "main", 0, hostiletexts.EVIL, False, hostiletexts.EVIL)
GROUPS = tuple(
    HangGroup(
        (Frame("<module>", "/srv/a.py", 1), Frame(name, f"/srv/{hostiletexts.EVIL}", 2)), (EVIL,)
    )
    for name in ("first", "second")
)
LOCK = ("MainThread", True, "a lock (futex 0x7f)", "lock")
RANKS = tuple(
    Stand(f"rank {rank}", 100 + rank, "main", rank, *LOCK, 100 + rank) for rank in range(3)
)
LATE = Stand("rank 3", 103, "main", 3, *LOCK, 103, (201,))
WORKER = Stand(
    f"worker {hostiletexts.EVIL}", 201, "worker", 3, "MainThread", True, "asks", "gil", 201, (7,)
)
HOLDER = Stand("worker 1", 201, "worker", 3, "decoder", False, "writes", "write", 7, (103, 99))
GROUPS = (*GROUPS, HangGroup((), (*RANKS, LATE)), HangGroup((), (WORKER, HOLDER)))
BEHIND = (RankBehind(3, 103, "all_reduce"),)
HANG = HangFound(
    STARTED_NS + 90 * SECOND_NS,
    STARTED_NS + 80 * SECOND_NS,
    hostiletexts.EVIL,
    HangReport("lock", GROUPS, (hostiletexts.EVIL,), BEHIND),
)


@pytest.fixture
def report(open_report: OpenReport, tmp_path: Path) -> ReportPage:
    end_ns = STARTED_NS + SECONDS * SECOND_NS
    thread = (MAIN_TID, "MainThread", True, ((CONV, 400), (LOSS, 600)) * SECONDS)
    said = OutputWritten(
        end_ns, f"{hostiletexts.MARKUP}\x1b[2J\nValueError: {hostiletexts.REORDERING}\n".encode()
    )
    recorded = recording(
        main_process().identity, STARTED_NS, (thread,), duration_ns=SECONDS * SECOND_NS
    )
    ended = RunEnded(end_ns, "target-exited", 1)
    return open_report(
        write_records(tmp_path / "run.profd", [main_process(), recorded, HANG, said, ended])
    )


def test_the_link_of_a_hang_selects_it_and_the_minute_before(report: ReportPage) -> None:
    report.page.focus(".hangs a.proof")
    report.page.keyboard.press("Enter")
    assert report.address == "#t=20.00-90.00&process=all&thread=all"
    assert report.samples == 7_000


def test_a_folded_stack_opens_by_keyboard(report: ReportPage) -> None:
    folded = report.page.locator(".hangs details").nth(1)
    assert not folded.locator("ol").is_visible()
    folded.locator("summary").focus()
    report.page.keyboard.press("Enter")
    assert folded.locator("ol li").first.inner_text().startswith("second (/srv/")


def test_paper_has_all_stacks_and_the_screen_is_as_before(report: ReportPage) -> None:
    is_open = "[...document.querySelectorAll('details')].map((details) => details.open)"
    before = report.shown(is_open)
    assert set(before) == {True, False}
    report.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert set(report.shown(is_open)) == {True}
    report.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert report.shown(is_open) == before


def test_hostile_text_is_shown_and_never_run(report: ReportPage) -> None:
    report.page.evaluate(
        "for (const details of document.querySelectorAll('details')) details.open = true"
    )
    shown = report.page.inner_text(".death") + report.page.inner_text(".hangs")
    assert shown.count(hostiletexts.MARKUP) >= 4
    assert "ValueError: \\u202egnol\\u2066" in shown
    report.check_harmless()


def test_what_ctrl_c_stopped_is_no_crash_and_its_output_comes_last(
    open_report: OpenReport, tmp_path: Path
) -> None:
    end_ns = STARTED_NS + 4 * SECOND_NS
    lines = [f"step {step}" for step in range(40)]
    trace = ["Traceback (most recent call last):", "KeyboardInterrupt"]
    said = OutputWritten(end_ns, "\n".join([*lines, *trace]).encode())
    path = synthetic.write_run(
        tmp_path / "run.profd", seconds=4, exit_code=None, exit_signal=2, also=[said]
    )
    report = open_report(path)
    assert report.page.locator(".death").count() == 0
    assert "stopped by Ctrl-C (SIGINT)" in report.page.inner_text(".subtitle")
    order = ".verdict", "#timeline", "#flame", "[role=tablist]", ".ending"
    tops = [
        report.shown(f"document.querySelector('{one}').getBoundingClientRect().top")
        for one in order
    ]
    assert tops == sorted(tops)
    assert tops[-1] > 1000  # below the first screen
    assert report.page.inner_text(".ending h2") == "train.py stopped by Ctrl-C (SIGINT) after 4.0 s"
    report.page.set_viewport_size({"width": 390, "height": 800})
    output = report.page.locator(".ending pre")
    assert output.inner_text().rstrip().endswith("KeyboardInterrupt\naccuracy 0.41")
    below = report.shown(
        "(() => { const box = document.querySelector('.ending pre');"
        " const text = box.querySelector('code').lastChild; const range = new Range();"
        " range.setStart(text, text.length - 3); range.setEnd(text, text.length - 1);"
        " return [box.scrollHeight - box.clientHeight, box.getBoundingClientRect().bottom"
        " - range.getBoundingClientRect().bottom]; })()"
    )
    assert min(below) > 0  # not all lines have room, and the last one is in sight


def test_a_headline_is_a_sentence(report: ReportPage) -> None:
    headline = report.page.inner_text(".death h2")
    assert headline.startswith("▲ The target ended with 1, last seen in ")
    assert ":," not in headline


@pytest.mark.parametrize("width", [360, 1280])
def test_who_waits_for_whom_is_drawn_and_said(report: ReportPage, width: int) -> None:
    page = report.page
    page.set_viewport_size({"width": width, "height": 800})
    graph = page.locator(".hangs svg.waits")
    assert graph.locator("rect").count() == 5
    assert graph.locator("path.head").count() == 5
    box = there(graph.bounding_box())
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    said = page.locator(".hangs svg.waits + ul li").all_inner_texts()
    assert said[0] == (
        "rank 0 (pid 100), rank 1 (pid 101), rank 2 (pid 102) wait for rank 3 (pid 103) "
        "(all_reduce): a lock (futex 0x7f)"
    )
    assert said[1].startswith("rank 3 (pid 103) waits for worker ")
    assert "(a queue)" in said[1]
    assert "waits for thread decoder (7) of worker 1 (pid 201) (the GIL): asks" in said[2]
    assert "waits for rank 3 (pid 103), pid 99 (a pipe): writes" in said[3]
    assert said[4] == "pid 99"
    assert said[5].startswith("they wait for each other: rank 3 (pid 103) → worker ")


def test_a_thread_that_waits_stands_beside_one_of_whom_that_is_unknown(
    open_report: OpenReport, tmp_path: Path
) -> None:
    joins = Stand("main", 1, "main", None, "MainThread", True, "the end", "child", 1, (2,))
    locked = Stand("helper 2", 2, "helper", None, *LOCK, 2)
    feeds = Stand("helper 2", 2, "helper", None, "feeder", False, "writes", "write", 3, (1,))
    hang = HangFound(
        HANG.at_ns,
        HANG.since_ns,
        "no progress",
        HangReport("child process", (HangGroup((), (joins, locked, feeds)),)),
    )
    path = synthetic.write_run(tmp_path / "run.profd", seconds=SECONDS, also=[hang])
    said = open_report(path).page.locator(".hangs svg.waits + ul li").all_inner_texts()
    assert said == [
        "main (pid 1) waits for helper 2 (pid 2) (its end): the end",
        "helper 2 (pid 2): a lock (futex 0x7f)",
        "thread feeder (3) of helper 2 (pid 2) waits for main (pid 1) (a pipe): writes",
    ]
