"""Steps that a script says itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profd.daemon.steps.log import OutputFile, StepLog
from profd.daemon.userfiles import UserFiles


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("iter 120: loss 2.3104, time 431.2ms, mfu 1.2%", 120),
        ("step 300/5000 | loss 3.2", 300),
        ("[Step 1,200] loss: 0.1", 1200),
        ("iteration: 17 loss 3", 17),
        ("epoch 3 global_step=4000", 4000),
        ("Epoch: [2][120/938]\tTime 0.1", 120),
        ("{'loss': 2.1, 'step': 40}", None),
        (" 12%|█▏        | 120/938 [00:12<01:20,  9.80it/s, loss=2.3]", 120),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.1", None),
        ("loss 0.5 at 120 it/s", None),
        ("step 3.5 s", None),
        ("batch size: none", None),
        ("minibatches 3", None),
        ("", None),
    ],
)
def test_a_line_says_its_step(line: str, step: int | None) -> None:
    assert StepLog().take(f"{line}\n".encode()) == step


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"9" * 2_000_000,
            b"1/1 [0<" * 300_000,
            b"epoch" + b" " * 2_000_000,
            b"1/1 [" + b"0:" * 1_000_000,
        ),
        b"epoch [1][" + b"9" * 3000 + b"/1]",
        b"9" * 3000 + b"/1 [0<1 it/s",
    ],
)
def test_a_line_that_was_made_for_it_is_neither_slow_nor_a_step(line: bytes) -> None:
    """A search that is quadratic in the line, of 2 MB, would take hours.

    Python refuses numbers of 4,301 digits.
    """
    assert StepLog().take(line + b"\n") is None


def test_a_line_counts_once_it_is_whole() -> None:
    log = StepLog()
    assert log.take(b"loading\nstep 1") is None
    assert log.take(b"00 loss 3\nstep 11") == 100
    assert log.take(b"0 loss 2\r\n") == 110
    assert log.apart == 10


def test_what_is_written_to_a_file_is_read_from_its_end_on(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("step 1\n")
    with file.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=output
        )
        read = OutputFile(process.pid, UserFiles())
        assert read.new() == b""
        os.write(output.fileno(), b"step 2\n")
        assert read.new() == b"step 2\n"
        assert read.new() == b""
        os.write(output.fileno(), b"x" * 10_000)
        assert read.new() == b"x" * 4096
    read.close()
    process.kill()
    process.communicate()


def test_what_goes_elsewhere_is_not_read() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert OutputFile(process.pid, UserFiles()).new() == b""
        process.kill()
    assert OutputFile(process.pid, UserFiles()).new() == b""
