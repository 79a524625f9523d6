"""Kill -9 of profd hurts neither the target nor the file; the run names a kill -9 of the target.

The kills come at moments that are held still. ``benchmarks/trust/kills.py`` kills at random ones, beside
the real py-spy.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NamedTuple

import pytest
from support.pyspy.standin import Fault, StandIn
from support.sessions import (
    begin_session,
    control_of,
    counts_on,
    finished,
    hand_over,
    hurry_until,
    running,
)
from support.waiting import DEADLINE_S, count_recordings, until

from profd.daemon.events import EventKind
from profd.daemon.render.report import write_report
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader


class Moment(NamedTuple):
    """A moment at which a session can be killed: its n-th py-spy hangs there.

    So many recordings are in the file.
    """

    fault: Fault
    kept: int


MOMENTS = {
    "before the first recording": Moment(Fault("start", "hang"), 0),
    "in the first recording": Moment(Fault("sampling", "hang"), 0),
    "at a hand-over": Moment(Fault("start", "hang", first=2), 0),
    "in the second recording": Moment(Fault("sampling", "hang", first=2), 1),
    "as a recording is written": Moment(Fault("end", "hang", first=2), 1),
}
EVENTS = {"start": "start", "sampling": "sampling", "end": "ending"}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_killing_the_session_loses_the_recording_in_flight_alone(
    tmp_path: Path, py_spy: StandIn, moment: Moment
) -> None:
    numbers = tmp_path / "numbers"
    py_spy.fails(moment.fault)
    with running("counting.py", numbers) as target:
        session = begin_session(target.pid)
        hurry_until(
            session.run_file,
            lambda: len(py_spy.events(EVENTS[moment.fault.at])) >= moment.fault.first,
            "the moment",
        )
        until(lambda: count_recordings(session.run_file) == moment.kept, "the recordings before")
        os.kill(session.pid, signal.SIGKILL)
        until(lambda: not session.is_running(), "the end of the session")

        counts_on(target.pid, numbers)
        with RunReader(session.run_file) as reader:
            assert reader.info.state == "interrupted"
            assert len(reader.recordings()) == moment.kept
            assert (sum(interval.samples for interval in reader.intervals()) > 0) == (
                moment.kept > 0
            )
            assert summarize(reader) is not None


@pytest.mark.parametrize(("watched", "duration"), [(True, "7"), (False, "10")])
def test_recordings_are_shorter_while_someone_watches_and_all_end_by_themselves(
    tmp_path: Path, py_spy: StandIn, watched: bool, duration: str
) -> None:
    """Nothing else is there to end the py-spy of a session that was killed."""
    with running("counting.py", tmp_path / "numbers") as target:
        session = begin_session(target.pid)
        client = control_of(session.control_socket)
        if watched:
            client.watch()
        hand_over(session.run_file, 2)
        last = py_spy.events("start", target=target.pid)[-1]
        assert last.arguments[last.arguments.index("--duration") + 1] == duration
        os.kill(session.pid, signal.SIGKILL)
        client.close()


@pytest.mark.parametrize("at", ["sampling", "end"])
def test_killing_py_spy_costs_a_recording_and_nothing_else(
    tmp_path: Path, py_spy: StandIn, at: str
) -> None:
    py_spy.fails(Fault(at, "signal", first=2, last=2))
    with running("counting.py", tmp_path / "numbers") as target:
        session = begin_session(target.pid)
        hand_over(session.run_file, 3)
        with finished(session) as reader:
            assert [event.text for event in reader.events() if event.kind == EventKind.LOSS] != []
        assert target.poll() is None


def test_killing_the_target_ends_the_run_and_names_the_signal(
    tmp_path: Path, py_spy: StandIn
) -> None:
    with running("counting.py", tmp_path / "numbers") as target:
        session = begin_session(target.pid)
        hand_over(session.run_file)
        target.kill()
        assert session.wait_closed(DEADLINE_S)
        with RunReader(session.run_file) as reader:
            assert (reader.info.state, reader.info.why_ended) == ("ended", "target-exited")
            assert reader.info.exit_signal == signal.SIGKILL
            assert any("SIGKILL" in event.text for event in reader.events())
            write_report(reader, tmp_path / "report.html")
        assert "SIGKILL" in (tmp_path / "report.html").read_text()
