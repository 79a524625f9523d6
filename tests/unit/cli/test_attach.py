"""`profd attach`: what it has recorded, and what it says as that ends; its session is made up."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner
from support.commandline import CommandLine
from support.fakesession import FakeRecording
from support.present import there
from support.synthetic import RUN_ID, identity_of, this_process, write_run

from profd.cli import attach, main
from profd.daemon import paths, processes
from profd.daemon.errors import ExitCode
from profd.daemon.tree.attachable import Attachable
from profd.tui.dialogs import Leaving

PID = str(os.getpid())


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> FakeRecording:
    recording = FakeRecording()
    monkeypatch.setattr(attach, "start_session", recording)
    monkeypatch.setattr(attach, "start_ahead", contextlib.nullcontext)
    monkeypatch.setattr("profd.cli.liverun.check_attachable", lambda pid, system: "")
    monkeypatch.setattr(attach, "takes_dashboard", lambda: False)
    return recording


def test_the_process_is_recorded_as_the_options_say(
    recording: FakeRecording, tmp_path: Path, profd: CommandLine
) -> None:
    words = ["--rate", 50, "--hang-after", 0, "--no-subprocesses", "-o", tmp_path / "a.profd"]
    profd("attach", PID, "--name", "Night 1", *words)
    options = there(recording.options)
    assert (options.mode, (options.pid, options.start_ticks)) == ("attached", identity_of())
    assert (options.rate_hz, options.hang_after_s, options.subprocesses, options.steps) == (
        50,
        None,
        False,
        True,
    )
    assert (options.name, options.run_file) == ("Night_1", tmp_path / "a.profd")
    assert options.command == processes.command_line(os.getpid())
    assert f"profd: recording pid {PID} as {options.run_id}; Ctrl-C ends" in profd.err


def test_a_recording_that_was_cut_off_or_does_not_end_is_said(
    recording: FakeRecording, profd: CommandLine
) -> None:
    recording.runs_on = True
    assert "kill -9 777 ends it" in profd("attach", PID, code=ExitCode.SESSION)
    recording.runs_on = recording.closes = False
    last = profd("attach", PID, code=ExitCode.SESSION).splitlines()[-1]
    assert "was cut off" in last
    assert f"profd summary {recording.run_file}" in last


@pytest.mark.parametrize(
    ("leaving", "said"),
    [
        (Leaving.KEEP, "still recording: `profd view {}` comes back"),
        (Leaving.END, "profd report --open {}"),
    ],
)
def test_leaving_the_dashboard_keeps_or_ends_the_recording(
    recording: FakeRecording,
    monkeypatch: pytest.MonkeyPatch,
    profd: CommandLine,
    leaving: Leaving,
    said: str,
) -> None:
    recording.runs_on = True
    monkeypatch.setattr(recording, "end", lambda: setattr(recording, "runs_on", False))
    monkeypatch.setattr(attach, "takes_dashboard", lambda: True)
    monkeypatch.setitem(
        sys.modules, "profd.tui.app", SimpleNamespace(run_dashboard=lambda run_file: leaving)
    )
    profd("attach", PID)
    assert recording.runs_on == (leaving is Leaving.KEEP)
    assert said.format(recording.run_file.stem) in profd.err


@pytest.mark.parametrize(
    ("leaving", "ended", "said"),
    [(Leaving.KEEP, False, "still recording: `profd view {}`"), (Leaving.END, False, "profd report --open {}"),
     (Leaving.KEEP, True, "profd report --open {}")],
)  # fmt: skip
def test_a_process_that_is_recorded_already_is_shown_and_recorded_again_where_an_option_asks_for_it(
    recording: FakeRecording,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    profd: CommandLine,
    leaving: Leaving,
    ended: bool,
    said: str,
) -> None:
    run_file = write_run(runs / f"{RUN_ID}.profd", seconds=1, live=True, also=[this_process()])
    (paths.runtime_folder() / f"{RUN_ID}.sock").touch()
    shown: list[Path] = []

    def show(path: Path, *, may_end: bool = True) -> Leaving:
        assert not may_end
        shown.append(path)
        if ended:
            path.unlink()
            write_run(path, seconds=1)
        return leaving

    profd("attach", PID)  # no terminal
    assert f"pid {PID} is recorded already, as {RUN_ID}: this is a second recording" in profd.err
    assert there(recording.options).pid == os.getpid()
    recording.options = None
    monkeypatch.setattr(attach, "takes_dashboard", lambda: True)
    monkeypatch.setitem(sys.modules, "profd.tui.app", SimpleNamespace(run_dashboard=show))
    profd("attach", PID)
    assert (recording.options, shown) == (None, [run_file])
    assert said.format(RUN_ID) in profd.err
    monkeypatch.setitem(
        sys.modules, "profd.tui.app", SimpleNamespace(run_dashboard=lambda path: leaving)
    )
    if not ended:
        profd("attach", PID, "--rate", 50)
        assert there(recording.options).rate_hz == 50
        assert "a second recording" in profd.err


TRAININGS = [
    Attachable(
        pid=4242, python="3.11", uses_torch=True, age_s=61.0, command=("python", "train.py")
    ),
    Attachable(
        pid=os.getpid(),
        python="3.12",
        uses_torch=False,
        age_s=5.0,
        command=(),
        notebook="/home/me/tune.ipynb",
    ),
]


def test_without_a_pid_it_lists_what_can_be_attached_to_and_asks(
    recording: FakeRecording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profd.daemon.tree.attachable.find_attachable", lambda: TRAININGS)
    monkeypatch.setattr(attach, "is_interactive", lambda: True)
    asked = CliRunner().invoke(
        attach.command, ["--headless"], input=f"77\n{PID}\n", standalone_mode=False
    )
    for words in ("4242", "notebook /home/me/tune.ipynb", "'77' is not one of"):
        assert words in asked.stderr
    assert there(recording.options).pid == os.getpid()
    completion = BashComplete(main.profd, {}, "profd", "_PROFD_COMPLETE")  # a shell completes them
    assert [item.value for item in completion.get_completions([], "att")] == ["attach"]
    found = {item.value: item.help for item in completion.get_completions(["attach"], "42")}
    assert found.pop("4242") == "python train.py"
    assert found.keys() == {str(pid) for pid in [os.getpid()] if str(pid).startswith("42")}


def test_without_a_pid_and_a_terminal_it_lists_and_refuses(
    recording: FakeRecording, monkeypatch: pytest.MonkeyPatch, profd: CommandLine
) -> None:
    monkeypatch.setattr("profd.daemon.tree.attachable.find_attachable", lambda: TRAININGS)
    text = profd("attach", code=ExitCode.USAGE)
    assert "train.py" in text
    assert "name its PID: profd attach PID" in text
    monkeypatch.setattr("profd.daemon.tree.attachable.find_attachable", list)
    assert "profd run -- CMD" in profd("attach", code=ExitCode.USAGE)
    monkeypatch.setattr(processes, "read_stat", lambda pid: None)
    assert "ended while it was looked at" in profd("attach", PID, code=ExitCode.NO_PROCESS)
    assert recording.options is None
