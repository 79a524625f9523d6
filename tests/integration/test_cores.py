"""On a machine without a free core, py-spy runs beside what it samples."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from support import launches
from support.waiting import until

from profd.daemon import processes

pytestmark = pytest.mark.usefixtures("py_spy")

COMPUTES = """
import os
os.sched_setaffinity(0, {%d})
print("ready", os.getpid())
while True: pass
"""
"""A script that never waits, on the core of this number."""


@pytest.fixture
def two_cores() -> Iterator[list[int]]:
    """Let this thread, and what it starts, run on two cores alone."""
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("there is one core only")
    os.sched_setaffinity(0, set(sorted(before)[:2]))
    yield sorted(before)[:2]
    os.sched_setaffinity(0, before)


def test_py_spy_leaves_the_core_of_a_script_that_computes_while_the_other_is_taken(
    two_cores: list[int],
) -> None:
    own, other = two_cores
    busy = subprocess.Popen([*launches.PYTHON, COMPUTES % other], stdout=subprocess.DEVNULL)
    launched = launches.start(*launches.PYTHON, COMPUTES % own)
    try:
        script_pid = launches.read_ready(launched)

        def is_beside() -> bool:
            pids = processes.descendants(launched.pid, but=script_pid)
            spies = [
                pid for pid in pids if (stat := processes.read_stat(pid)) and stat.comm == "py-spy"
            ]
            return any(
                processes.status(pid).get("Cpus_allowed_list") == str(other) for pid in spies
            )

        until(is_beside, "py-spy runs on the other core")
    finally:
        for process in (launched, busy):
            process.terminate()
            process.communicate()
