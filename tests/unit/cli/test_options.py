"""What the shared options make of words: recordings, and selections of a known run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner
from support.synthetic import MAIN, PIN_TID, STARTED_NS, worker, write_run

from profd.cli.options import RecordingOptions, SelectionWords, recording_options, selection_options
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import parse_time
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import UsageError
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RunInfo

NO_WORDS = SelectionWords(None, None, None, None, None, None)
STARTED = datetime.fromtimestamp(STARTED_NS / SECOND_NS)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(write_run(tmp_path / "run.profd", seconds=4)) as reader:
        yield reader


def received(decorate: object, *words: str) -> dict[str, object]:
    """Return what a command with these options receives from words."""
    got: dict[str, object] = {}

    def command(**options: object) -> None:
        got.update(options)

    ended = CliRunner().invoke(click.command()(decorate(command)), words)  # type: ignore[operator]
    assert ended.exit_code == 0, ended.output
    return got


def test_recording_options_arrive_in_their_units_and_selections_together() -> None:
    assert received(recording_options) == {"recording": RecordingOptions()}
    got = received(
        selection_options,
        "--from",
        "1",
        "--to",
        "12:00:00",
        "--process",
        "7",
        "--phase",
        "data wait",
    )
    assert got == {"words": SelectionWords("1", "12:00:00", None, 7, None, "data wait")}
    words = (
        "--rate 50 --budget 2.5 --duration 1.5 --name cifar -o x.profd --no-subprocesses "
        "--all-gpus --no-steps"
    )
    words += (
        " --no-source --hang-after 5 --on-hang date --metrics 0.0.0.0:9400 --otlp "
        "http://localhost:4318"
    )
    (recording,) = received(recording_options, *words.split()).values()
    assert recording == RecordingOptions(
        rate_hz=50,
        budget_percent=2.5,
        duration_s=1.5,
        name="cifar",
        output=Path("x.profd"),
        subprocesses=False,
        hang_after_s=5.0,
        on_hang="date",
        all_gpus=True,
        metrics_address="0.0.0.0:9400",
        otlp_endpoint="http://localhost:4318",
        steps=False,
        source=False,
    )


@pytest.mark.parametrize(
    "words", ["--rate 0", "--rate 1001", "--budget 0", "--duration 0", "--duration -1"]
)
def test_recording_option_out_of_its_range_is_refused(words: str) -> None:
    ended = CliRunner().invoke(click.command()(recording_options(lambda **_: None)), words.split())
    assert ended.exit_code == 2


def test_main_threads_are_selected_unless_a_process_a_worker_or_a_thread_is_asked_for(
    reader: RunReader,
) -> None:
    assert NO_WORDS.build(reader).main_threads
    assert not NO_WORDS.build(reader, main_threads=False).main_threads
    selection = NO_WORDS._replace(pid=MAIN.pid).build(reader)
    threads = {reader.threads[thread].os_tid for thread in selection.threads(reader)}
    assert threads == {MAIN.pid, PIN_TID}
    selection = NO_WORDS._replace(pid=worker(2).pid).build(reader)
    processes = [reader.threads[thread].process for thread in selection.threads(reader)]
    assert [reader.processes[process].ordinal for process in processes] == [2]
    selection = NO_WORDS._replace(thread="Thread-1 (_pin_memory_loop)").build(reader)
    assert [reader.threads[thread].os_tid for thread in selection.threads(reader)] == [PIN_TID]


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (NO_WORDS._replace(pid=1), "4242"),
        (NO_WORDS._replace(rank=3), "none"),
        (NO_WORDS._replace(thread="x"), "MainThread"),
        (NO_WORDS._replace(phase="x"), "data wait"),
        (NO_WORDS._replace(from_time="2", to_time="1"), "exchange"),
    ],
)
def test_an_impossible_selection_is_refused_with_a_remedy(
    words: SelectionWords, remedy: str, reader: RunReader
) -> None:
    with pytest.raises(UsageError) as raised:
        words.build(reader)
    assert remedy in raised.value.remedy


def test_times_count_from_the_start_or_are_local_times_within_the_run(reader: RunReader) -> None:
    selection = NO_WORDS._replace(from_time="1.5", to_time="3").build(reader)
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
        (("5000", None), "--from 5000 is outside of the run, which lasted 4.0 s from "),
        (("4", "6000"), "--from 4 --to 6000 is outside of the run"),
        ((None, "-1"), "--to -1 is outside of the run"),
        (("-9", "0"), "--from -9 --to 0 is outside of the run"),
        (("1e200", None), "--from 1e200 is outside of the run"),
    ],
)
def test_a_range_outside_of_the_run_is_refused_with_when_the_run_was(
    reader: RunReader, words: tuple[str | None, str | None], refused: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(refused)):
        NO_WORDS._replace(from_time=words[0], to_time=words[1]).build(reader)


@pytest.mark.parametrize(
    "words", [("3.9", None), ("-5", "1"), ("0", "9999"), (None, "0.1"), ("-1e200", "1e200")]
)
def test_a_range_that_meets_the_run_is_taken(
    reader: RunReader, words: tuple[str | None, str | None]
) -> None:
    selection = NO_WORDS._replace(from_time=words[0], to_time=words[1]).build(reader)
    assert take_profile(reader, selection).total_samples


def test_hours_of_another_time_zone_are_refused_with_the_one_here(reader: RunReader) -> None:
    late, later = (f"{STARTED + timedelta(hours=hours):%H:%M:%S}" for hours in (-6, -5))
    with pytest.raises(UsageError, match=f"{STARTED:%Y-%m-%d %H:%M:%S}"):
        NO_WORDS._replace(from_time=late, to_time=later).build(reader)
