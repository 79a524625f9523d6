"""The file of measurements: a section a benchmark, renewed by running it again."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from common import measurements
from common.meters import (
    Mark,
    Memory,
    cores_between,
    cpu_with_children_s,
    descriptors,
    memory_of,
    own_cpu_s,
    parse_rollup,
)
from common.paired import distinguish, effect
from common.proportions import at_most, most
from common.trend import Bound, Trend, take_trend
from cost import soak


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "measurements.md"
    monkeypatch.setattr(measurements, "FILE", path)
    monkeypatch.setattr(measurements, "RESULTS", tmp_path / "results")
    return path


TABLE = ["| run | CPU | RSS |", "|---|---:|---|", "| **first** | 4.00 % | 1,059 MB |"]


def test_a_section_is_replaced_and_the_page_has_all_of_them_in_the_order_of_the_folders(
    page: Path,
) -> None:
    for folder, title in (
        ("truth", "Steps"),
        ("cost", "Threads"),
        ("cost", "Cost"),
        ("cost", "Threads"),
    ):
        lines = ["Of all:", "", *TABLE, "", f"so much: {title}"]
        measurements.write_section(title, f"`benchmarks/{folder}/own.py`: how, \\1.", lines)
        seen = page.read_text()
    assert re.findall("^## (.*)", seen, re.MULTILINE) == ["Cost", "Threads", "Steps"]
    assert "\n\n".join(["Of all:", "\n".join(TABLE), "so much: Threads"]) in seen
    assert "how, \\1." in seen


def test_a_result_says_when_and_where_it_was_measured(page: Path) -> None:
    measurements.write_section("Cost", "`benchmarks/cost/own.py`: how.", TABLE)
    result = json.loads((page.parent / "results" / "cost" / "cost.json").read_text())
    assert list(result) == ["title", "method", "date", "machine", "versions", "commit", "body"]
    assert f"{os.cpu_count()} cores" in result["machine"]
    assert result["body"] == [
        {
            "columns": ["run", "CPU", "RSS"],
            "rules": ["---", "---:", "---"],
            "rows": [["**first**", "4.00 %", "1,059 MB"]],
        }
    ]


def test_what_changed_by_a_tenth_is_said(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for cpu in ("4.00", "4.20", "+5.00 [4.9, 5.1]"):
        lines = [*TABLE[:2], f"| **first** | {cpu} % | 1,059 MB |", "", "no table: 7"]
        measurements.write_section("Cost", "`benchmarks/cost/own.py`: how.", lines)
    assert capsys.readouterr().out == "Cost, first: CPU: 5, before 4.2\n"


def test_nothing_is_written_where_it_is_to_be_printed_only(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurements, "WRITES", False)
    measurements.write_section("Cost", "`benchmarks/cost/own.py`: how.", TABLE)
    assert not page.exists()


def test_the_page_is_made_of_the_results_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = measurements.FILE.read_text()
    monkeypatch.setattr(measurements, "FILE", tmp_path / "made.md")
    measurements.write_page()
    assert (tmp_path / "made.md").read_text() == kept


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
"""A process whose first child has ended after 0.3 s of CPU time, and whose second lives and has
taken 0.2 s.
"""


def test_cores_are_those_between_the_first_and_last_mark_within() -> None:
    marks = [
        Mark(0.0, 0.0),
        Mark(9.9, 5.0),
        Mark(10.1, 5.5),
        Mark(15.0, 5.7),
        Mark(20.1, 6.5),
        Mark(31.0, 99.0),
    ]
    assert cores_between(marks, 10.0, 30.0) == pytest.approx(0.1)
    assert cores_between(
        [Mark(0.0, 0.0), Mark(10.0, 2.0), Mark(20.0, 2.5)], 0.0, 10.5
    ) == pytest.approx(0.2)
    with pytest.raises(ValueError, match="no two marks between 5 and 9 s"):
        cores_between([Mark(0.0, 0.0), Mark(6.0, 1.0)], 5, 9)


def test_memory_of_processes_is_summed_in_bytes_and_ended_ones_have_none() -> None:
    assert parse_rollup(ROLLUP) == Memory(20480 * 1024, 12000 * 1024, 7168 * 1024)
    assert parse_rollup("") == Memory(0, 0, 0)
    assert memory_of([]) == Memory(0, 0, 0)
    one = memory_of([os.getpid()])
    assert one.uss_bytes <= one.pss_bytes <= one.rss_bytes
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        two = memory_of([os.getpid(), child.pid])
        # The tests' process may grow a little from one look to the next.
        assert one.rss_bytes < two.rss_bytes < 2 * one.rss_bytes


def test_descriptors_and_cpu_of_children_are_counted() -> None:
    before = descriptors(os.getpid())
    ends = os.pipe()
    assert descriptors(os.getpid()) == before + 2
    for end in ends:
        os.close(end)
    words = [sys.executable, "-c", BURN]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        own_s, all_s = own_cpu_s(process.pid), cpu_with_children_s(process.pid)
        process.communicate("\n")
    assert 0.45 <= all_s - own_s <= 0.8


def test_no_failure_leaves_the_rule_of_three_and_where_all_fail_all_may() -> None:
    assert most(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert most(5, 5) == pytest.approx(1.0)


@pytest.mark.parametrize(("failures", "trials"), [(0, 1), (1, 20), (7, 60), (59, 60)])
def test_bound_is_where_so_few_come_once_in_twenty_times(failures: int, trials: int) -> None:
    assert at_most(failures, trials, most(failures, trials)) == pytest.approx(0.05)
    assert most(failures, trials) > failures / trials


def test_effect_and_interval_are_those_of_student() -> None:
    found = effect([(1.1, 1.0), (1.1 * 1.21, 1.1), (2.0, 2.0)])
    # The logarithms of 1.1, 1.21 and 1 have the mean log 1.1.
    assert found.percent == pytest.approx(10.0)
    assert (found.median_one, found.median_other) == (1.331, 1.1)
    found = effect([(math.exp(x), 1.0) for x in (0.0, 0.02, 0.04)])
    # Standard deviation 0.02 over three pairs, t of two degrees of freedom.
    half = 4.302653 * 0.02 / math.sqrt(3)
    assert found.low == pytest.approx(100 * math.expm1(0.02 - half))
    assert found.high == pytest.approx(100 * math.expm1(0.02 + half))
    with pytest.raises(ValueError, match="shorter"):
        distinguish([(1.0, 1.0), (1.0, 1.0)], [(1.0, 1.0)])


def test_an_effect_is_as_rare_as_the_random_choices_that_show_it() -> None:
    pairs = [(1.1 + 0.001 * number, 1.0) for number in range(10)]
    found = distinguish(pairs, [(1.0, 1.0)] * 10)
    assert found.p == 2 / 2**10
    assert str(found).startswith("distinguishable from the null control (difference +10.4")
    pairs = [(1.1, 1.0)] * 40
    # Only that choice is as extreme which leaves all as it was, and it is always among them: p is
    # never 0.
    assert distinguish(pairs, [(1.0, 1.0)] * 40).p == 1 / 100_000


RISING = [(float(second), 100.0 + second / 360) for second in range(0, 3600, 5)]


def test_the_slope_is_per_hour_and_of_settled_readings() -> None:
    trend = take_trend(RISING, settled_s=600)
    assert trend.per_hour == pytest.approx(10.0)
    # A quarter of 3,000 s is 750 s: the means of first and last lie 2,250 s apart.
    assert trend.growth == pytest.approx(2250 / 360, rel=0.01)
    readings = [
        (0.0, 900.0),
        (5.0, 500.0),
        *((float(second), 100.0) for second in range(600, 1200, 5)),
    ]
    assert take_trend(readings, settled_s=600) == Trend(per_hour=0.0, growth=0.0, highest=900.0)
    with pytest.raises(ValueError, match="no two readings after 600 s"):
        take_trend([(0.0, 1.0), (599.0, 1.0), (600.0, 1.0)], settled_s=600)


def test_bounds_break_one_by_one_and_a_soak_names_what_broke() -> None:
    trend = Trend(per_hour=3.0, growth=2.0, highest=160.0)
    assert Bound(highest=160.0, per_hour=3.0).breaches(trend) == []
    assert Bound(highest=150.0).breaches(trend) == ["160.0 is more than 150.0"]
    assert Bound(per_hour=2.0).breaches(trend) == ["grows by 3.0 an hour, more than 2.0"]
    assert Bound().breaches(trend) == []
    flat = [(float(second), 5.0) for second in range(0, 3600, 5)]
    readings = {quantity.name: flat for quantity in soak.QUANTITIES} | {
        "USS of the session": RISING
    }
    rows, broken = soak.judge(readings, settled_s=600)
    assert broken == ["USS of the session: grows by 10.0 an hour, more than 2.0"]
    assert [row for row in rows if "broken" in row] == [
        "| USS of the session | 109.99 MB | 6.25 MB | 10.00 MB | at most 2 more an hour: broken |"
    ]
    assert len(rows) == len(soak.QUANTITIES)


def test_spending_is_measured_over_the_last_minute() -> None:
    spending = soak.Spending()
    assert spending.over_a_minute(5.0, 3.0) == pytest.approx(0.05)  # nothing was before the start
    steady = [
        spending.over_a_minute(float(at_s), 3.0 + (at_s - 5) * 0.1) for at_s in range(10, 600, 5)
    ]
    assert max(steady) < 0.16
    assert steady[-1] == pytest.approx(0.1)
    assert spending.over_a_minute(600.0, 3.0 + 590 * 0.1 + 5.0) == pytest.approx(0.1 + 4.5 / 60)


def test_memory_that_two_processes_share_until_the_exec_of_one_is_counted_once() -> None:
    assert (
        memory_of([os.getpid(), os.getpid()]).rss_bytes < 1.5 * memory_of([os.getpid()]).rss_bytes
    )
