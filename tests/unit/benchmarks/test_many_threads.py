"""The benchmark of many threads: what counts as a failure, and that only whole rounds are compared."""

from __future__ import annotations

import subprocess
import sys
import threading

import many_threads
import pytest
from many_threads import Ended, StateWatch, failures, summary
from steps import Took

GOOD = Ended(Took(2.0, 1.0), 0, 242, 100, 0)
SLOW = GOOD._replace(took=Took(2.2, 1.0))


def test_hung_failed_and_stopped_runs_are_counted_apart() -> None:
    hung, failed, stopped = Ended(None, None, 0, 10, 0), Ended(None, -6, 0, 10, 0), GOOD._replace(stopped=3)
    rounds = [{"profd": run, "bare": GOOD, "null": GOOD} for run in (hung, failed, stopped, GOOD)]
    assert failures(rounds, "profd") == (1, 1, 1)
    assert failures(rounds, "bare") == (0, 0, 0)


def test_rounds_begin_with_another_kind_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    profiled: list[bool] = []

    def run(_: int, *, is_profiled: bool) -> Ended:
        profiled.append(is_profiled)
        return GOOD

    monkeypatch.setattr(many_threads, "run", run)
    kinds = [list(many_threads.take_round(number, 10)) for number in range(3)]
    assert sorted(order[0] for order in kinds) == sorted(many_threads.KINDS)
    assert profiled == [kind == "profd" for order in kinds for kind in order]


def test_ratio_is_that_to_the_bare_runs_of_whole_rounds() -> None:
    whole = {"profd": SLOW, "bare": GOOD, "null": GOOD}
    broken = {"profd": Ended(None, 1, 0, 0, 0), "bare": GOOD, "null": SLOW}
    lines = summary([whole, whole, whole, broken])
    assert "| under profd | 0 | 1 | 0 |" in lines
    assert "| null control | 0 | 0 | 0 |" in lines
    assert "1,100 looks at their states in all." in lines
    assert "| wall | 1.10 [1.10, 1.10] | 1.00 [1.00, 1.00] | not distinguishable" in lines[-2]
    assert "| CPU | 1.00 [1.00, 1.00] | 1.00 [1.00, 1.00] |" in lines[-1]


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
