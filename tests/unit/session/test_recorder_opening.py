"""The first record of a run, of this process and of one that is gone."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import msgspec
import pytest

from profd.daemon import processes
from profd.daemon.session.recorder import described, run_started
from profd.daemon.session.session import SessionOptions
from profd.daemon.store.records import Frame, FrameDescription

OPTIONS = SessionOptions(
    run_id="id",
    name="cifar",
    run_file=Path("/runs/id.profd"),
    mode="attached",
    pid=os.getpid(),
    start_ticks=5,
    command=("python", "train.py", "--token=hunter2"),
    duration_s=2.5,
)


def test_says_who_is_recorded_by_whom_and_how() -> None:
    started = run_started(OPTIONS, Path("/run/id.sock"), 77)
    me = processes.read_stat(os.getpid())
    assert me is not None
    assert started.target == (os.getpid(), 5)
    assert started.recorder == (os.getpid(), me.start_ticks)
    assert (started.started_ns, started.control_socket, started.cwd) == (77, "/run/id.sock", str(Path.cwd()))
    assert started.user == pwd.getpwuid(os.getuid()).pw_name
    assert set(started.versions) == {"profd", "python", "py_spy", "kernel"}
    assert started.options == {
        "rate_hz": 100,
        "budget_percent": 10.0,
        "subprocesses": True,
        "all_gpus": False,
        "hang_after_s": 30.0,
        "steps": True,
        "source": True,
        "duration_s": 2.5,
    }


def test_keeps_no_secret() -> None:
    assert "hunter2" not in str(run_started(OPTIONS, Path("/run/id.sock"), 77))


def test_a_target_that_is_gone_or_a_line_that_is_not_known_stays_unknown() -> None:
    started = run_started(msgspec.structs.replace(OPTIONS, pid=2**22 + 1), Path("/run/id.sock"), 77)
    assert (started.cwd, started.versions["python"]) == ("", "")
    found = FrameDescription("train.py", False, None)
    assert described(lambda frame: found, with_source=True)(Frame("f", "train.py", 1)) == found


def test_a_folder_whose_name_is_no_text_is_shown_as_far_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)  # noqa: PTH102
    monkeypatch.chdir(os.fsdecode(folder))
    assert run_started(OPTIONS, Path("/run/id.sock"), 77).cwd == f"{tmp_path}/caf\ufffd"


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 123_456)
    assert run_started(OPTIONS, Path("/run/id.sock"), 77).user == "123456"


@pytest.mark.parametrize(("with_source", "kept"), [(True, "login(token=***"), (False, None)])
def test_lines_of_source_are_kept_without_secrets_or_not_at_all(with_source: bool, kept: str | None) -> None:
    found = FrameDescription("train.py", False, "login(token='hunter2')")
    assert described(lambda frame: found, with_source=with_source)(Frame("f", "train.py", 1)) == (
        FrameDescription("train.py", False, kept)
    )
