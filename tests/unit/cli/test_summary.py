"""What `profd summary` says of a run in which nothing was read, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commandline import CommandLine
from support.synthetic import MAIN, RUN_ID, STARTED_NS, write_records, write_run

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import ExitCode
from profd.daemon.events import EventKind
from profd.daemon.store.records import EventHappened, ProcessSeen, Record, RecordingTaken, RunEnded

WHY = "nothing was read from pid 7 for 5.0 s: it has more than one interpreter; do without"


def seen(python: str | None) -> ProcessSeen:
    return ProcessSeen(MAIN, None, ("python", "train.py"), "main", None, None, python, STARTED_NS)


def empty(path: Path, *between: Record, python: str | None = "3.11", is_over: bool = True) -> Path:
    over = [RunEnded(STARTED_NS + 9 * SECOND_NS, "target-exited", 0)] if is_over else []
    return write_records(path, [seen(python), *between, *over])


TORN = RecordingTaken(MAIN, STARTED_NS, STARTED_NS + SECOND_NS, 100, 40, 40, 0, 0, 0, (), ())


@pytest.mark.parametrize(
    ("between", "python", "says"),
    [
        (
            [EventHappened(STARTED_NS, EventKind.UNREAD, WHY, MAIN)],
            "3.11",
            f"no samples were taken: {WHY}",
        ),
        ([TORN], "3.11", "no samples were taken: all 40 stacks that were read were torn"),
        (
            [],
            None,
            "no samples were taken: no process of it ran Python, as far as profd saw in 9.0 s",
        ),
        (
            [],
            "3.11",
            "no samples were taken: the recording took 9.0 s, and py-spy gave no stack in it",
        ),
    ],
)
def test_a_run_without_samples_says_why_in_text_and_json_and_by_its_exit_code(
    tmp_path: Path, profd: CommandLine, between: list[Record], python: str | None, says: str
) -> None:
    path = empty(tmp_path / "a.profd", *between, python=python)
    profd("summary", path, code=ExitCode.NO_SAMPLES)
    assert says in " ".join(profd.out.split())
    profd("summary", path, "--json", code=ExitCode.NO_SAMPLES)
    summary = json.loads(profd.out)
    assert (summary["samples"], summary["no_samples"], summary["incident"]) == (0, says, says)
    assert summary["coverage"] in (None, 0.0)
    profd("export", path, "--format", "collapsed", code=ExitCode.NO_SAMPLES)
    assert profd.out == ""
    assert profd.err == f"profd: {says}\n"
    profd("report", path, "-o", page := tmp_path / "a.html", code=ExitCode.NO_SAMPLES)
    assert (profd.out, profd.err, page.exists()) == (f"{page}\n", f"profd: {says}\n", True)
    full = write_run(tmp_path / "full.profd", seconds=1)
    for pair in ((path, full), (full, path)):
        profd("diff", *pair, code=ExitCode.NO_SAMPLES)
        assert profd.err == f"profd: {RUN_ID}: {says}\n"


def test_a_run_with_samples_has_no_such_reason(tmp_path: Path, profd: CommandLine) -> None:
    summary = json.loads(profd("summary", write_run(tmp_path / "a.profd", seconds=1), "--json"))
    assert summary["samples"] > 0
    assert (summary["no_samples"], summary["unread"], summary["leading_threads"]) == ("", [], [])


def test_a_live_run_may_have_no_samples_yet(tmp_path: Path, profd: CommandLine) -> None:
    path = write_run(tmp_path / "a.profd", seconds=0, live=True)
    assert "no samples were taken yet" in profd("summary", path)
    profd("report", path, "-o", tmp_path / "a.html")
    assert profd.err == ""
