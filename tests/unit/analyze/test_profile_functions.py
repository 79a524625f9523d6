"""Shares are shares of time, whatever the rates: known answers, the same everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import synthetic, unevensamples
from support.synthetic import BACKWARD, STARTED_NS

from profd.daemon.analyze.calltree import call_tree
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import (
    FunctionRow,
    Profile,
    hot_functions,
    phase_lines,
    phase_shares,
    take_profile,
    user_lines,
)
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.exports.formats import collapsed_lines
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader
from profd.tui.runmodel import RunModel
from profd.tui.snapshot import Snapshot
from profd.tui.view import View

SHARES = {stack[-1].function: share for stack, share in unevensamples.SHARES.items()}
MAIN_SHARES = {stack[-1].function: share for stack, share in unevensamples.MAIN_SHARES.items()}
SAMPLES = {stack[-1].function: samples for stack, samples in unevensamples.SAMPLES.items()}
LAST_FIVE = STARTED_NS + 15 * SECOND_NS


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(unevensamples.write_run(tmp_path / "a.profd")) as opened:
        yield opened


def selves(rows: list[FunctionRow] | tuple[FunctionRow, ...]) -> dict[str, float]:
    return {row.function: row.self_share for row in rows if row.self_share}


def snapshot_of(reader: RunReader, view: View) -> Snapshot:
    survey = RunModel(reader)
    while survey.catch_up():
        pass
    return survey.snapshot(view)


def test_shares_are_of_the_time_and_samples_stay_counts(reader: RunReader) -> None:
    summary = summarize(reader)

    assert selves(summary.functions) == pytest.approx(MAIN_SHARES)
    assert summary.phases == pytest.approx({"backward": 0.5, "optimizer": 0.5})
    assert selves(summarize(reader, Selection()).functions) == pytest.approx(SHARES)
    rows = hot_functions(reader, take_profile(reader, Selection()))

    assert {row.function: row.self_samples for row in rows if row.self_samples} == SAMPLES
    assert sum(int(line.rpartition(" ")[2]) for line in collapsed_lines(reader, Selection())) == sum(SAMPLES.values())
    tree = call_tree(reader, take_profile(reader, Selection()), PhaseIndex(reader))
    own = {node.title: node.own_ns for node in tree.walk() if node.own_ns}

    assert tree.total_ns == pytest.approx(3 * unevensamples.SECONDS * SECOND_NS)
    assert own == pytest.approx({name: share * tree.total_ns for name, share in SHARES.items()})
    assert tree.samples == sum(SAMPLES.values())


def test_a_range_and_the_recent_window_weigh_by_what_was_recorded_in_them(reader: RunReader) -> None:
    # The second worker was recorded for one of the five seconds, the first for four.
    profile = take_profile(reader, Selection(from_ns=LAST_FIVE))

    assert selves(hot_functions(reader, profile)) == pytest.approx(
        {name: 1 / 3 for name in SHARES if name != BACKWARD[-1].function}
    )
    assert profile.total_ns == pytest.approx(15 * SECOND_NS)
    view = View(scope=Selection(), span_ns=30 * SECOND_NS)

    assert selves(snapshot_of(reader, view).functions) == pytest.approx(SHARES)


def test_errors_go_by_the_distance_of_samples_at_each_change(reader: RunReader) -> None:
    # The one change, at 100 Hz before and 25 Hz after, is seen 40 ms late, and at the end another one may be under way.
    errors = summarize(reader).phase_errors

    assert errors["backward"] == pytest.approx(math.sqrt(0.04**2 + 0.04**2) / unevensamples.SECONDS)
    assert errors["optimizer"] == errors["backward"]


def test_lines_share_out_the_time_and_none_is_none(tmp_path: Path) -> None:
    synthetic.write_run(tmp_path / "a.profd", seconds=5)
    with RunReader(tmp_path / "a.profd") as reader:
        phases, profile = PhaseIndex(reader), take_profile(reader, MAIN_THREADS)
        lines = user_lines(profile, phases)
        assert lines
        assert 0.9 < sum(line.share for line in lines) <= 1.0 + 1e-9
        assert [line.phase for line in phase_lines(profile, phases)] == [
            phase for phase in phase_shares(profile, phases) if any(line.phase == phase for line in lines)
        ]

        timeless = Profile(samples=profile.samples, time_ns=dict.fromkeys(profile.time_ns, 0.0))
        assert {line.share for line in user_lines(timeless, phases)} == {0.0}
        assert set(phase_shares(timeless, phases).values()) == {0.0}
