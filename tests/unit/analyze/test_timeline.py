from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import synthetic

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.timeline import phase_columns
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.store.reader import RunReader

START_NS = synthetic.STARTED_NS


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=2)) as opened:
        yield opened


def columns_of(reader: RunReader, from_ns: int, to_ns: int, columns: int) -> list[str | None]:
    (main,) = reader.main_threads()
    return phase_columns(reader, main.id, from_ns, to_ns, columns, PhaseIndex(reader))


def test_each_column_shows_what_took_most_of_it(reader: RunReader) -> None:
    step = ["data wait"] * 4 + ["forward"] * 2 + ["loss"] + ["backward"] * 2 + ["optimizer"]

    # 20 columns of 50 ms; loss has 30 ms of its own, ahead of 20 ms of backward.
    assert columns_of(reader, START_NS, START_NS + SECOND_NS, 20) == step * 2
    assert columns_of(reader, START_NS, START_NS + 2 * SECOND_NS, 4) == ["data wait"] * 4


def test_interval_that_began_ahead_of_the_range_counts(reader: RunReader) -> None:
    from_ns = START_NS + 120 * MILLISECOND_NS

    assert columns_of(reader, from_ns, from_ns + 40 * MILLISECOND_NS, 2) == ["data wait"] * 2


def test_interval_counts_only_as_far_as_the_range_goes(reader: RunReader) -> None:
    from_ns = START_NS + 190 * MILLISECOND_NS

    # 10 ms of a wait of 200 ms, 10 ms of zero_grad, 70 ms of a convolution.
    assert columns_of(reader, from_ns, from_ns + 90 * MILLISECOND_NS, 1) == ["forward"]


def test_columns_without_samples_are_empty(reader: RunReader) -> None:
    found = columns_of(reader, START_NS - SECOND_NS, START_NS + 3 * SECOND_NS, 4)

    assert found == [None, "data wait", "data wait", None]


def test_another_thread_has_columns_of_its_own(reader: RunReader) -> None:
    (pin_memory,) = [thread for thread in reader.threads.values() if "pin_memory" in thread.name]

    found = phase_columns(reader, pin_memory.id, START_NS, START_NS + SECOND_NS, 3, PhaseIndex(reader))

    assert found == ["waiting"] * 3


def test_columns_narrower_than_a_nanosecond_are_not_lost(reader: RunReader) -> None:
    assert columns_of(reader, START_NS, START_NS + 3, 7).count("data wait") == 3
    assert columns_of(reader, START_NS, START_NS, 3) == [None] * 3
