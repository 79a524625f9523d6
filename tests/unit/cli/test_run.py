"""`profd run`: what it launches and has recorded; the launcher is made up.

Whole launches are in integration.
"""

from __future__ import annotations

import io
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.fakesession import FakeRecording
from support.present import there
from support.synthetic import write_run

from profd.cli import run
from profd.cli.main import run_command_line
from profd.daemon import program
from profd.daemon.launch.launch import Plan
from profd.daemon.session.session import SessionOptions
from profd.daemon.store.records import Identity

CODE = 43


class Launched:
    """Launches nothing: keeps the plan, and starts its session as the launcher does."""

    def __init__(self, recording: FakeRecording) -> None:
        self._recording = recording
        self.plan: Plan | None = None
        self.window_folder_was_there = False

    def __call__(self, plan: Plan) -> int:
        self.plan = plan
        script = SimpleNamespace(pid=4242, identity=Identity(4242, 99))
        with socket.socket() as channel:
            plan.start_session(script, channel)  # type: ignore[arg-type]
        folder = self.options.window_folder
        self.window_folder_was_there = folder is not None and folder.is_dir()
        return CODE

    @property
    def options(self) -> SessionOptions:
        return there(self._recording.options)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Launched:
    recording = FakeRecording()
    launched = Launched(recording)
    monkeypatch.setattr(run, "launch", launched)
    monkeypatch.setattr(run, "start_session", recording)
    monkeypatch.setattr(run, "takes_dashboard", lambda: False)
    return launched


def plan_of(launched: Launched, *words: str) -> Plan:
    assert run_command_line(["run", *words]) == CODE
    return there(launched.plan)


def test_the_script_is_recorded_as_the_options_say_and_has_its_own(
    launched: Launched, tmp_path: Path
) -> None:
    plan = plan_of(launched, "python", "train.py", "--rate", "5", "--headless")
    assert plan.command == ("python", "train.py", "--rate", "5", "--headless")
    assert launched.options.rate_hz is None
    plan_of(
        launched,
        "--rate",
        "50",
        "--hang-after",
        "0",
        "-o",
        str(tmp_path / "a.profd"),
        "--",
        "python",
        "train.py",
    )
    options = launched.options
    assert (options.mode, options.pid, options.start_ticks) == ("launched", 4242, 99)
    assert (options.rate_hz, options.hang_after_s, options.run_file) == (
        50,
        None,
        tmp_path / "a.profd",
    )
    assert (options.name, options.command) == ("train", ("python", "train.py"))


def test_the_run_is_summed_up_at_its_end_unless_that_is_not_wanted(
    launched: Launched, tmp_path: Path
) -> None:
    path = write_run(tmp_path / "a.profd", seconds=1)  # elsewhere: it is named by its path
    assert f"profd report --open {path}" in run.sum_up(path)
    farewell = there(plan_of(launched, "python", "train.py").farewell)
    assert f"profd report --open {launched.options.run_id}" in farewell()
    assert plan_of(launched, "--quiet", "python", "train.py").farewell is None


def test_a_dashboard_is_for_a_terminal(launched: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan_of(launched, "python", "train.py").dashboard is None
    monkeypatch.setattr(run, "takes_dashboard", lambda: True)
    assert plan_of(launched, "--headless", "python", "train.py").dashboard is None
    dashboard = there(plan_of(launched, "python", "train.py").dashboard)
    assert dashboard(Path("/runs/a.profd"), 7) == program.words(
        "profd", "view", "/runs/a.profd", "--keys-fd", "7"
    )


def test_a_script_is_armed_for_windows_only_where_that_is_asked_for(launched: Launched) -> None:
    assert plan_of(launched, "python", "train.py").variables == {}
    assert launched.options.window_folder is None
    variables = plan_of(launched, "--torch-window", "--", "python", "train.py").variables
    assert variables["KINETO_USE_DAEMON"] == "1"
    assert launched.window_folder_was_there
    assert not there(launched.options.window_folder).exists()
    assert launched.options.window_schedule is None
    plan_of(launched, "--torch-window=every=10m,steps=3", "python", "train.py")
    schedule = there(launched.options.window_schedule)
    assert (schedule.every_s, schedule.request.steps) == (600, 3)


@pytest.mark.parametrize("options", [(), ("--quiet",)])
def test_a_command_whose_run_can_be_written_nowhere_runs_all_the_same(
    options: tuple[str, ...],
    tmp_path: Path,
    launched: Launched,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    become: list[tuple[str, ...]] = []

    def become_script(words: tuple[str, ...]) -> None:
        become.append(words)
        raise SystemExit

    monkeypatch.setattr(run, "become_script", become_script)
    (tmp_path / "file").touch()
    monkeypatch.setenv("PROFD_HOME", str(tmp_path / "file"))
    with pytest.raises(SystemExit):
        run_command_line(["run", *options, "python", "train.py"])
    assert become == [("python", "train.py")]
    said = capsys.readouterr().err
    assert (said.count("\n"), said.startswith("profd: nothing is recorded: cannot create")) == (
        1,
        True,
    )


def test_nothing_is_said_if_nobody_can_hear_it(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    run.narrate("profd: the dashboard is closed")
