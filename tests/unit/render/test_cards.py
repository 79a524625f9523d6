"""Findings as cards: harmless words, and an address that selects what the finding rests on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import msgspec
import pytest
from support import hostiletexts, rankrun
from support.synthetic import STARTED_NS

from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.finding import Evidence, Finding, Line, Measure
from profd.daemon.render.cards import proof_address, take_card
from profd.daemon.render.htmlpage import TEMPLATES
from profd.daemon.store.reader import RunReader

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
        (Selection(main_threads=True, rank=1, phase="data wait"), {"rank": ["1"], "phase": ["data wait"]}),
        (Selection(), {"process": ["all"], "thread": ["all"]}),
        (Selection(thread="a&b=c"), {"process": ["all"], "thread": ["=a&b=c"]}),
        (Selection(when=(Condition("gpu-idle"),), main_threads=True), {"gpu-idle": ["1"]}),
        (Selection(when=(Condition("on-cpu"), Condition("throttled")), main_threads=True), {"on-cpu": ["1"]}),
    ],
)
def test_an_address_says_what_a_selection_says(
    reader: RunReader, selection: Selection, address: dict[str, list[str]]
) -> None:
    assert parse_qs(proof_address(reader, evidence(selection))) == address


def test_an_address_has_the_range_where_it_is_not_the_whole_run(reader: RunReader) -> None:
    assert proof_address(reader, evidence(Selection(main_threads=True), 2.5, 11)) == "t=2.50-11.00"


def test_processes_are_named_by_their_place_on_the_page(reader: RunReader) -> None:
    places = {row.pid: place for place, row in enumerate(reader.processes.values())}
    workers = [row.id for row in reader.processes.values() if row.role == "worker"]
    found = parse_qs(proof_address(reader, evidence(Selection(processes=frozenset(workers)))))
    assert found["process"] == [",".join(str(places[identity.pid]) for identity in rankrun.WORKERS)]
    everyone = Selection(processes=frozenset(reader.processes), main_threads=True)
    found = parse_qs(proof_address(reader, evidence(everyone)))
    assert found == {"process": [",".join(str(places[identity.pid]) for identity in rankrun.RANKS)]}


def test_a_card_says_the_numbers_with_what_they_rest_on(reader: RunReader) -> None:
    card = take_card(reader, finding("input-bound"))
    assert (card.mark, card.finding.label) == ("▲", "input-bound")
    assert card.sentence == "the main thread waits 61 % for input-bound"
    assert [(fact.value, fact.hint) for fact in card.measures] == [
        ("61.2 %", "58.0 % to 64.0 % · 2,871 samples"),
        ("1.1 MB/s", ""),
        ("at most 2.4× as fast", ""),  # noqa: RUF001
    ]


def test_what_is_merely_worth_knowing_is_no_alarm(reader: RunReader) -> None:
    card = take_card(reader, msgspec.structs.replace(finding(), severity="info", gain_bound=None))
    assert card.mark == "·"
    assert "steps get" not in [fact.name for fact in card.measures]


def test_no_text_of_a_run_does_anything_to_who_reads_it(reader: RunReader) -> None:
    card = take_card(reader, finding(hostiletexts.EVIL))
    template = (
        "{{ card.sentence }}{{ card.finding.cause }}{{ card.measures[0].name }}{{ card.finding.evidence.line.source }}"
    )
    said = TEMPLATES.from_string(template).render(card=card)
    assert not set(said) & set("\u202e\u2066\u2028\x1b\x00\n")
    assert hostiletexts.WIDE in said
