from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.dashboard import open_dashboard
from support.findingruns import HEALTHY, IMPORT, LOAD_IN_PROCESS, step, write_case
from support.synthetic import live_run

from profd.daemon.errors import RunUnreadable
from profd.daemon.store.reader import RunReader
from profd.tui.reading.diagnosis import EVERY_S, Diagnosis
from profd.tui.reading.examiner import look
from profd.tui.reading.questions import Answer, Question
from profd.tui.widgets.verdict import VerdictLine


class Doctor:
    """Looks when it is asked for what it found, and says that this took so long."""

    def __init__(self, path: Path, spent_s: float = 0.0) -> None:
        self.asked: list[Question] = []
        self.is_there = self.is_busy = False
        self._path = path
        self._spent_s = spent_s

    def ask(self, question: Question) -> bool:
        self.asked.append(question)
        self.is_there = True
        return True

    def answer(self) -> Answer | None:
        return (
            None if self.is_busy else msgspec.structs.replace(look(self._path, self.asked[-1]), spent_s=self._spent_s)
        )


class Watch:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_live_run_is_looked_at_every_few_seconds_where_it_grew(tmp_path: Path) -> None:
    watch = Watch()
    with live_run(tmp_path / "a.profd", seconds=20) as run, RunReader(run.path) as reader:
        diagnosis = Diagnosis(reader, Doctor(run.path), watch)
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


def test_a_dear_look_is_followed_by_a_long_rest(tmp_path: Path) -> None:
    watch = Watch()
    with live_run(tmp_path / "a.profd", seconds=20) as run, RunReader(run.path) as reader:
        diagnosis = Diagnosis(reader, Doctor(run.path, spent_s=0.5), watch)
        assert diagnosis.renew()

        run.advance()
        reader.refresh()
        watch.now_s += 24
        assert not diagnosis.renew()
        watch.now_s += 1
        assert diagnosis.renew()


def test_an_ended_run_is_looked_at_as_a_whole(tmp_path: Path) -> None:
    # What was slow a minute before the end counts too.
    steps = [step((LOAD_IN_PROCESS, 300))] * 60 + [HEALTHY] * 60
    with RunReader(write_case(tmp_path / "a.profd", *steps, seconds=120)) as reader:
        diagnosis = Diagnosis(reader, Doctor(reader.path))

        assert diagnosis.renew()
        assert [one.rule for one in diagnosis.findings] == ["input-bound-in-process"]
        assert not diagnosis.renew()


def test_without_training_nothing_is_found(tmp_path: Path) -> None:
    with RunReader(write_case(tmp_path / "a.profd", ((IMPORT, 500),))) as reader:
        diagnosis = Diagnosis(reader, Doctor(reader.path))
        assert not diagnosis.has_looked

        assert diagnosis.renew()
        assert not diagnosis.renew()
        assert (diagnosis.has_looked, diagnosis.findings) == (True, ())


async def test_no_run_is_called_healthy_before_it_was_looked_at(tmp_path: Path) -> None:
    async with open_dashboard(write_case(tmp_path / "a.profd", HEALTHY, seconds=60)) as opened:
        await opened.until_text(VerdictLine, "healthy")
        line = opened.widget(VerdictLine)
        assert line.snapshot is not None
        line.show(msgspec.structs.replace(line.snapshot, is_diagnosed=False))
        assert "healthy" not in opened.text(VerdictLine)


def test_a_look_is_waited_for_by_nobody_and_asked_for_once(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 300)), seconds=60)
    doctor = Doctor(path)
    with RunReader(path) as reader:
        diagnosis = Diagnosis(reader, doctor)
        doctor.is_busy = True
        assert not diagnosis.renew()
        assert not diagnosis.renew()
        assert len(doctor.asked) == 1

        doctor.is_busy = False
        assert diagnosis.renew()
        assert [one.rule for one in diagnosis.findings] == ["input-bound-in-process"]


def test_what_goes_wrong_there_is_raised_here(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", HEALTHY)
    with RunReader(path) as reader:
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(RunUnreadable):
            Diagnosis(reader, Doctor(path)).renew()


def test_whoever_died_of_a_question_is_asked_again_after_a_rest(tmp_path: Path) -> None:
    watch, path = Watch(), write_case(tmp_path / "a.profd", HEALTHY)
    doctor = Doctor(path)
    with RunReader(path) as reader:
        diagnosis = Diagnosis(reader, doctor, watch)
        doctor.is_busy = True
        diagnosis.renew()
        doctor.is_there = False
        diagnosis.renew()
        diagnosis.renew()
        assert len(doctor.asked) == 1

        watch.now_s += EVERY_S
        doctor.is_busy = False
        assert diagnosis.renew()
        assert diagnosis.has_looked


def test_where_nobody_is_left_to_look_that_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_case(tmp_path / "a.profd", HEALTHY)
    doctor = Doctor(path)
    monkeypatch.setattr(doctor, "ask", lambda question: False)
    with RunReader(path) as reader:
        diagnosis = Diagnosis(reader, doctor)
        assert not diagnosis.renew()
        assert (diagnosis.has_failed, diagnosis.has_looked) == (True, False)
