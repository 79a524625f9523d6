"""The files of the supervisor's runs: what is removed of them, and what never is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from clocks import StoppedClock
from hostfakes import Said, entry_of

from profd.daemon.host.archive import Archive
from profd.daemon.host.configuration import Retention
from profd.daemon.host.register import Entry, Register
from profd.daemon.host.shelf import Shelf

NOTHING = Retention(detail_hours=1e-6, report_hours=1e-6, incident_hours=1e-6)
DETAIL_ONLY = Retention(detail_hours=1e-6)


class Kept:
    """An archive, and files to be kept in it."""

    def __init__(self, home: Path) -> None:
        self.runs, self.reports = home / "runs", home / "reports"
        for folder in (self.runs, self.reports):
            folder.mkdir()
        self.clock, self.said = StoppedClock(), Said()
        self.register = Register(home / "daemon" / "host")
        self.shelf = Shelf(self.runs, self.reports)
        self.archive = Archive(self.register, self.shelf, self.said, self.clock)

    def add(self, *, run: int = 1, live: bool = False) -> Entry:
        """Add a run that ended an hour ago."""
        ended_ns = 0 if live else self.clock.at_ns - 3600 * 10**9
        entry = entry_of(7, run=run, ended_ns=ended_ns)
        self.register.put(entry)
        for name in (f"{entry.run_id}.profd", f"{entry.run_id}.profd-wal"):
            (self.runs / name).write_bytes(bytes(50))
        for ending in (".html", ".json"):
            (self.reports / f"{entry.run_id}{ending}").write_bytes(bytes(5))
        return entry

    @property
    def files(self) -> list[str]:
        return sorted(path.name for folder in (self.runs, self.reports) for path in folder.iterdir())


@pytest.fixture
def kept(profd_home: Path) -> Kept:
    return Kept(profd_home)


def test_detail_goes_and_reports_stay(kept: Kept) -> None:
    entry = kept.add()
    kept.archive.thin(DETAIL_ONLY, ())
    assert kept.files == [f"{entry.run_id}.html", f"{entry.run_id}.json"]
    assert kept.register.entries() == [entry]


def test_a_run_of_which_nothing_is_left_is_forgotten(kept: Kept) -> None:
    kept.add()
    kept.archive.thin(NOTHING, ())
    assert (kept.files, kept.register.entries()) == ([], [])


def test_live_runs_and_those_being_reported_stay(kept: Kept) -> None:
    kept.add(live=True)
    reported = kept.add(run=2)
    before = kept.files
    kept.archive.thin(NOTHING, {reported.run_id})
    assert kept.files == before


def test_runs_that_nobody_supervised_stay(kept: Kept) -> None:
    (kept.runs / "20200101-000000-mine-0000.profd").write_bytes(bytes(5))
    kept.archive.thin(NOTHING, ())
    assert kept.files == ["20200101-000000-mine-0000.profd"]


def test_a_link_is_not_followed_and_stays(kept: Kept, tmp_path: Path) -> None:
    entry = kept.add()
    precious = tmp_path / "precious"
    precious.write_bytes(bytes(5))
    link = kept.runs / f"{entry.run_id}.profd"
    link.unlink()
    link.symlink_to(precious)
    kept.archive.thin(NOTHING, ())
    assert precious.exists()
    assert kept.files == [link.name]


def test_a_folder_that_was_replaced_by_a_link_is_left_alone(kept: Kept, tmp_path: Path) -> None:
    entry = kept.add()
    elsewhere = kept.runs.rename(tmp_path / "elsewhere")
    kept.runs.symlink_to(elsewhere)
    kept.archive.thin(NOTHING, ())
    assert (elsewhere / f"{entry.run_id}.profd").exists()


def test_an_entry_cannot_name_files_elsewhere(kept: Kept, profd_home: Path) -> None:
    precious = profd_home / "precious.profd"
    precious.write_bytes(bytes(5))
    hostile = msgspec.structs.replace(kept.add(), run_id="../precious")
    (profd_home / "daemon" / "host" / "hostile.json").write_bytes(msgspec.json.encode(hostile))
    kept.archive.thin(NOTHING, ())
    kept.shelf.remove_detail("../precious")
    assert precious.exists()
