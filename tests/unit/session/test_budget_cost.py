"""What profd costs, measured on this process."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest
from support.clocks import StoppedClock

from profd.daemon import processes
from profd.daemon.session.budget import CostMeter


def test_cost_counts_this_process_and_children_that_ended() -> None:
    clock = StoppedClock()
    meter = CostMeter(clock)
    meter.take()
    burn = "import time\nwhile time.process_time() < 0.05: pass"
    subprocess.run([sys.executable, "-SEc", burn], check=True)
    clock.advance(0.5)
    spending = meter.take()
    assert spending.cpu_s >= 0.05
    assert spending.over_s == 0.5
    assert spending.cores == spending.cpu_s / 0.5
    clock.advance(1000)
    assert meter.take().cores < 0.1


def test_cost_begins_with_the_start_of_this_process() -> None:
    usage = os.times()
    spending = CostMeter(StoppedClock()).take()
    stat = processes.read_stat(os.getpid())
    assert stat is not None
    assert spending.cpu_s >= usage.user + usage.system
    age_s = stat.age_s
    assert age_s - 1 < spending.over_s <= age_s + 0.02


def test_cost_at_one_time_is_no_division_by_zero() -> None:
    meter = CostMeter(StoppedClock())
    meter.take()
    assert meter.take().cores == 0


def test_memory_counts_this_process_and_living_children() -> None:
    meter = CostMeter(StoppedClock())
    with subprocess.Popen([sys.executable, "-SEc", "print(1, flush=True); input()"], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        theirs = processes.rss_bytes(child.pid)
        both = meter.rss_bytes()
        child.kill()
        child.wait()
        alone = meter.rss_bytes()
    assert theirs is not None
    assert both - alone == pytest.approx(theirs, rel=0.5)
    others = sum(child.memory_info().rss for child in psutil.Process().children())  # of other tests, as a tracker's
    assert alone == pytest.approx((processes.rss_bytes(os.getpid()) or 0) + others, rel=0.1)


SPIN = "import time\nwhile time.process_time() < 0.5: pass\nprint('spun', flush=True)\ninput()"


def test_a_child_counts_while_it_lives() -> None:
    clock = StoppedClock()
    meter = CostMeter(clock)
    meter.take()
    with subprocess.Popen([sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"spun\n"
        clock.advance(1)
        assert meter.take().cores >= 0.45
        child.kill()


def test_what_was_spent_is_told_once() -> None:
    clock = StoppedClock()
    meter = CostMeter(clock)
    meter.take()
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-SEc", burn], check=True)
    spent_s = meter.take().cpu_s
    assert meter.take().cpu_s < spent_s / 2
