"""Steps, from recorded bytes of py-spy to the summary, against the diaries of the programs."""

from __future__ import annotations

from support.expectations import check_results, check_truth, for_each, names_with
from support.recordings import recording_names


@for_each(recording_names())
def test_steps_are_those_expected(name: str) -> None:
    check_results(name, "steps")


@for_each(names_with("rate"))
def test_the_rate_is_that_of_the_diary(name: str) -> None:
    check_truth(name, "rate")


@for_each(names_with("count"))
def test_the_count_is_that_of_the_diary(name: str) -> None:
    check_truth(name, "count")


@for_each(names_with("rate"))
def test_the_error_that_is_said_holds_the_truth(name: str) -> None:
    found = check_results(name, "steps")
    steps, errors = found.results["steps"], found.errors
    assert errors["rate"] / (1 - errors["rate"]) * steps["per_s"] <= steps["per_s_error"]
    assert errors.get("count", 0.0) <= steps["count_error"] + 1
