"""An error says what failed, why, and what to do."""

from __future__ import annotations

import errno
import os

import pytest

from profd.daemon.errors import ProfdError


@pytest.mark.parametrize(
    ("number", "said"),
    {
        errno.EACCES: "it failed (Permission denied): make it readable",
        errno.ENOSPC: "it failed (No space left on device): make it readable",
        errno.EMFILE: "it failed (Too many open files): raise the limit of open files (`ulimit -n`)",
        errno.ENFILE: "it failed (Too many open files in system): end something: the machine can "
        "open no more files",
        errno.ENOMEM: "it failed (Cannot allocate memory): end something: the machine has no more "
        "memory",
    }.items(),
)
def test_a_limit_of_the_machine_has_its_own_remedy(number: int, said: str) -> None:
    error = OSError(number, os.strerror(number))
    assert str(ProfdError.of_system("it failed", error, "make it readable")) == said


def test_an_error_without_a_number_says_its_words() -> None:
    error = ProfdError.of_system("it failed", OSError("its path is too long"), "use another")
    assert str(error) == "it failed (its path is too long): use another"
