"""Whether there is a shell that takes the terminal when a job stops: asked in processes of each standing."""

from __future__ import annotations

import os
import subprocess
import sys

ASKING = [sys.executable, "-c", "from profd.daemon.launch.terminal import has_shell; print(has_shell())"]


def answer(*, leads_session: bool, leads_job: bool, below_a_script: bool = False) -> str:
    """Ask in a process that leads a session, or a job, or belongs to the job of a shell's script."""
    words = ["sh", "-c", '"$@"; exit', "sh", *ASKING] if below_a_script else ASKING
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=True,
        start_new_session=leads_session,
        preexec_fn=(lambda: os.setpgid(0, 0)) if leads_job else None,
    ).stdout.strip()


def test_a_job_of_its_own_has_a_shell_and_who_leads_the_session_none() -> None:
    assert answer(leads_session=False, leads_job=True) == "True"
    assert answer(leads_session=False, leads_job=True, below_a_script=True) == "True"
    assert answer(leads_session=True, leads_job=False) == "False"
    assert answer(leads_session=True, leads_job=False, below_a_script=True) == "False"
