"""Who got a signal, as the two witnesses of a launcher tell it, from their first moment on."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys
from profd.daemon.launch.signals import TAKEN, Reached, taken
from profd.daemon.launch.witness import Witnesses

os.setpgid(0, 0)
with taken(TAKEN):
    witnesses = Witnesses(is_apart=True)
    if os.fork() == 0:
        os.setpgid(0, 0)
        {sends}
        os._exit(0)
    info = signal.sigwaitinfo({{signal.SIGUSR1}})
    print(witnesses.reached(info).name)
    witnesses.close()
"""


@pytest.mark.parametrize(
    ("sends", "reached"),
    [
        ("os.killpg(os.getppid(), signal.SIGUSR1)", "ITS_GROUP"),
        ("os.kill(os.getppid(), signal.SIGUSR1)", "LAUNCHER"),
    ],
)
def test_it_is_known_whom_a_signal_reached_that_came_as_soon_as_they_were_started(
    sends: str, reached: str
) -> None:
    for _ in range(5):
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(sends=sends)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.strip() == reached
