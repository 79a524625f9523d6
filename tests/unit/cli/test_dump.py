"""`profd dump`: which processes it asks, and what it prints of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.commandline import CommandLine
from support.synthetic import MAIN, RUN_ID, STARTED_NS, write_run

from profd.cli import dump
from profd.daemon import processes
from profd.daemon.errors import ExitCode
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread
from profd.daemon.store import records
from profd.daemon.tree.tree import DumpedProcess

FRAMES = (
    DumpedFrame("forward", "/home/ada/cifar/model.py", 12),
    DumpedFrame("main", "train.py", 90),
)
THREAD = DumpedThread(1, "MainThread", active=False, owns_gil=False, frames=FRAMES)
DUMPED = [
    DumpedProcess(MAIN.pid, ("python", "train.py"), (THREAD,)),
    DumpedProcess(9, ("python", "-c", "x"), (), "it moved"),
]
WITH_NATIVE = [
    replace(DUMPED[0], threads=(replace(THREAD, native=("futex (libc.so.6)", "…"), note="waits"),)),
    DUMPED[1],
]
TEXT = f"""pid {MAIN.pid}  python train.py
pid 9  python -c x (it moved)

pid {MAIN.pid} MainThread
    forward (cifar/model.py:12)
    main (train.py:90)
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give the list of PIDs whose trees are dumped; the target of a run is running."""
    asked: list[int] = []

    def dump_tree(pid: int, *, native: bool) -> list[DumpedProcess]:
        asked.append(pid)
        return WITH_NATIVE if native else DUMPED

    monkeypatch.setattr(dump, "dump_tree", dump_tree)
    monkeypatch.setattr(
        processes, "is_running", lambda pid, start_ticks: (pid, start_ticks) == MAIN
    )
    return asked


def test_processes_come_first_then_their_stacks_and_json_has_every_thread(
    asked: list[int], profd: CommandLine
) -> None:
    assert profd("dump", 4711) == TEXT
    assert asked == [4711]
    first, second = json.loads(profd("dump", 4711, "--json"))
    assert first["threads"][0]["frames"][0] == {
        "name": "forward",
        "filename": "/home/ada/cifar/model.py",
        "line": 12,
    }
    assert (second["pid"], second["error"]) == (9, "it moved")


def test_native_frames_stand_above_the_python_frame_that_called_them(
    asked: list[int], profd: CommandLine
) -> None:
    text = profd("dump", 4711, "--native")
    assert text.splitlines()[3:] == [
        f"pid {MAIN.pid} MainThread (waits)",
        "    futex (libc.so.6)",
        "    …",
        "    forward (cifar/model.py:12)",
        "    main (train.py:90)",
    ]
    first, _ = json.loads(profd("dump", 4711, "--native", "--json"))
    assert first["threads"][0]["native"] == ["futex (libc.so.6)", "…"]


def test_a_dump_without_a_stack_has_a_code_of_its_own(
    asked: list[int], profd: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump, "dump_tree", lambda _, native: DUMPED[1:])
    for more in ((), ("--json",)):
        profd("dump", 4711, *more, code=ExitCode.NO_SAMPLES)
        assert "it moved" in profd.out


def test_of_a_run_its_target_is_dumped_unless_that_has_ended(
    asked: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profd: CommandLine
) -> None:
    run = write_run(tmp_path / "a.profd", seconds=1)
    assert profd("dump", run) == TEXT
    monkeypatch.setattr(
        processes, "is_running", lambda pid, start_ticks: False
    )  # another process has its PID now
    assert f"profd summary {RUN_ID}" in profd("dump", run, code=ExitCode.NO_PROCESS)
    assert asked == [MAIN.pid]


@pytest.mark.usefixtures("asked")
def test_the_hang_that_a_run_is_in_comes_first_without_steering_the_terminal(
    tmp_path: Path, profd: CommandLine
) -> None:
    report = records.HangReport("rank", ())
    hangs: list[records.Record] = [
        records.HangFound(STARTED_NS + 1, STARTED_NS, "this one has ended", report),
        records.HangEnded(STARTED_NS + 2, STARTED_NS + 1),
        records.HangFound(STARTED_NS + 3, STARTED_NS, "all wait\x1b]0;mine\x07 for rank 1", report),
    ]
    out = profd("dump", write_run(tmp_path / "a.profd", seconds=1, also=hangs))
    assert out.startswith("▲ all wait")
    assert out.endswith(TEXT)
    assert "this one has ended" not in out
    assert "\x1b" not in out
