"""Windows of a training that runs and was not armed: ``profd window RUN|PID --inject``, and nothing
without that.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.launches import printed, profd
from support.sessions import begin_session, give_line, running
from support.waiting import DEADLINE_S

from profd.daemon import paths
from profd.daemon.errors import ExitCode
from profd.daemon.store.reader import RunReader

WINDOWS = 1


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with running("bitexact.py") as process:
        yield process
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0


def wrong_rounds(target: subprocess.Popen[str]) -> int:
    """Return how many rounds were wrong since the last time; there was at least one round."""
    assert target.stdout is not None
    give_line(target)
    answer = json.loads(target.stdout.readline())
    assert answer["rounds"] > 0
    return int(answer["wrong"])


def memory_of(pid: int) -> set[str]:
    """Return the anonymous memory of a process, which the text of a window would be in."""
    return {
        line.split()[0]
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
        if line.startswith("6")
    }


# What a window costs the process, and that no bit changes in hundreds of them:
# benchmarks/trust/windows.py.
@pytest.mark.requires("torch", "gdb")
def test_windows_are_taken_on_demand_alone_and_change_no_bit(target: subprocess.Popen[str]) -> None:
    pid = str(target.pid)
    refuse(profd("window", pid), ExitCode.USAGE, "is in no live run that is armed for windows")
    assert paths.list_runs() == []

    session = begin_session(target.pid, steps=False)
    refuse(profd("window", "latest"), ExitCode.SESSION, "takes no windows")
    memory = memory_of(target.pid)
    for _ in range(WINDOWS):
        asked = profd("window", "latest", "--inject", "--json")
        taken = printed(asked)
        assert (
            f"taking 5 steps of process {pid}, the profiler is started inside of it" in asked.stderr
        )
        check(taken, target.pid)
        assert wrong_rounds(target) == 0
    assert memory_of(target.pid) == memory
    with RunReader(session.run_file) as reader:
        assert [row.source for row in reader.windows()] == ["gdb"] * WINDOWS
    assert profd("stop", "latest").returncode == 0
    assert session.wait_closed(DEADLINE_S)

    asked = profd("window", pid, "--inject", "--seconds", "0.1")
    assert asked.returncode == 0, asked.stderr
    assert f"recording pid {pid}" in asked.stderr
    assert "by gdb" in asked.stdout
    assert "aten::conv2d" in asked.stdout
    assert len(paths.list_runs()) == 2
    with RunReader(paths.find_run("latest")) as reader:
        assert reader.info.state != "live"
        assert len(reader.windows()) == 1
    assert wrong_rounds(target) == 0


def refuse(asked: subprocess.CompletedProcess[str], code: int, why: str) -> None:
    assert asked.returncode == code
    assert (
        f"{why}: launch it with `profd run --torch-window -- CMD`, or add --inject" in asked.stderr
    )


def check(taken: SimpleNamespace, pid: int) -> None:
    assert (taken.source, taken.pid) == ("gdb", pid)
    assert taken.steps >= 5
    calls = {operator.name: operator.calls for operator in taken.operators}
    assert calls["Optimizer.step#SGD.step"] == taken.steps
    assert calls["aten::conv2d"] >= taken.steps
    convolution = next(operator for operator in taken.operators if operator.name == "aten::conv2d")
    assert convolution.input_shapes == "[[4, 3, 24, 24], [16, 3, 3, 3], [16], [], [], [], []]"
    assert 0 < convolution.self_cpu_us < convolution.cpu_total_us
