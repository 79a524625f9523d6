"""What the header says of a run that has ended."""

from __future__ import annotations

from pathlib import Path

import msgspec
from support import hostiletexts, synthetic
from support.dashboard import open_dashboard
from support.findingruns import HEALTHY, IMPORT, write_case
from support.present import there
from support.synthetic import STARTED_NS

from profd.daemon.analyze.phases import DATA_WAIT
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.records import HangEnded, HangFound, HangReport
from profd.tui.snapshot import Verdict
from profd.tui.widgets.header import VerdictLine, sentence
from profd.tui.widgets.tabs import TabLine


async def test_it_keeps_its_lines_when_it_gets_shorter_and_in_one_has_the_number_and_the_place(
    tmp_path: Path,
) -> None:
    async with open_dashboard(
        synthetic.write_run(tmp_path / "a.profd", seconds=40), size=(100, 36)
    ) as opened:
        line = opened.widget(VerdictLine)
        assert line.size.height == 2
        tabs = opened.widget(TabLine).region.y
        line.show(msgspec.structs.replace(there(line.snapshot), findings=()))
        await opened.settle()
        assert "INPUT-BOUND" not in opened.text(VerdictLine)
        assert opened.widget(TabLine).region.y == tabs
        await opened.resize(200, 60)
        assert line.size.height == 1
    async with open_dashboard(tmp_path / "a.profd", size=(80, 15)) as opened:
        await opened.until_text(VerdictLine, "INPUT-BOUND")
        assert opened.widget(VerdictLine).size.height == 1
        assert "waits for data 40 % of the time (train.py:58)" in opened.text(VerdictLine)


async def test_a_range_that_startup_takes_much_of_is_not_called_all_compute(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", *[((IMPORT, 500),)] * 40, *[HEALTHY] * 60, seconds=100)
    async with open_dashboard(path) as opened:
        await opened.until_text(VerdictLine, "startup and import")
        said = opened.text(VerdictLine)
        assert "40 % of the time is startup and import; of the rest" in said
        assert "all compute" not in said
        opened.dashboard.choose_range(STARTED_NS + 50 * SECOND_NS, STARTED_NS + 90 * SECOND_NS)
        await opened.until_text(VerdictLine, "all compute")


async def test_few_samples_are_said_to_be_few(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", HEALTHY, seconds=1, sample_ms=20)
    async with open_dashboard(path) as opened:
        await opened.until_text(VerdictLine, "of the time the main thread")
        samples = there(there(opened.widget(VerdictLine).snapshot).verdict).samples
        assert samples < 100
        assert opened.text(VerdictLine).startswith(f" {samples} samples only:")
        assert "all compute" not in opened.text(VerdictLine)


async def test_a_hang_is_said_before_all_else_until_it_is_over(tmp_path: Path) -> None:
    hang = HangFound(STARTED_NS, STARTED_NS, "no progress: all wait for a lock", HangReport("", ()))
    path = synthetic.write_run(tmp_path / "a.profd", seconds=40, also=[hang])
    async with open_dashboard(path) as opened:
        said = opened.text(VerdictLine)
        assert said.startswith(" ▲ HANG, see 7  no progress: all wait for a lock")
    over = HangEnded(STARTED_NS + SECOND_NS, hang.at_ns)
    path = synthetic.write_run(tmp_path / "b.profd", seconds=40, also=[hang, over])
    async with open_dashboard(path) as opened:
        assert "INPUT-BOUND" in opened.text(VerdictLine)
        assert "HANG" not in opened.text(VerdictLine)


def test_what_goes_on_is_said_of_one_process_and_of_several() -> None:
    one = Verdict(
        phase=DATA_WAIT, share=0.4, processes=1, line=None, led_by="thread trainer", samples=100
    )
    assert sentence(one) == "of the time thread trainer waits for data"
    several = msgspec.structs.replace(one, processes=4)
    assert sentence(several) == "of the time the main thread of each of 4 processes waits for data"


async def test_names_of_the_run_are_spelled_out(tmp_path: Path) -> None:
    async with open_dashboard(
        hostiletexts.write_run(tmp_path / "a.profd"), size=(200, 60)
    ) as opened:
        await opened.until_text(VerdictLine, "does what no rule for phases knows, at ")
        said = opened.text(VerdictLine)
        assert "\\u202egnol" in said
        assert not set(said) & set("\u202e\u2066\u2028\x1b\x00")
