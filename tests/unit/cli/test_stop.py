"""`profd stop`: which session it ends, and what it leaves alone."""

from __future__ import annotations

import os
from pathlib import Path

from support.commandline import CommandLine
from support.synthetic import RUN_ID, write_run

from profd.daemon.errors import ExitCode


def test_a_process_that_is_no_session_is_left_alone(runs: Path, profd: CommandLine) -> None:
    """A run file may name anything as its recorder: here it is the process of the test."""
    write_run(runs / "20261119-120000-old-3fa9.profd", seconds=1)
    profd("stop", "latest")
    assert profd.err == f"profd: {RUN_ID} has ended already\n"
    assert "profd ls" in profd("stop", "nothing", code=ExitCode.NO_RUN)
    write_run(runs / f"{RUN_ID}.profd", seconds=1, live=True)
    said = profd("stop", RUN_ID, code=ExitCode.SESSION)
    assert said.count("\n") == 1
    assert f"process {os.getpid()} is no session of profd's" in said
