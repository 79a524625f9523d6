"""The verdict on a run in one line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from support import synthetic
from support.jobruns import FORWARD, LOAD, Rank, write_job
from support.noderuns import Job, write_three_nodes
from support.synthetic import STARTED_NS, main_process, write_records

from profd.daemon.analyze.memory import Growth, Limit
from profd.daemon.analyze.nodes import open_job, read_folder
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.plaintext import WIDTH, TextLine, joined
from profd.daemon.render.report import render_report
from profd.daemon.render.sections import growth_lines, node_lines, rank_lines
from profd.daemon.render.summary import summarize
from profd.daemon.render.text import summary_text
from profd.daemon.store.merge import JoinedNode
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    Frame,
    HangEnded,
    HangFound,
    HangGroup,
    HangReport,
    Record,
    Stand,
)

HOST = Limit("host", "ada-desktop", 16_000_000_000, 6_000_000_000)
LEAK = Growth(1, 4242, "rss_bytes", None, "growing", 1.25e6, (1.2e6, 1.3e6), 0.5e6, 0, HOST, 8000.0)
NAMES = {4242: "main"}


def lines_of(section: Iterable[TextLine]) -> list[str]:
    return joined(section, 120).splitlines()


def test_a_leak_is_one_line_with_pace_step_and_end_and_a_jump_names_the_line_that_ran_meanwhile() -> (
    None
):
    assert lines_of(growth_lines([LEAK], NAMES)) == [
        "  ▲ main 4242 grows by 1.2 MB/s ± 50 kB, 500 kB a step: the machine is full in 2 h 13 min"
    ]
    bare = msgspec.structs.replace(
        LEAK, bytes_per_step=None, limit=None, time_to_limit_s=None, pid=7
    )
    assert lines_of(growth_lines([bare], NAMES)) == ["  ▲ process 7 grows by 1.2 MB/s ± 50 kB"]
    group = msgspec.structs.replace(LEAK, limit=Limit("cgroup", "/job", 1, 0))
    limit = Limit("gpu", "GPU 0", 1, 0)
    gpu = msgspec.structs.replace(
        LEAK, series="gpu_process_memory_bytes", device="GPU 0", limit=limit
    )
    of_group, of_gpu = lines_of(growth_lines([group, gpu], NAMES))
    assert of_group.endswith(": its control group is full in 2 h 13 min")
    assert "grows on GPU 0 by" in of_gpu
    assert of_gpu.endswith(": GPU 0 is full in 2 h 13 min")
    proportional = msgspec.structs.replace(LEAK, series="pss_bytes")
    others = [msgspec.structs.replace(LEAK, verdict=verdict) for verdict in ("steady", "cached")]
    assert len(list(growth_lines([LEAK, proportional, *others], NAMES))) == 1
    assert len(list(growth_lines([proportional], NAMES))) == 1


def test_a_summary_has_the_memory_of_each_process_and_names_growing_ones(tmp_path: Path) -> None:
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


FRAMES = (
    Frame("<module>", "/srv/train.py", 40),
    Frame("all_reduce", "/lib/distributed_c10d.py", 3),
)
RANKS = tuple(
    Stand(f"rank {rank}", 4242 + rank, "main", rank, "MainThread", True, "a lock")
    for rank in range(6)
)
TEXT = "no progress for 31 s (collective): " + "6 of 7 processes wait so, " * 8 + "the end\x1b[31m"
REPORT = HangReport(
    "collective",
    (HangGroup(FRAMES, RANKS, ("futex (libc.so.6)", "wait (libgloo.so)")),),
    ("gpu0 at a constant 100 %",),
)


def test_json_has_the_stacks_of_a_hang_and_the_text_keeps_to_the_width(tmp_path: Path) -> None:
    at_ns = STARTED_NS + 60 * SECOND_NS
    hung: list[Record] = [
        main_process(),
        HangFound(at_ns, STARTED_NS + 30 * SECOND_NS, TEXT, REPORT),
    ]
    with RunReader(write_records(tmp_path / "a", hung)) as reader:
        summary = summarize(reader)
    (hang,) = msgspec.json.decode(msgspec.json.encode(summary))["hangs"]
    assert (hang["since_s"], hang["reported_s"], hang["ended_s"], hang["cause"]) == (
        30.0,
        60.0,
        None,
        "collective",
    )
    assert hang["places"][0]["frames"][-1] == "all_reduce (/lib/distributed_c10d.py:3)"
    assert [stand["rank"] for stand in hang["places"][0]["stands"]] == list(range(6))
    text = summary_text(summary)
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert "▲ 30.0 s into the run: no progress for 31 s (collective)" in words
    assert "the end\\x1b[31m; it did not go on" in words
    assert "rank 0, rank 1, rank 2, rank 3 and 2 more: a lock" in words
    assert "all_reduce (distributed_c10d.py:3) ← <module> (train.py:40)" in words
    assert "native: futex (libc.so.6) ← wait (libgloo.so) all_reduce" in words
    assert "gpu0 at a constant 100 %" in words
    ended = [*hung, HangEnded(at_ns + 60 * SECOND_NS, at_ns)]
    with RunReader(write_records(tmp_path / "b", ended)) as reader:
        assert "it went on after 1 min 30 s" in " ".join(summary_text(summarize(reader)).split())


USUAL = Rank((LOAD, 100), (FORWARD, 100))
LATE = Rank((LOAD, 250), (FORWARD, 100))
LINES = [
    "     rank   steps  own work  waits  longer than the others at",
    "        0  2.00/s      40 %   30 %",
    "        1  2.00/s      40 %   30 %",
    "  ▲     2  2.00/s      70 %    0 %  +30 % Photos.__getitem__  augment.py:33  data load "
    "in process",
]


def test_the_table_shows_ranks_that_are_late_and_ranks_that_wait(tmp_path: Path) -> None:
    with RunReader(write_job(tmp_path / "a.profd", USUAL, USUAL, LATE)) as reader:
        summary = summarize(reader)
    assert [line.rstrip() for line in rank_lines(summary.ranks)] == LINES
    text = summary_text(summary).splitlines()
    assert text[text.index("Ranks") + 1 :][:4] == joined(LINES, WIDTH).splitlines()
    # Of many those that wait least are shown.
    late = summary.ranks[2]
    many = [
        msgspec.structs.replace(late, rank=rank, waiting_share=1 - rank / 100)
        for rank in range(100)
    ]
    _, *lines, last = rank_lines(many)
    assert [int(line.split()[1]) for line in lines] == list(range(84, 100))
    assert last == "  and 84 more that wait longer"
    assert list(rank_lines(())) == []


def test_tables_and_report_of_a_job_on_three_nodes_show_node_clock_and_error(
    tmp_path: Path,
) -> None:
    with open_job(read_folder(write_three_nodes(tmp_path)).choose(None)) as reader:
        summary, report = summarize(reader), render_report(reader)
    lines = list(node_lines(summary.nodes))
    assert lines[1].split()[:2] == ["node0", "0"]
    assert lines[2].split()[1].startswith("+1,70")
    assert "ms ±" in lines[2]
    assert "by collectives" in lines[2]
    assert list(node_lines([JoinedNode(1, "b", "r", 0, None, "the wall clock", 0)]))[1].split()[
        1:3
    ] == ["not", "known"]
    heads, _, late, *_ = rank_lines(summary.ranks)
    assert heads.split()[:2] == ["rank", "node"]
    assert late.split()[:3] == ["▲", "1", "node1"]
    tables = report[report.index('aria-label="Ranks"') :]
    assert 'href="#rank=1"' in tables
    assert "Photos.__getitem__" in tables
    assert "+1,70" in tables
    with RunReader(Job(steps=60).write(tmp_path / "alone.profd", 0)) as reader:
        report = render_report(reader)
    assert 'aria-label="Ranks"' not in report
    assert 'aria-label="Nodes"' not in report
