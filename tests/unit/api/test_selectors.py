"""What words select of a known run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from support import rankrun
from support.synthetic import MAIN, PIN_TID, STARTED_NS, worker, write_run

from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Condition, parse_time
from profd.daemon.api.selectors import Selectors, select
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import UsageError
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RunInfo

STARTED = datetime.fromtimestamp(STARTED_NS / SECOND_NS)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(write_run(tmp_path / "run.profd", seconds=4)) as reader:
        yield reader


def test_main_threads_are_selected_unless_a_process_a_worker_or_a_thread_is_asked_for(
    reader: RunReader,
) -> None:
    assert select(reader, {}).main_threads
    assert not select(reader, {}, main_threads=False).main_threads
    selection = select(reader, {"process": MAIN.pid})
    threads = {reader.threads[thread].os_tid for thread in selection.threads(reader)}
    assert threads == {MAIN.pid, PIN_TID}
    selection = select(reader, {"process": worker(2).pid})
    processes = [reader.threads[thread].process for thread in selection.threads(reader)]
    assert [reader.processes[process].ordinal for process in processes] == [2]
    selection = select(reader, {"thread": "Thread-1 (_pin_memory_loop)"})
    assert [reader.threads[thread].os_tid for thread in selection.threads(reader)] == [PIN_TID]


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ({"process": 1}, "4242"),
        ({"rank": 3}, "none"),
        ({"thread": "x"}, "MainThread"),
        ({"phase": "x"}, "data wait"),
        ({"from_": "2", "to": 1.0}, "has to begin before"),
        ({"when": ["x"]}, "on-cpu"),
    ],
)
def test_an_impossible_selection_is_refused_with_a_remedy(
    words: Selectors, remedy: str, reader: RunReader
) -> None:
    with pytest.raises(UsageError) as raised:
        select(reader, words)
    assert remedy in raised.value.remedy


def test_times_count_from_the_start_or_are_local_times_within_the_run(reader: RunReader) -> None:
    for from_, to in (("1.5", "3"), (1.5, 3)):
        selection = select(reader, {"from_": from_, "to": to})
        assert (selection.from_ns, selection.to_ns) == (
            STARTED_NS + 3 * SECOND_NS // 2,
            STARTED_NS + 3 * SECOND_NS,
        )
    word = (STARTED + timedelta(seconds=2)).strftime("%H:%M:%S")
    assert parse_time(word, reader.info) == STARTED_NS + 2 * SECOND_NS
    for word in ("noon", "25:00:00", "nan", "inf", ""):
        with pytest.raises(UsageError, match="is no time"):
            parse_time(word, reader.info)
    # A time of day before the start is tomorrow in a run that lasts.
    word = (STARTED - timedelta(hours=1)).strftime("%H:%M:%S")
    hour_ns = 3600 * SECOND_NS
    long: RunInfo = msgspec.structs.replace(reader.info, end_ns=STARTED_NS + 24 * hour_ns)
    assert parse_time(word, long) == STARTED_NS + 23 * hour_ns
    assert parse_time(word, reader.info) == STARTED_NS - hour_ns


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("5000", None), "from 5000 is outside of the run, which lasted 4.0 s from "),
        (("4", "6000"), "from 4 to 6000 is outside of the run"),
        ((None, "-1"), "to -1 is outside of the run"),
        (("-9", "0"), "from -9 to 0 is outside of the run"),
        (("1e200", None), "from 1e200 is outside of the run"),
    ],
)
def test_a_range_outside_of_the_run_is_refused_with_when_the_run_was(
    reader: RunReader, words: tuple[str | None, str | None], refused: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(refused)):
        select(reader, {"from_": words[0], "to": words[1]})


@pytest.mark.parametrize(
    "words", [("3.9", None), ("-5", "1"), ("0", "9999"), (None, "0.1"), ("-1e200", "1e200")]
)
def test_a_range_that_meets_the_run_is_taken(
    reader: RunReader, words: tuple[str | None, str | None]
) -> None:
    selection = select(reader, {"from_": words[0], "to": words[1]})
    assert take_profile(reader, selection).total_samples


def test_hours_of_another_time_zone_are_refused_with_the_one_here(reader: RunReader) -> None:
    late, later = (f"{STARTED + timedelta(hours=hours):%H:%M:%S}" for hours in (-6, -5))
    with pytest.raises(UsageError, match=f"{STARTED:%Y-%m-%d %H:%M:%S}"):
        select(reader, {"from_": late, "to": later})


@pytest.mark.parametrize(
    ("percent", "condition"),
    [
        (None, ()),
        (False, ()),
        (True, (Condition("gpu-idle"),)),
        (0.0, (Condition("gpu-idle", 0.0),)),
        (20, (Condition("gpu-idle", 0.2),)),
    ],
)
def test_an_idle_gpu_is_meant_by_percent_or_by_the_usual_bound(
    tmp_path: Path, percent: float | bool | None, condition: tuple[Condition, ...]
) -> None:
    with RunReader(rankrun.write_run(tmp_path / "gpu.profd")) as reader:
        assert select(reader, {"gpu_idle": percent}).when == condition
