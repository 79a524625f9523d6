from __future__ import annotations

from pathlib import Path

from cases import HEALTHY, IMPORT, LOAD_IN_PROCESS, step, write_case
from synthetic import live_run

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.store.reader import RunReader
from profd.tui.diagnosis import EVERY_S, Diagnosis


class Watch:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_live_run_is_looked_at_every_few_seconds_where_it_grew(tmp_path: Path) -> None:
    watch = Watch()
    with live_run(tmp_path / "a.profd", seconds=20) as run, RunReader(run.path) as reader:
        diagnosis = Diagnosis(reader, PhaseIndex(reader), watch)
        assert diagnosis.renew()
        first = diagnosis.findings
        assert [one.rule for one in first] == ["input-bound-saturated"]

        run.advance()
        reader.refresh()
        assert not diagnosis.renew()
        assert diagnosis.findings is first

        watch.now_s += EVERY_S
        assert diagnosis.renew()
        assert diagnosis.findings[0].evidence.to_ns > first[0].evidence.to_ns
        # Nothing was written since.
        watch.now_s += EVERY_S
        assert not diagnosis.renew()


def test_an_ended_run_is_looked_at_as_a_whole(tmp_path: Path) -> None:
    # What was slow a minute before the end counts too.
    steps = [step((LOAD_IN_PROCESS, 300))] * 60 + [HEALTHY] * 60
    with RunReader(write_case(tmp_path / "a.profd", *steps, seconds=120)) as reader:
        diagnosis = Diagnosis(reader, PhaseIndex(reader))

        assert diagnosis.renew()
        assert [one.rule for one in diagnosis.findings] == ["input-bound-in-process"]
        assert not diagnosis.renew()


def test_without_training_nothing_is_found(tmp_path: Path) -> None:
    with RunReader(write_case(tmp_path / "a.profd", ((IMPORT, 500),))) as reader:
        diagnosis = Diagnosis(reader, PhaseIndex(reader))

        assert not diagnosis.renew()
        assert diagnosis.findings == ()
