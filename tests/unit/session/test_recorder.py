"""A whole session in this process, with the stand-in for py-spy: what it says of an end that nobody asked for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pyspy.standin import StandIn
from support.waiting import DEADLINE_S

from profd.daemon import processes
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.clock import Clock
from profd.daemon.errors import OutputUnwritable
from profd.daemon.findings.catalog import analysis_name
from profd.daemon.session import analyst
from profd.daemon.session.recorder import Recorder
from profd.daemon.session.sampling import Members
from profd.daemon.session.session import Ready, SessionOptions
from profd.daemon.store.reader import RunReader

pytestmark = pytest.mark.usefixtures("py_spy")


@pytest.fixture
def target() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def recorder(target: subprocess.Popen[bytes], tmp_path: Path) -> Recorder:
    stat = processes.read_stat(target.pid)
    assert stat is not None
    options = SessionOptions(
        run_id="20261120-120000-test-3fa9",
        name="test",
        run_file=tmp_path / "run.profd",
        mode="attached",
        pid=stat.pid,
        start_ticks=stat.start_ticks,
        command=("python", "-c", "input()"),
        steps=False,
        hang_after_s=None,
    )
    return Recorder(options, Clock())


async def test_a_run_file_that_is_removed_ends_the_session_in_words(recorder: Recorder) -> None:
    def remove(ready: Ready) -> None:
        ready.run_file.unlink()

    with pytest.raises(OutputUnwritable, match="was removed while it was written"):
        await recorder.run(remove)


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


async def test_a_target_that_ends_is_why_its_run_ends(recorder: Recorder, target: subprocess.Popen[bytes]) -> None:
    await recorder.run(lambda _: target.kill())
    with RunReader(recorder.options.run_file) as reader:
        assert reader.info.why_ended == "target-exited"


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
        assert reader.info.findings_made_by == analysis_name(PhaseIndex(reader))


def _analyzed_ns(path: Path) -> int | None:
    with RunReader(path) as reader:
        return reader.info.analyzed_ns
