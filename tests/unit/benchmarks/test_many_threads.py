"""The benchmark of many threads: what counts as a failure, and that only whole rounds are compared."""

from __future__ import annotations

import subprocess
import sys
import threading

from many_threads import Ended, StateWatch, failures
from steps import Took

GOOD = Ended(Took(2.0, 1.0), 0, 242, 100, 0)


def test_hung_failed_and_stopped_runs_are_counted_apart() -> None:
    hung, failed, stopped = Ended(None, None, 0, 10, 0), Ended(None, -6, 0, 10, 0), GOOD._replace(stopped=3)
    rounds = [{"profd": run, "bare": GOOD, "null": GOOD} for run in (hung, failed, stopped, GOOD)]
    assert failures(rounds, "profd") == (1, 1, 1)
    assert failures(rounds, "bare") == (0, 0, 0)


def test_stopped_process_is_seen() -> None:
    program = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        watch = StateWatch(process.pid)
        watch.start()
        never, looks = threading.Event(), 0
        while not watch.stopped and looks < 2000:
            never.wait(0.01)
            looks += 1
        watch.close()
        process.kill()
    assert watch.stopped > 0
    assert watch.looks >= watch.stopped
