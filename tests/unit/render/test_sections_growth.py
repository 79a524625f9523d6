"""Growing memory as ``profd summary`` says it."""

from __future__ import annotations

from pathlib import Path

import msgspec
from support import synthetic

from profd.daemon.analyze.memory import Growth, Jump, Limit
from profd.daemon.render.sections import growth_lines, jump_lines
from profd.daemon.render.summary import summarize
from profd.daemon.render.text import summary_text
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow

HOST = Limit("host", "ada-desktop", 16_000_000_000, 6_000_000_000)
LEAK = Growth(
    1, 4242, "rss_bytes", None, "growing", 1.25e6, (1.2e6, 1.3e6), 0.5e6, 0, HOST, 8000.0
)  # fmt: skip
NAMES = {4242: "main"}


def test_a_leak_is_one_line_with_pace_step_and_end() -> None:
    assert list(growth_lines([LEAK], NAMES)) == [
        "  ▲ main 4242 grows by 1.2 MB/s ± 50 kB, 500 kB a step: the machine is full in 2 h 13 min"
    ]


def test_what_is_not_known_is_not_said() -> None:
    bare = msgspec.structs.replace(LEAK, bytes_per_step=None, limit=None, time_to_limit_s=None, pid=7)
    assert list(growth_lines([bare], NAMES)) == ["  ▲ process 7 grows by 1.2 MB/s ± 50 kB"]


def test_control_groups_and_gpus_are_named() -> None:
    group = msgspec.structs.replace(LEAK, limit=Limit("cgroup", "/job", 1, 0))
    gpu = msgspec.structs.replace(
        LEAK, series="gpu_process_memory_bytes", device="GPU 0", limit=Limit("gpu", "GPU 0", 1, 0)
    )
    of_group, of_gpu = growth_lines([group, gpu], NAMES)
    assert of_group.endswith(": its control group is full in 2 h 13 min")
    assert "grows on GPU 0 by" in of_gpu
    assert of_gpu.endswith(": GPU 0 is full in 2 h 13 min")


def test_only_growth_is_said_and_that_once() -> None:
    proportional = msgspec.structs.replace(LEAK, series="pss_bytes")
    steady = msgspec.structs.replace(LEAK, verdict="steady")
    cached = msgspec.structs.replace(LEAK, verdict="cached")
    assert len(list(growth_lines([LEAK, proportional, steady, cached], NAMES))) == 1
    assert len(list(growth_lines([proportional], NAMES))) == 1


def test_a_summary_has_the_memory_of_each_process_and_says_who_grows(tmp_path: Path) -> None:
    path = synthetic.write_run(tmp_path / "a.profd", seconds=60)
    with RunReader(path) as reader:
        summary = summarize(reader)
    assert [(one.pid, one.verdict) for one in summary.memory] == [
        (synthetic.MAIN.pid, "growing"),
        (synthetic.worker(1).pid, "steady"),
        (synthetic.worker(2).pid, "steady"),
    ]
    text = summary_text(summary)
    assert "Growing memory" in text
    assert "▲ main 4242 grows by 1.0 MB/s" in text
    calm = msgspec.structs.replace(summary, memory=())
    assert "Growing memory" not in summary_text(calm)


def test_a_jump_names_the_line_that_ran_meanwhile() -> None:
    line = FrameRow(1, "load", "/srv/train.py", "train.py", 12, False, "cache = read(path)")
    jump = Jump(1, 4242, "rss_bytes", None, 0, 90_000_000_000, 1.5e9, 3, line, ())
    on_gpu = msgspec.structs.replace(jump, device="gpu0", line=None, pid=7)
    of_host, of_gpu = jump_lines([jump, on_gpu], NAMES)
    assert of_host.endswith("  main 4242 rose by 1.5 GB at train.py:12  cache = read(path)")
    assert of_gpu.endswith("  process 7 rose on gpu0 by 1.5 GB")
