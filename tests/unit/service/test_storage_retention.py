"""What of the supervisor's runs is given up, and in which order."""

from __future__ import annotations

from profd.daemon.clock import SECOND_NS
from profd.daemon.service.configuration import Retention
from profd.daemon.service.storage import REPORT_FILES, RUN_FILES, Kept, Removal, removals

HOUR_NS = 3600 * SECOND_NS
NOW_NS = 1_000_000 * HOUR_NS
RETENTION = Retention(detail_hours=10, report_hours=100, incident_hours=1000, max_bytes=1000)


def kept(name: str, *, hours: float, incident: bool = False, detail: int = 100, report: int = 10) -> Kept:
    return Kept(name, NOW_NS - int(hours * HOUR_NS), incident, detail, report)


def gone(*runs: Kept, live_bytes: int = 0) -> list[Removal]:
    return removals(runs, RETENTION, NOW_NS, live_bytes)


def test_detail_goes_before_its_report_and_of_an_incident_it_stays_longer() -> None:
    assert gone(kept("a", hours=1), kept("b", hours=9.9)) == []
    assert gone(kept("a", hours=11)) == [Removal("a", RUN_FILES)]
    assert gone(kept("a", hours=101)) == [Removal("a", RUN_FILES), Removal("a", REPORT_FILES)]
    assert gone(kept("a", hours=101, detail=0)) == [Removal("a", REPORT_FILES)]
    assert gone(kept("a", hours=101, incident=True)) == [Removal("a", RUN_FILES)]
    assert gone(kept("a", hours=1001, incident=True, detail=0)) == [Removal("a", REPORT_FILES)]


def test_beyond_the_bytes_the_oldest_goes_first_and_live_runs_and_incidents_last() -> None:
    runs = [kept(name, hours=hours, detail=400) for name, hours in (("c", 1), ("a", 3), ("b", 2))]
    assert gone(*runs) == [Removal("a", RUN_FILES)]
    assert gone(kept("a", hours=1), live_bytes=5000) == [Removal("a", RUN_FILES), Removal("a", REPORT_FILES)]
    runs = [kept("a", hours=3, incident=True, report=600), kept("b", hours=2, report=600)]
    assert gone(*runs) == [Removal("a", RUN_FILES), Removal("b", RUN_FILES), Removal("b", REPORT_FILES)]
