"""Phases of the main thread, from recorded bytes of py-spy to the summary, against the diaries of the programs."""

from __future__ import annotations

from support.expectations import check_results, check_truth, for_each, names_with
from support.recordings import recording_names


@for_each(recording_names())
def test_phases_are_those_expected(name: str) -> None:
    check_results(name, "phases")


@for_each(names_with("phases"))
def test_phases_are_those_of_the_diary(name: str) -> None:
    check_truth(name, "phases")
