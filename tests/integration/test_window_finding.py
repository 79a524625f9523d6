"""A training whose loader is too slow, under ``--torch-window=finding``: a window comes by itself, and says why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from launching import DEADLINE_S, PROFD, is_alive, until, words_of
from sessions import PROGRAMS, wait_ready

from profd.daemon import processes
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import EventRow

pytest.importorskip("torch")


def test_window_comes_with_the_finding_and_the_looking_ends_with_the_run(
    tmp_path: Path, profd_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = tmp_path / "run.profd"
    words = [PROFD, "run", "--headless", "--quiet", "--torch-window=finding,steps=2", "-o", str(path), "--"]
    command = [sys.executable, str(PROGRAMS / "loader.py")]
    with subprocess.Popen([*words, *command], stdout=subprocess.PIPE, text=True) as launcher:
        try:
            wait_ready(launcher)
            with RunReader(path) as reader:
                why = until(lambda: event_of(reader, "a window because of"), "a window because of a finding")
                until(lambda: event_of(reader, "whole steps"), "the window")
                (window,) = reader.windows()
            lookouts = lookouts_of(path)
        finally:
            launcher.terminate()
            launcher.wait(DEADLINE_S)
    assert why.text.startswith("a window because of input-bound: ")
    assert (window.error, window.source) == ("", "kineto")
    assert len(lookouts) == 1
    until(lambda: not is_alive(lookouts[0]), "the end of the process that looks")


def event_of(reader: RunReader, text: str) -> EventRow | None:
    reader.refresh()
    return next((event for event in reader.events() if event.kind == "window" and text in event.text), None)


def lookouts_of(path: Path) -> list[int]:
    """Return the processes that look for findings in a run."""
    pids = [int(entry.name) for entry in processes.PROC.iterdir() if entry.name.isdecimal()]
    return [pid for pid in pids if words_of(pid)[2:] == ("profd.daemon.analyze.findings.lookout", str(path))]
