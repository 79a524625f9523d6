"""The supervisor of a host, for real: short jobs found, recorded and reported, over a restart and a kill -9."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from support.folders import ROOT
from support.launches import profd
from support.plainuser import NOBODY, as_plain_user
from support.supervisors import PROFD, ShortJob, Supervised, home_name, short_job, supervised
from support.waiting import DEADLINE_S, count_recordings, until

from profd.daemon import paths
from profd.daemon.store.reader import RunReader

JOBS = 5
STEPS = 20
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


def configuration(more: str = "", tables: str = "") -> str:
    """Return a configuration by which a supervisor finds the jobs of this test, and of no other that runs beside it."""
    return CONFIGURATION.format(more=more, tables=tables, home=home_name())


@pytest.fixture
def configure(profd_home: Path) -> Callable[..., None]:
    """Give a function that writes the configuration."""

    def write(more: str = "", tables: str = "") -> None:
        (profd_home / "daemon.toml").write_text(configuration(more, tables))

    write()
    return write


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Give a stack of what is to be ended, whatever becomes of the test."""
    with contextlib.ExitStack() as opened:
        yield opened


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
            found.append(reader.info.pid)
    return found


@pytest.mark.usefixtures("py_spy")
def test_short_jobs_leave_a_run_each_with_reports_over_a_restart_and_a_kill(
    configure: Callable[..., None], profd_home: Path, stack: contextlib.ExitStack
) -> None:
    runs: dict[int, str] = {}
    daemon = stack.enter_context(supervised())
    for number in range(JOBS):
        with short_job(STEPS) as job:
            runs[job.pid] = daemon.wait("recording", pid=job.pid).run
            if number == 1:  # the session goes on, and the next supervisor takes it over
                daemon.end(signal.SIGKILL)
                daemon = stack.enter_context(supervised())
                assert daemon.wait("adopted", pid=job.pid).run == runs[job.pid]
            if number == 3:  # the job ends while nobody supervises
                assert daemon.end(signal.SIGTERM) == 0
            until(lambda run=runs[job.pid]: has_recording(run), "a first recording")  # type: ignore[misc]
            assert job.train() == 0
            if number == 3:
                daemon = stack.enter_context(supervised())
        daemon.wait("ended", run=runs[job.pid])
    for run in runs.values():
        until(lambda run=run: reported(profd_home, run), f"a report of {run}")  # type: ignore[misc]
    assert daemon.end() == 0
    assert sorted(sampled()) == sorted(runs)  # each job once


@pytest.mark.usefixtures("py_spy")
def test_a_configuration_is_reloaded_and_a_broken_one_is_not(configure: Callable[..., None]) -> None:
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


@pytest.mark.usefixtures("py_spy")
def test_commands_work_on_its_sessions_and_what_is_stopped_stays_so(configure: Callable[..., None]) -> None:
    with supervised() as daemon, short_job(STEPS) as job:
        run = daemon.wait("recording", pid=job.pid).run
        assert listed() == {run: "live"}
        assert profd("stop", run).returncode == 0
        assert daemon.wait("ended", run=run).message == "stopped"
        daemon.wait("reported", run=run)
        with short_job(STEPS) as other:  # by the time that this one is found, the first would have been found again
            record(daemon, other)
        assert [line.pid for line in daemon.lines if line.event == "recording"] == [job.pid, other.pid]


@pytest.mark.usefixtures("py_spy")
def test_metrics_of_its_runs_are_served_and_end_with_it(configure: Callable[..., None]) -> None:
    configure('metrics = "127.0.0.1:0"')
    with supervised() as daemon, short_job(STEPS) as job:
        run = daemon.wait("recording", pid=job.pid).run
        url = daemon.wait("metrics").message.split()[-1]
        until(lambda: f'run="{run}"' in scraped(url), "metrics of the run")
        daemon.end(signal.SIGKILL)
        until(lambda: scraped(url) == "", "the end of its process")
        job.train()


def scraped(url: str) -> str:
    """Return what is served there; nothing where nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, ConnectionError):
        return ""


@pytest.mark.requires("root")  # which can act as two users
def test_two_users_see_neither_runs_nor_jobs_of_each_other() -> None:
    nobody = as_plain_user()
    other = tuple(word.replace(str(NOBODY), str(NOBODY - 1)) for word in nobody)
    with home_of(NOBODY) as home, home_of(NOBODY - 1) as other_home:
        environment, other_environment = {"PROFD_HOME": str(home)}, {"PROFD_HOME": str(other_home)}
        with (
            supervised(before=nobody, environment=environment) as daemon,
            supervised(before=other, environment=other_environment) as other_daemon,
            short_job(STEPS, before=nobody) as job,
            short_job(STEPS, before=other) as other_job,
        ):
            run, other_run = record(daemon, job), record(other_daemon, other_job)
            daemon.wait("reported", run=run)
            other_daemon.wait("reported", run=other_run)
            assert {line.pid for line in daemon.lines} - {0} == {job.pid}
            assert {line.pid for line in other_daemon.lines} - {0} == {other_job.pid}
        assert listed(*nobody, environment=environment) == {run: "ended"}
        for folder, mode in ((home / "runs", 0o700), (home / "runs" / f"{run}.profd", 0o600), (home / "daemon", 0o700)):
            assert stat.S_IMODE(folder.stat().st_mode) == mode


@pytest.mark.requires("root")  # which can act as another user
def test_the_capabilities_of_the_system_unit_are_enough(configure: Callable[..., None]) -> None:
    """With the real py-spy, which needs them."""
    nobody = as_plain_user()
    unit = (ROOT / "packaging" / "systemd" / "system" / "profd.service").read_text()
    left = next(line for line in unit.splitlines() if line.startswith("CapabilityBoundingSet="))
    capabilities = [f"+{word.removeprefix('CAP_').lower()}" for word in left.partition("=")[2].split()]
    confined = ("setpriv", "--no-new-privs", f"--bounding-set={','.join(['-all', *capabilities])}", "--")
    with supervised(before=confined) as daemon, short_job(STEPS, before=nobody) as job:
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
        (home / "daemon.toml").write_text(configuration())
        os.chown(home, uid, uid)
        yield home


def listed(*before: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the state of each run that `profd ls` shows."""
    command = [*before, *PROFD, "ls", "--json"]
    said = subprocess.run(
        command, capture_output=True, timeout=DEADLINE_S, check=True, env={**os.environ, **(environment or {})}
    )
    return {one["run"]: one["state"] for one in msgspec.json.decode(said.stdout)["runs"]}
