"""What a report says: how the run ended, and where its time went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import synthetic

from profd.daemon.render.report import Verdict, ending, take_verdict, take_words
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader


def test_title_line_says_what_where_and_how_it_went(tmp_path: Path) -> None:
    with RunReader(synthetic.write_run(tmp_path / "run.profd")) as reader:
        words = take_words(reader, summarize(reader), bucket_ms=10)
    assert words.title == "train.py"
    assert words.command == "python train.py --epochs 2"
    assert words.subtitle[0] == "ada-desktop"
    assert words.subtitle[2:] == ["20.0 s", "ended with 0"]
    facts = {fact.name: fact.value for fact in words.facts}
    assert facts["samples"] == "2,000"
    assert facts["coverage"] == "100.0 %"
    assert facts["profd's cost"] == "4.1 % of a core"


def test_verdict_has_a_number_and_a_line_of_the_users_code(tmp_path: Path) -> None:
    with RunReader(synthetic.write_run(tmp_path / "run.profd")) as reader:
        verdict = take_verdict(summarize(reader))
    assert verdict == Verdict(
        lead="40 % of the time the main thread waits for data",
        place="train.py:58",
        source="for images, labels in loader:",
        rest="Next: forward 20 %, backward 20 %, optimizer 10 %",
    )


def test_verdict_without_samples_says_so(tmp_path: Path) -> None:
    with RunReader(synthetic.write_run(tmp_path / "run.profd", seconds=0)) as reader:
        assert take_verdict(summarize(reader)).lead.startswith("No sample of a main thread was taken")


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ({"exit_code": 3}, "the target ended with 3"),
        ({"exit_code": None, "exit_signal": 9}, "the target was ended by SIGKILL"),
        ({"exit_code": None}, "ended"),
        ({"live": True}, "still running"),
    ],
)
def test_ending_is_told(tmp_path: Path, ended: dict[str, Any], said: str) -> None:
    with RunReader(synthetic.write_run(tmp_path / "run.profd", seconds=1, **ended)) as reader:
        assert ending(reader.info, summarize(reader)) == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"state": "interrupted", "why_ended": None}, "recording broke off: profd itself was ended"),
        ({"why_ended": "stopped"}, "recording stopped, the script ran on"),
        ({"why_ended": "duration"}, "recording ended after its set time, the script ran on"),
        ({"why_ended": "failed"}, "recording failed"),
    ],
)
def test_ending_of_the_recording_alone_is_told(tmp_path: Path, changes: dict[str, str | None], said: str) -> None:
    with RunReader(synthetic.write_run(tmp_path / "run.profd", seconds=1)) as reader:
        info = msgspec.structs.replace(reader.info, **changes)
        assert ending(info, summarize(reader)) == said
