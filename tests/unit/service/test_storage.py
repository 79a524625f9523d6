"""Entries of runs that the supervisor began: whole, its own, and gone with their run."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from support.clocks import StoppedClock
from support.hostfakes import Said, entry_of

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import OutputUnwritable
from profd.daemon.service.configuration import Retention
from profd.daemon.service.storage import (
    REPORT_FILES,
    RUN_FILES,
    Entry,
    Kept,
    Removal,
    RunRegistry,
    RunRetention,
    RunStorage,
    removals,
)


def test_an_entry_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, entry = RunRegistry(tmp_path / "daemon" / "host"), entry_of(7)
    registry.put(entry)

    def write_nothing(value: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(msgspec.json, "encode", write_nothing)
    with pytest.raises(OutputUnwritable, match="No space left"):
        registry.put(entry_of(7, ended_ns=9))
    assert registry.entries() == [entry]


NOTHING = Retention(detail_hours=1e-6, report_hours=1e-6, incident_hours=1e-6)


class Home:
    """An retention, and files to be kept in it."""

    def __init__(self, home: Path) -> None:
        self.runs, self.reports = home / "runs", home / "reports"
        for folder in (self.runs, self.reports):
            folder.mkdir()
        self.clock, self.said = StoppedClock(), Said()
        self.registry = RunRegistry(home / "daemon" / "host")
        self.storage = RunStorage(self.runs, self.reports)
        self.retention = RunRetention(self.registry, self.storage, self.said, self.clock)

    def add(self, *, run: int = 1, live: bool = False, hours: float = 1) -> Entry:
        """Add a run that ended a while ago, an hour by default."""
        written_ns = self.clock.at_ns - int(hours * 3600 * 10**9)
        ended_ns = 0 if live else written_ns
        entry = entry_of(7, run=run, ended_ns=ended_ns)
        self.registry.put(entry)
        for name in (f"{entry.run_id}.profd", f"{entry.run_id}.profd-wal"):
            (self.runs / name).write_bytes(bytes(50))
        for ending in (".html", ".json"):
            (self.reports / f"{entry.run_id}{ending}").write_bytes(bytes(5))
        for file in (*self.runs.iterdir(), *self.reports.iterdir()):
            if file.name.startswith(entry.run_id):
                os.utime(file, ns=(written_ns, written_ns))
        return entry

    @property
    def files(self) -> list[str]:
        return sorted(
            path.name for folder in (self.runs, self.reports) for path in folder.iterdir()
        )


@pytest.fixture
def kept(profd_home: Path) -> Home:
    return Home(profd_home)


def test_detail_goes_before_reports_and_a_run_without_files_is_forgotten(kept: Home) -> None:
    entry = kept.add()
    kept.retention.apply(Retention(detail_hours=1e-6), ())
    assert kept.files == [f"{entry.run_id}.html", f"{entry.run_id}.json"]
    assert kept.registry.entries() == [entry]
    kept.clock.advance(24 * 3600)
    kept.retention.apply(NOTHING, ())
    assert (kept.files, kept.registry.entries()) == ([], [])


def test_the_text_of_a_hang_goes_with_its_run(kept: Home) -> None:
    entry = kept.add()
    told = kept.runs / f"{entry.run_id}.hang.md"
    told.write_bytes(bytes(5))
    os.utime(told, ns=(entry.ended_ns, entry.ended_ns))
    kept.retention.apply(NOTHING, ())
    assert not told.exists()


def test_runs_that_nobody_supervised_stay(kept: Home) -> None:
    kept.add(live=True)
    reported = kept.add(run=2)  # what is live or being reported stays, too
    (kept.runs / "20200101-000000-mine-0000.profd").write_bytes(bytes(5))
    before = kept.files
    kept.retention.apply(NOTHING, {reported.run_id})
    assert kept.files == before


def test_a_link_is_not_followed_and_stays(kept: Home, tmp_path: Path) -> None:
    entry, precious = kept.add(), tmp_path / "precious"
    precious.write_bytes(bytes(5))
    link = kept.runs / f"{entry.run_id}.profd"
    link.unlink()
    link.symlink_to(precious)
    kept.retention.apply(NOTHING, ())
    assert precious.exists()
    assert kept.files == [link.name]
    # Nor is a folder in whose place a link came.
    entry, elsewhere = kept.add(run=2), kept.runs.rename(tmp_path / "elsewhere")
    kept.runs.symlink_to(elsewhere)
    kept.clock.advance(24 * 3600)
    kept.retention.apply(NOTHING, ())
    assert (elsewhere / f"{entry.run_id}.profd").exists()


def test_an_entry_cannot_name_files_elsewhere(kept: Home, profd_home: Path) -> None:
    """It is not read.

    And what is to be removed lies in the folders of runs and reports, whoever says so.
    """
    precious = profd_home / "precious.profd"
    precious.write_bytes(bytes(5))
    entry = kept.add()
    for name, run_id in (("hostile", "../precious"), ("..", ".."), ("other", entry.run_id)):
        text = msgspec.json.encode(msgspec.structs.replace(entry, run_id=run_id))
        (profd_home / "daemon" / "host" / f"{name}.json").write_bytes(text)
    assert kept.registry.entries() == [entry]
    kept.retention.apply(NOTHING, ())
    kept.storage.remove(RUN_FILES, "../precious")
    assert precious.exists()


YEARS_NS = 2 * 365 * 24 * 3600 * 10**9


def add_ten(kept: Home) -> list[Entry]:
    """Add runs of the last ten hours, the oldest first."""
    return [kept.add(run=number, hours=11 - number) for number in range(1, 11)]


def test_a_clock_of_years_ahead_costs_little_until_it_is_set_right(kept: Home) -> None:
    oldest, *others = add_ten(kept)
    kept.clock.at_ns += YEARS_NS
    for _ in range(3):
        kept.retention.apply(Retention(), ())
        kept.clock.advance(600)
    assert [entry.run_id for entry in kept.registry.entries()] == [entry.run_id for entry in others]
    kept.clock.jump_ns = -YEARS_NS
    kept.clock.advance(24 * 3600)
    kept.retention.apply(Retention(), ())
    assert [entry.run_id for entry in kept.registry.entries()] == [entry.run_id for entry in others]
    assert not any(name.startswith(oldest.run_id) for name in kept.files)


def test_a_supervisor_that_is_restarted_all_the_time_removes_no_more(kept: Home) -> None:
    add_ten(kept)
    kept.clock.at_ns += YEARS_NS
    for _ in range(5):
        RunRetention(kept.registry, kept.storage, kept.said, kept.clock).apply(Retention(), ())
        kept.clock.advance(5)
    assert len(kept.registry.entries()) == 9


def test_what_is_too_old_goes_in_the_end_and_looks_that_remove_nothing_put_off_nothing(
    kept: Home,
) -> None:
    kept.retention.apply(NOTHING, ())
    add_ten(kept)
    kept.retention.apply(NOTHING, ())
    assert len(kept.registry.entries()) == 9
    for _ in range(9):
        kept.clock.advance(3600)
        kept.retention.apply(NOTHING, ())
    assert (kept.files, kept.registry.entries()) == ([], [])


def test_bytes_are_kept_to_at_once(kept: Home) -> None:
    add_ten(kept)
    kept.retention.apply(Retention(max_bytes=1), ())
    assert (kept.files, kept.registry.entries()) == ([], [])


def test_a_run_of_a_session_whose_clock_was_wrong_is_as_old_as_its_files(kept: Home) -> None:
    entry = msgspec.structs.replace(kept.add(), ended_ns=5)
    kept.registry.put(entry)
    kept.retention.apply(Retention(), ())
    assert kept.registry.entries() == [entry]
    assert len(kept.files) == 4


HOUR_NS = 3600 * SECOND_NS
NOW_NS = 1_000_000 * HOUR_NS
RETENTION = Retention(detail_hours=10, report_hours=100, incident_hours=1000, max_bytes=1000)


def of_age(
    name: str, *, hours: float, incident: bool = False, detail: int = 100, report: int = 10
) -> Kept:
    return Kept(name, NOW_NS - int(hours * HOUR_NS), incident, detail, report)


def gone(*runs: Kept, live_bytes: int = 0) -> list[Removal]:
    return removals(runs, RETENTION, NOW_NS, live_bytes)


def test_detail_goes_before_its_report_and_of_an_incident_it_stays_longer() -> None:
    assert gone(of_age("a", hours=1), of_age("b", hours=9.9)) == []
    assert gone(of_age("a", hours=11)) == [Removal("a", RUN_FILES)]
    assert gone(of_age("a", hours=101)) == [Removal("a", RUN_FILES), Removal("a", REPORT_FILES)]
    assert gone(of_age("a", hours=101, detail=0)) == [Removal("a", REPORT_FILES)]
    assert gone(of_age("a", hours=101, incident=True)) == [Removal("a", RUN_FILES)]
    assert gone(of_age("a", hours=1001, incident=True, detail=0)) == [Removal("a", REPORT_FILES)]


def test_beyond_the_bytes_the_oldest_goes_first_and_live_runs_and_incidents_last() -> None:
    runs = [of_age(name, hours=hours, detail=400) for name, hours in (("c", 1), ("a", 3), ("b", 2))]
    assert gone(*runs) == [Removal("a", RUN_FILES)]
    assert gone(of_age("a", hours=1), live_bytes=5000) == [
        Removal("a", RUN_FILES),
        Removal("a", REPORT_FILES),
    ]
    runs = [of_age("a", hours=3, incident=True, report=600), of_age("b", hours=2, report=600)]
    assert gone(*runs) == [
        Removal("a", RUN_FILES),
        Removal("b", RUN_FILES),
        Removal("b", REPORT_FILES),
    ]
