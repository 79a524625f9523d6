"""How restless a place is: known from torn reads of it, and of places around it."""

from __future__ import annotations

from support.traces import Stack, stack

from profd.daemon.collect.stacks.paces import Paces

BUSY, CALM = stack("report", "dumps"), stack("multiply")


def paces(seen: dict[Stack, int], torn: dict[Stack, int]) -> Paces:
    known = Paces()
    known.learn(seen, torn)
    return known


def test_all_are_alike_where_nothing_was_ever_torn() -> None:
    known = paces({BUSY: 100, CALM: 100}, {})
    assert known.of(BUSY) == known.of(CALM) == known.of(stack("unseen"))


def test_where_reads_are_torn_they_fail_and_elsewhere_hardly() -> None:
    known = paces({BUSY: 100, CALM: 100}, {BUSY: 40})
    assert known.of(BUSY) >= 20 * known.of(CALM)


def test_a_place_that_was_hardly_seen_is_like_that_around_it() -> None:
    known = paces({BUSY: 100, CALM: 100}, {BUSY: 40})
    assert known.of(stack("report", "unseen")) == known.of(BUSY)
    few = paces({BUSY: 100, CALM: 1}, {BUSY: 40})
    assert few.of(BUSY) < 8 * few.of(CALM)


def test_a_chain_of_calls_is_one_place_and_not_the_proof_of_itself() -> None:
    chain = stack(*"abcdefghijkl")
    short, deep = (paces({one: 5, BUSY: 100}, {BUSY: 40}).of(one) for one in (chain[:2], chain))
    assert deep == short


def test_a_program_that_makes_up_functions_is_forgotten_now_and_then() -> None:
    known = Paces()
    for number in range(30):
        known.learn({stack(f"f{number}", f"g{inner}"): 1 for inner in range(2_000)}, {})
    known.learn({CALM: 1}, {})
    assert known.held <= 6_001
