"""The supervisor on a made-up host: what it takes over, heeds and leaves behind.

And the process of its metrics.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from support.clocks import StoppedClock
from support.hostfakes import FakeReporter, FakeSessions, FakeTable, Said, entry_of
from support.synthetic import write_run
from support.waiting import DEADLINE_S, eventually

from profd.daemon import paths, processes, program
from profd.daemon.errors import OutputUnwritable, SessionFailed
from profd.daemon.service import exporting, supervisor
from profd.daemon.service.configuration import Configuration, Exclusion, JobRule
from profd.daemon.service.exporting import Exporting, metrics_command
from profd.daemon.service.jobs import Jobs
from profd.daemon.service.log import SystemdNotifier
from profd.daemon.service.scanner import ProcessInfo
from profd.daemon.service.sessions import run_file
from profd.daemon.service.storage import RunRegistry, RunStorage
from profd.daemon.service.supervisor import SingleInstanceLock, Supervisor
from profd.daemon.store.records import HangFound, HangReport

OFTEN = Configuration(rule=(JobRule("torch", torch=True, min_age_s=0),), look_every_s=0.1)


class Host:
    """A made-up host with a supervisor that runs."""

    def __init__(self, home: Path) -> None:
        self.table, self.said, self.clock = FakeTable(), Said(), StoppedClock()
        self.sessions, self.reporter = FakeSessions(), FakeReporter()
        self.registry = RunRegistry(home / "daemon" / "host")
        self.storage = RunStorage(paths.make_private(paths.runs_folder()), home / "reports")
        self.reloads = 0
        self.supervisor: Supervisor
        self.task: asyncio.Task[None]

    def begin(self, configuration: Configuration = OFTEN) -> None:
        jobs = Jobs(self.table, configuration, self.said, self.clock)
        self.supervisor = Supervisor(
            configuration,
            jobs,
            self.sessions,
            self.reporter.report,
            self.registry,
            self.storage,
            self.said,
            self.clock,
        )
        self.task = asyncio.ensure_future(self.supervisor.run(SystemdNotifier(), self._count))

    async def until(self, is_so: Callable[[], bool]) -> None:
        def is_so_yet() -> bool:
            assert not self.task.done(), self.task.exception()
            return is_so()

        await eventually(is_so_yet, lambda: f"what was waited for; it said {self.said.events}")

    async def end(self) -> None:
        self.supervisor.end()
        await asyncio.wait_for(self.task, DEADLINE_S)

    def _count(self) -> None:
        self.reloads += 1


@pytest.fixture
async def host(profd_home: Path) -> AsyncIterator[Host]:
    made = Host(profd_home)
    yield made
    made.task.cancel()
    await asyncio.wait([made.task])


async def test_a_training_is_recorded_and_reported(host: Host) -> None:
    host.begin()
    host.table.add(7, torch=True)
    await host.until(lambda: 7 in host.sessions.live)
    host.table.remove(7)
    host.sessions.end(7)
    await host.until(lambda: len(host.reporter.reported) == 1)
    await host.end()
    assert host.said.events == ["ready", "recording", "ended", "reported", "stopping"]


async def test_what_lives_is_adopted_and_not_recorded_twice_and_what_was_stopped_stays_so(
    host: Host,
) -> None:
    entry = entry_of(7)
    host.registry.put(entry)
    host.registry.put(entry_of(6, run=2, ended_ns=host.clock.at_ns, why="stopped", reported=True))
    host.sessions.adoptable = {entry.run_id}
    for pid in (6, 7, 8):
        host.table.add(pid, torch=True)
    host.begin()
    await host.until(lambda: 8 in host.sessions.live)
    await host.end()
    assert host.sessions.started == [8]
    assert host.said.events[0] == "adopted"


async def test_what_ended_meanwhile_or_was_not_reported_is_and_what_never_began_is_forgotten(
    host: Host,
) -> None:
    ended, never = entry_of(7), entry_of(8, run=2)
    late, stopped = (
        entry_of(pid, run=pid, ended_ns=host.clock.at_ns, why="stopped", reported=reported)
        for pid, reported in ((5, False), (6, True))
    )
    for entry in (ended, never, late, stopped):
        host.registry.put(entry)
    write_run(run_file(ended.run_id), seconds=2)
    host.begin()
    await host.until(lambda: set(host.reporter.reported) == {ended.run_id, late.run_id})
    await host.until(lambda: all(entry.is_reported for entry in host.registry.entries()))
    noted = {entry.run_id: entry for entry in host.registry.entries()}
    assert never.run_id not in noted
    assert (noted[ended.run_id].why_ended, noted[ended.run_id].ended_ns > 0) == (
        "target-exited",
        True,
    )
    assert len(host.reporter.reported) == 2


async def test_a_live_run_that_hangs_is_reported_at_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "INCIDENTS_EVERY_S", 0.01)
    entry = entry_of(7)
    host.registry.put(entry)
    host.sessions.adoptable = {entry.run_id}
    hang = HangFound(
        1_795_176_001_000_000_000, 1_795_176_000_000_000_000, "waits", HangReport("lock", ())
    )
    write_run(run_file(entry.run_id), seconds=2, also=[hang])
    host.begin()
    await host.until(lambda: host.reporter.reported == [entry.run_id])
    await host.until(lambda: "reported" in host.said.events)
    assert host.said.events.count("hang") == 1
    assert [entry.is_reported for entry in host.registry.entries()] == [False]


@pytest.mark.parametrize(("at_exit", "live"), [("leave", {7}), ("stop", set())])
async def test_sessions_are_left_or_stopped_as_it_is_wanted(
    host: Host, at_exit: str, live: set[int]
) -> None:
    host.begin(Configuration(rule=OFTEN.rule, at_exit=at_exit))  # type: ignore[arg-type]
    host.table.add(7, torch=True)
    await host.until(lambda: 7 in host.sessions.live)
    await host.end()
    assert set(host.sessions.live) == live


async def test_another_configuration_holds_for_what_comes(host: Host) -> None:
    host.begin()
    host.table.add(7, torch=True)
    await host.until(lambda: 7 in host.sessions.live)
    host.supervisor.use(
        Configuration(
            rule=OFTEN.rule,
            exclude=(Exclusion(command="train"),),
            budget_percent=4,
            most_per_user=2,
        )
    )
    host.table.add(8, torch=True)
    host.table.add(9, "python", "fit.py", torch=True)
    await host.until(lambda: 9 in host.sessions.live)
    assert host.sessions.started == [7, 9]
    assert host.sessions.parts == {7: 2.0, 9: 2.0}


async def test_a_look_that_fails_is_said_and_is_not_the_last(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, looks = host.table.look, list[int]()

    def fail(pid: int) -> ProcessInfo | None:
        looks.append(pid)
        host.clock.advance(60)
        if len(looks) < 3:
            raise ValueError("Exceeds the limit (4300 digits)")
        return look(pid)

    monkeypatch.setattr(host.table, "look", fail)
    host.table.add(7, torch=True)
    host.begin()
    await host.until(lambda: "recording" in host.said.events)
    assert host.said.events.count("unlooked") == 1
    await host.end()


def test_a_second_supervisor_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    first = SingleInstanceLock(tmp_path)
    with pytest.raises(SessionFailed, match=rf"runs already, as pid {os.getpid()} "):
        SingleInstanceLock(tmp_path)
    first.close()
    SingleInstanceLock(tmp_path).close()


def test_the_lock_is_no_link_and_not_for_others(tmp_path: Path) -> None:
    (tmp_path / "daemon.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputUnwritable):
        SingleInstanceLock(tmp_path)
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "daemon.lock").unlink()
    SingleInstanceLock(tmp_path).close()
    assert stat.S_IMODE((tmp_path / "daemon.lock").stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_gets_notifications(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(tmp_path / "notify") if kind == "path" else f"\0profd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name)
        monkeypatch.setenv("NOTIFY_SOCKET", name.replace("\0", "@"))
        monkeypatch.setenv("WATCHDOG_USEC", "60000000")
        notifier = SystemdNotifier()
        notifier.tell("READY=1")
        assert systemd.recv(64) == b"READY=1"
    assert notifier.watchdog_s == 60
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & set(os.environ)  # no child is to answer
    notifier.tell("WATCHDOG=1")  # nobody listens any more
    without = SystemdNotifier()
    without.tell("READY=1")
    assert without.watchdog_s is None


def test_lines_have_a_level_in_front_where_the_journal_reads_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    plain = Said()
    plain.say("ended", "target-exited", run="r", pid=7)
    (line,) = plain.lines
    assert (line.event, line.message, line.run, line.pid, line.level) == (
        "ended",
        "target-exited",
        "r",
        7,
        "info",
    )
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    leveled = Said()
    leveled.complain("refused", SessionFailed("no", "do this"))
    assert leveled.stream.getvalue().startswith(b'<4>{"time":')


def test_entries_are_kept_from_one_supervisor_to_the_next_and_what_is_none_is_left_alone(
    profd_home: Path,
) -> None:
    folder = profd_home / "daemon" / "host"
    entries = [entry_of(7, run=run) for run in (1, 2)]
    for entry in reversed(entries):
        RunRegistry(folder).put(entry)
    (folder / "cut.json").write_bytes(b"{")
    (folder / "other.json").write_bytes(msgspec.json.encode(entries[0]))
    (folder / "latest.json").write_bytes(
        msgspec.json.encode(msgspec.structs.replace(entries[0], run_id="latest"))
    )
    assert RunRegistry(folder).entries() == entries
    for entry in entries:
        assert stat.S_IMODE((folder / f"{entry.run_id}.json").stat().st_mode) == 0o600
    RunRegistry(folder).remove(entries[0].run_id)
    assert RunRegistry(folder).entries() == entries[1:]
    assert (
        stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    )
    assert len(list(folder.iterdir())) == 4


SERVING = (
    "import os, sys; sys.stderr.write(f'{os.getpid()}\\n'); sys.stderr.flush(); sys.stdin.read()"
)


def pids(said: Said) -> list[int]:
    return [int(line.message) for line in said.lines if line.event == "metrics"]


def is_running(pid: int) -> bool:
    stat = processes.read_stat(pid)
    return stat is not None and stat.state != "Z"


def test_runs_are_served_where_it_is_wanted_alone() -> None:
    assert metrics_command(Configuration(), Path("/runs")) == ()
    wanted = Configuration(metrics="0.0.0.0:9464", otlp="http://there:4318")
    words = metrics_command(wanted, Path("/runs"))
    options = ("/runs", "0.0.0.0:9464", "--otlp", "http://there:4318", "--while-stdin")
    assert words == tuple(program.words("profd.daemon.metrics", *options))
    assert metrics_command(Configuration(metrics="9464"), Path("/runs"))[-3:] == (
        "/runs",
        "9464",
        "--while-stdin",
    )


async def test_it_runs_until_another_one_is_wanted() -> None:
    said = Said()
    serving = Exporting(said)
    for number in (1, 2):
        command = (sys.executable, "-c", SERVING, str(number))
        serving.use(command)
        serving.use(command)  # the same again changes nothing
        await eventually(lambda number=number: len(pids(said)) == number, "the server's start")  # type: ignore[misc]
    first, second = pids(said)
    assert (is_running(first), is_running(second)) == (False, True)
    await serving.close()
    assert not is_running(second)
    assert "unserved" not in said.events


async def test_one_that_breaks_off_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "_FIRST_REST_S", 0.01)
    said = Said()
    serving = Exporting(said)
    serving.use((sys.executable, "-c", "import sys; sys.exit('prometheus_client is missing')"))
    await eventually(lambda: said.events.count("unserved") >= 2, "a second failure")
    await serving.close()
    assert said.lines[0].message == "prometheus_client is missing"
    assert "broke off with 1" in said.lines[1].message
