"""What was read when: no stack has time that was not read, and every gap has its reason."""

from __future__ import annotations

import random
from bisect import bisect_left

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sampledworld import (
    BEGIN_NS,
    DEEP,
    FAILING,
    LOOK_NS,
    PROFD,
    SAMPLER,
    TARGET,
    Episode,
    World,
)
from support.sampledworld import LENGTH_NS as LENGTH_BETWEEN_CUTS_NS
from support.traces import ThreadTrace, raw_recording, stack

from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.stacks.assembly import assemble
from profd.daemon.stacks.reads import (
    ENOUGH,
    EXEC,
    FROZEN,
    LATE_NS,
    PROFD_STOPPED,
    STOPPED,
    SUSPENDED,
    UNREADABLE,
    Account,
    Known,
    ProcessSnapshot,
    Spell,
    unread,
)
from profd.daemon.store.records import GapFound
from profd.daemon.timerange import EVER, TimeRange

REASONS = {
    PROFD: PROFD_STOPPED, SAMPLER: UNREADABLE, FAILING: UNREADABLE, DEEP: UNREADABLE,
    EXEC: EXEC, STOPPED: STOPPED, FROZEN: FROZEN, SUSPENDED: SUSPENDED,
}  # fmt: skip
LENGTHS_MS = {EXEC: (40, 600)}
LENGTH_NS, RATE_HZ = 20 * SECOND_NS, 100
DISTANCE_NS = SECOND_NS // RATE_HZ


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a program, busy or idle, and what happens to it in any order."""
    episodes: list[Episode] = []
    at_ns = 0
    for kind in draw(st.lists(st.sampled_from(sorted(REASONS)), max_size=3)):
        from_ns = at_ns + draw(st.integers(2500, 4000)) * MILLISECOND_NS
        length_ns = draw(st.integers(*LENGTHS_MS.get(kind, (1500, 3000)))) * MILLISECOND_NS
        episodes.append(Episode(kind, from_ns, at_ns := from_ns + length_ns))
    dwell_ns = draw(st.sampled_from([0, 8, 30, 400])) * MILLISECOND_NS
    return World(
        episodes, dwell_ns, RATE_HZ, LENGTH_NS, random.Random(draw(st.integers(0, 1 << 16)))
    )


def recorded(kind: str, dwell_ms: int = 20, length_s: float = 3) -> World:
    """Return a world in which one thing happened, after seven seconds, as profd has recorded it."""
    episode = Episode(kind, 7 * SECOND_NS, 7 * SECOND_NS + round(length_s * SECOND_NS))
    world = World([episode], dwell_ms * MILLISECOND_NS, RATE_HZ, 20 * SECOND_NS, random.Random(7))
    world.record()
    return world


def attributed(world: World) -> list[tuple[int, int, int]]:
    """Return start, end and samples of all intervals, by the world's time."""
    found = [
        (one, thread)
        for record in world.records
        for thread in record.threads
        for one in thread.intervals
    ]
    return sorted(
        (i.start_ns - BEGIN_NS, i.start_ns + i.duration_ns - BEGIN_NS, i.samples) for i, _ in found
    )


@given(worlds())
@settings(deadline=None, max_examples=30)
def test_attributed_time_is_time_that_was_read_whatever_happens_in_whatever_order(
    world: World,
) -> None:
    world.record()
    intervals = attributed(world)
    for kind, from_ns, to_ns in world.episodes:
        inside_ns = sum(
            max(min(end, to_ns) - max(start, from_ns), 0) for start, end, _ in intervals
        )
        # A sample stands for a distance of samples. What fails just before the end of a recording
        # may be chance.
        is_cut = from_ns // LENGTH_BETWEEN_CUTS_NS != to_ns // LENGTH_BETWEEN_CUTS_NS
        assert inside_ns <= (8 + ENOUGH * is_cut) * DISTANCE_NS, (kind, inside_ns)
    unread_ns = sum(one.to_ns - one.from_ns for one in world.episodes)
    whole_ns = sum(end - start for start, end, _ in intervals)
    assert whole_ns <= LENGTH_NS - unread_ns + (8 + ENOUGH) * DISTANCE_NS * len(world.episodes)
    for start_ns, end_ns, _ in intervals:
        first = bisect_left(world.samples_ns, start_ns - 8 * DISTANCE_NS)
        assert world.samples_ns[first] <= end_ns + DISTANCE_NS, "an interval without a sample"
    samples = sum(samples for *_, samples in intervals)
    assert samples <= whole_ns / DISTANCE_NS + 5 * (whole_ns / DISTANCE_NS) ** 0.5, (
        "more samples than were due"
    )


@given(worlds())
@settings(deadline=None, max_examples=20)
def test_every_gap_lies_where_something_happened_and_says_what(world: World) -> None:
    world.record()
    for kind, from_ns, to_ns in world.episodes:
        over = [
            gap
            for gap in world.gaps
            if gap.start_ns - BEGIN_NS < to_ns and gap.end_ns - BEGIN_NS > from_ns
        ]
        held_ns = {gap.reason: 0 for gap in over}
        for gap in over:
            held_ns[gap.reason] += min(gap.end_ns - BEGIN_NS, to_ns) - max(
                gap.start_ns - BEGIN_NS, from_ns
            )
        assert max(held_ns, key=lambda reason: held_ns[reason]) == REASONS[kind], (kind, held_ns)
    edge_ns = 4 * LOOK_NS  # an idle program shows only at looks that it ran
    for gap in world.gaps:
        start_ns, end_ns = gap.start_ns - BEGIN_NS, gap.end_ns - BEGIN_NS
        assert any(
            one.from_ns - edge_ns < start_ns and end_ns < one.to_ns + edge_ns
            for one in world.episodes
        )


@pytest.mark.parametrize("kind", sorted(REASONS))
def test_a_gap_takes_no_more_than_what_was_not_read(kind: str) -> None:
    world = recorded(kind, length_s=0.6 if kind == EXEC else 3)
    (gap,) = world.gaps
    (episode,) = world.episodes
    assert (gap.reason, gap.identity) == (REASONS[kind], TARGET)
    assert abs(gap.start_ns - BEGIN_NS - episode.from_ns) < 60 * MILLISECOND_NS
    assert abs(gap.end_ns - BEGIN_NS - episode.to_ns) < 130 * MILLISECOND_NS
    whole_ns = sum(end - start for start, end, _ in attributed(world))
    assert whole_ns == pytest.approx(
        world.length_ns - (gap.end_ns - gap.start_ns), abs=100 * MILLISECOND_NS
    )
    assert sum(record.end_ns - record.start_ns for record in world.records) == pytest.approx(
        whole_ns, rel=0.01
    )


@pytest.mark.parametrize("dwell_ms", [0, 20])
def test_what_py_spy_makes_up_for_afterwards_is_no_sample_of_the_time_before(dwell_ms: int) -> None:
    world = recorded(PROFD, dwell_ms)
    whole_ns = sum(end - start for start, end, _ in attributed(world))
    assert sum(samples for *_, samples in attributed(world)) <= whole_ns / DISTANCE_NS * 1.1


@pytest.mark.parametrize("dwell_ms", [0, 20])
def test_a_run_in_which_nothing_happens_has_no_gap(dwell_ms: int) -> None:
    world = World([], dwell_ms * MILLISECOND_NS, RATE_HZ, 60 * SECOND_NS, random.Random(1))
    world.record()
    assert world.gaps == []
    assert sum(end - start for start, end, _ in attributed(world)) > 59.9 * SECOND_NS


def test_a_pause_without_a_sign_of_its_end_lasts_until_the_end_of_the_recording() -> None:
    spells = [Spell(0, SECOND_NS), Spell(SECOND_NS + LOOK_NS, 2 * SECOND_NS, FROZEN)]
    seen_ns = [at_ms * MILLISECOND_NS for at_ms in range(0, 1100, 20)]
    end_ns = 2 * SECOND_NS + LOOK_NS
    found = unread(Known(seen_ns, seen_ns[1:], spells=spells), RATE_HZ, TimeRange(0, end_ns))
    assert list(found.ranges()) == [(seen_ns[-1], end_ns)]


def test_the_first_stack_of_a_recording_is_no_sign_that_the_process_ran() -> None:
    first_ns, runs_ns = 2 * SECOND_NS, 3 * SECOND_NS
    spells = [Spell(SECOND_NS, first_ns - LOOK_NS, STOPPED), Spell(runs_ns, 4 * SECOND_NS)]
    moved_ns = list(range(runs_ns + DISTANCE_NS, 4 * SECOND_NS, DISTANCE_NS))
    known = Known([first_ns, *moved_ns], moved_ns, spells=spells)
    found = unread(known, RATE_HZ, TimeRange(first_ns, 4 * SECOND_NS))
    assert list(found.ranges()) == [(first_ns, runs_ns)]


def test_a_process_that_stands_still_as_its_recording_begins_has_no_time_until_it_goes_on() -> None:
    trace = ThreadTrace([(0, stack("a")), (500_000, stack("b"))], 1_000_000)
    raw = raw_recording(trace, samples=100)
    runs_ns = raw.zero_ns + 500 * MILLISECOND_NS
    spells = (
        Spell(raw.zero_ns - SECOND_NS, raw.zero_ns - LOOK_NS, STOPPED),
        Spell(runs_ns, runs_ns + SECOND_NS),
    )
    records = assemble(msgspec.structs.replace(raw, spells=spells), TARGET, RATE_HZ, EVER)
    intervals = [one for record in records for thread in record.threads for one in thread.intervals]
    assert min(one.start_ns for one in intervals) == runs_ns


def account(gaps: list[GapFound]) -> Account:
    found = Account(TARGET, gaps.append)
    for number in range(9):
        found.look(ProcessSnapshot(number * LOOK_NS, "", 5, number * 50))
    return found


def test_a_process_that_did_not_run_while_profd_did_not_was_suspended_with_it() -> None:
    for runs, reason in ((9 * 50, SUSPENDED), (25 * 50, PROFD_STOPPED)):
        gaps: list[GapFound] = []
        of_one = account(gaps)
        of_one.take([(0, 2 * SECOND_NS)], DISTANCE_NS, [])
        of_one.look(ProcessSnapshot(6 * SECOND_NS, "", 5, runs))
        of_one.take([(6 * SECOND_NS, 7 * SECOND_NS)], DISTANCE_NS, [])
        assert [(gap.start_ns, gap.end_ns, gap.reason) for gap in gaps] == [
            (2 * SECOND_NS, 6 * SECOND_NS, reason)
        ]


def test_of_a_process_that_hardly_runs_nobody_can_say_that_it_was_suspended() -> None:
    gaps: list[GapFound] = []
    found = Account(TARGET, gaps.append)
    for at_s in (0, 1, 8):
        found.look(ProcessSnapshot(at_s * SECOND_NS, "", 5, 3))
    found.take([(0, SECOND_NS), (8 * SECOND_NS, 9 * SECOND_NS)], DISTANCE_NS, [])
    assert [gap.reason for gap in gaps] == [PROFD_STOPPED]


def test_py_spy_is_quoted_with_what_it_said_in_the_gap() -> None:
    gaps: list[GapFound] = []
    found = account(gaps)
    said = [
        (SECOND_NS // 2, "before"),
        *((at_ns, "too deep") for at_ns in (SECOND_NS, 2 * SECOND_NS)),
    ]
    found.take([(0, SECOND_NS), (3 * SECOND_NS, 4 * SECOND_NS)], DISTANCE_NS, said)
    found.hear("cannot find python")
    found.take([(6 * SECOND_NS, 7 * SECOND_NS)], DISTANCE_NS, [])
    assert [(gap.reason, gap.text) for gap in gaps] == [
        (UNREADABLE, "too deep"),
        (UNREADABLE, "cannot find python"),
    ]


def test_a_pause_and_what_follows_it_are_two_gaps() -> None:
    gaps: list[GapFound] = []
    found = account(gaps)
    found.look(ProcessSnapshot(9 * LOOK_NS, STOPPED, 5, 500))
    found.look(ProcessSnapshot(12 * LOOK_NS, STOPPED, 5, 500))
    found.look(ProcessSnapshot(13 * LOOK_NS, "", 6, 510))
    found.take([(0, 2 * SECOND_NS), (5 * SECOND_NS, 6 * SECOND_NS)], DISTANCE_NS, [])
    ends = [
        (gap.start_ns // MILLISECOND_NS, gap.end_ns // MILLISECOND_NS, gap.reason) for gap in gaps
    ]
    assert ends == [(2000, 3250, STOPPED), (3250, 5000, EXEC)]


def test_an_exec_that_was_seen_just_before_a_gap_began_it() -> None:
    gaps: list[GapFound] = []
    found = account(gaps)
    found.look(ProcessSnapshot(9 * LOOK_NS, "", 6, 500))
    read_to_ns = (
        9 * LOOK_NS + 3 * MILLISECOND_NS
    )  # by the clock of py-spy, which is known to some milliseconds
    found.take([(0, read_to_ns), (read_to_ns + SECOND_NS, 5 * SECOND_NS)], DISTANCE_NS, [])
    assert [gap.reason for gap in gaps] == [EXEC]


def test_rests_between_turns_are_no_gaps_and_looks_take_no_memory() -> None:
    gaps: list[GapFound] = []
    found = account(gaps)
    found.take([(0, SECOND_NS)], DISTANCE_NS, [])
    found.rest()
    found.take([(20 * SECOND_NS, 21 * SECOND_NS)], DISTANCE_NS, [])
    assert gaps == []
    for number in range(10_000):
        found.look(ProcessSnapshot(21 * SECOND_NS + number * LOOK_NS, "", 5, number))
    assert len(found.spells(0)) < 9


def test_a_process_that_is_left_unread_at_the_end_was_not_read_to_its_end() -> None:
    for end_s, count in ((2, 0), (9, 1)):
        gaps: list[GapFound] = []
        found = account(gaps)
        found.take([(0, SECOND_NS)], DISTANCE_NS, [])
        found.close(end_s * SECOND_NS + LATE_NS // 2 * (end_s > 2))
        assert len(gaps) == count
    assert ENOUGH > 5
