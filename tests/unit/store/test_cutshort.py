"""A reader of a live run whose index is cut short ends in one line, by its own process alone."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support.synthetic import describe, run_started

from profd.daemon.errors import ExitCode
from profd.daemon.store.writer import RunWriter

READER = """
import faulthandler, mmap, os, signal, sys
from pathlib import Path
from profd.daemon.store import cutshort
from profd.daemon.store.reader import RunReader
path, before, after = sys.argv[1:]
cutshort.before_end.append(lambda: print("left its screen", flush=True))
exec(before)
with RunReader(Path(path)) as reader:
    os.truncate(f"{path}-shm", 0)
    exec(after)
    reader.recorded()
"""
OF_ANOTHER_FILE = """
with open(f"{path}-other", "w+b") as file:
    file.truncate(4096)
    mapped = mmap.mmap(file.fileno(), 4096)
    file.truncate(0)
    mapped[0]
"""


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """Give a run that nobody writes any more, with a log: whoever reads it makes the index."""
    written, path = tmp_path / "written.profd", tmp_path / "a run.profd"
    with contextlib.closing(RunWriter(written, run_started(), describe)):
        for ending in ("", "-wal"):
            shutil.copyfile(f"{written}{ending}", f"{path}{ending}")
    return path


def read(live: Path, *, before: str = "", after: str = "") -> Ended:
    words = [sys.executable, "-c", READER, str(live), before, after]
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    return Ended(process.returncode, process.stdout, process.stderr)


def test_a_reader_whose_index_is_cut_short_says_so_in_one_line(live: Path) -> None:
    why = f"profd: cannot read on ({live}-shm was cut short by another process): try again\n"
    assert read(live) == (ExitCode.UNREADABLE_RUN, "left its screen\n", why)


def test_any_other_bus_error_ends_a_process_as_ever(live: Path) -> None:
    assert read(live, after=OF_ANOTHER_FILE) == (-signal.SIGBUS, "", "")


def test_a_handler_that_is_there_stays(live: Path) -> None:
    ended = read(live, before="faulthandler.enable()")
    assert (ended.code, ended.out) == (-signal.SIGBUS, "")
    assert "Fatal Python error: Bus error" in ended.err
