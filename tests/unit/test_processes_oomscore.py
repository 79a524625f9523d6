"""Whom the kernel takes first when memory ends, as processes of their own are told: most may not take it back."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCORE = "open('/proc/self/oom_score_adj')"


def score_after(work: str, before: int) -> int:
    """Return what a process of this score has after some work."""
    code = f"from profd.daemon import processes\nopen('/proc/self/oom_score_adj', 'w').write('{before}')\n{work}\n"
    code += f"print({SCORE}.read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize(("before", "after"), [(0, 500), (300, 800), (800, 1000), (1000, 1000)])
def test_a_volunteer_comes_before_those_beside_it(before: int, after: int) -> None:
    assert score_after("processes.volunteer()", before) == after


def test_who_is_spared_is_as_the_other_one() -> None:
    parent = int(open("/proc/self/oom_score_adj").read())  # noqa: SIM115, PTH123
    work = "import os; processes.volunteer(); processes.spare(os.getpid(), os.getppid())"
    assert score_after(work, max(parent, 0)) == parent


def test_a_process_that_is_gone_spares_nobody() -> None:
    assert score_after("processes.spare(2**22 + 1, 2**22 + 1)", 100) == 100
