"""Shares are shares of time, whatever the rates: known answers, the same everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import synthetic, unevensamples
from support.synthetic import (
    BACKWARD,
    MAIN,
    MAIN_TID,
    STARTED_NS,
    main_process,
    recording,
    write_records,
)

from profd.daemon.analyze.calltree import call_tree
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import (
    FunctionRow,
    Profile,
    hot_functions,
    phase_lines,
    phase_shares,
    selected_intervals,
    take_profile,
    user_lines,
)
from profd.daemon.analyze.selection import MAIN_THREADS, Condition, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.exports.formats import collapsed_lines
from profd.daemon.render.summary import summarize
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame
from profd.daemon.store.rows import IntervalRow
from profd.tui.runmodel import RunModel
from profd.tui.view import View

SECONDS = 4
MAIN_SAMPLES = SECONDS * synthetic.RATE_HZ


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=SECONDS)) as opened:
        yield opened


def functions_of(reader: RunReader, selection: Selection) -> dict[str, FunctionRow]:
    return {row.function: row for row in hot_functions(reader, take_profile(reader, selection))}


def test_a_selection_narrows_by_process_thread_rank_time_and_phase(reader: RunReader) -> None:
    assert take_profile(reader, MAIN_THREADS).total_samples == MAIN_SAMPLES
    # The main process's two threads, and one of each worker.
    assert take_profile(reader, Selection()).total_samples == 4 * MAIN_SAMPLES
    worker = frozenset(
        row.id for row in reader.processes.values() if row.pid == synthetic.worker(1).pid
    )

    assert set(functions_of(reader, Selection(processes=worker))) >= {
        "elastic_deform",
        "Photos.__getitem__",
    }
    assert take_profile(reader, Selection(processes=worker)).total_samples == MAIN_SAMPLES
    assert take_profile(reader, Selection(thread="MainThread")).total_samples == 3 * MAIN_SAMPLES
    assert take_profile(reader, Selection(rank=0)).total_samples == 0
    second = synthetic.STARTED_NS + SECOND_NS
    one_second = Selection(from_ns=second, to_ns=second + SECOND_NS, main_threads=True)

    assert take_profile(reader, one_second).total_samples == synthetic.RATE_HZ
    waits = take_profile(reader, Selection(main_threads=True, phase="data wait"))
    assert waits.total_samples == synthetic.PHASE_SHARES["data wait"] * MAIN_SAMPLES


def test_functions_have_self_and_total_shares_in_the_order_of_their_own_time(
    reader: RunReader,
) -> None:
    functions = functions_of(reader, MAIN_THREADS)
    loop = functions["train_epoch"]

    assert functions["_engine_run_backward"].self_share == pytest.approx(0.2)
    assert (loop.self_share, loop.total_share) == pytest.approx((0.04, 1.0))
    assert (loop.line, loop.source) == (58, "for images, labels in loader:")
    assert (loop.module_path, loop.file, loop.is_library) == ("train.py", synthetic.TRAIN, False)
    rows = hot_functions(reader, take_profile(reader, MAIN_THREADS))

    assert rows[0].function == "Condition.wait"
    assert [row.self_share for row in rows] == sorted(
        (row.self_share for row in rows), reverse=True
    )
    assert sum(row.self_samples for row in rows) == MAIN_SAMPLES


def test_recursive_function_counts_once_a_stack(tmp_path: Path) -> None:
    stack = tuple(Frame("walk", synthetic.TRAIN, line) for line in (1, 2, 3))
    taken = recording(MAIN, STARTED_NS, [(1, "MainThread", True, [(stack, 1000)])])
    with RunReader(write_records(tmp_path / "one.profd", [main_process(), taken])) as reader:
        (row,) = hot_functions(reader, take_profile(reader, Selection()))
    assert (row.self_share, row.total_share, row.line) == (1.0, 1.0, 3)


def test_nothing_selected_gives_empty_tables(reader: RunReader) -> None:
    empty = take_profile(reader, Selection(thread="no such thread"))

    assert empty == Profile()
    assert hot_functions(reader, empty) == []
    assert [node.total_ns for node in call_tree(reader, empty, PhaseIndex(reader)).walk()] == [0]


def pieces_of(path: Path, cores: list[float], selection: Selection) -> list[IntervalRow]:
    """Return what a selection takes of one stack of three seconds, with a reading of its CPU time
    each second.
    """
    thread = (MAIN_TID, "MainThread", True, ((BACKWARD, 3000),))
    found: list[records.Record] = [
        main_process(),
        recording(MAIN, STARTED_NS, (thread,), duration_ns=3 * SECOND_NS),
    ]
    for second, value in enumerate(cores):
        point = records.Point("cpu_cores", value, MAIN, MAIN_TID)
        found.append(records.PointsTaken(STARTED_NS + second * SECOND_NS, (point,)))
    write_records(path, found)
    with RunReader(path) as reader:
        return list(selected_intervals(reader, selection, selection.threads(reader)))


def test_an_interval_in_two_parts_has_its_samples_once(tmp_path: Path) -> None:
    on_cpu = Selection(when=(Condition("on-cpu"),))
    first, last = pieces_of(tmp_path / "a.profd", [0.0, 0.5, 0.49, 0.9], on_cpu)
    assert [
        (piece.start_ns - STARTED_NS, piece.end_ns - STARTED_NS) for piece in (first, last)
    ] == [
        (0, SECOND_NS),
        (2 * SECOND_NS, 3 * SECOND_NS),
    ]
    assert first.samples + last.samples == 200


def test_an_interval_where_the_condition_never_held_is_left_out(tmp_path: Path) -> None:
    assert (
        pieces_of(
            tmp_path / "a.profd", [0.0, 0.1, 0.1, 0.1], Selection(when=(Condition("on-cpu"),))
        )
        == []
    )
    (whole,) = pieces_of(tmp_path / "b.profd", [0.0, 0.1, 0.1, 0.1], Selection())
    assert (whole.duration_ns, whole.samples) == (3 * SECOND_NS, 300)


SHARES = {stack[-1].function: share for stack, share in unevensamples.SHARES.items()}
MAIN_SHARES = {stack[-1].function: share for stack, share in unevensamples.MAIN_SHARES.items()}
SAMPLES = {stack[-1].function: samples for stack, samples in unevensamples.SAMPLES.items()}
LAST_FIVE = STARTED_NS + 15 * SECOND_NS


@pytest.fixture
def uneven(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(unevensamples.write_run(tmp_path / "a.profd")) as opened:
        yield opened


def selves(rows: list[FunctionRow] | tuple[FunctionRow, ...]) -> dict[str, float]:
    return {row.function: row.self_share for row in rows if row.self_share}


def test_shares_are_of_the_time_and_samples_stay_counts(uneven: RunReader) -> None:
    summary = summarize(uneven)

    assert selves(summary.functions) == pytest.approx(MAIN_SHARES)
    assert summary.phases == pytest.approx({"backward": 0.5, "optimizer": 0.5})
    assert selves(summarize(uneven, Selection()).functions) == pytest.approx(SHARES)
    rows = hot_functions(uneven, take_profile(uneven, Selection()))

    assert {row.function: row.self_samples for row in rows if row.self_samples} == SAMPLES
    assert sum(
        int(line.rpartition(" ")[2]) for line in collapsed_lines(uneven, Selection())
    ) == sum(SAMPLES.values())
    tree = call_tree(uneven, take_profile(uneven, Selection()), PhaseIndex(uneven))
    own = {node.title: node.own_ns for node in tree.walk() if node.own_ns}

    assert tree.total_ns == pytest.approx(3 * unevensamples.SECONDS * SECOND_NS)
    assert own == pytest.approx({name: share * tree.total_ns for name, share in SHARES.items()})
    assert tree.samples == sum(SAMPLES.values())


def test_a_range_and_the_recent_window_weigh_by_what_was_recorded_in_them(
    uneven: RunReader,
) -> None:
    # The second worker was recorded for one of the five seconds, the first for four.
    profile = take_profile(uneven, Selection(from_ns=LAST_FIVE))

    assert selves(hot_functions(uneven, profile)) == pytest.approx(
        {name: 1 / 3 for name in SHARES if name != BACKWARD[-1].function}
    )
    assert profile.total_ns == pytest.approx(15 * SECOND_NS)
    model = RunModel(uneven)
    while model.catch_up():
        pass
    recent = model.snapshot(View(scope=Selection(), span_ns=30 * SECOND_NS, tab="hot"))
    assert selves(recent.functions) == pytest.approx(SHARES)


def test_errors_go_by_the_distance_of_samples_at_each_change(uneven: RunReader) -> None:
    # The one change, at 100 Hz before and 25 Hz after, is seen 40 ms late, and at the end another
    # one may be under way.
    errors = summarize(uneven).phase_errors

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
            phase
            for phase in phase_shares(profile, phases)
            if any(line.phase == phase for line in lines)
        ]

        timeless = Profile(samples=profile.samples, time_ns=dict.fromkeys(profile.time_ns, 0.0))
        assert {line.share for line in user_lines(timeless, phases)} == {0.0}
        assert set(phase_shares(timeless, phases).values()) == {0.0}
