"""What is looked at of a long run comes out of its sums, and is what its intervals say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import synthetic
from support.gpurun import waits, write_gpu_run
from support.synthetic import MAIN, STARTED_NS

from profd.daemon.analyze.gpu.busy import utilization_by_stack
from profd.daemon.analyze.gpu.usage import GpuTracks
from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import StackTotal
from profd.daemon.store.sums.held import MINUTE_NS
from profd.tui.reading.survey import Survey
from profd.tui.samples import blocks as blocks_module
from profd.tui.samples.block import Block
from profd.tui.samples.blocks import Blocks
from profd.tui.samples.devices import Devices
from profd.tui.samples.sums import Sums
from profd.tui.view import Range, View

SECONDS = 570


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write_run(tmp_path_factory.mktemp("sums") / "a.profd", seconds=SECONDS)


@pytest.fixture
def reader(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunReader]:
    """Give a run that is too long to be read while somebody waits, in blocks of a minute."""
    monkeypatch.setattr(blocks_module, "MOST_BLOCKS", 16)
    monkeypatch.setattr(blocks_module, "AT_ONCE_NS", 0)
    with RunReader(run_file) as reader:
        yield reader


def blocks_of(reader: RunReader) -> Blocks:
    blocks = Blocks(reader, Sums(reader))
    assert blocks.width_ns == MINUTE_NS
    return blocks


def seen_in(block: Block) -> dict[tuple[int, int], tuple[int, int]]:
    return {
        (thread, stack): (samples, seen.time_ns[stack])
        for thread, seen in block.threads.items()
        for stack, samples in seen.samples.items()
    }


def told(totals: list[StackTotal]) -> dict[tuple[int, int], tuple[int, int]]:
    return {(one.thread, one.stack): (one.samples, one.duration_ns) for one in totals}


@pytest.mark.parametrize(("from_s", "to_s"), [(0, SECONDS), (0, 400), (31, 445), (200, SECONDS)])
def test_an_unread_range_is_told_to_the_nanosecond(reader: RunReader, from_s: int, to_s: int) -> None:
    asked = Range(STARTED_NS + from_s * SECOND_NS, STARTED_NS + to_s * SECOND_NS)
    for threads in (None, MAIN_THREADS.threads(reader)):
        found, is_whole = blocks_of(reader).sum(asked, threads)

        assert is_whole
        assert seen_in(found) == told(reader.stack_totals(asked.from_ns, asked.to_ns, threads))


def test_blocks_that_are_read_out_of_the_sums_are_those_of_the_intervals(reader: RunReader) -> None:
    blocks = blocks_of(reader)
    looks = 0
    while blocks.has_backlog:
        blocks.read_backlog()
        looks += 1

    assert looks == 2
    found = list(blocks.within(Range(STARTED_NS, reader.info.end_ns)))
    assert len(found) == 10
    for place, block in found:
        assert seen_in(block) == told(reader.stack_totals(place.from_ns, place.to_ns))


def test_without_sums_it_is_read_interval_by_interval(reader: RunReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader.sums, "processes", dict)
    blocks = blocks_of(reader)
    asked = Range(STARTED_NS, reader.info.end_ns)

    assert not blocks.sum(asked)[1]
    while blocks.has_backlog:
        blocks.read_backlog()
    found, is_whole = blocks.sum(asked)
    assert is_whole
    assert seen_in(found) == told(reader.stack_totals())


def test_a_first_look_at_a_long_run_is_no_estimate(reader: RunReader) -> None:
    survey = Survey(reader)
    survey.catch_up()
    first = survey.snapshot(View())

    assert first.read_share < 1
    assert not first.is_estimate
    while survey.catch_up():
        pass
    whole = survey.snapshot(View())
    assert (whole.samples, whole.functions) == (first.samples, first.functions)


def test_the_idle_gpu_of_minutes_is_told_by_the_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.gpurun.SECONDS", 360)
    with RunReader(write_gpu_run(tmp_path / "a.profd", {"0": waits}, {MAIN: ("0",)})) as reader:
        asked = Range(STARTED_NS, reader.info.end_ns)
        found = Devices(reader, Sums(reader)).busy(asked, MAIN_THREADS.threads(reader))
        assert len(found) > 1
        # What takes the sums into account by itself is made to go without them.
        monkeypatch.setattr(reader.sums, "processes", dict)
        truth = utilization_by_stack(reader, GpuTracks(reader, None, None), MAIN_THREADS)

    assert found.keys() == truth.keys()
    for stack, busy in found.items():
        assert busy.utilization == pytest.approx(truth[stack].utilization)
        assert busy.known_ns == pytest.approx(truth[stack].known_ns)
