"""profd beside bare py-spy on one process at one time: they must say the same of where the time goes."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from sessions import begin_session, running

from profd.daemon.analyze.selection import Selection
from profd.daemon.collect.pyspy import find_py_spy
from profd.daemon.render.collapsed import collapsed_lines
from profd.daemon.store.reader import RunReader

SECONDS = 20
LARGEST_DISTANCE = 0.08


@pytest.mark.timeout(120)
@pytest.mark.requires("torch")
def test_profd_and_py_spy_agree_on_a_torch_loop(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with running("torchloop.py") as process:
        check_agreement(process.pid, tmp_path, capsys)


@pytest.mark.timeout(120)
def test_profd_and_py_spy_agree_on_plain_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running("known_phases.py", tmp_path / "diary") as process:
        check_agreement(process.pid, tmp_path, capsys)


def check_agreement(pid: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Record a process with profd and twice with py-spy side by side, and compare self time by function."""
    session = begin_session(pid, duration_s=SECONDS)
    beside = [start_py_spy(pid, folder / f"{number}.raw") for number in (1, 2)]
    assert session.wait_closed(SECONDS + 30)
    assert [process.wait(30) for process in beside] == [0, 0]
    first, second = (self_time((folder / f"{number}.raw").read_text().splitlines()) for number in (1, 2))
    with RunReader(session.run_file) as reader:
        ours = self_time(list(collapsed_lines(reader, Selection())))
    distance = (total_variation(ours, first) + total_variation(ours, second)) / 2
    with capsys.disabled():
        print(
            f"\n  profd to py-spy {distance:.3f}, py-spy to itself {total_variation(first, second):.3f}"
            f" (total variation of self time by function, {sum(ours.values())} and {sum(first.values())} samples)"
        )
    assert sum(ours.values()) > SECONDS * 60
    assert distance <= LARGEST_DISTANCE


def start_py_spy(pid: int, output: Path) -> subprocess.Popen[bytes]:
    words = ["record", "--nonblocking", "--idle", "-f", "raw", "-d", str(SECONDS), "-o", str(output), "-p", str(pid)]
    return subprocess.Popen([find_py_spy(), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def self_time(collapsed: list[str]) -> Counter[str]:
    """Return samples by the function at the leaf, from collapsed lines; lines of one function are one."""
    counted: Counter[str] = Counter()
    for line in collapsed:
        stack, _, samples = line.rpartition(" ")
        function, _, place = stack.rpartition(";")[2].rpartition(" (")
        counted[f"{function} {place.rpartition(':')[0]}"] += int(samples)
    return counted


def total_variation(one: Counter[str], other: Counter[str]) -> float:
    """Return half the sum of the differences of shares: 0 for the same distribution, 1 for disjoint ones."""
    totals = sum(one.values()), sum(other.values())
    return sum(abs(one[key] / totals[0] - other[key] / totals[1]) for key in one | other) / 2
