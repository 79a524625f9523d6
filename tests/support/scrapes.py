"""A scrape as Prometheus makes it, and the processes that answer it, for the tests of both."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

from support.waiting import DEADLINE_S


def scrape(url: str) -> str:
    """Return what a server of metrics says."""
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        text: str = answer.read().decode()
        return text


def is_answered(url: str) -> bool:
    try:
        return bool(scrape(url))
    except (OSError, HTTPException):  # nobody listens, or who did ended in the midst of its answer
        return False


def values(text: str) -> dict[str, float]:
    """Return the value of each series of a scrape by its name and labels, as they are written."""
    rows = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in rows}


def names(text: str) -> set[str]:
    """Return the metrics that a scrape has."""
    return set(re.findall(r"^(profd_\w+)", text, re.MULTILINE))


@contextlib.contextmanager
def exporting(path: Path, *words: str) -> Iterator[str]:
    """Export the metrics of a run or a folder, and give the URL."""
    command = [sys.executable, "-m", "profd.daemon.metrics", str(path), "0", *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield process.stderr.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
