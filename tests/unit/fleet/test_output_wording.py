"""Answers in words: the numbers that they name, in the unit that there is."""

from __future__ import annotations

from support.fleetanswers import HOSTILE, answers, nothing

from profd.daemon.fleet.answers import Fleet
from profd.daemon.fleet.output import Table, headline, tables, unit_of, verdict


def table(fleet: Fleet, title: str) -> Table:
    return next(one for one in tables(fleet) if one.title.startswith(title))


def test_the_headline_counts_gpu_hours_and_rank_hours_where_no_run_has_a_gpu() -> None:
    told = "12 runs of 1 job on 3 nodes: 400 {} hours, 100 of them lost (25 %)"
    assert headline(answers()) == told.format("GPU")
    assert headline(answers(gpus=False)) == told.format("rank")
    assert headline(nothing()).endswith("0 rank hours, 0 of them lost (-)")


def test_the_verdict_names_the_first_of_each_kind() -> None:
    assert verdict(answers()) == (
        "Most is lost in data wait: 80.0 GPU hours. job-a takes 1.25 times as long as other nodes. "
        "job-a takes 3.00 times as long as 2 weeks ago."
    )
    assert verdict(nothing()) == ""


def test_of_the_lost_time_what_was_measured_is_told() -> None:
    rows = table(answers(), "GPU hours lost").rows
    assert list(rows) == [
        ("80.0", "100", "80 %", "75 %", "data wait", "1"),
        ("20.0", "300", "7 %", "0 %", "forward", "1"),
    ]
    assert table(answers(gpus=False), "Rank hours lost").rows[0][3] == "-"


def test_a_fix_gives_back_hours_of_the_unit() -> None:
    assert [row[0] for row in table(answers(), "Findings").rows] == ["50.0"]
    assert [row[0] for row in table(answers(gpus=False), "Findings").rows] == ["40.0"]
    assert unit_of(answers(gpus=False)).name == "rank hours"


def test_functions_have_all_their_hours_and_the_lost_ones() -> None:
    (row,) = table(answers(), "Functions of your code").rows
    assert row == ("150", "60.0", "load", "data.py", "data wait", "1")


def test_slow_nodes_have_their_bounds_and_the_first_jobs() -> None:
    (row,) = table(answers(), "Slow nodes").rows
    assert row == ("1.25", "1.20 to 1.30", "job-a", "7", "job-a, job-b, job-c, job-d and 2 more")
    assert table(nothing(), "Slow nodes").nothing == "None of 1 node that could be compared is surely slow."


def test_a_slower_job_has_the_phases_that_grew_below_it() -> None:
    job, phase = table(answers(), "Slower").rows
    assert job == ("3.00", "2.50 to 3.50", "500 ms", "1.50 s", "job-a", "4 and 5", "2 weeks ago")
    assert phase == ("", "+40.0 ms to +60.0 ms", "100 ms", "150 ms", "  data wait", "", "")
    assert table(answers(), "Slower").nothing == "None of 1 job that could be compared is surely slower."


def test_paces_have_the_weeks_or_why_none_was_compared() -> None:
    assert list(table(answers(), "Steps").rows) == [
        ("job-a", "500 ms (4 runs), 1.50 s (1 run)", ""),
        ("b", "", "it is new"),
    ]


def test_no_name_of_a_run_steers_the_terminal() -> None:
    fleet = answers(name=HOSTILE)
    cells = [cell for one in tables(fleet) for row in one.rows for cell in row]
    assert not any("\x1b" in text for text in (*cells, verdict(fleet), headline(fleet)))
    assert sum("<b>&" in cell for cell in cells) == 4
