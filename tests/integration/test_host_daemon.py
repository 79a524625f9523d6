"""The supervisor of a host, for real: short jobs found, recorded and reported, over a restart and a
kill -9.

And its sessions by themselves: begun, given a budget, adopted by another, stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from support.folders import ROOT
from support.launches import profd
from support.plainuser import NOBODY, as_plain_user
from support.scrapes import is_answered, scrape
from support.sessions import control_of
from support.supervisors import (
    PROFD,
    REPORT_DEADLINES,
    ShortJob,
    Supervised,
    home_name,
    short_job,
    supervised,
)
from support.synthetic import identity_of
from support.waiting import DEADLINE_S, count_recordings, until

from profd.daemon import paths, processes
from profd.daemon.errors import NoSuchProcess
from profd.daemon.service.configuration import Configuration
from profd.daemon.service.scanner import HostJob
from profd.daemon.service.sessions import INTERRUPTED, Sessions, run_file, why_ended
from profd.daemon.service.storage import RunRegistry
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity

JOBS = 2
STEPS = 20
_WITH_REPORTS = pytest.mark.timeout(2 * REPORT_DEADLINES * DEADLINE_S)
CONFIGURATION = """
rate_hz = 20
budget_percent = 25.0
look_every_s = 0.1
{more}
[[rule]]
name = "short"
command = 'shortjob\\.py \\d+ {home}'
min_age_s = 0
{tables}
"""


def configure_in(home: Path, more: str = "", tables: str = "") -> None:
    """Write a configuration by which a supervisor finds the jobs of this test, and of no other that
    runs beside it.
    """
    (home / "daemon.toml").write_text(
        CONFIGURATION.format(more=more, tables=tables, home=home_name())
    )


@pytest.fixture
def configure(profd_home: Path) -> Callable[..., None]:
    """Give a function that writes the configuration."""
    configure_in(profd_home)
    return partial(configure_in, profd_home)


def record(daemon: Supervised, job: ShortJob) -> str:
    """Wait until a job is recorded, let it end, and return its run."""
    run = daemon.wait("recording", pid=job.pid).run
    assert job.train() == 0
    return run


def reported(folder: Path, run: str) -> bool:
    return all((folder / "reports" / f"{run}{ending}").is_file() for ending in (".html", ".json"))


def has_recording(run: str) -> bool:
    return count_recordings(paths.find_run(run)) > 0


def sampled() -> list[int]:
    """Return the targets of all runs; each run has ended, and has samples."""
    found = []
    for path in paths.list_runs():
        with RunReader(path) as reader:
            assert reader.info.state == "ended"
            assert sum(recording.samples for recording in reader.recordings()) > 0
            found.append(reader.info.target.pid)
    return found


@_WITH_REPORTS
@pytest.mark.usefixtures("py_spy")
def test_short_jobs_leave_a_run_each_with_reports_over_a_restart_and_a_kill(
    configure: Callable[..., None], profd_home: Path
) -> None:
    runs: dict[int, str] = {}
    with contextlib.ExitStack() as stack:  # supervisors are ended, whatever becomes of the test
        daemon = stack.enter_context(supervised())
        for number in range(JOBS):
            with short_job(STEPS) as job:
                runs[job.pid] = daemon.wait("recording", pid=job.pid).run
                if number == 0:  # the session goes on, and the next supervisor takes it over
                    daemon.end(signal.SIGKILL)
                    daemon = stack.enter_context(supervised())
                    assert daemon.wait("adopted", pid=job.pid).run == runs[job.pid]
                if number == 1:  # the job ends while nobody supervises
                    assert daemon.end(signal.SIGTERM) == 0
                until(lambda run=runs[job.pid]: has_recording(run), "a first recording")  # type: ignore[misc]
                assert job.train() == 0
                if number == 1:
                    daemon = stack.enter_context(supervised())
            daemon.wait("ended", run=runs[job.pid])
        for run in runs.values():
            until(lambda run=run: reported(profd_home, run), f"a report of {run}", REPORT_DEADLINES)  # type: ignore[misc]
        assert daemon.end() == 0
    assert sorted(sampled()) == sorted(runs)  # each job once


@pytest.mark.usefixtures("py_spy")
def test_a_configuration_is_reloaded_and_a_broken_one_is_not(
    configure: Callable[..., None],
) -> None:
    with supervised() as daemon:
        configure("rate = 20")
        daemon.process.send_signal(signal.SIGHUP)
        assert "did you mean rate_hz?" in daemon.wait("unreloaded").message
        configure(tables='[[exclude]]\ncommand = "py 400 "\n')
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait("reloaded")
        with short_job(400) as excluded, short_job(STEPS) as job:
            record(daemon, job)
            assert excluded.pid not in {line.pid for line in daemon.lines}


@_WITH_REPORTS
@pytest.mark.usefixtures("py_spy")
def test_commands_work_on_its_sessions_and_what_is_stopped_stays_so(
    configure: Callable[..., None],
) -> None:
    with supervised() as daemon, short_job(STEPS) as job:
        run = daemon.wait("recording", pid=job.pid).run
        assert listed() == {run: "live"}
        assert profd("stop", run).returncode == 0
        assert daemon.wait("ended", run=run).message == "stopped"
        daemon.wait("reported", run=run)
        with short_job(
            STEPS
        ) as other:  # by the time that this one is found, the first would have been found again
            record(daemon, other)
        assert [line.pid for line in daemon.lines if line.event == "recording"] == [
            job.pid,
            other.pid,
        ]


@pytest.mark.usefixtures("py_spy")
def test_metrics_of_its_runs_are_served_and_end_with_it(configure: Callable[..., None]) -> None:
    configure('metrics = "127.0.0.1:0"')
    with supervised() as daemon, short_job(STEPS) as job:
        run = daemon.wait("recording", pid=job.pid).run
        url = daemon.wait("metrics").message.split()[-1]
        until(lambda: f'run="{run}"' in scrape(url), "metrics of the run")
        daemon.end(signal.SIGKILL)
        until(lambda: not is_answered(url), "the end of its process")
        job.train()


@_WITH_REPORTS
@pytest.mark.requires("root")  # which can act as two users
def test_two_users_see_neither_runs_nor_jobs_of_each_other() -> None:
    nobody = as_plain_user()
    other = tuple(word.replace(str(NOBODY), str(NOBODY - 1)) for word in nobody)
    with home_of(NOBODY) as home, home_of(NOBODY - 1) as other_home:
        at_home = (*nobody, "env", f"PROFD_HOME={home}")
        with (
            supervised(*at_home) as daemon,
            supervised(*other, "env", f"PROFD_HOME={other_home}") as other_daemon,
            short_job(STEPS, *nobody) as job,
            short_job(STEPS, *other) as other_job,
        ):
            run, other_run = record(daemon, job), record(other_daemon, other_job)
            daemon.wait("reported", run=run)
            other_daemon.wait("reported", run=other_run)
            assert {line.pid for line in daemon.lines} - {0} == {job.pid}
            assert {line.pid for line in other_daemon.lines} - {0} == {other_job.pid}
        assert listed(*at_home) == {run: "ended"}
        for folder, mode in (
            (home / "runs", 0o700),
            (home / "runs" / f"{run}.profd", 0o600),
            (home / "daemon", 0o700),
        ):
            assert stat.S_IMODE(folder.stat().st_mode) == mode


@pytest.mark.requires("root")  # which can act as another user
def test_the_capabilities_of_the_system_unit_are_enough(configure: Callable[..., None]) -> None:
    """With the real py-spy, which needs them."""
    nobody = as_plain_user()
    unit = (ROOT / "packaging" / "systemd" / "system" / "profd.service").read_text()
    left = next(line for line in unit.splitlines() if line.startswith("CapabilityBoundingSet="))
    capabilities = [
        f"+{word.removeprefix('CAP_').lower()}" for word in left.partition("=")[2].split()
    ]
    confined = (
        "setpriv",
        "--no-new-privs",
        f"--bounding-set={','.join(['-all', *capabilities])}",
        "--",
    )
    with supervised(*confined) as daemon, short_job(STEPS, *nobody) as job:
        run = daemon.wait("recording", pid=job.pid).run
        until(lambda: has_recording(run), "a first recording")
        assert job.train() == 0
        daemon.wait("ended", pid=job.pid)
    assert sampled() == [job.pid]


@contextlib.contextmanager
def home_of(uid: int) -> Iterator[Path]:
    """Make a home of profd's for another user, with the configuration of these tests."""
    with tempfile.TemporaryDirectory(prefix="profd-") as name:
        home = Path(name)
        configure_in(home)
        os.chown(home, uid, uid)
        yield home


def listed(*before: str) -> dict[str, str]:
    """Return the state of each run that `profd ls` shows."""
    said = subprocess.run(
        [*before, *PROFD, "ls", "--json"], capture_output=True, timeout=DEADLINE_S, check=True
    )
    return {one["run"]: one["state"] for one in msgspec.json.decode(said.stdout)["runs"]}


@pytest.fixture
def registry(profd_home: Path) -> RunRegistry:
    return RunRegistry(profd_home / "daemon" / "host")


def job_of(job: ShortJob) -> HostJob:
    return HostJob(
        identity_of(job.pid), job.pid, "short", processes.command_line(job.pid), os.getuid()
    )


def begin(registry: RunRegistry) -> Sessions:
    return Sessions(Configuration(rate_hz=100), registry)


@pytest.mark.usefixtures("py_spy")
def test_a_session_keeps_to_a_budget_that_it_is_given(registry: RunRegistry) -> None:
    sessions = begin(registry)
    with short_job(STEPS) as job:
        recording = sessions.start(job_of(job), 50.0)
        client = control_of(recording.control_socket)
        assert client.hello().rate_hz == 100
        sessions.allow(recording, 0.1)
        until(lambda: client.hello().rate_hz < 20, "a lower rate")
        assert sessions.cpu_s(recording) > 0.0
        client.close()
        sessions.stop(recording)
        assert sessions.close(recording) == "stopped"


@pytest.mark.usefixtures("py_spy")
def test_session_without_a_run_file_yet_is_adopted_too(registry: RunRegistry) -> None:
    with short_job(STEPS) as job:
        recording = begin(registry).start(job_of(job), 50.0)
        run_file(recording.entry.run_id).unlink()
        sessions = begin(registry)
        adopted = sessions.adopt(recording.entry)
        assert adopted is not None
        until(lambda: not processes.is_running(*adopted.watch.identity), "its end")
        assert why_ended(recording.entry.run_id) == INTERRUPTED


@pytest.mark.usefixtures("py_spy")
def test_job_that_is_gone_leaves_no_entry(registry: RunRegistry) -> None:
    with short_job(STEPS) as job:
        gone = HostJob(Identity(job.pid, 1), job.pid, "short", (), os.getuid())
        with pytest.raises(NoSuchProcess):
            begin(registry).start(gone, 50.0)
    assert registry.entries() == []
