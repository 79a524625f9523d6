"""Windows of a training that runs and was not armed: ``profd window RUN|PID --inject``, and nothing without that."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from launching import DEADLINE_S, PROFD
from sessions import PROGRAMS, begin_session, wait_ready

from profd.daemon import paths
from profd.daemon.errors import ExitCode
from profd.daemon.render.windowjson import Window
from profd.daemon.store.reader import RunReader

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb")

WINDOWS = 3
STILL_S = 2.0
"""Far above what one window takes: this machine may be busy. The bound of 0.5 s is that of benchmarks/windows.py."""


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch, profd_home: Path) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def target() -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "bitexact.py")], stdin=pipe, stdout=pipe, text=True
    ) as process:
        wait_ready(process)
        yield process
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0


def window(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROFD, "window", *options], capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def ask(target: subprocess.Popen[str]) -> dict[str, float]:
    assert target.stdin is not None
    assert target.stdout is not None
    target.stdin.write("\n")
    target.stdin.flush()
    answer: dict[str, float] = json.loads(target.stdout.readline())
    return answer


def memory_of(pid: int) -> set[str]:
    """Return the anonymous memory of a process, which the text of a window would be in."""
    return {line.split()[0] for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if line.startswith("6")}


def test_windows_of_a_live_run_have_the_table_and_change_no_bit(target: subprocess.Popen[str]) -> None:
    session = begin_session(target.pid, steps=False)
    memory = memory_of(target.pid)
    ask(target)
    for _ in range(WINDOWS):
        asked = window("latest", "--inject", "--json")
        assert asked.returncode == 0, asked.stderr
        assert f"taking 5 steps of process {target.pid}, the profiler is started inside of it" in asked.stderr
        check(msgspec.json.decode(asked.stdout, type=Window), target.pid)
    answer = ask(target)
    assert answer["rounds"] > 5 * WINDOWS
    assert answer["wrong"] == 0
    assert answer["still_s"] < STILL_S
    assert memory_of(target.pid) == memory
    with RunReader(session.run_file) as reader:
        assert [row.source for row in reader.windows()] == ["gdb"] * WINDOWS
    subprocess.run([PROFD, "stop", "latest"], check=True, timeout=DEADLINE_S, capture_output=True)


def check(taken: Window, pid: int) -> None:
    assert (taken.source, taken.pid) == ("gdb", pid)
    assert taken.steps >= 5
    calls = {operator.name: operator.calls for operator in taken.operators}
    assert calls["Optimizer.step#SGD.step"] == taken.steps
    assert calls["aten::conv2d"] >= taken.steps
    convolution = next(operator for operator in taken.operators if operator.name == "aten::conv2d")
    assert convolution.input_shapes == "[[4, 3, 24, 24], [16, 3, 3, 3], [16], [], [], [], []]"
    assert 0 < convolution.self_cpu_us < convolution.cpu_total_us


def test_process_in_no_run_is_recorded_meanwhile(target: subprocess.Popen[str]) -> None:
    refused = window(str(target.pid))
    assert refused.returncode == ExitCode.USAGE
    assert (
        "was not armed for windows: launch it with `profd run --torch-window -- CMD`, or add --inject" in refused.stderr
    )
    assert paths.list_runs() == []

    asked = window(str(target.pid), "--inject", "--seconds", "0.1")
    assert asked.returncode == 0, asked.stderr
    assert f"recording pid {target.pid}" in asked.stderr
    assert "by gdb" in asked.stdout
    assert "aten::conv2d" in asked.stdout
    with RunReader(paths.find_run("latest")) as reader:
        assert reader.info.state != "live"
        assert len(reader.windows()) == 1
    assert ask(target)["wrong"] == 0


def test_live_run_without_the_word_says_how(target: subprocess.Popen[str]) -> None:
    begin_session(target.pid, steps=False)
    refused = window("latest")
    assert refused.returncode == ExitCode.SESSION
    assert "takes no windows: launch it with `profd run --torch-window -- CMD`, or add --inject" in refused.stderr
    subprocess.run([PROFD, "stop", "latest"], check=True, timeout=DEADLINE_S, capture_output=True)
