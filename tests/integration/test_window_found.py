"""A training that someone else has armed for Kineto's daemon: profd is that daemon for as long as a window takes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.folders import PROGRAMS
from support.launches import printed, profd
from support.sessions import wait_ready
from support.waiting import DEADLINE_S


@pytest.fixture
def sockets() -> Iterator[Path]:
    # Not pytest's folder: Kineto's name of its socket leaves room for 53 bytes.
    with tempfile.TemporaryDirectory(prefix="w", dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.requires("torch")
def test_window_is_taken_without_a_word_and_the_socket_is_free_again(profd_home: Path, sockets: Path) -> None:
    armed = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(sockets), "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "seeded.py")], stdin=pipe, stdout=pipe, text=True, env={**os.environ, **armed}
    ) as training:
        wait_ready(training)
        asked = profd("window", str(training.pid), "--steps", "3", "--json")
        training.communicate("\n", timeout=DEADLINE_S)
    taken = printed(asked)
    assert "the profiler is started inside" not in asked.stderr
    assert (taken.source, taken.pid) == ("kineto", training.pid)
    assert taken.steps >= 1
    assert "aten::conv2d" in {operator.name for operator in taken.operators}
