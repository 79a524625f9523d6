"""The answers as a page: bars as long as their hours, and no name of a run that becomes a part of
the page.
"""

from __future__ import annotations

import re

import msgspec
import pytest

from profd.daemon.fleet import output
from profd.daemon.fleet.answers import (
    VERSION,
    FindingCost,
    Fleet,
    FunctionCost,
    Hours,
    PhaseCost,
    SlowNode,
)

HOSTILE = "\x1b[2J<b>&"
"""What a run file from elsewhere may have for a name."""


def hours(whole: float, lost: float, idle: float = 0.0, *, gpus: bool = True) -> Hours:
    """Return hours of ranks, each with a GPU or without one."""
    return Hours(whole, whole if gpus else 0.0, lost, lost if gpus else 0.0, idle)


def table(fleet: Fleet, title: str) -> output.AnswerTable:
    return next(one for one in output.tables(fleet) if one.title.startswith(title))


def answers(*, gpus: bool = True, name: str = "job-a") -> Fleet:
    """Return what was found: 400 hours, 100 of them lost, and a slow node."""
    function = FunctionCost(
        "load", "/home/ada/data.py", "data wait", hours(150, 60, gpus=gpus), 1, 3
    )
    return Fleet(
        version=VERSION, since="2026-11-01", until="2026-11-14", runs=12, jobs=1, nodes=3, samples=1_234_567,
        hours=hours(400, 100, gpus=gpus),
        phases=(
            PhaseCost("data wait", hours(100, 80, 60, gpus=gpus), 1),
            PhaseCost("forward", hours(300, 20, gpus=gpus), 1),
        ),
        findings=(FindingCost("slow-input", "Loading is slow", 40, 50, 1, 9, name),),
        functions=(function,), leaves=(),
        slow_nodes=(SlowNode(name, 1.25, 1.2, 1.3, tuple(f"job-{letter}" for letter in "abcdef"), 7),),
        nodes_compared=3,
    )  # fmt: skip


def nothing() -> Fleet:
    return Fleet(
        version=VERSION, since="-", until="-", runs=0, jobs=0, nodes=0, samples=0, hours=hours(0, 0), phases=(),
        findings=(), functions=(), leaves=(), slow_nodes=(), nodes_compared=1,
    )  # fmt: skip


def test_the_page_says_what_the_text_says_with_bars_as_long_as_their_hours() -> None:
    page = output.render_fleet_page(answers())
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', page)]
    # Of 100 hours 80 are lost, of 300 it is 20; the longest bar has all the width.
    wanted = [output.BAR_WIDTH * share for share in (100 / 300, 80 / 300, 1.0, 20 / 300)]
    assert widths == pytest.approx(wanted, abs=0.1)
    assert output.headline(answers()) in page
    assert "1,234,567" in page
    assert "job-a, job-b, job-c, job-d and 2 more" in page
    page = output.render_fleet_page(answers(name=HOSTILE))
    assert "<b>" not in page
    assert "\x1b" not in page
    assert "&lt;b&gt;&amp;" in page
    assert "<rect" not in output.render_fleet_page(nothing())


def test_numbers_stand_to_the_right_and_of_nothing_it_is_said() -> None:
    lines = output.fleet_text(answers()).splitlines()
    said = "12 runs of 1 job on 3 nodes: 400 GPU hours, 100 of them lost (25 %)"
    assert lines[:3] == [said, "2026-11-01 to 2026-11-14", ""]
    assert lines[3].startswith("Most is lost in data wait")
    at = next(number for number, line in enumerate(lines) if line.startswith("  lost "))
    assert lines[at : at + 3] == [
        "  lost   of  share  measured  phase      jobs",
        "  80.0  100   80 %      75 %  data wait     1",
        "  20.0  300    7 %       0 %  forward       1",
    ]
    assert table(answers(gpus=False), "Rank hours lost").rows[0][3] == "-"
    assert [row[0] for row in table(answers(), "Findings").rows] == ["50.0"]
    assert [row[0] for row in table(answers(gpus=False), "Findings").rows] == ["40.0"]
    assert output.unit_of(answers(gpus=False)) == "rank hours"
    (row,) = table(answers(), "Functions of your code").rows
    assert row == ("150", "60.0", "load", "data.py", "data wait", "1")
    lines = output.fleet_text(nothing()).splitlines()
    assert lines[3:5] == ["Rank hours lost by phase", "  Nothing."]
    assert lines[lines.index("Findings that cost most") + 1] == "  No findings."
    assert not any(line != line.rstrip() for line in lines)


def test_of_a_long_table_the_first_rows_are_shown() -> None:
    phases = tuple(
        PhaseCost(f"phase {number:02}", hours(1, 0), 1) for number in range(output.ROWS + 3)
    )
    text = output.fleet_text(msgspec.structs.replace(answers(), phases=phases))
    assert f"phase {output.ROWS - 1:02}" in text
    assert f"phase {output.ROWS:02}" not in text
    assert "  and 3 more" in text.splitlines()


def test_the_headline_and_the_verdict_name_the_first_of_each_kind() -> None:
    assert output.headline(answers(gpus=False)).endswith(
        ": 400 rank hours, 100 of them lost (25 %)"
    )
    assert output.headline(nothing()).endswith("0 rank hours, 0 of them lost (-)")
    assert output.verdict(answers()) == (
        "Most is lost in data wait: 80.0 GPU hours. job-a takes 1.25 times as long as other nodes."
    )
    assert output.verdict(nothing()) == ""


def test_slow_nodes_have_their_bounds() -> None:
    (row,) = table(answers(), "Slow nodes").rows
    assert row == ("1.25", "1.20 to 1.30", "job-a", "7", "job-a, job-b, job-c, job-d and 2 more")
    assert (
        table(nothing(), "Slow nodes").nothing
        == "None of 1 node that could be compared is surely slow."
    )
