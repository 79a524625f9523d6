"""The answers as text: columns in line, long tables cut, nothing said of nothing."""

from __future__ import annotations

import msgspec
from support.fleetanswers import answers, hours, nothing

from profd.daemon.fleet.answers import PhaseCost
from profd.daemon.fleet.output import ROWS, fleet_text


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    lines = fleet_text(answers()).splitlines()
    headline = "12 runs of 1 job on 3 nodes: 400 GPU hours, 100 of them lost (25 %)"
    assert lines[:3] == [headline, "2026-11-01 to 2026-11-14", ""]
    assert lines[3].startswith("Most is lost in data wait")
    at = next(number for number, line in enumerate(lines) if line.startswith("  lost "))
    assert lines[at : at + 3] == [
        "  lost   of  share  measured  phase      jobs",
        "  80.0  100   80 %      75 %  data wait     1",
        "  20.0  300    7 %       0 %  forward       1",
    ]


def test_of_a_long_table_the_first_rows_are_shown() -> None:
    phases = tuple(PhaseCost(f"phase {number:02}", hours(1, 0), 1) for number in range(ROWS + 3))
    text = fleet_text(msgspec.structs.replace(answers(), phases=phases))
    assert f"phase {ROWS - 1:02}" in text
    assert f"phase {ROWS:02}" not in text
    assert "  and 3 more" in text.splitlines()


def test_where_nothing_is_found_that_is_said() -> None:
    lines = fleet_text(nothing()).splitlines()
    assert lines[3:5] == ["Rank hours lost by phase", "  Nothing."]
    assert lines[lines.index("Findings that cost most") + 1] == "  No findings."
    assert not any(line != line.rstrip() for line in lines)
