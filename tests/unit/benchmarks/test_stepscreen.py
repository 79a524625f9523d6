"""How late numbers on a screen are, beside a diary of ten steps a second with a pause of ten seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from stepscreen import Shown, lateness
from steptruth import Diary

BEGIN_NS = 1_000_000_000_000


def at(seconds: float) -> int:
    return BEGIN_NS + round(seconds * 1e9)


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    """Give the steps 1 to 200 of twenty seconds, and 201 to 300 of ten seconds after a pause of ten."""
    ended_s = [step / 10 + (10 if step > 200 else 0) for step in range(1, 301)]
    path = tmp_path / "diary"
    path.write_text("".join(f"{at(end)} {step} {step} {step}\n" for step, end in enumerate(ended_s, 1)))
    return Diary(path)


@pytest.mark.parametrize(
    ("seconds", "step", "late_s"),
    [
        (15.05, 150, 0.0),
        (15.05, 151, 0.0),
        (15.05, 148, 0.15),  # 149 ended 0.15 s before
        (15.05, 130, 1.95),
        (15.05, 170, 1.85),
        (25.0, 200, 0.0),
        (25.0, 210, 1.8),  # in the pause: nine steps too many, of which five were made a second in the last ten
        (25.0, 150, 9.6),  # 49 of the 51 that were made in the last ten seconds
    ],
)
def test_a_number_is_as_late_as_the_time_at_which_it_was_right(
    diary: Diary, seconds: float, step: int, late_s: float
) -> None:
    assert lateness([Shown(at(seconds), step)], diary) == [pytest.approx(late_s, abs=0.11)]
