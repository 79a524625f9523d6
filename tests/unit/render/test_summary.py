from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from support import synthetic

from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.findings.catalog import analysis_name, as_stored
from profd.daemon.findings.finding import INFO
from profd.daemon.render.summary import Summary, summarize
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader

START_NS = synthetic.STARTED_NS
STABLE_FIELDS = {
    "version", "run", "state", "target", "duration_s", "samples", "coverage", "torn_share", "cost_core_share", "steps",
    "phases", "functions", "processes", "gpus", "findings",
}  # fmt: skip


def summary_of(path: Path, selection: Selection = MAIN_THREADS) -> Summary:
    with RunReader(path) as reader:
        return summarize(reader, selection)


def write(path: Path, many: Sequence[records.Record], *, live: bool = False) -> Path:
    return synthetic.write_records(
        path, (synthetic.main_process(), *many), synthetic.run_started(live=live)
    )


def recorded(from_s: float, to_s: float, *, kept: bool = True) -> records.RecordingTaken:
    """Return a recording of the training process; its samples may all have been torn."""
    start_ns, length_ns = START_NS + int(from_s * SECOND_NS), int((to_s - from_s) * SECOND_NS)
    spans = [(synthetic.BACKWARD, length_ns // 1_000_000)] if kept else []
    threads = [(synthetic.MAIN_TID, "MainThread", True, spans)]
    return synthetic.recording(
        synthetic.MAIN, start_ns, threads, duration_ns=length_ns, torn=0 if kept else 9
    )


def ended(at_s: float) -> list[records.Record]:
    at_ns = START_NS + int(at_s * SECOND_NS)
    return [
        records.ProcessEnded(synthetic.MAIN, at_ns, 0),
        records.RunEnded(at_ns, "target-exited", 0),
    ]


def test_json_has_the_fields_that_were_promised(tmp_path: Path) -> None:
    written = json.loads(msgspec.json.encode(summary_of(synthetic.write_run(tmp_path / "a.profd"))))
    assert set(written) >= STABLE_FIELDS
    assert written["target"] == {
        "command": list(synthetic.COMMAND),
        "pid": synthetic.MAIN.pid,
        "exit": {"code": 0, "signal": None},
    }
    assert written["steps"]["source"] == "cycles of backward"
    assert (written["steps"]["count"], round(written["steps"]["per_s"], 1)) == (40, 2.0)
    assert {"function", "file", "line", "source", "self_share", "total_share"} <= set(
        written["functions"][0]
    )
    assert {"pid", "role", "rank", "ordinal", "functions"} <= set(written["processes"][0])
    assert (written["version"], written["gpus"]) == (1, [])
    assert {"rule", "severity", "title", "gain_bound"} <= set(written["findings"][0])


@pytest.mark.parametrize(
    ("code", "number", "expected"),
    [
        (3, None, (3, None)),
        (None, 9, (None, "SIGKILL")),
        (None, 40, (None, "signal 40")),
        (None, None, (None, None)),
    ],
)
def test_exit_is_a_code_or_the_name_of_a_signal(
    tmp_path: Path, code: int | None, number: int | None, expected: tuple[int | None, str | None]
) -> None:
    path = synthetic.write_run(tmp_path / "a.profd", seconds=1, exit_code=code, exit_signal=number)
    summary = summary_of(path)
    assert (summary.target.exit.code, summary.target.exit.signal) == expected
    assert summary.processes[0].exit == summary.target.exit


def test_functions_are_those_of_the_training_process_and_a_selection_narrows_everything(
    tmp_path: Path,
) -> None:
    path, from_ns = synthetic.write_run(tmp_path / "a.profd"), START_NS + 5 * SECOND_NS
    functions = summary_of(path).functions
    assert (functions[0].function, len(functions)) == ("Condition.wait", 20)
    assert "elastic_deform" not in {row.function for row in functions}
    summary = summary_of(
        path, Selection(from_ns=from_ns, to_ns=from_ns + 2 * SECOND_NS, main_threads=True)
    )
    assert (summary.samples, summary.duration_s, summary.coverage) == (200, 2.0, 1.0)
    assert [row.samples for row in summary.processes] == [200, 200, 200]


@pytest.mark.parametrize(
    ("recordings", "share", "part"),
    [
        (
            [(0.2, 5), (4.9, 10)],
            1.0,
            1.0,
        ),  # nobody was attached before the first one; overlaps count once
        ([(0, 4), (6, 10)], 0.8, 0.5),
        ([(0, 9)], 0.9, 1.0),
        ([(2, 8), (3, 4), (8, 10)], 1.0, 1.0),
    ],
)
def test_coverage_is_the_union_of_recordings_from_the_first_one_on(
    tmp_path: Path, recordings: list[tuple[float, float]], share: float, part: float
) -> None:
    # A worker is sampled in rotation; of the last recording no sample is left.
    found: list[records.Record] = [
        worker_seen(1),
        *(recorded(*span) for span in recordings),
        recorded(9, 10, kept=False),
    ]
    path = write(tmp_path / "a.profd", [*found, *ended(10)])
    assert summary_of(path).coverage == pytest.approx(share)
    from_3_to_7 = Selection(
        from_ns=START_NS + 3 * SECOND_NS, to_ns=START_NS + 7 * SECOND_NS, main_threads=True
    )
    assert summary_of(path, from_3_to_7).coverage == pytest.approx(part)


def test_recording_in_flight_is_no_gap_of_a_live_run_and_one_without_samples_has_a_summary(
    tmp_path: Path,
) -> None:
    later = records.EventHappened(START_NS + 9 * SECOND_NS, EventKind.NOTE, "")
    assert (
        summary_of(write(tmp_path / "live.profd", [recorded(0, 6), later], live=True)).coverage
        == 1.0
    )
    assert summary_of(
        write(tmp_path / "dead.profd", [recorded(0, 6), later])
    ).coverage == pytest.approx(6 / 9)
    summary = summary_of(write(tmp_path / "a.profd", ended(3)))
    assert (summary.samples, summary.phases, summary.functions, summary.phase_lines) == (
        0,
        {},
        (),
        (),
    )
    assert (summary.coverage, summary.torn_share, summary.cost_core_share) == (0.0, None, None)


def test_workers_stand_in_order_after_the_process_that_started_them(tmp_path: Path) -> None:
    other = records.ProcessSeen(
        records.Identity(99, 1), None, ("sh",), "launcher", None, None, None, START_NS
    )
    path = write(tmp_path / "a.profd", [other, worker_seen(2), worker_seen(1), *ended(1)])
    order = [(row.role, row.ordinal) for row in summary_of(path).processes]
    assert order == [("main", None), ("worker", 1), ("worker", 2), ("launcher", None)]


def test_processes_without_readings_stand_last(tmp_path: Path) -> None:
    seen = [
        records.ProcessSeen(
            records.Identity(pid, 1), synthetic.MAIN, ("sh",), "helper", None, None, None, START_NS
        )
        for pid in (98, 99)
    ]
    used = records.PointsTaken(START_NS + 1, (records.Point("cpu_cores", 0.5, seen[1].identity),))
    path = write(tmp_path / "a.profd", [*seen, used, *ended(1)])
    assert [row.pid for row in summary_of(path).processes] == [synthetic.MAIN.pid, 99, 98]


def worker_seen(ordinal: int) -> records.ProcessSeen:
    identity = synthetic.worker(ordinal)
    return records.ProcessSeen(
        identity, synthetic.MAIN, synthetic.COMMAND, "worker", None, ordinal, None, START_NS
    )


def test_losses_are_listed_in_order_of_time_up_to_a_limit(tmp_path: Path) -> None:
    said = [
        records.EventHappened(synthetic.STARTED_NS + second * SECOND_NS, kind, f"{kind} {second}")
        for second in range(1, 10)
        for kind in (EventKind.LOSS, EventKind.NOTE)
    ]
    path = synthetic.write_run(tmp_path / "a.profd", also=said)
    assert summary_of(path).losses == tuple(f"loss {second}" for second in range(1, 6))
    later = Selection(from_ns=synthetic.STARTED_NS + 8 * SECOND_NS)
    assert summary_of(path, later).losses == ("loss 8", "loss 9")


def test_an_incident_is_a_death_a_hang_or_more_than_a_hint(tmp_path: Path) -> None:
    with RunReader(synthetic.write_run(tmp_path / "a.profd")) as reader:
        (grave,), name = summarize(reader).findings, analysis_name()
    hint = msgspec.structs.replace(grave, severity=INFO, title="only a hint")
    at_ns = synthetic.STARTED_NS + SECOND_NS
    also: list[records.Record] = [
        records.HangFound(at_ns, at_ns, "waits for a lock", records.HangReport("lock", ())),
        records.FindingsTaken(at_ns, as_stored((hint, grave)), name),
    ]
    with RunReader(
        synthetic.write_run(tmp_path / "b.profd", exit_code=None, exit_signal=9, also=also)
    ) as reader:
        assert (
            summarize(reader).incident
            == f"the target was ended by SIGKILL; waits for a lock; {grave.title}"
        )
    with RunReader(synthetic.write_run(tmp_path / "c.profd", seconds=1)) as reader:
        assert summarize(reader).incident == ""
