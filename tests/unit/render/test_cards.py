"""Findings as cards: harmless words, and an address that selects what the finding rests on."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import msgspec
import pytest
from support import hostiletexts, rankrun
from support.present import there
from support.synthetic import MAIN, MAIN_TID, STARTED_NS, main_process, recording, write_records
from support.training_stacks import CONV, LOSS

from profd.daemon.analyze.incidents import PostMortem
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.finding import Evidence, Finding, Line, Measure
from profd.daemon.render import report
from profd.daemon.render.cards import (
    CURVE_HEIGHT,
    CURVE_WIDTH,
    death_card,
    measures,
    proof_address,
)
from profd.daemon.render.report import render_report
from profd.daemon.render.sections import mark
from profd.daemon.render.summary import summarize
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.units import LARGEST_BOUND

WHOLE = (STARTED_NS, STARTED_NS + rankrun.SECONDS * SECOND_NS)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(rankrun.write_run(tmp_path / "run.profd")) as reader:
        yield reader


def evidence(selection: Selection, from_s: float = 0, to_s: float = rankrun.SECONDS) -> Evidence:
    from_ns, to_ns = (STARTED_NS + round(at_s * SECOND_NS) for at_s in (from_s, to_s))
    return Evidence((), from_ns, to_ns, selection)


def finding(text: str = "text") -> Finding:
    line = Line(f"/srv/{text}.py", f"{text}.py", 58, f"{text} = 1", text, 1)
    measures = (Measure(text, 0.612, "share", 0.58, 0.64, 2_871), Measure("leak", 1.1e6, "bytes/s"))
    selection = Selection(main_threads=True, phase="data wait")
    return Finding(
        rule="starved",
        severity="critical",
        label=text,
        title=f"{text}: the main thread waits 61 % for {text}",
        cause=text,
        remedy=f"four more workers {text}",
        gain_bound=2.4,
        evidence=Evidence(measures, *WHOLE, selection, line),
        page="starved",
    )


@pytest.mark.parametrize(
    ("selection", "address"),
    [
        (Selection(main_threads=True), {}),
        (
            Selection(main_threads=True, rank=1, phase="data wait"),
            {"rank": ["1"], "phase": ["data wait"]},
        ),
        (Selection(), {"process": ["all"], "thread": ["all"]}),
        (Selection(thread="a&b=c"), {"process": ["all"], "thread": ["=a&b=c"]}),
        (Selection(when=(Condition("gpu-idle"),), main_threads=True), {"gpu-idle": ["1"]}),
        (Selection(when=(Condition("on-cpu"),), main_threads=True), {"on-cpu": ["1"]}),
    ],
)
def test_an_address_says_what_a_selection_says(
    reader: RunReader, selection: Selection, address: dict[str, list[str]]
) -> None:
    assert parse_qs(proof_address(reader, evidence(selection))) == address


def test_an_address_has_a_range_and_processes_their_place_on_the_page(reader: RunReader) -> None:
    assert proof_address(reader, evidence(Selection(main_threads=True), 2.5, 11)) == "t=2.50-11.00"
    places = {row.pid: place for place, row in enumerate(reader.processes.values())}
    workers = [row.id for row in reader.processes.values() if row.role == "worker"]
    found = parse_qs(proof_address(reader, evidence(Selection(processes=frozenset(workers)))))
    assert found["process"] == [",".join(str(places[identity.pid]) for identity in rankrun.WORKERS)]
    everyone = Selection(processes=frozenset(reader.processes), main_threads=True)
    found = parse_qs(proof_address(reader, evidence(everyone)))
    assert found == {"process": [",".join(str(places[identity.pid]) for identity in rankrun.RANKS)]}


def test_a_card_says_the_numbers_with_what_they_rest_on_and_what_is_no_alarm() -> None:
    found = finding("input-bound")
    assert mark(found) == "▲"
    assert [(fact.value, fact.hint) for fact in measures(found)] == [
        ("61.2 %", "58.0 % to 64.0 % · 2,871 samples"),
        ("1.1 MB/s", ""),
        ("at most 2.4× as fast", ""),  # noqa: RUF001
    ]
    for unsaid in (None, LARGEST_BOUND + 0.1):
        found = msgspec.structs.replace(finding(), severity="info", gain_bound=unsaid)
        assert mark(found) == "·"
        assert "steps get" not in [fact.name for fact in measures(found)]


def test_the_card_of_a_finding_says_its_label_once_and_no_text_of_a_run_does_anything(
    reader: RunReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = msgspec.structs.replace(
        summarize(reader), findings=(finding("a label"), finding(hostiletexts.EVIL))
    )
    monkeypatch.setattr(report, "summarize", lambda *_: summary)
    found = render_report(reader)
    assert "<b>a label</b> the main thread waits 61 % for a label</h2>" in found
    assert not set(found) & set("\u202e\u2066\u2028\x1b\x00")
    assert "<img" not in found
    assert hostiletexts.WIDE in found


END_NS = STARTED_NS + 40 * SECOND_NS
RANKS = tuple(
    records.Stand(f"rank {rank}", 4242 + rank, "main", rank, "MainThread", True, "a lock")
    for rank in range(6)
)
GROUPS = (
    records.HangGroup(
        (
            records.Frame("<module>", "/srv/train.py", 40),
            records.Frame("all_reduce", "/lib/c10d.py", 3),
        ),
        RANKS,
    ),
    records.HangGroup(
        (records.Frame("save", "/srv/io.py", 7),),
        (records.Stand("rank 6", 9, "main", 6, "saver", False, "a file /nfs/a"),),
        ("write (libc.so.6)", "…"),
    ),
)
HANG = records.HangFound(
    END_NS - SECOND_NS,
    STARTED_NS + 5 * SECOND_NS,
    "no progress for 34 s",
    records.HangReport("collective", GROUPS, ("GPU 0",)),
)
SAID = records.OutputWritten(END_NS, b"epoch 1\r\nRuntimeError: bad\r\n")


def page(path: Path, *more: records.Record) -> str:
    stacks = [(MAIN_TID, "MainThread", True, [(CONV, 400), (LOSS, 600)])]
    memory = [
        records.PointsTaken(
            END_NS - second * SECOND_NS, (records.Point("rss_bytes", (5 - second) * 1e9, MAIN),)
        )
        for second in (3, 2, 1, 0)
    ]
    write_records(
        path, [main_process(), recording(MAIN, END_NS - SECOND_NS, stacks), *memory, *more]
    )
    with RunReader(path) as reader:
        return render_report(reader)


def words(found: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", found).split())


def test_the_report_of_a_died_run_opens_with_its_death(tmp_path: Path) -> None:
    found = page(
        tmp_path / "run", SAID, records.RunEnded(END_NS, "target-exited", None, signal.SIGSEGV)
    )
    assert found.index('class="death"') < found.index('class="verdict"')
    text = words(found[: found.index('class="verdict"')])
    assert "The target was ended by SIGSEGV, last seen in " in text
    assert "pid 4242: last seen 0.0 s before the end in train_epoch (train.py:62)" in text
    assert "epoch 1 RuntimeError: bad" in text
    assert "over its last 3.0 s: 2.0 GB at first, 5.0 GB at most, 5.0 GB at last" in text
    leaf, *_ = re.findall(r"<li>([^<]*)</li>", found)
    assert leaf.startswith("cross_entropy")
    found = page(tmp_path / "well", records.RunEnded(END_NS, "target-exited", 0))
    assert 'class="death"' not in found
    assert 'class="hangs"' not in found


def test_a_hang_is_shown_with_all_its_stacks_and_waits(tmp_path: Path) -> None:
    found = page(tmp_path / "run", HANG, records.RunEnded(END_NS, "target-exited", 0))
    text = words(found)
    assert (
        "hang no progress for 34 s 5.0 s into the run, reported after 34.0 s; it did not go on"
        in text
    )
    for rank in range(6):
        assert f"rank {rank} (pid {4242 + rank}): a lock" in text
    assert "rank 6 (pid 9), thread saver: a file /nfs/a" in text
    stack = "all_reduce (/lib/c10d.py:3)", "&lt;module&gt; (/srv/train.py:40)"
    assert f"<li>{stack[0]}</li><li>{stack[1]}</li>" in found
    assert "<li>write (libc.so.6)</li><li>…</li><li>save (/srv/io.py:7)</li>" in found
    assert '<a class="proof" href="#t=0.00-39.00&amp;process=all&amp;thread=all"' in found


def test_the_curve_goes_from_edge_to_edge() -> None:
    card = there(
        death_card(PostMortem(1, None, None, (), 4, ((10.0, 1), (5.0, 2), (0.0, 4)), (), (), None))
    )
    assert (
        card["curve"] == f"0.0,{1 + 0.75 * (CURVE_HEIGHT - 2):.1f} {CURVE_WIDTH / 2:.1f},30.0 "
        f"{CURVE_WIDTH:.1f},1.0"
    )


def test_no_text_of_a_run_does_anything(tmp_path: Path) -> None:
    evil = hostiletexts.EVIL
    stand = records.Stand(evil, 1, "main", None, evil, False, evil)
    report = records.HangReport(
        "collective", (records.HangGroup((records.Frame(evil, evil, 1),), (stand,)),), (evil,)
    )
    hang = msgspec.structs.replace(HANG, text=evil, report=report)
    died = (
        records.OutputWritten(END_NS, evil.encode()),
        records.RunEnded(END_NS, "target-exited", 1),
    )
    found = page(tmp_path / "run", hang, *died)
    for card in ("death", "hangs"):
        assert "\\u202egnol" in found.partition(f'class="{card}"')[2].partition("</section>")[0], (
            card
        )
    assert "<img" not in found
    assert found.count("<script") == 2
    assert not set(found) & set("\u202e\u2066\u2028\x1b\x00")
