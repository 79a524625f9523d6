"""The readings of a report, as its page carries them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from support import synthetic

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.render import seriespayload
from profd.daemon.render.payload import take_payload
from profd.daemon.render.seriespayload import Series
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import EventHappened, Point, PointsTaken, Record
from profd.daemon.store.stepfunction import UTILIZATION


def held(series: Series) -> list[tuple[int, int, float]]:
    """Return (from, to, value) of a series as the page reads it, in ms."""
    ends_ms = list(itertools.accumulate(series["steps_ms"]))
    gaps_ms = dict(zip(itertools.accumulate(series["gap_steps"]), series["gaps_ms"], strict=True))
    begins_ms = [end_ms + gaps_ms.get(place, 0) for place, end_ms in enumerate([0, *ends_ms[:-1]])]
    values = (value / 10 ** series["digits"] for value in series["values"])
    return list(zip(begins_ms, ends_ms, values, strict=True)) if ends_ms else []


def paces(path: Path, *also: Record) -> list[tuple[int, int, float]]:
    """Return (from, to, steps a second) of the chart of a run in which this happened, in ms."""
    with RunReader(synthetic.write_run(path, workers=0, also=also)) as reader:
        return held(take_payload(reader, PhaseIndex(reader), ())["processes"][0]["steps_per_s"])


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([(4, 8), (6, 12), (10, 40)], [(4_000, 6_000, 2.0), (6_000, 10_000, 7.0)]),
        ([(4, 8), (6, 3), (8, 13)], [(6_000, 8_000, 5.0)]),  # the counter starts again
        ([(4, 8)], []),
    ],
)
def test_the_pace_of_the_steps_begins_with_the_first_reading(
    tmp_path: Path, counts: list[tuple[int, int]], expected: list[tuple[int, int, float]]
) -> None:
    assert (
        paces(tmp_path / "run.profd", *(synthetic.steps_counted(*count) for count in counts))
        == expected
    )


def test_no_pace_goes_over_a_time_without_a_counter(tmp_path: Path) -> None:
    events = [(10, EventKind.STEPS_LOST), (14, EventKind.STEP_SOURCE)]
    also = [
        EventHappened(synthetic.STARTED_NS + at_s * SECOND_NS, kind, "", synthetic.MAIN)
        for at_s, kind in events
    ]
    counts = [
        synthetic.steps_counted(*reading)
        for reading in ((0, 0), (10, 20), (12, 90), (15, 100), (20, 110))
    ]
    assert paces(tmp_path / "run.profd", *also, *counts) == [
        (0, 10_000, 2.0),
        (15_000, 20_000, 2.0),
    ]


def test_a_series_has_the_times_over_which_it_holds_and_gaps_between(tmp_path: Path) -> None:
    also = [
        PointsTaken(
            synthetic.STARTED_NS + at_ms * MILLISECOND_NS, (Point(UTILIZATION, 0.5, device="gpu0"),)
        )
        for at_ms in (1_000, 1_500, 2_000, 8_000)
    ]
    with RunReader(synthetic.write_run(tmp_path / "run.profd", also=also)) as reader:
        gpu = take_payload(reader, PhaseIndex(reader), ())["gpus"][0]["utilization"]
    assert held(gpu) == [
        (500, 1_000, 0.5),
        (1_000, 1_500, 0.5),
        (1_500, 2_000, 0.5),
        (6_500, 8_000, 0.5),
    ]


def test_a_series_that_is_thinned_is_known_for_as_long_with_the_same_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    means = []
    with RunReader(synthetic.write_run(tmp_path / "run.profd", seconds=20)) as reader:
        for limit in (1_200, 7):
            monkeypatch.setattr(seriespayload, "POINT_LIMIT", limit)
            found = held(take_payload(reader, PhaseIndex(reader), ())["processes"][0]["rss_bytes"])
            assert len(found) <= limit
            known_ms = sum(to_ms - from_ms for from_ms, to_ms, _ in found)
            means.append(
                (
                    known_ms,
                    sum(value * (to_ms - from_ms) for from_ms, to_ms, value in found) / known_ms,
                )
            )
    assert means[0] == pytest.approx(means[1], rel=1e-4)
