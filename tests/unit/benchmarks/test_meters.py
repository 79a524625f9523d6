"""The benchmarks' meters: cores between marks, and what the kernel says of processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from meters import Mark, Memory, cores_between, cpu_with_children_s, descriptors, memory_of, own_cpu_s, parse_rollup

ROLLUP = """\
55d0c0000000-7ffd1d7f5000 ---p 00000000 00:00 0                          [rollup]
Rss:               20480 kB
Pss:               12000 kB
Pss_Dirty:          6000 kB
Shared_Clean:       9000 kB
Private_Clean:      1024 kB
Private_Dirty:      6144 kB
Swap:                  0 kB
"""
BURN = """
import os, sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
if os.fork() == 0:
    burn(0.3)
    os._exit(0)
os.wait()
if os.fork() == 0:
    burn(0.2)
    print("ready", flush=True)
    sys.stdin.readline()
    os._exit(0)
os.wait()
"""
"""A process whose first child has ended after 0.3 s of CPU time, and whose second lives and has taken 0.2 s."""


def test_cores_are_those_between_the_first_and_last_mark_within() -> None:
    marks = [Mark(0.0, 0.0), Mark(9.9, 5.0), Mark(10.1, 5.5), Mark(15.0, 5.7), Mark(20.1, 6.5), Mark(31.0, 99.0)]
    assert cores_between(marks, 10.0, 30.0) == pytest.approx(0.1)
    assert cores_between([Mark(0.0, 0.0), Mark(10.0, 2.0), Mark(20.0, 2.5)], 0.0, 10.5) == pytest.approx(0.2)
    with pytest.raises(ValueError, match="no two marks between 5 and 9 s"):
        cores_between([Mark(0.0, 0.0), Mark(6.0, 1.0)], 5, 9)


def test_memory_of_processes_is_added_up_in_bytes_and_of_who_is_gone_none() -> None:
    assert parse_rollup(ROLLUP) == Memory(20480 * 1024, 12000 * 1024, 7168 * 1024)
    assert parse_rollup("") == Memory(0, 0, 0)
    assert memory_of([]) == Memory(0, 0, 0)
    one = memory_of([os.getpid()])
    two = memory_of([os.getpid(), os.getpid()])
    assert one.uss_bytes <= one.pss_bytes <= one.rss_bytes
    # The tests' process may grow a little from one look to the next.
    assert two.rss_bytes == pytest.approx(2 * one.rss_bytes, rel=0.05)


def test_descriptors_and_cpu_of_children_are_counted() -> None:
    before = descriptors(os.getpid())
    ends = os.pipe()
    assert descriptors(os.getpid()) == before + 2
    for end in ends:
        os.close(end)
    words = [sys.executable, "-c", BURN]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        own_s, all_s = own_cpu_s(process.pid), cpu_with_children_s(process.pid)
        process.communicate("\n")
    assert 0.45 <= all_s - own_s <= 0.8
