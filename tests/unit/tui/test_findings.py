"""The findings that the dashboard shows: those of the run file, and where it has none those of its
own analyst.
"""

from __future__ import annotations

import contextlib
import resource
import sqlite3
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
from support.dashboard import open_dashboard
from support.findingruns import HEALTHY, LOAD_IN_PROCESS, look, step, write_case
from support.present import there
from support.synthetic import LiveRun, live_run, write_run
from support.waiting import until

from profd.daemon.errors import RunUnreadable
from profd.daemon.session.analyst import command
from profd.daemon.store.bound import bounded_memory
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import AnalysisLost, FindingsTaken, Record
from profd.tui.findings import Analysis, Findings
from profd.tui.widgets.header import VerdictLine


class OwnAnalyst(Analysis):
    """An analyst of the dashboard's own that has found ``taken``.

    ``polls`` counts how often it was asked.
    """

    def __init__(self, taken: FindingsTaken | None = None) -> None:
        super().__init__(())
        self.taken = taken
        self.polls = 0
        self.is_closed = False

    def poll(self) -> FindingsTaken | None:
        self.polls += 1
        return self.taken

    def close(self) -> None:
        self.is_closed = True


def rules(findings: Findings) -> list[str]:
    return [one.rule for one in findings.findings]


def is_renewed(findings: Findings, reader: RunReader) -> bool:
    reader.refresh()
    return findings.renew()


def analyze(run: LiveRun) -> FindingsTaken:
    """Have the findings of a run in its file, as its session does."""
    taken = look(run.path)
    write(run, taken)
    return taken


def write(run: LiveRun, record: Record) -> None:
    """Write a record, and return when a reader sees it."""
    assert run.writer.put(record)
    run.advance()


def test_a_live_run_is_read_and_never_looked_at(tmp_path: Path) -> None:
    own = OwnAnalyst()
    with live_run(tmp_path / "a.profd", seconds=20) as run, RunReader(run.path) as reader:
        findings = Findings(reader, own)
        assert not findings.renew()
        assert not findings.has_looked
        taken = analyze(run)
        assert is_renewed(findings, reader)
        assert (rules(findings), findings.has_looked) == (["input-bound-saturated"], True)
        assert findings.findings[0].title == taken.findings[0].title
        assert not findings.renew()
        write(run, FindingsTaken(taken.at_ns + 1, ()))
        assert is_renewed(findings, reader)
        assert (rules(findings), findings.has_looked) == ([], True)
        taken = analyze(run)
        write(run, AnalysisLost(taken.at_ns + 2))
        assert is_renewed(findings, reader)
        assert (rules(findings), findings.has_looked, findings.has_failed) == ([], False, True)
        assert own.polls == 0


def test_an_ended_run_is_read_where_it_was_analyzed_as_a_whole(tmp_path: Path) -> None:
    whole = look(write_run(tmp_path / "plain.profd"))
    own = OwnAnalyst()
    with RunReader(write_run(tmp_path / "a.profd", also=[whole])) as reader:
        findings = Findings(reader, own)
        assert findings.renew()
        assert (rules(findings), findings.has_looked, own.polls) == (
            ["input-bound-saturated"],
            True,
            0,
        )
        assert not findings.renew()
        assert own.is_closed


def test_one_that_was_not_is_looked_at_once_and_waited_for_by_nobody(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 300)), seconds=60)
    own = OwnAnalyst()
    with RunReader(path) as reader:
        findings = Findings(reader, own)
        assert not findings.renew()
        assert not findings.renew()
        assert not findings.has_looked
        own.taken = look(path)
        assert findings.renew()
        assert (rules(findings), findings.has_looked) == (["input-bound-in-process"], True)
        assert not findings.renew()
        assert own.polls == 3
        own = OwnAnalyst()
        own.is_given_up = True  # it died
        findings = Findings(reader, own)
        assert findings.renew()
        assert (findings.has_failed, findings.has_looked) == (True, False)
        assert not findings.renew()


def test_a_damaged_finding_is_said(tmp_path: Path) -> None:
    whole = look(write_run(tmp_path / "plain.profd"))
    path = write_run(tmp_path / "a.profd", also=[whole])
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE finding SET report = '{}'")
    with RunReader(path) as reader, pytest.raises(RunUnreadable):
        Findings(reader, OwnAnalyst()).renew()


async def test_no_run_is_called_all_compute_before_it_was_looked_at(tmp_path: Path) -> None:
    async with open_dashboard(write_case(tmp_path / "a.profd", HEALTHY, seconds=60)) as opened:
        await opened.until_text(VerdictLine, "all compute")
        line = opened.widget(VerdictLine)
        line.show(msgspec.structs.replace(there(line.snapshot), is_diagnosed=False))
        assert "all compute" not in opened.text(VerdictLine)


class Children:
    """The processes that this one has started since.

    Other tests leave some, as multiprocessing does its tracker.
    """

    def __init__(self) -> None:
        self._others = set(psutil.Process().children())

    def __call__(self) -> list[psutil.Process]:
        started = set(psutil.Process().children()) - self._others
        return [one for one in started if one.status() != psutil.STATUS_ZOMBIE]


def test_it_says_what_it_finds_and_costs_something(tmp_path: Path) -> None:
    run, children = (
        write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 300)), seconds=60),
        Children(),
    )
    with contextlib.closing(Analysis(command(run))) as found:
        assert (found.spent_s(), children()) == (0, [])  # it is not started before it is asked
        taken = until(found.poll, "what it finds")
        assert [one.rule for one in taken.findings] == ["input-bound-in-process"]
        assert taken.made_by
        spent_s = found.spent_s()
        assert spent_s >= 0
    assert children() == []
    assert found.spent_s() >= spent_s


def test_the_bound_of_the_dashboards_memory_is_not_the_analysts(tmp_path: Path) -> None:
    before, path = (
        resource.getrlimit(resource.RLIMIT_DATA),
        write_run(tmp_path / "a.profd", seconds=1),
    )
    says = "import resource; input(); print(resource.getrlimit(resource.RLIMIT_DATA))"
    with (
        bounded_memory(path) as bound,
        contextlib.closing(Analysis((sys.executable, "-c", says), bound)) as found,
    ):
        assert found.poll() is None
        process = there(found._process)
        assert process.communicate(b"\n")[0].decode() == f"{before}\n"


@pytest.mark.parametrize(
    "words", [[sys.executable, "-c", ""], command(Path("/none.profd")), ["/does/not/exist"]]
)
def test_one_that_dies_is_given_up(words: list[str]) -> None:
    children = Children()
    with contextlib.closing(Analysis(words)) as found:
        assert not found.is_given_up
        until(lambda: found.poll() is None and found.is_given_up, "its end")
        assert found.poll() is None
        assert children() == []
