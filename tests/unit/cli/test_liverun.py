"""The live run of a process: which one it is, and one that is begun for it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from support import synthetic
from support.fakesession import FakeRecording
from support.present import there
from support.synthetic import this_process

from profd.cli.liverun import find_live, live_runs_of, pid_of, run_of
from profd.daemon import paths
from profd.daemon.errors import SessionFailed, UsageError
from profd.daemon.session.control import ControlServer, SessionStatus

PID = os.getpid()


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> FakeRecording:
    recording = FakeRecording(also=(this_process(),))
    monkeypatch.setattr("profd.cli.liverun.start_session", recording)
    monkeypatch.setattr("profd.cli.liverun.check_attachable", lambda pid, system: "")
    return recording


def test_a_number_is_a_pid_unless_it_names_a_run(runs: Path) -> None:
    synthetic.write_run(runs / "20261120-120000-42-3fa9.profd", seconds=1)
    synthetic.write_run(runs / "43.profd", seconds=1)
    assert [pid_of(word) for word in ("42", "43", "44", "latest", "-1", "4.2")] == [
        None,
        None,
        44,
        None,
        None,
        None,
    ]


def test_the_live_run_that_records_the_process_is_taken(
    runs: Path, recording: FakeRecording
) -> None:
    live = synthetic.write_run(
        runs / "20261120-120000-live-3fa9.profd", seconds=1, live=True, also=[this_process()]
    )
    synthetic.write_run(
        runs / "20261119-120000-older-3fa9.profd", seconds=1, live=True, also=[this_process()]
    )
    # These are newer.
    synthetic.write_run(runs / "20261121-120000-ended-3fa9.profd", seconds=1, also=[this_process()])
    synthetic.write_run(runs / "20261121-120000-other-3fa9.profd", seconds=1, live=True)
    (runs / "20261122-120000-broken-3fa9.profd").write_text("no run")
    synthetic.write_run(
        runs / "20261123-120000-unheard-3fa9.profd", seconds=1, live=True, also=[this_process()]
    )
    for name in (
        "20261119-120000-older",
        "20261120-120000-live",
        "20261121-120000-ended",
        "20261121-120000-other",
    ):
        (paths.runtime_folder() / f"{name}-3fa9.sock").touch()
    (paths.runtime_folder() / "20261122-120000-broken-3fa9.sock").touch()
    assert live_runs_of([1, PID]) == {PID: live}
    with run_of(PID, inject=False) as path:
        assert path == live
    assert recording.options is None


def test_the_latest_run_of_a_command_for_live_ones_is_the_newest_that_is_live(runs: Path) -> None:
    ended = synthetic.write_run(runs / "20261121-120000-ended-3fa9.profd", seconds=1)
    assert find_live("latest") == ended
    live = synthetic.write_run(runs / "20261120-120000-live-3fa9.profd", seconds=1, live=True)
    (paths.runtime_folder() / f"{live.stem}.sock").touch()
    (paths.runtime_folder() / f"{ended.stem}.sock").touch()
    assert [find_live(word) for word in ("latest", ended.stem, "live")] == [live, ended, live]


async def test_a_run_that_was_put_elsewhere_is_found_by_its_session(
    runs: Path, tmp_path: Path
) -> None:
    elsewhere = synthetic.write_run(
        tmp_path / "mine.profd", seconds=1, live=True, also=[this_process()]
    )
    status = SessionStatus("20261120-120000-mine-3fa9", str(elsewhere), 100, 0)
    server = ControlServer(
        paths.runtime_folder() / f"{status.run_id}.sock", lambda _: status, lambda _: None
    )
    await server.start()
    (paths.runtime_folder() / "20261119-120000-gone-3fa9.sock").touch()
    assert await asyncio.to_thread(live_runs_of, [1, PID]) == {PID: elsewhere}
    await server.close()


def test_nothing_is_put_into_a_process_that_was_not_armed_unless_asked_for(
    recording: FakeRecording,
) -> None:
    with pytest.raises(UsageError, match="in no live run"), run_of(PID, inject=False):
        pass
    assert recording.options is None


def test_a_process_in_no_run_is_recorded_for_as_long_as_that_takes_or_until_it_fails(
    recording: FakeRecording,
) -> None:
    with run_of(PID, inject=True) as path:
        assert path == recording.run_file
        options = there(recording.options)
        assert (options.mode, options.pid) == ("attached", PID)
        assert not recording.is_asked_to_end
    assert recording.is_asked_to_end
    recording.is_asked_to_end = False
    with pytest.raises(SessionFailed), run_of(PID, inject=True):
        raise SessionFailed("no window was taken", "")
    assert recording.is_asked_to_end
    recording.also = ()  # the process was not seen
    with pytest.raises(SessionFailed, match="is not being recorded"), run_of(PID, inject=True):
        pass
