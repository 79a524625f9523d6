"""Which integer is the loop counter: found in loops of all kinds, and not where there is none."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.loopmodels import (
    ADVANCE,
    BOOTED_S,
    TRAIN,
    CalledAnew,
    Nested,
    Plain,
    Slowing,
    Torn,
    Watched,
    chance_readings,
    history,
    reading_at,
)

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.counter import CounterReading, Place
from profd.daemon.collect.steps.loops import find_loop
from profd.daemon.collect.steps.sightings import Variable

TQDM = Place(2, "tqdm.__iter__", "tqdm/std.py")
FORWARD = Place(2, "forward", "train.py")


def name_found(readings: Iterable[CounterReading]) -> str | None:
    loop = find_loop(list(readings))
    return loop.counter.name if loop else None


def test_a_counter_is_found_and_named_with_its_place() -> None:
    loop = find_loop(history(*({"n": 1000, "i": 10 * k} for k in range(10))))
    assert loop is not None
    assert str(loop) == "loop counter `i` in train (train.py:21)"
    assert loop.rate_per_s == pytest.approx(20, rel=0.1)


def test_a_few_readings_are_no_evidence() -> None:
    assert name_found(history(*({"i": 10 * k} for k in range(6)))) is None


def test_less_evidence_will_do_for_what_the_source_says_is_a_counter() -> None:
    values = [{"i": 10 * k} for k in range(6)]
    assert name_found(history(*values, declared="i")) == "i"
    assert name_found(history(*values[:3], declared="i")) is None


def test_a_declared_counter_is_found_though_it_starts_over_before_it_has_shown_itself() -> None:
    """Five readings of one epoch and three of the next, as of forty batches in two and a half seconds."""
    seen = [
        (0.0, 0, 14),
        (0.2, 0, 17),
        (0.45, 0, 21),
        (0.9, 0, 28),
        (1.3, 0, 36),
        (1.8, 1, 2),
        (2.15, 1, 9),
        (2.5, 1, 16),
    ]
    for declared, found in (("epoch", "number"), "number"), ((), None):
        readings = [
            reading_at(at_s, {TRAIN: {"epoch": epoch, "number": number}}, 8_000_000, declared)
            for at_s, epoch, number in seen
        ]
        assert name_found(readings) == found


def test_a_loop_around_one_that_starts_over_is_none_of_steps_whatever_it_is_called() -> None:
    rounds = [(0, 5), (0, 15), (0, 25), (0, 35), *((2 * k, k * k % 40) for k in range(1, 16))]
    values = [{"round": number, "batch": batch} for number, batch in rounds]
    assert name_found(history(*values)) == "round"
    assert name_found(history(*values, declared=("round", "batch"))) != "round"


def test_a_loop_around_one_that_is_part_of_its_step_counts_steps() -> None:
    values = [{"i": 10 * k, "micro": k * k % 3} for k in range(10)]
    assert name_found(history(*values, declared=("i", "micro"))) == "i"


@pytest.mark.parametrize("most", [2, 4, 12, 60])
def test_declared_variables_of_fast_loops_are_no_counter(most: int) -> None:
    """Two loops over layers, much faster than the readings, looked at after each reading of a minute."""
    readings = chance_readings(2, most, seed=1, every_s=1.5, declared=("v0", "v1"))
    assert not any(find_loop(readings[: number + 1]) for number in range(len(readings)))


def test_no_reading_is_no_loop() -> None:
    assert find_loop([]) is None


@given(st.lists(st.integers(0, 1000), min_size=10, max_size=40), st.integers(0, 7))
def test_a_value_that_falls_back_again_and_again_is_no_counter(values: list[int], place: int) -> None:
    values = [value if number % 3 else place for number, value in enumerate(values)]
    assert name_found(history(*({"layer": value} for value in values))) is None


@pytest.mark.parametrize("most", [5, 20, 60])
def test_variables_of_fast_loops_are_no_counter(most: int) -> None:
    """Twelve variables of inner loops that are much faster than the readings."""
    readings = chance_readings(12, most, seed=1)
    assert [name_found(readings[:end]) for end in (10, 20, 30, 40)] == [None] * 4


def test_what_grows_faster_and_faster_is_no_counter() -> None:
    assert name_found(history(*({"size": 3**k} for k in range(20)))) is None


def test_a_retry_count_is_no_counter() -> None:
    assert name_found(history(*({"attempt": k // 4 % 2, "failures": k // 15} for k in range(40)), every_s=2)) is None


@pytest.mark.parametrize(
    "now",
    [
        lambda at_s: int(BOOTED_S + at_s) + 3,
        lambda at_s: int((BOOTED_S + at_s) * 1e3),
        lambda at_s: int((BOOTED_S + at_s) * 1e9),
        lambda at_s: int(1.8e9 + at_s),
        lambda at_s: int((1.8e9 + at_s) * 1e3),
    ],
)
def test_a_clock_is_no_counter(now: object) -> None:
    assert callable(now)
    readings = [reading_at(2.0 * k, {TRAIN: {"deadline": now(2.0 * k)}}) for k in range(30)]
    assert find_loop(readings) is None


def test_a_deadline_that_is_put_off_is_no_counter() -> None:
    readings = [reading_at(0.3 * k, {TRAIN: {"deadline": int(BOOTED_S + 0.6 * k) + 1}}) for k in range(30)]
    assert find_loop(readings) is None


@pytest.mark.parametrize("torn", [0, 10**6])
def test_a_deadline_is_no_counter_though_it_was_last_seen_whole_some_time_ago(torn: int) -> None:
    shown = [(1.1 * k, int(BOOTED_S + 1.1 * k) + 2) for k in range(30)]
    for count in range(10, 30):
        readings = [reading_at(at_s, {TRAIN: {"deadline": value}}) for at_s, value in shown[:count]]
        readings.append(reading_at(1.1 * count + 15, {TRAIN: {"deadline": torn}}))
        assert find_loop(readings) is None


def test_batches_are_preferred_to_the_epochs_around_them() -> None:
    shown = ({"epoch": k // 6, "i": 10 * (k % 6)} for k in range(20))
    assert name_found(history(*shown)) == "i"


def test_an_epoch_counter_alone_is_the_loop() -> None:
    assert name_found(history(*({"epoch": k, "epochs": 100} for k in range(10)))) == "epoch"


def test_an_epoch_counter_is_none_where_batches_are_too_fast_to_follow() -> None:
    chance = random.Random(0)
    assert name_found(history(*({"epoch": k, "i": chance.randrange(50)} for k in range(12)))) is None


def test_steps_are_preferred_to_samples_and_right_answers() -> None:
    chance = random.Random(0)
    shown, correct = [], 0
    for k in range(12):
        correct += sum(chance.randrange(16, 32) for _ in range(10))
        shown.append({"seen": 320 * k, "correct": correct, "step": 10 * k})
    assert name_found(history(*shown)) == "step"


def test_steps_are_preferred_to_samples_that_show_themselves_sooner() -> None:
    chance = random.Random(0)
    shown, step = [], 0
    for _ in range(8):
        step += chance.randrange(8, 13)
        shown.append({"seen": 32 * step, "step": step})
    assert name_found(history(*({"seen": values["seen"]} for values in shown))) == "seen"
    assert name_found(history(*shown)) == "step"


def test_a_count_over_all_epochs_is_preferred_to_one_that_starts_over() -> None:
    shown = ({"epoch": k // 12, "i": 10 * (k % 12), "global_step": 10 * k} for k in range(24))
    assert name_found(history(*shown)) == "global_step"


def test_a_loop_over_offsets_counts_by_its_stride() -> None:
    chance = random.Random(0)
    at, shown = 0, []
    for _ in range(12):
        at += 32 * chance.randrange(8, 13)
        shown.append({"start": at})
    loop = find_loop(history(*shown))
    assert loop is not None
    assert loop.stride == 32
    assert loop.rate_per_s == pytest.approx(20, rel=0.15)


def test_steps_that_are_multiples_of_four_by_chance_are_no_stride() -> None:
    """They wait for what tells: five rises by a true stride of four are as little evidence."""
    rises = [400, 404, 392, 408, 396, 404, 397, 403, 399, 401]
    seen = [sum(rises[:number]) for number in range(len(rises) + 1)]
    found = [find_loop(history(*({"step": value} for value in seen[:length]))) for length in range(5, len(seen) + 1)]
    assert found[-1] is not None
    assert {loop.stride for loop in found if loop} == {1}


def test_what_is_handed_down_is_called_by_where_it_comes_from() -> None:
    """A torn reading lacks the variable where it comes from."""
    inner = Place(4, "optimize", "train.py")
    readings = [
        reading_at(k / 2, {inner: {"i": 10 * k}} if k == 4 else {TRAIN: {"i": 10 * k}, inner: {"i": 10 * k}})
        for k in range(9)
    ]
    loop = find_loop(readings)
    assert loop is not None
    assert loop.counter.place == TRAIN


def test_a_name_that_counters_have_speaks_for_one() -> None:
    assert name_found(history(*({"i": 10 * k} for k in range(8)))) is None
    assert name_found(history(*({"step": 10 * k} for k in range(8)))) == "step"
    assert name_found(history(*({"step": 10 * k} for k in range(7)))) is None


def test_an_evaluation_is_not_the_training() -> None:
    readings = [
        reading_at(k / 2, {TRAIN: {"i": 10 * k}, Place(2, "evaluate", "train.py"): {"j": 3 * k}}) for k in range(12)
    ]
    assert name_found(readings) == "i"


def test_a_progress_bar_counts_though_it_is_seldom_on_the_stack() -> None:
    readings = [reading_at(2.0 * k, {TQDM: {"n": 40 * k}} if k % 4 == 0 else {}) for k in range(12)]
    assert name_found(readings) == "n"


def test_a_progress_bar_is_known_by_two_sightings_but_not_by_an_address() -> None:
    readings = [reading_at(0.3 * k, {TQDM: {"n": 6 * k}} if k in {2, 7} else {}) for k in range(8)]
    assert name_found(readings) == "n"
    torn = [reading_at(0.3 * k, {TQDM: {"n": 12 if k == 2 else 140_652_866_078_112}}) for k in (2, 7)]
    assert name_found(torn) is None


def test_a_function_that_is_seldom_on_the_stack_is_not_counted_by() -> None:
    readings = [reading_at(2.0 * k, {FORWARD: {"n": 40 * k}} if k % 4 == 0 else {}) for k in range(40)]
    assert name_found(readings) is None


@pytest.mark.parametrize(("per_s", "start", "seed"), [(1, 0, 1), (17.3, 10**7, 2), (250, 5, 3), (2000, 10**6, 4)])
def test_any_steady_loop_is_found_and_its_rate_is_true(per_s: float, start: int, seed: int) -> None:
    watched = Watched(Plain(per_s, start), 35, seed)
    assert abs(watched.steps_per_s() - watched.true_steps_per_s()) <= watched.error_per_s()
    assert watched.error_per_s() <= max(0.01 * per_s, 0.05)


@pytest.mark.parametrize(
    ("batches", "pause_s", "shows_epoch", "seed"),
    [
        (100, 0.90625, True, 61),  # met at its last value in each epoch, hardly near it in any
        (100, 1.0, False, 18),  # met at its last value, where it had stood for a while
        (120, 0.0, False, 15),  # met two before its end each time, at a rate that was told too high
        (700, 0.5, True, 1),
        (3000, 0.2, False, 2),
    ],
)
def test_epochs_are_added_up_and_the_error_is_honest(
    batches: int, pause_s: float, shows_epoch: bool, seed: int
) -> None:
    program = Nested(20, batches, pause_s if shows_epoch else pause_s / 2, shows_epoch=shows_epoch)
    watched = Watched(program, 150, seed)
    assert watched.counter.loop is not None
    assert watched.counter.loop.counter.name == "i"
    assert abs(watched.steps_per_s() - watched.true_steps_per_s()) <= watched.error_per_s()
    assert watched.error_per_s() <= 0.2 * watched.true_steps_per_s()


@pytest.mark.parametrize("pause_s", [0.3, 1.0, 4.0])
def test_an_evaluation_that_samples_show_is_not_taken_for_steps(pause_s: float) -> None:
    program = Nested(20, 100, pause_s)
    watched = [Watched(program, 36, seed, rate_hz=100, declared=("i", "epoch")) for seed in range(3)]
    off = [one.steps_per_s() / one.true_steps_per_s() - 1 for one in watched]
    assert abs(statistics.median(off)) < 0.01
    assert all(abs(one.steps_per_s() - one.true_steps_per_s()) <= one.error_per_s() for one in watched)
    blind = [Watched(program, 36, seed, declared=("i", "epoch")) for seed in range(5)]
    assert statistics.mean(one.steps_per_s() / one.true_steps_per_s() - 1 for one in blind) > 0.015


@pytest.mark.parametrize("pause_s", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("declared", [("i", "epoch"), ()])
def test_an_epoch_that_waits_for_its_first_batch_is_not_counted_twice(
    pause_s: float, declared: tuple[str, ...]
) -> None:
    """It has begun, and its counter still shows the last batch of the one before."""
    program = Nested(28, 150, pause_s, waits=True)
    watched = [Watched(program, 150, seed, rate_hz=100, declared=declared) for seed in range(2)]
    assert all(one.counter.loop is not None and one.counter.loop.counter.name == "i" for one in watched)
    off = [abs(one.steps_per_s() - one.true_steps_per_s()) for one in watched]
    assert all(each <= one.error_per_s() for each, one in zip(off, watched, strict=True))
    assert statistics.median(off) <= 0.01 * program.per_s


def test_a_counter_of_frames_that_do_not_stay_is_followed_through_epochs() -> None:
    chance = random.Random(1)
    programs = [CalledAnew(chance.uniform(10, 40), chance.randrange(120, 2000)) for _ in range(6)]
    for seed, program in enumerate(programs):
        one = Watched(program, 36, seed, cost_s=0.01)
        assert one.counter.loop is not None
        assert one.counter.loop.counter == Variable(ADVANCE, "batch_idx")
        assert abs(one.steps_per_s() - one.true_steps_per_s()) <= one.error_per_s()


@pytest.mark.parametrize(("per_s", "seed"), [(10, 1), (150, 2), (2000, 3)])
def test_a_loop_is_followed_through_torn_readings(per_s: float, seed: int) -> None:
    """Every seventh reading shows what another variable holds, or an address, as those of a fast torch loop do."""
    chance = random.Random(seed)
    watched = Watched(Torn(Plain(per_s), chance), 120, seed)
    assert watched.counter.loop is not None
    assert watched.counter.loop.counter.name == "i"
    assert abs(watched.steps_per_s() - watched.true_steps_per_s()) <= 0.02 * per_s


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_fast_loop_that_slows_down_is_followed_though_half_of_the_readings_are_torn(seed: int) -> None:
    watched = Watched(Slowing(400, random.Random(seed)), 100, seed)
    assert watched.counter.loop is not None
    last = watched.counts[-1]
    assert last.steps == pytest.approx(watched.program.steps(last.at_ns / SECOND_NS), rel=0.02)


@pytest.mark.parametrize("seed", [1, 2])
def test_layers_of_a_step_are_not_steps(seed: int) -> None:
    watched = Watched(Nested(200, 10, epoch="step"), 40, seed)
    assert watched.counter.loop is not None
    assert watched.counter.loop.counter.name == "step"
