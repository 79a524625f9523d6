"""A whole session in this process, with the stand-in for py-spy: what it says of an end that nobody
asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import msgspec
import pytest
from support.present import there
from support.pyspy.standin import StandIn
from support.synthetic import identity_of
from support.waiting import DEADLINE_S

from profd.daemon import VERSION, processes
from profd.daemon.clock import Clock
from profd.daemon.errors import OutputUnwritable
from profd.daemon.findings.catalog import analysis_name
from profd.daemon.session import analyst
from profd.daemon.session.control import ControlClient, Request, SessionStatus
from profd.daemon.session.recorder import Recorder, run_started
from profd.daemon.session.sampling import Members
from profd.daemon.session.session import Ready, SessionOptions
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    Record,
)

pytestmark = pytest.mark.usefixtures("py_spy")


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """Run what the test gives, if anything, up to where it waits."""
    program = f"{getattr(request, 'param', '')}\nprint('ready', flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1) as process:
        assert there(process.stdout).readline() == b"ready\n"
        yield process
        process.kill()


@pytest.fixture
def recorder(target: subprocess.Popen[bytes], tmp_path: Path) -> Recorder:
    pid, start_ticks = identity_of(target.pid)
    target_of = {"run_file": tmp_path / "run.profd", "pid": pid, "start_ticks": start_ticks}
    options = msgspec.structs.replace(
        OPTIONS, **target_of, duration_s=None, steps=False, hang_after_s=None
    )
    return Recorder(options, Clock())


async def test_a_run_file_that_is_removed_ends_the_session_in_words(recorder: Recorder) -> None:
    with pytest.raises(OutputUnwritable, match="was removed while it was written"):
        await recorder.run(lambda ready: ready.run_file.unlink())


MANY = (
    "import threading\nfor _ in range(40): threading.Thread(target=threading.Event().wait, "
    "daemon=True).start()"
)


@pytest.mark.parametrize("target", [MANY], indirect=True)
def test_a_program_of_many_threads_is_sampled_at_a_low_rate_from_the_start(
    recorder: Recorder,
) -> None:
    status = recorder.carry_out(Request("hello"))
    assert isinstance(status, SessionStatus)
    assert status.rate_hz == 20


async def test_a_session_that_breaks_says_so_in_its_run(
    recorder: Recorder, py_spy: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(_: Members) -> None:
        raise RuntimeError("nobody thought of this")

    with pytest.raises(RuntimeError, match="nobody thought"):
        await recorder.run(lambda _: monkeypatch.setattr(Members, "look", break_off))
    with RunReader(recorder.options.run_file) as reader:
        assert reader.info.why_ended == "failed"
    assert all(processes.read_stat(event.pid) is None for event in py_spy.events("start"))


async def test_a_run_is_looked_at_while_it_is_recorded_and_as_a_whole_at_its_end(
    recorder: Recorder, target: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analyst, "RESTS_S", (0,))
    monkeypatch.setattr(analyst, "UNWATCHED_S", 0)
    monkeypatch.setattr(analyst, "WHOLE_WITHIN_S", DEADLINE_S)
    running = asyncio.ensure_future(recorder.run(lambda _: None))
    path = recorder.options.run_file
    while not (path.exists() and _analyzed_ns(path)):
        await asyncio.sleep(0.05)
    target.kill()
    await running
    with RunReader(path) as reader:
        assert reader.info.why_ended == "target-exited"
        assert reader.info.findings_made_by == analysis_name()


@pytest.mark.parametrize("by", ["watching", "opening"])
async def test_watching_the_run_or_opening_its_file_soon_gives_findings(
    recorder: Recorder, target: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    asked, looked = asyncio.Event(), asyncio.Event()
    take = Recorder._take_findings

    def took(self: Recorder, record: Record) -> None:
        take(self, record)
        looked.set()

    monkeypatch.setattr(analyst, "RESTS_S", (0,))
    monkeypatch.setattr(analyst, "UNWATCHED_S", 0)
    monkeypatch.setattr(Recorder, "_take_findings", took)
    monkeypatch.setattr(analyst.AnalystProcess, "ask", lambda _: asked.set())
    announced: list[Ready] = []
    running = asyncio.ensure_future(recorder.run(announced.append))
    await looked.wait()
    assert not asked.is_set()
    if by == "opening":
        recorder.options.run_file.read_bytes()
        await asked.wait()
    else:
        with contextlib.closing(ControlClient(announced[0].control_socket)) as client:
            assert recorder._writer.gathers
            await asyncio.to_thread(client.watch)
            assert asked.is_set()
            assert not recorder._writer.gathers
    target.kill()
    await running


def _analyzed_ns(path: Path) -> int | None:
    with RunReader(path) as reader:
        return reader.info.analyzed_ns


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


def test_a_run_names_its_target_its_recorder_and_its_options() -> None:
    started = run_started(OPTIONS, Path("/run/id.sock"), 77)
    assert "hunter2" not in str(started)
    assert started.target == (os.getpid(), 5)
    assert started.recorder == identity_of()
    assert (started.started_ns, started.control_socket, started.cwd) == (
        77,
        "/run/id.sock",
        str(Path.cwd()),
    )
    assert started.user == pwd.getpwuid(os.getuid()).pw_name
    assert set(started.versions) == {"profd", "python", "py_spy", "kernel"}
    assert started.versions["profd"] == VERSION
    assert started.versions["py_spy"] == metadata.version("py-spy")
    assert started.options == {
        "rate_hz": None,
        "budget_percent": 10.0,
        "subprocesses": True,
        "all_gpus": False,
        "hang_after_s": 30.0,
        "steps": True,
        "source": True,
        "duration_s": 2.5,
    }


def test_a_target_that_is_gone_stays_unknown() -> None:
    started = run_started(msgspec.structs.replace(OPTIONS, pid=2**22 + 1), Path("/run/id.sock"), 77)
    assert (started.cwd, started.versions["python"]) == ("", "")


def test_names_that_are_no_text_or_missing_are_still_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)  # noqa: PTH102
    monkeypatch.chdir(os.fsdecode(folder))
    monkeypatch.setattr(os, "getuid", lambda: 123_456)
    started = run_started(OPTIONS, Path("/run/id.sock"), 77)
    assert (started.cwd, started.user) == (f"{tmp_path}/caf\ufffd", "123456")
