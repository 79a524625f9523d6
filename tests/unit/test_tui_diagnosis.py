from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from cases import HEALTHY, IMPORT, LOAD_IN_PROCESS, step, write_case
from synthetic import live_run
from theater import play

from profd.daemon.errors import RunUnreadable
from profd.daemon.store.reader import RunReader
from profd.tui.reading.diagnosis import EVERY_S, Diagnosis
from profd.tui.widgets.verdict import VerdictLine


class Watch:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_live_run_is_looked_at_every_few_seconds_where_it_grew(tmp_path: Path) -> None:
    watch = Watch()
    with live_run(tmp_path / "a.profd", seconds=20) as run, RunReader(run.path) as reader:
        diagnosis = Diagnosis(reader, watch, spent_s=lambda: 0.0)
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
    watch, spent_s = Watch(), iter([0.0, 0.5, 1.0, 1.5])
    with live_run(tmp_path / "a.profd", seconds=20) as run, RunReader(run.path) as reader:
        diagnosis = Diagnosis(reader, watch, spent_s=lambda: next(spent_s))
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
        diagnosis = Diagnosis(reader)

        assert diagnosis.renew()
        assert [one.rule for one in diagnosis.findings] == ["input-bound-in-process"]
        assert not diagnosis.renew()


def test_without_training_nothing_is_found(tmp_path: Path) -> None:
    with RunReader(write_case(tmp_path / "a.profd", ((IMPORT, 500),))) as reader:
        diagnosis = Diagnosis(reader)
        assert not diagnosis.has_looked

        assert diagnosis.renew()
        assert not diagnosis.renew()
        assert (diagnosis.has_looked, diagnosis.findings) == (True, ())


async def test_no_run_is_called_healthy_before_it_was_looked_at(tmp_path: Path) -> None:
    async with play(write_case(tmp_path / "a.profd", HEALTHY, seconds=60)) as theater:
        await theater.until_text(VerdictLine, "healthy")
        line = theater.widget(VerdictLine)
        assert line.snapshot is not None
        line.show(msgspec.structs.replace(line.snapshot, is_diagnosed=False))
        assert "healthy" not in theater.text(VerdictLine)


def test_a_look_in_the_background_is_waited_for_by_nobody(tmp_path: Path) -> None:
    looks: list[Callable[[], None]] = []
    with RunReader(write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 300)), seconds=60)) as reader:
        diagnosis = Diagnosis(reader, start=looks.append)
        assert not diagnosis.renew()
        assert not diagnosis.renew()
        assert len(looks) == 1

        looks.pop()()
        assert diagnosis.renew()
        assert [one.rule for one in diagnosis.findings] == ["input-bound-in-process"]


def test_what_goes_wrong_in_the_background_is_raised_in_front(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", HEALTHY)
    with RunReader(path) as reader:
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(RunUnreadable):
            Diagnosis(reader).renew()
