"""Lets a test act as a user without privileges, whoever runs the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from profd.daemon import processes
from support.waiting import until

NOBODY = 65534
# The interpreter and the packages may lie in root's home: reading them is all that this user may do
# more than others.
_AS_NOBODY = (
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--"),
)


def as_plain_user() -> tuple[str, ...]:
    """Return what to put before a command so that a plain user runs it.

    Skips the test where that cannot be.
    """
    if os.geteuid() != 0:
        return ()
    why = _obstacle()
    if why:
        pytest.skip(why)
    return _AS_NOBODY


def give_to_plain_user(folder: Path) -> Path:
    """Make a folder the plain user's own and return it."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    return folder


@contextlib.contextmanager
def process_of_plain_user() -> Iterator[int]:
    """Run a process of the plain user's and give its PID; skips the test where that cannot be."""
    with sleeping(*as_plain_user()) as pid:
        # setpriv changes the user first, then the group and the groups.
        until(lambda: processes.owner(pid) == processes.NOBODY, "it is the plain user's")
        yield pid


@contextlib.contextmanager
def sleeping(*before: str) -> Iterator[int]:
    """Run a process that does nothing, by a command that ``before`` begins, and give its PID."""
    with subprocess.Popen([*before, "sleep", "600"], stdin=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@cache
def _obstacle() -> str:
    if shutil.which("setpriv") is None:
        return "root, and no setpriv to become another user with"
    tried = subprocess.run([*_AS_NOBODY, "true"], capture_output=True, text=True)
    return (
        f"root cannot become another user here: {tried.stderr.strip()}" if tried.returncode else ""
    )
