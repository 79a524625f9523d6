"""Each format leads to its module, and tables go into a folder or nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import synthetic

from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.exports.formats import FORMATS, collapsed_lines
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame, ProcessSeen

SECONDS = 4


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=SECONDS)) as opened:
        yield opened


def samples_by_stack(lines: Iterator[str]) -> dict[str, int]:
    return {stack: int(samples) for stack, _, samples in (line.rpartition(" ") for line in lines)}


def test_line_is_written_as_py_spy_writes_it_once_for_all_processes(reader: RunReader) -> None:
    loop = "<module> (train.py:96);main (train.py:90);train_epoch (train.py:65)"
    assert samples_by_stack(collapsed_lines(reader, MAIN_THREADS))[loop] == 0.04 * 100 * SECONDS
    merged = samples_by_stack(collapsed_lines(reader, Selection()))
    apart = samples_by_stack(collapsed_lines(reader, Selection(), processes=True))
    deform = [stack for stack in merged if stack.endswith("elastic_deform (augment.py:12)")]
    assert [merged[stack] for stack in deform] == [2 * 0.8 * 100 * SECONDS]
    assert len(apart) == len(merged) + 2  # a second worker, with its two stacks
    assert list(collapsed_lines(reader, Selection(thread="none"))) == []
    (samples,) = samples_by_stack(collapsed_lines(reader, Selection(main_threads=True, phase="data wait"))).values()
    assert samples == 0.4 * 100 * SECONDS


@pytest.mark.parametrize("roots", [{}, {"processes": True}, {"threads": True}, {"processes": True, "threads": True}])
def test_samples_add_up_to_those_of_the_selection(reader: RunReader, roots: dict[str, bool]) -> None:
    everything = sum(interval.samples for interval in reader.intervals())
    assert len({each.ending for each in FORMATS.values()}) == len(FORMATS)
    assert sum(samples_by_stack(collapsed_lines(reader, Selection(), **roots)).values()) == everything
    assert sum(samples_by_stack(collapsed_lines(reader, MAIN_THREADS, **roots)).values()) == 100 * SECONDS


def test_processes_and_threads_stand_in_front(reader: RunReader) -> None:
    roots = {tuple(line.split(";")[:2]) for line in collapsed_lines(reader, Selection(), processes=True, threads=True)}
    command = '"python train.py --epochs 2"'
    assert roots == {
        (f"process 4242:{command}", "thread (4242): MainThread"),
        (f"process 4242:{command}", "thread (4250): Thread-1 (_pin_memory_loop)"),
        (f"process 4243:{command}", "thread (4243): MainThread"),
        (f"process 4244:{command}", "thread (4244): MainThread"),
    }


def test_name_breaks_neither_frame_nor_line_nor_terminal(tmp_path: Path) -> None:
    stack = (Frame("a;b\nc", "/home/ada/we;ird.py", 1), Frame("\x1b[31mred", "/home/ada/x.py", 0))
    seen = ProcessSeen(synthetic.MAIN, None, ("sh", "-c", "x;y\n"), "main", None, None, None, synthetic.STARTED_NS)
    thread = (1, "worker; \x07", True, [(stack, 1000)])
    taken = synthetic.recording(synthetic.MAIN, synthetic.STARTED_NS, [thread])
    with RunReader(synthetic.write_records(tmp_path / "a.profd", [seen, taken])) as reader:
        (line,) = collapsed_lines(reader, Selection(), processes=True, threads=True)
    assert line.isprintable()
    assert line.split(";")[1:] == [r"thread (1): worker: \x07", r"a:b\nc (we:ird.py:1)", r"\x1b[31mred 100"]
