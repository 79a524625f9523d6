"""How well a run was seen, and what that cost."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from support import synthetic
from support.synthetic import STARTED_NS

from profd.daemon.analyze.coverage import take_gaps, take_lives
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import total_of_series
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.summary import summarize
from profd.daemon.render.text import summary_text
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    GapFound,
    Interval,
    Point,
    PointsTaken,
    ProcessEnded,
    ProcessSeen,
    Record,
    RecordingTaken,
    RunEnded,
    ThreadTimeline,
)
from profd.daemon.timerange import TimeRange


def test_the_cost_of_starting_counts_for_as_long_as_it_took(tmp_path: Path) -> None:
    # What starting took, in the first tenth of a second; then a tenth of a core for nearly ten.
    points = (
        PointsTaken(STARTED_NS + round(at_s * SECOND_NS), (Point("profd_cpu_cores", cores),))
        for at_s, cores in ((0.1, 1.0), (1.0, 0.1), (10.0, 0.1))
    )
    with RunReader(synthetic.write_records(tmp_path / "run.profd", points)) as reader:
        mean = total_of_series(reader, "profd_cpu_cores", None, Selection()).mean
    assert mean == pytest.approx((0.1 * 1.0 + 9.9 * 0.1) / 10)


def test_a_gap_is_not_covered_is_said_and_is_no_time_of_what_was_read_around_it(
    tmp_path: Path,
) -> None:
    def at_ns(second: float) -> int:
        return STARTED_NS + round(second * SECOND_NS)

    def read(first_s: int, last_s: int) -> RecordingTaken:
        stacks, interval = (
            (synthetic.DATA_WAIT,),
            Interval(at_ns(first_s), (last_s - first_s) * SECOND_NS, 0, 100),
        )
        thread = ThreadTimeline(synthetic.MAIN.pid, "MainThread", True, (interval,))
        return RecordingTaken(
            synthetic.MAIN, at_ns(first_s), at_ns(last_s), 100, 100, 0, 0, 0, 0, stacks, (thread,)
        )

    gaps = [GapFound(synthetic.MAIN, at_ns(2), at_ns(5), "frozen", "its control group was frozen")]
    gaps += [GapFound(synthetic.MAIN, at_ns(6), at_ns(7), "exec", "it became another program")]
    seen = ProcessSeen(synthetic.MAIN, None, ("python",), "main", None, None, "3.11", at_ns(0))
    ended: list[Record] = [
        ProcessEnded(synthetic.MAIN, at_ns(10), 0),
        RunEnded(at_ns(10), "target-exited", 0),
    ]
    records: list[Record] = [seen, read(0, 2), gaps[0], read(5, 6), gaps[1], read(7, 10), *ended]
    with RunReader(synthetic.write_records(tmp_path / "run.profd", records)) as reader:
        summary = summarize(reader)
        assert summary.coverage == pytest.approx(0.6)
        assert [(one.reason, one.count, one.seconds) for one in summary.gaps] == [
            ("frozen", 1, 3.0),
            ("exec", 1, 1.0),
        ]
        assert "not read for 3.0 s: frozen (its control group was frozen)" in summary_text(summary)
        assert list(take_lives(reader).covers[1].ranges()) == [
            (at_ns(0), at_ns(2)), (at_ns(5), at_ns(6)), (at_ns(7), at_ns(10)),
        ]  # fmt: skip
        assert take_lives(reader).weight(1) == 1.0
        assert take_lives(reader).weight(1, TimeRange(at_ns(1), at_ns(4))) == 1.0
        assert [gap.reason for gap in take_gaps(reader, Selection(from_ns=at_ns(5.5)))] == ["exec"]
        (part,) = take_gaps(reader, Selection(from_ns=at_ns(3), to_ns=at_ns(4)))
        assert part.seconds == 1.0


def test_a_run_is_let_go_of_once_its_reader_is(tmp_path: Path) -> None:
    """A daemon sums up run after run in one process."""
    path = tmp_path / "a.profd"
    synthetic.write_run(path, seconds=3)
    with RunReader(path) as reader:
        summarize(reader)
        assert take_lives(reader) is take_lives(reader)
        held = weakref.ref(reader)
    del reader
    gc.collect()
    assert held() is None
