"""The sessions of a supervisor, for real: begun, told their budget, adopted by another, stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.supervisors import ShortJob, short_job
from support.synthetic import identity_of
from support.waiting import until

from profd.daemon import processes
from profd.daemon.clock import Clock
from profd.daemon.errors import NoSuchProcess
from profd.daemon.service.configuration import Configuration
from profd.daemon.service.processes import Job
from profd.daemon.service.sessions import INTERRUPTED, Sessions, run_file, why_ended
from profd.daemon.service.storage import RunRegistry
from profd.daemon.session.control import ControlClient
from profd.daemon.store.records import Identity

STEPS = 20
pytestmark = pytest.mark.usefixtures("py_spy")


@pytest.fixture
def registry(profd_home: Path) -> RunRegistry:
    return RunRegistry(profd_home / "daemon" / "host")


def job_of(job: ShortJob) -> Job:
    return Job(identity_of(job.pid), job.pid, "short", processes.command_line(job.pid))


def begin(registry: RunRegistry) -> Sessions:
    return Sessions(Configuration(rate_hz=100), registry, Clock())


def test_session_keeps_to_a_budget_that_it_is_told(registry: RunRegistry) -> None:
    sessions = begin(registry)
    with short_job(STEPS) as job:
        recording = sessions.start(job_of(job), 50.0)
        client = ControlClient(recording.control_socket)
        assert client.hello().rate_hz == 100
        sessions.allow(recording, 0.1)
        until(lambda: client.hello().rate_hz < 20, "a lower rate")
        assert sessions.cpu_s(recording) > 0.0
        client.close()
        sessions.stop(recording)
        assert sessions.close(recording) == "stopped"


def test_session_without_a_run_file_yet_is_adopted_too(registry: RunRegistry) -> None:
    with short_job(STEPS) as job:
        recording = begin(registry).start(job_of(job), 50.0)
        run_file(recording.entry.run_id).unlink()
        sessions = begin(registry)
        adopted = sessions.adopt(recording.entry)
        assert adopted is not None
        until(lambda: not processes.is_running(*adopted.watch.identity), "its end")
        assert why_ended(recording.entry.run_id) == INTERRUPTED


def test_job_that_is_gone_leaves_no_entry(registry: RunRegistry) -> None:
    with short_job(STEPS) as job:
        gone = Job(Identity(job.pid, 1), job.pid, "short", ())
        with pytest.raises(NoSuchProcess):
            begin(registry).start(gone, 50.0)
    assert registry.entries() == []
