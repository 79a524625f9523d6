"""`profd window`: the windows that a run has taken, as tables and as JSON, and how one is asked
for.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from support.commandline import CommandLine
from support.fakesession import FakeSession
from support.rankrun import OPERATORS, RANKS, write_run
from support.synthetic import STARTED_NS
from support.synthetic import write_run as write_plain_run

from profd.cli import window
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import ExitCode, SessionFailed, UsageError
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import WindowRow
from profd.daemon.windows.request import WindowRequest


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Give a run of two ranks with a window of the first, of 250 ms with one step in it."""
    return write_run(tmp_path / "a.profd")


def rows_of(text: str) -> list[list[str]]:
    """Return the words of the rows of a table of operators."""
    names = {operator.name for operator in OPERATORS}
    return [
        line.split() for line in text.splitlines() if line.split()[:1] and line.split()[0] in names
    ]


def test_the_last_window_is_shown_sorted_split_and_cut_as_asked(
    run: Path, profd: CommandLine
) -> None:
    out = profd("window", run, "--show")
    assert out.splitlines()[0] == f"rank 0, pid {RANKS[0].pid}: 250 ms, 1 whole step, by kineto"
    # Operators of one name together, by the time of the GPU.
    assert [row[0] for row in rows_of(out)] == ["implicit_gemm", "aten::conv2d", "aten::addmm"]
    out = profd("window", run, "--show", "--by-shape", "--sort", "self_cuda", "--limit", 3)
    assert [row[0] for row in rows_of(out)] == ["implicit_gemm", "aten::conv2d", "aten::conv2d"]
    answer = json.loads(profd("window", run, "--show", "--json", "--sort", "calls"))
    assert (answer["pid"], answer["rank"], answer["steps"]) == (RANKS[0].pid, 0, 1)
    assert [row["calls"] for row in answer["operators"]] == [11, 6, 3, 2]
    assert set(window.SORTABLE.values()) <= {
        field.name for field in msgspec.structs.fields(OPERATORS[0])
    }


def test_a_run_that_has_ended_takes_no_window_and_may_have_none(
    run: Path, tmp_path: Path, profd: CommandLine
) -> None:
    path = write_plain_run(tmp_path / "b.profd", seconds=1)
    assert f"take one: profd window {path}" in profd("window", path, "--show", code=ExitCode.USAGE)
    assert "is not live: show the windows it took with --show" in profd(
        "window", run, code=ExitCode.SESSION
    )


class Windows:
    """A reader of a live run whose session writes windows, a look after they were asked for."""

    def __init__(self, reader: RunReader, *errors: str) -> None:
        self.info = msgspec.structs.replace(
            reader.info, state="live", control_socket="/run/profd.sock"
        )
        self.processes, self.path = reader.processes, reader.path
        ranks = sorted(
            self.processes.values(), key=lambda row: (row.role != "main", -(row.rank or 0))
        )
        end_ns = STARTED_NS + SECOND_NS
        self._coming = [
            WindowRow(
                number, row.id, "kineto", 1, error, STARTED_NS, end_ns, None, None, None, 0, None
            )
            for number, (row, error) in enumerate(zip(ranks, errors, strict=False))
        ]
        self._recordings, self.looks = reader.recordings(), 0

    def refresh(self) -> None:
        self.looks += 1

    def windows(self, since_ns: int | None = None) -> list[WindowRow]:
        return self._coming if self.looks > 0 else []

    def taken_windows(self) -> list[WindowRow]:
        return [window for window in self.windows() if not window.error]

    def recordings(self, from_ns: int) -> object:
        return self._recordings

    def events(self, *kinds: str, after_id: int) -> list[object]:
        return []


@pytest.fixture
def reader(run: Path) -> Iterator[RunReader]:
    with contextlib.closing(RunReader(run)) as reader:
        yield reader


def test_windows_that_were_asked_for_come_by_rank_without_those_that_failed(
    reader: RunReader, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = FakeSession()
    monkeypatch.setattr(session, "watch", lambda: None, raising=False)
    monkeypatch.setattr(window, "ControlClient", session)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    live = Windows(reader, "", "")
    taken = window.take(live, WindowRequest(steps=3))  # type: ignore[arg-type]
    assert [reader.processes[one.process].rank for one in taken] == [0, 1]
    assert session.asked == [("window", False)]
    assert capsys.readouterr().err == "profd: taking 3 steps of 2 processes\n"
    (alone,) = window.take(Windows(reader, "", "it did not answer"), WindowRequest())  # type: ignore[arg-type]
    assert reader.processes[alone.process].rank == 1
    live = Windows(reader, "one", "other")  # where all fail, there is none, nor a last one
    with pytest.raises(SessionFailed, match="no window was taken"):
        window.take(live, WindowRequest())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no window was taken"):
        window.last_windows(live)  # type: ignore[arg-type]


def test_a_window_of_many_seconds_is_waited_for_that_much_longer(
    reader: RunReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = FakeSession()
    monkeypatch.setattr(session, "watch", lambda: None, raising=False)
    monkeypatch.setattr(window, "ControlClient", session)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    for seconds, has_come in ((300.0, True), (None, False)):
        monkeypatch.setattr("time.monotonic", partial(next, itertools.count(0, 300)))
        live = Windows(reader, "", "")
        live.looks = -2  # there is something after three looks, or 900 s
        with (
            contextlib.nullcontext()
            if has_come
            else pytest.raises(SessionFailed, match="no window has come within 840 s")
        ):
            window.take(live, WindowRequest(seconds=seconds))  # type: ignore[arg-type]


def test_options_are_what_is_asked_for(
    run: Path, monkeypatch: pytest.MonkeyPatch, profd: CommandLine
) -> None:
    asked: list[WindowRequest] = []

    def take(reader: RunReader, request: WindowRequest) -> list[WindowRow]:
        asked.append(request)
        return window.last_windows(reader)

    monkeypatch.setattr(window, "take", take)
    for words in ("", "--steps 7 --seconds 1 --memory --stacks --no-shapes --inject"):
        profd("window", run, *words.split())
    assert asked == [
        WindowRequest(),
        WindowRequest(steps=7, seconds=1.0, shapes=False, memory=True, stacks=True, inject=True),
    ]
