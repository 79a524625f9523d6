"""Windows of an unmodified torch process under ``profd run --torch-window``: the table, its speed, what it costs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from launching import DEADLINE_S, PROFD
from sessions import PROGRAMS, wait_ready

from profd.daemon import paths
from profd.daemon.errors import ExitCode
from profd.daemon.render.windowjson import Window
from profd.daemon.store.reader import RunReader

pytest.importorskip("torch")

SEEDED = [sys.executable, str(PROGRAMS / "seeded.py")]
IN_TIME_S = 15.0


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch, profd_home: Path) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def armed() -> Iterator[subprocess.Popen[str]]:
    with start("--torch-window") as process:
        yield process
        process.communicate("\n", timeout=DEADLINE_S)


def start(*options: str) -> subprocess.Popen[str]:
    words = [PROFD, "run", "--headless", "--quiet", *options, "--", *SEEDED]
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    wait_ready(process)
    return process


def window(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROFD, "window", "latest", *options], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def test_window_has_the_steps_and_the_operators_and_leaves_the_training_bit_for_bit(
    armed: subprocess.Popen[str],
) -> None:
    begun = time.monotonic()
    asked = window("--json")
    assert asked.returncode == 0, asked.stderr
    assert time.monotonic() - begun < IN_TIME_S
    check(msgspec.json.decode(asked.stdout, type=Window))

    shown = window("--show", "--sort", "calls", "--by-shape")
    assert shown.returncode == 0, shown.stderr
    assert "Self CPU %" in shown.stdout
    assert "[[16, 3, 16, 16], [8, 3, 3, 3], [8], [], [], [], []]" in shown.stdout

    assert armed.stdin is not None
    assert armed.stdout is not None
    armed.stdin.write("\n")
    armed.stdin.flush()
    out = armed.stdout.read()
    losses = losses_of(out)
    bare = subprocess.run([*SEEDED, str(len(losses))], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert losses == losses_of(bare.stdout)
    assert len(losses) > 8


def check(taken: Window) -> None:
    assert taken.source == "kineto"
    assert taken.steps >= 3
    calls = {operator.name: operator.calls for operator in taken.operators}
    assert calls["Optimizer.step#Adam.step"] == taken.steps
    convolution = next(operator for operator in taken.operators if operator.name == "aten::conv2d")
    assert convolution.input_shapes == "[[16, 3, 16, 16], [8, 3, 3, 3], [8], [], [], [], []]"
    assert convolution.calls >= taken.steps
    assert convolution.flops == convolution.calls * 2 * 16 * 14 * 14 * 9 * 3 * 8
    assert 0 < convolution.self_cpu_us < convolution.cpu_total_us
    assert convolution.cuda_total_us == 0


def losses_of(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines() if line.startswith(("0x", "-0x"))]


def test_window_of_seconds_is_that_long_and_lies_on_the_clock_of_the_run(armed: subprocess.Popen[str]) -> None:
    asked = window("--seconds", "0.3", "--json")
    assert asked.returncode == 0, asked.stderr
    taken = msgspec.json.decode(asked.stdout, type=Window)
    assert 0.15e9 < taken.end_ns - taken.start_ns < 1.5e9
    with RunReader(paths.find_run("latest")) as reader:
        (row,) = reader.windows()
        assert row.asked_ns < taken.start_ns < taken.end_ns < reader.info.end_ns
        said = [event.text for event in reader.events() if event.kind == "window"]
        # Before it, that a large trace is being read, where the machine is fast.
        assert sum(f"{taken.steps} whole steps" in text for text in said) == 1, said


def test_run_without_the_option_has_kinetos_variables_nowhere_and_takes_none() -> None:
    with start() as process:
        pid = armed_pid(process)
        assert b"KINETO" not in Path(f"/proc/{pid}/environ").read_bytes()
        refused = window()
        assert refused.returncode == ExitCode.SESSION
        assert "takes no windows: launch it with `profd run --torch-window -- CMD`" in refused.stderr
        process.communicate("\n", timeout=DEADLINE_S)


def armed_pid(process: subprocess.Popen[str]) -> int:
    with RunReader(paths.find_run("latest")) as reader:
        return reader.info.pid


def test_finished_run_takes_none_and_shows_what_it_has() -> None:
    with start("--torch-window") as process:
        process.communicate("\n", timeout=DEADLINE_S)
    refused, empty = window(), window("--show")
    assert (refused.returncode, "is not live" in refused.stderr) == (ExitCode.SESSION, True)
    assert (empty.returncode, "no window was taken of this run" in empty.stderr) == (ExitCode.USAGE, True)
