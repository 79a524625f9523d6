"""Windows of a torch process that is armed for them, as by ``profd run --torch-window``: the
tables, and what stays.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import launches
from support.folders import PROGRAMS
from support.launches import PROFD
from support.sessions import wait_ready
from support.waiting import DEADLINE_S

from profd.daemon import paths
from profd.daemon.analyze.operators import issuing_lines
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.torchtraces import selected_windows
from profd.daemon.errors import ExitCode
from profd.daemon.events import EventKind
from profd.daemon.store.reader import RunReader

SEEDED = [sys.executable, str(PROGRAMS / "seeded.py")]


def window(*options: str) -> subprocess.CompletedProcess[str]:
    return launches.profd("window", "latest", *options)


@pytest.mark.requires("torch")
def test_windows_have_steps_and_operators_and_leave_the_training_bit_for_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = [PROFD, "run", "--headless", "--quiet", "--torch-window", "--", *SEEDED]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as training:
        wait_ready(training)
        none_yet = window("--show")
        check(launches.printed(window("--json")))
        shown = window("--show", "--sort", "calls", "--by-shape")
        long = launches.printed(window("--json", "--seconds", "1"))
        out, _ = training.communicate("\n", timeout=DEADLINE_S)
    refused = window()

    assert (none_yet.returncode, "no window was taken of this run" in none_yet.stderr) == (
        ExitCode.USAGE,
        True,
    )
    assert shown.returncode == 0, shown.stderr
    assert "Self CPU %" in shown.stdout
    assert "[[16, 3, 16, 16], [8, 3, 3, 3], [8], [], [], [], []]" in shown.stdout
    assert (refused.returncode, "is not live" in refused.stderr) == (ExitCode.SESSION, True)
    check_recorded(long)
    losses = losses_of(out)
    bare = subprocess.run(
        [*SEEDED, str(len(losses))], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert losses == losses_of(bare.stdout)
    assert len(losses) > 8


def check(taken: SimpleNamespace) -> None:
    """Check a window of steps."""
    assert taken.source == "kineto"
    assert taken.steps >= 3
    calls = {operator.name: operator.calls for operator in taken.operators}
    assert calls["Optimizer.step#Adam.step"] == taken.steps
    convolution = next(operator for operator in taken.operators if operator.name == "aten::conv2d")
    assert convolution.input_shapes == "[[16, 3, 16, 16], [8, 3, 3, 3], [8], [], [], [], []]"
    assert convolution.calls >= taken.steps
    assert 0 < convolution.self_cpu_us < convolution.cpu_total_us
    assert convolution.cuda_total_us == 0


def check_recorded(long: SimpleNamespace) -> None:
    """Check that the window of seconds lies on the run's clock, between others' times and among its
    samples.
    """
    with RunReader(paths.find_run("latest")) as reader:
        first, second = reader.windows()
        assert first.asked_ns < first.start_ns < first.end_ns < second.asked_ns < second.start_ns
        assert (second.start_ns, second.end_ns) == (long.start_ns, long.end_ns)
        assert second.end_ns < reader.info.end_ns
        said = [event.text for event in reader.events() if event.kind == EventKind.WINDOW]
        assert sum(f"{long.steps} whole steps" in text for text in said) >= 1, said
        issuers = issuing_lines(reader, list(selected_windows(reader, Selection()))[1])
    # None where the clocks are too far apart, as on a busy machine: benchmarks/truth/windowclock.py has
    # how near they are.
    assert {line.module_path for lines in issuers.values() for line in lines} <= {"seeded.py"}


def losses_of(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines() if line.startswith(("0x", "-0x"))]


def test_run_without_the_option_has_kinetos_variables_nowhere_and_takes_none() -> None:
    launched = launches.start(*launches.PYTHON, launches.WAITING)
    pid = launches.read_ready(launched)
    launches.session_pid(launched.pid)
    assert b"KINETO" not in Path(f"/proc/{pid}/environ").read_bytes()
    refused = window()
    launches.finish(launched)
    assert refused.returncode == ExitCode.SESSION
    assert "takes no windows: launch it with `profd run --torch-window -- CMD`" in refused.stderr
