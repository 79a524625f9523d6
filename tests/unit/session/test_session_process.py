"""The session's process: what it does before anything is recorded."""

from __future__ import annotations

import subprocess
import sys

# The recorder says how it finds its process: the signals that are held back, and whether py-spy can be reaped.
_PROGRAM = """
import signal, sys
from pathlib import Path
from profd.daemon.session import __main__ as session
from profd.daemon.session.session import Ready

class Recorder:
    has_begun = True

    def __init__(self, options, clock):
        pass

    async def run(self, announce):
        held_back = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        print(sorted(held_back), signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, file=sys.stderr)
        announce(Ready(Path("/run"), Path("/socket")))

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGCHLD])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
session.Recorder = Recorder
sys.exit(session.main())
"""
_OPTIONS = (
    '{"run_id": "a", "name": "a", "run_file": "/a", "mode": "attached", "pid": 1, "start_ticks": 1, "command": ["a"]}'
)


def test_signals_that_its_launcher_holds_back_reach_it_and_its_py_spy() -> None:
    """Else no recording can be ended early, and nobody can say what py-spy cost."""
    words = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(words, input=_OPTIONS, capture_output=True, text=True, check=True)
    assert done.stderr == "[] True\n"
    assert '"/socket"' in done.stdout
