"""Steps of a run file: by its counter, else by its phases, over a selection.

And how sure that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest
from support.findingruns import LOAD_IN_PROCESS, OWN, write_case
from support.phasevisits import held_up, on_and_off, sampled
from support.present import there
from support.synthetic import (
    DATA_WAIT,
    MAIN,
    MAIN_TID,
    STARTED_NS,
    main_process,
    recording,
    run_started,
    steps_counted,
    write_records,
    write_run,
)
from support.training_stacks import BACKWARD, OPTIMIZER

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.analyze.steps import (
    Seen,
    Steps,
    count_cycles,
    counts_of,
    part_of_step_s,
    take_steps,
)
from profd.daemon.clock import SECOND_NS
from profd.daemon.events import OPTIMIZER_STEPS, EventKind
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader

NAME = "loop counter `i` in train (train.py:58)"


def counted_at(at_s: float, steps: float, error: float) -> records.PointsTaken:
    points = (
        records.Point("step_count", steps, MAIN),
        records.Point("step_count_error", error, MAIN),
    )
    return records.PointsTaken(STARTED_NS + int(at_s * SECOND_NS), points)


def counted_run(
    path: Path,
    counts: Sequence[tuple[float, int, float]],
    *,
    names: Sequence[tuple[float, str]] = ((8, NAME),),
    more: Sequence[records.Record] = (),
    mode: str = "launched",
) -> Path:
    """Write a run of a minute with counts at (seconds from its start, steps, error)."""
    everything: list[records.Record] = [main_process()]
    everything += [counted_at(*count) for count in counts]
    everything += [
        records.EventHappened(STARTED_NS + int(at_s * SECOND_NS), EventKind.STEP_SOURCE, name, MAIN)
        for at_s, name in names
    ]
    everything += [*more, records.RunEnded(STARTED_NS + 60 * SECOND_NS, "target-exited", 0)]
    return write_records(path, everything, msgspec.structs.replace(run_started(), mode=mode))


def steps_of(path: Path, selection: Selection = MAIN_THREADS) -> Steps:
    with RunReader(path) as reader:
        return take_steps(reader, selection, PhaseIndex(reader))


def between(from_s: float, to_s: float) -> Selection:
    return Selection(
        from_ns=STARTED_NS + int(from_s * SECOND_NS),
        to_ns=STARTED_NS + int(to_s * SECOND_NS),
        main_threads=True,
    )


def test_the_rate_is_that_from_the_first_to_the_last_count(tmp_path: Path) -> None:
    counts = [(5, 90, 0), (10, 190, 1), (25, 490, 2)]
    steps = steps_of(counted_run(tmp_path / "r", counts))
    assert steps.per_s == pytest.approx(20)
    assert steps.source == NAME
    # A count is off by less than a step, and by what came to its error.
    assert steps.per_s_error == pytest.approx((1 + 2) / 20)
    # An attached run made what was counted and no more.
    steps = steps_of(counted_run(tmp_path / "attached", counts, mode="attached"))
    assert (steps.count, steps.count_error) == (400, 3)


@pytest.mark.parametrize(
    ("counts", "span_s", "count", "error"),
    [
        ([(5, 90), (25, 490), (60, 1190)], None, 1190, 1),
        # Goes on from a checkpoint: of what the counter says only the steps that were counted are
        # this run's.
        ([(5, 50_090), (25, 50_490), (60, 51_190)], None, 1100, 1),
        ([(5, 90), (15, 290), (25, 490)], None, 490, 1),
        ([(5, 90), (15, 290), (40, 290), (60, 690)], None, 690, 1),
        (
            [(5, 140), (15, 340), (60, 340), (61, 350)],
            None,
            350,
            1,
        ),  # before the pause as fast as after the start
        # Goes on from a checkpoint, with a count that is mended once: that jump is no pace.
        ([(5, 300), (15, 500), (15.5, 2500), (25, 2690), (35, 2890)], None, 2590, 1),
        ([(5, 90), (15, 290), (25, 490)], (0, 21), 200, 1),  # up to the last count in the range
        ([(5, 0), (10, 100), (15, 150), (20, 200), (25, 600)], (10, 20.01), 100, 1),
    ],
)
def test_the_steps_of_a_range_are_those_between_its_counts(
    tmp_path: Path,
    counts: list[tuple[float, int]],
    span_s: tuple[float, float] | None,
    count: int,
    error: int,
) -> None:
    run = counted_run(tmp_path / "r", [(at_s, steps, 0) for at_s, steps in counts])
    steps = steps_of(run, between(*span_s)) if span_s else steps_of(run)
    assert (steps.count, steps.count_error) == (count, error)


def test_a_count_that_stands_gives_no_rate(tmp_path: Path) -> None:
    assert steps_of(counted_run(tmp_path / "r", [(5, 7, 0), (15, 7, 0), (25, 7, 0)])).per_s is None


@pytest.mark.parametrize(("first", "unseen"), [(0, 200), (150, 50), (200, 0)])
def test_steps_from_before_a_child_was_known_to_train_may_be_unseen(
    tmp_path: Path, first: int, unseen: int
) -> None:
    child = msgspec.structs.replace(main_process(), ordinal=1)
    counts = [(10, first, 0), (20, first + 200, 0)]  # 20 a second
    steps = steps_of(counted_run(tmp_path / "r", counts, more=[child]))
    assert (steps.count, steps.unseen) == (first + 200, unseen)
    assert steps_of(counted_run(tmp_path / "main", counts)).unseen == 0
    assert (
        steps_of(counted_run(tmp_path / "attached", counts, mode="attached", more=[child])).unseen
        == 0
    )


@pytest.mark.parametrize(("exit_code", "count"), [(0, 1190), (1, 1189)])
def test_the_step_that_was_under_way_counts_where_the_script_ended_well(
    tmp_path: Path, exit_code: int, count: int
) -> None:
    counts = [(10, 190, 0), (59.99, 1189, 0)]
    ended = records.ProcessEnded(MAIN, STARTED_NS + 60 * SECOND_NS, exit_code)
    assert steps_of(counted_run(tmp_path / "r", counts, more=[ended])).count == count


@pytest.mark.parametrize("errors", [(50, 52), (52, 50)])
def test_what_came_to_the_error_in_a_selection_is_its_own(
    tmp_path: Path, errors: tuple[int, int]
) -> None:
    run = counted_run(tmp_path / "r", [(5, 0, 0), (10, 100, errors[0]), (20, 300, errors[1])])
    steps = steps_of(run, between(9, 21))
    assert steps.per_s == pytest.approx(20)
    assert steps.per_s_error == pytest.approx((1 + 2) / 10)


@pytest.mark.parametrize("counts", [[], [(5, 90, 0)]])
def test_less_than_two_counts_are_no_rate(
    tmp_path: Path, counts: list[tuple[float, int, float]]
) -> None:
    assert steps_of(counted_run(tmp_path / "r", counts)) == Steps()


def test_the_source_is_the_counter_of_that_time(tmp_path: Path) -> None:
    run = counted_run(
        tmp_path / "r",
        [(5, 0, 0), (20, 300, 0), (35, 600, 0), (50, 900, 0)],
        names=[(8, "first"), (30, "second")],
    )
    assert steps_of(run, between(0, 21)).source == "first"
    assert steps_of(run, between(0, 5.5)).source is None
    assert steps_of(run).source == "second"


def test_phases_tell_where_no_counter_does(tmp_path: Path) -> None:
    steps = steps_of(write_run(tmp_path / "r", seconds=20))
    assert steps.source == "cycles of backward"
    assert steps.count == pytest.approx(40, abs=1)
    assert steps.per_s == pytest.approx(2, rel=0.02)
    assert there(steps.per_s_error) < 0.2


def test_loading_data_evenly_is_no_step_where_nothing_is_trained(tmp_path: Path) -> None:
    loads = write_case(tmp_path / "loads", ((LOAD_IN_PROCESS, 200), (OWN, 300)))
    assert steps_of(loads).source is None
    trains = write_case(tmp_path / "trains", ((LOAD_IN_PROCESS, 200), (OWN, 50), (BACKWARD, 250)))
    assert there(steps_of(trains).source).startswith("cycles of ")


WHY = "steps are not counted any more: the loop at train.py:304 has no counter that can be read"


def lost(
    path: Path, from_s: float, to_s: float | None = None, counts: Sequence[tuple[float, int]] = ()
) -> Path:
    """Write a run of 20 s of training that nothing counts from one time on to another, with counts
    before and after.
    """
    also: list[records.Record] = [
        counted_at(at_s, steps, error) for error, (at_s, steps) in enumerate(counts)
    ]
    also.append(records.EventHappened(STARTED_NS, EventKind.STEP_SOURCE, NAME, MAIN))
    also.append(
        records.EventHappened(STARTED_NS + int(from_s * SECOND_NS), EventKind.STEPS_LOST, WHY, MAIN)
    )
    if to_s is not None:
        also.append(
            records.EventHappened(
                STARTED_NS + int(to_s * SECOND_NS), EventKind.STEP_SOURCE, NAME, MAIN
            )
        )
    return write_run(path, seconds=20, also=also)


WARM_UP, MOST = [(0.5, 1), (1.0, 6)], [(0.0, 0), (5.0, 50), (11.0, 110)]


def test_a_warm_up_tells_no_steps_of_a_training_that_nothing_counts(tmp_path: Path) -> None:
    run = lost(tmp_path / "r", 1.0, counts=WARM_UP)
    assert steps_of(run) == Steps(why_unknown=WHY)
    assert steps_of(run, between(5, 10)) == Steps(why_unknown=WHY)
    # What was counted is known where that alone is asked for.
    steps = steps_of(run, between(0, 1.01))
    assert (steps.per_s, steps.count, steps.why_unknown) == (10, 5, None)


def test_where_most_of_the_training_is_counted_its_rate_is_known_and_no_number(
    tmp_path: Path,
) -> None:
    steps = steps_of(lost(tmp_path / "r", 11.0, counts=[*MOST, (11.5, 150)]))
    assert (steps.per_s, steps.count, steps.count_error, steps.why_unknown) == (10, None, None, WHY)
    assert steps.source == NAME
    assert steps.per_s_error == pytest.approx((1 + 2) / 11)


def test_what_is_made_between_two_sources_is_unknown(tmp_path: Path) -> None:
    run = lost(tmp_path / "r", 11.0, 14.0, counts=[*MOST, (15.0, 400), (20.0, 450)])
    steps = steps_of(run)
    assert (steps.per_s, steps.count) == (10, None)
    assert steps.per_s_error == pytest.approx((1 + 2 + 1 + 1) / 16)
    with RunReader(run) as reader:
        (process,) = selected = [row.id for row in reader.processes.values() if row.role == "main"]
        assert selected
        pieces, why = counts_of(reader, process, Selection())
    assert ([len(piece) for piece in pieces], why) == ([3, 2], WHY)


@pytest.mark.parametrize(
    ("resumed_s", "count", "why"), [(14.0, 150, None), (None, None, "pid 7 became python eval.py")]
)
def test_steps_of_each_program_of_a_process_are_counted_and_not_the_time_between_them(
    tmp_path: Path, resumed_s: float | None, count: int | None, why: str | None
) -> None:
    def happened(at_s: float, kind: EventKind, text: str) -> records.EventHappened:
        return records.EventHappened(STARTED_NS + int(at_s * SECOND_NS), kind, text, MAIN)

    also: list[records.Record] = [counted_at(*one) for one in ((0.0, 0, 0), (11.0, 110, 1))]
    also += [
        happened(0, EventKind.EXEC, "pid 7 became python train.py"),
        happened(0, EventKind.STEP_SOURCE, NAME),
    ]
    also.append(happened(11, EventKind.EXEC, "pid 7 became python eval.py"))
    if resumed_s is not None:  # its own count had come to 20 when it was first read
        also += [
            happened(resumed_s, EventKind.STEP_SOURCE, NAME),
            counted_at(15, 130, 1),
            counted_at(17, 150, 1),
        ]
    steps = steps_of(write_run(tmp_path / "r", seconds=20, also=also))
    assert (steps.per_s, steps.count, steps.why_unknown) == (10, count, why)
    assert steps.count_error == (None if count is None else 2)


def test_events_are_not_read_for_each_of_thousands_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_records(tmp_path / "a.profd", [main_process()])
    monkeypatch.setattr(
        RunReader, "events", lambda _: pytest.fail("all events of the run were read")
    )
    with RunReader(path) as reader:
        assert [counts_of(reader, process, Selection()).pieces for process in reader.processes] == [
            []
        ]


def test_all_of_a_training_that_ends_before_is_counted(tmp_path: Path) -> None:
    run = lost(tmp_path / "r", 20.5, counts=[(0.0, 0), (20.0, 200)])
    assert (steps_of(run).count, steps_of(run).why_unknown) == (200, None)


@pytest.mark.parametrize(
    ("last", "error", "is_known"), [(3, 0, True), (2, 0, False), (0, 0, False), (100, 49, False)]
)
def test_steps_have_a_rate_where_it_is_known_to_within_half_of_it(
    tmp_path: Path, last: int, error: int, is_known: bool
) -> None:
    run = counted_run(tmp_path / "r", [(10, 0, 0), (20, last, error)])
    steps = steps_of(run)
    assert (steps.per_s is not None, steps.count is not None) == (is_known, is_known)
    assert steps.why_unknown == (
        None if is_known else f"steps by {NAME} are too few, or too unsure, for a rate"
    )


def test_a_run_that_only_waits_makes_no_steps(tmp_path: Path) -> None:
    threads = ((MAIN_TID, "MainThread", True, ((DATA_WAIT, 1000),)),)
    taken = (recording(MAIN, STARTED_NS + second * SECOND_NS, threads) for second in range(10))
    assert steps_of(write_records(tmp_path / "r", (main_process(), *taken))) == Steps()


def test_each_rank_has_its_own_steps_and_the_first_one_speaks_for_all(tmp_path: Path) -> None:
    first = records.Identity(MAIN.pid + 1, MAIN.start_ticks + 1)
    more: list[records.Record] = [
        main_process(rank=1),
        records.ProcessSeen(first, None, ("python",), "main", 0, None, "3.11.7", STARTED_NS),
    ]
    more += [steps_counted(at_s, steps, first) for at_s, steps in ((5, 0), (60, 440))]
    run = counted_run(tmp_path / "r", [(5, 0, 0), (60, 1100, 0)], more=more)
    assert steps_of(run).per_s == pytest.approx(8)
    assert steps_of(run, Selection(rank=0, main_threads=True)).per_s == pytest.approx(8)
    assert steps_of(run, Selection(rank=1, main_threads=True)).per_s == pytest.approx(20)


def counted(seen: Iterable[Seen]) -> tuple[int, int, float]:
    """Return how many visits were counted, the error of that, and the time from the first to the
    last.
    """
    steps = there(count_cycles(seen))
    count = there(steps.count)
    return count, there(steps.count_error), (count - 1) / there(steps.per_s)


def test_visits_are_counted_exactly_whatever_their_length() -> None:
    count, error, _ = counted(sampled(60, 0.4, 0.1, 0.0, 1))
    assert count == pytest.approx(60, abs=0.5)
    assert error < 2
    kinds = [False, True, True, False, False] * 30
    count, _, _ = counted(Seen(100 * number, is_inside) for number, is_inside in enumerate(kinds))
    assert count == pytest.approx(30, abs=0.1)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("outside_s", "inside_s"), [(0.03, 0.1), (0.1, 0.05), (0.22, 0.02), (0.5, 0.015), (0.3, 0.2)]
)
def test_visits_that_samples_miss_are_added(outside_s: float, inside_s: float, seed: int) -> None:
    count, error, _ = counted(sampled(400, outside_s, inside_s, 0.2, seed))
    assert abs(count - 400) <= error


@pytest.mark.parametrize("share", [0.05, 0.1, 0.15])
def test_steps_that_are_held_up_may_be_two_and_the_error_says_so(share: float) -> None:
    count, error, _ = counted(held_up(500, share, seed=1))
    assert abs(count - 500) <= error < 250


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(sampled(400, 0.035, 0.01, 0.1, 1), id="a third is missed"),
        pytest.param(
            sampled(3000, 0.004, 0.004, 0.2, 1), id="much shorter than the distance of samples"
        ),
        *(
            pytest.param(on_and_off(share, seed=1), id=f"by chance {share}")
            for share in (0.2, 0.5, 0.8)
        ),
        *(
            pytest.param(
                [Seen(100 * at, kind == "#") for at, kind in enumerate(kinds)],
                id=f"few visits {kinds[:2]}",
            )
            for kinds in ("", ".", "#", ".#" * 19, "#" * 500)
        ),
    ],
)
def test_what_need_not_be_visits_is_no_steps(seen: Iterable[Seen]) -> None:
    assert count_cycles(seen) is None


@pytest.mark.parametrize(
    ("update_ms", "other_ms", "counted", "called"),
    [
        (10, 90, 200, None),
        (10, 90, 150, 200),  # of steps as short as this some visits are missed, but none is added
        (10, 90, 400, None),
        (60, 140, 100, None),
        (60, 140, 160, 100),  # the samples would have shown so many calls of the optimizer
    ],
)
def test_a_count_that_the_samples_of_the_optimizer_contradict_is_unknown(
    tmp_path: Path, update_ms: int, other_ms: int, counted: int, called: int | None
) -> None:
    """A loop inside of that which is counted makes more steps, one of micro-batches fewer."""
    turns = 1000 // (update_ms + other_ms)
    stacks = [(OPTIMIZER, update_ms), (BACKWARD, other_ms)] * turns
    taken = [
        recording(MAIN, STARTED_NS + at_s * SECOND_NS, ((MAIN_TID, "MainThread", True, stacks),))
        for at_s in range(30)
    ]
    run = counted_run(tmp_path / "r", [(0.0, 0, 0), (20.0, counted, 0)], more=taken)
    steps = steps_of(run)
    if called is None:
        assert (steps.per_s, steps.why_unknown) == (counted / 20, None)
    else:
        assert steps.per_s is steps.count is None
        assert steps.why_unknown == (
            f"{NAME} shows {counted} steps while the samples show {called} calls of the optimizer"
        )
    exact = counted_run(
        tmp_path / "exact",
        [(0.0, 0, 0), (20.0, counted, 0)],
        names=((0, f"{OPTIMIZER_STEPS} (torch/optim/adam.py)"),),
        more=taken,
    )
    assert steps_of(exact).per_s == counted / 20


@pytest.mark.parametrize(
    ("share", "startup", "per_s", "seconds"),
    [
        (0.5, 0.0, 4.0, 0.125),
        (0.25, 0.5, 4.0, 0.125),
        (0.0, 0.5, 4.0, 0.0),
        (0.5, 0.0, None, None),
        (0.5, 0.0, 0.0, None),
        (0.0, 1.0, 4.0, None),
    ],
)
def test_a_share_of_the_time_is_one_of_a_step_without_startup(
    share: float, startup: float, per_s: float | None, seconds: float | None
) -> None:
    assert part_of_step_s(share, startup, per_s) == seconds
