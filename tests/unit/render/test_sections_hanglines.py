"""Hangs in the summary: in its JSON, and as lines of text that fit."""

from __future__ import annotations

from pathlib import Path

import msgspec
from support.synthetic import STARTED_NS, main_process, run_started
from support.training_stacks import describe

from profd.daemon.clock import SECOND_NS
from profd.daemon.render.summary import Summary, summarize
from profd.daemon.render.text import summary_text
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame, HangEnded, HangFound, HangGroup, HangReport, Stand
from profd.daemon.store.writer import RunWriter

FRAMES = (Frame("<module>", "/srv/train.py", 40), Frame("all_reduce", "/lib/distributed_c10d.py", 3))
RANKS = tuple(Stand(f"rank {rank}", 4242 + rank, "main", rank, "MainThread", True, "a lock") for rank in range(6))
TEXT = "no progress for 31 s (collective): " + "6 of 7 processes wait so, " * 8 + "the end\x1b[31m"
REPORT = HangReport("collective", (HangGroup(FRAMES, RANKS),), ("gpu0 at a constant 100 %",))


def summary_of(path: Path, *, ended: bool) -> Summary:
    writer = RunWriter(path, run_started(), describe)
    at_ns = STARTED_NS + 60 * SECOND_NS
    assert writer.put(main_process())
    assert writer.put(HangFound(at_ns, STARTED_NS + 30 * SECOND_NS, TEXT, REPORT))
    if ended:
        assert writer.put(HangEnded(at_ns + 60 * SECOND_NS, at_ns))
    writer.close()
    with RunReader(path) as reader:
        return summarize(reader)


def test_json_has_who_stood_where(tmp_path: Path) -> None:
    (hang,) = msgspec.json.decode(msgspec.json.encode(summary_of(tmp_path / "a", ended=False)))["hangs"]
    assert (hang["since_s"], hang["told_s"], hang["ended_s"], hang["cause"]) == (30.0, 60.0, None, "collective")
    assert hang["places"][0]["frames"][-1] == "all_reduce (/lib/distributed_c10d.py:3)"
    assert [stand["rank"] for stand in hang["places"][0]["stands"]] == list(range(6))


def test_text_says_it_all_within_the_width(tmp_path: Path) -> None:
    text = summary_text(summary_of(tmp_path / "a", ended=False))
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert "▲ 30.0 s into the run: no progress for 31 s (collective)" in words
    assert "the end\\x1b[31m; it did not go on" in words
    assert "rank 0, rank 1, rank 2, rank 3 and 2 more: a lock" in words
    assert "all_reduce (distributed_c10d.py:3) ← <module> (train.py:40)" in words
    assert "gpu0 at a constant 100 %" in words


def test_text_says_when_it_went_on(tmp_path: Path) -> None:
    assert "it went on after 1 min 30 s" in " ".join(summary_text(summary_of(tmp_path / "a", ended=True)).split())
