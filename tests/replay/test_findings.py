"""Findings, ranks and growth of memory, from recorded bytes of py-spy and readings to the summary."""

from __future__ import annotations

from support.expectations import check_results, for_each
from support.recordings import recording_names

WITH_A_CAUSE = {
    "planted-in-process": "input-bound-in-process",
    "planted-loop": "hot-function",
    "planted-store": "input-bound-saturated",
    "planted-values": "synchronization",
}
LATE = {"ranks-slow-data": 1, "ranks-slow-disk": 0}
HEALTHY = ("planted-none",)


@for_each(recording_names())
def test_findings_are_those_expected(name: str) -> None:
    check_results(name, "findings", "ranks", "memory")


@for_each(WITH_A_CAUSE)
def test_the_planted_cause_comes_first(name: str) -> None:
    found = check_results(name, "findings")
    assert found.results["findings"][0]["rule"] == WITH_A_CAUSE[name] == found.diary.planted


@for_each(HEALTHY)
def test_a_healthy_training_has_no_warning(name: str) -> None:
    found = check_results(name, "findings")
    assert found.diary.planted == ""
    assert {one["severity"] for one in found.results["findings"]} <= {"info"}


@for_each(LATE)
def test_the_slow_rank_is_named(name: str) -> None:
    rank, found = LATE[name], check_results(name, "ranks", "findings")
    assert found.diary.planted == "straggler"
    (straggler,) = (one for one in found.results["findings"] if one["rule"] == "straggler")
    assert f"rank {rank} makes the others wait" in straggler["title"]
    assert found.diary.late_rank == rank
    assert [row["rank"] for row in found.results["ranks"] if row["late"]] == [rank]
